//! Tests of findings about patterns that repeat, and about what one of two ends or threads does.

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};
use std::thread;

use pumice_model::event::Event;
use pumice_platform::table::Handle;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Cause, DropReason, Mtu, Peer, QpCapacity, QpState, WcOpcode};
use pumice_transport::wire::{Opcode, Psn, Qpn, Syndrome};

use super::tests::{at, checker, completion, kinds, send};
use super::{Checker, ModifyFacts, QpMade};

thread_local! {
    static SLEEPS: Cell<u64> = const { Cell::new(0) };
}

fn context() -> QpContext {
    QpContext {
        qpn: Qpn::new(0x12),
        pd: 1,
        send_cq: 5,
        recv_cq: 5,
        recv_queue: 9,
        xrcd: 0,
        ordinal: 0,
        out_of_order: false,
    }
}

/// Notifies the checker of `times` RNR NAKs for each message, by the queue pair or by its peer.
fn refuse(checker: &mut Checker, by_own: bool, messages: u32, times: u32) {
    let (context, syndrome) = (context(), Syndrome::RnrNak { timer_code: 1 });
    for message in 0..messages {
        for _ in 0..times {
            let psn = Psn::new(message);
            let event = match by_own {
                true => QpEvent::NakSent { syndrome, psn },
                false => QpEvent::NakReceived { syndrome, psn },
            };
            checker.on_event(&Event::Qp { qp: &context, event: &event });
        }
    }
}

#[test]
fn many_rnr_naks_for_few_messages_are_a_storm_at_either_end() {
    for (by_own, sign) in
        [(true, "has sent 1000 RNR NAKs for 2 messages"), (false, "the peer's min_rnr_timer, 1,")]
    {
        let mut checker = checker(8);
        refuse(&mut checker, by_own, 3, 600);
        let found = kinds(&mut checker);
        assert_eq!(found.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), ["rnr-storm"]);
        let numbers = &checker.findings().all()[0].numbers;
        assert!(numbers.contains(sign) && numbers.contains("0.01 ms"), "{numbers}");
    }
    let mut calm = checker(8);
    refuse(&mut calm, true, 400, 8);
    assert_eq!(kinds(&mut calm), [], "each message was refused a few times");
}

/// Notifies the checker of `count` events, one each `every_ns`, with `completions` completions each.
fn events(checker: &mut Checker, count: u64, every_ns: u64, completions: u32) {
    let cq = Handle { index: 5, generation: 1 };
    for event in 0..count {
        checker.at(event * every_ns).on_event(&Event::CompletionEventDelivered { cq });
        for _ in 0..completions {
            checker.completed(0x12, 5, &send(), 1);
            checker.polled(5, &send());
        }
    }
}

#[test]
fn an_event_for_each_completion_is_slow_where_they_follow_closely() {
    let mut close = checker(1 << 20);
    at(30);
    events(&mut close, 1200, 100_000, 1);
    assert_eq!(kinds(&mut close), [("event-per-message", 30, 1)]);
    let mut rare = checker(1 << 20);
    events(&mut rare, 3000, 10_000_000, 1);
    events(&mut rare, 3000, 100_000, 2);
    assert_eq!(kinds(&mut rare), []);
}

/// Repeats two polls that find nothing, a sleep if `sleeps`, and a poll that finds a completion. With
/// `posts`, a request is posted after the sleep.
fn sleep_between(checker: &mut Checker, sleeps: bool, posts: bool) {
    for _ in 0..200 {
        checker.cq_polled(0x1000);
        checker.cq_polled(0x1000);
        SLEEPS.set(SLEEPS.get() + u64::from(sleeps));
        if posts {
            checker.send_posted(0x12, true);
        }
        checker.completed(0x12, 5, &completion(WcOpcode::Recv), 0);
        checker.cq_polled(0x1000);
        checker.polled(5, &completion(WcOpcode::Recv));
    }
}

#[test]
fn a_sleep_between_polls_is_slow_if_a_completion_comes_meanwhile() {
    for (sleeps, posts, found) in [(true, false, 1), (false, false, 0), (true, true, 0)] {
        let mut checker = checker(1 << 20);
        checker.set_sleep_counter(|| SLEEPS.get());
        at(40);
        sleep_between(&mut checker, sleeps, posts);
        let expected = [("sleeps-between-polls", 40, 1)];
        assert_eq!(kinds(&mut checker), expected[..found]);
    }
}

/// Makes a queue pair at line 50, sends `messages` messages, and destroys it at line 51.
fn connect_and_send(checker: &mut Checker, number: u32, messages: u32) {
    let address = 0x8000 + u64::from(number) * 8;
    make(checker, number, address);
    (0..messages).for_each(|_| checker.send_posted(number, false));
    at(51);
    checker.qp_destroyed(number);
    checker.object_destroyed(address);
}

fn make(checker: &mut Checker, number: u32, address: u64) {
    at(50);
    checker.object_made(address, "queue pair", "ibv_create_qp");
    let (send_cq, recv_cq) = (Some(5), Some(5));
    let (capacity, ordinal) = (QpCapacity::default(), 0);
    checker.qp_made(&QpMade { address, number, ordinal, service: "RC", send_cq, recv_cq, capacity });
}

#[test]
fn a_queue_pair_for_each_message_is_slow() {
    let mut checker = checker(1 << 20);
    (100..200).for_each(|number| connect_and_send(&mut checker, number, 3));
    (100..200).for_each(|number| connect_and_send(&mut checker, number, 0));
    for number in 100..200 {
        make(&mut checker, number, u64::from(number));
        checker.send_posted(number, false);
    }
    (100..200).for_each(|number| checker.qp_destroyed(number));
    assert_eq!(kinds(&mut checker), [], "long connections, none used, and many peers at a time");
    (100..200).for_each(|number| connect_and_send(&mut checker, number, 1));
    assert_eq!(kinds(&mut checker), [("queue-pair-per-message", 50, 1)]);
}

#[test]
fn who_has_taken_the_completion_that_a_thread_waits_for_is_said() {
    let stalled_wait = crate::waits::StalledWait {
        about: crate::waits::WaitTarget::Others(0),
        sentence: "nothing is outstanding".to_owned(),
        stack: Vec::new(),
        is_asleep: false,
    };
    for (is_shared, kind) in [(true, "completions-taken-elsewhere"), (false, "waits-in-vain")] {
        let mut checker = checker(8);
        checker.send_posted(0x12, true);
        checker.completed(0x12, 5, &send(), 1);
        let take = |checker: &mut Checker| {
            at(60);
            checker.cq_polled(0x1000);
            checker.polled(5, &send());
        };
        if is_shared {
            thread::scope(|scope| scope.spawn(|| take(&mut checker)).join().expect("it ends"));
        } else {
            take(&mut checker);
        }
        at(61);
        (0..3).for_each(|_| checker.cq_polled(0x1000));
        checker.wait_stalled(&stalled_wait, &[61]);
        (0..80).for_each(|_| drop(checker.settle(false)));
        assert_eq!(kinds(&mut checker), [(kind, 61, 1)]);
        let takers =
            checker.findings().all()[0].related.iter().filter(|one| one.call_site.addresses() == [60]);
        assert_eq!(takers.count(), usize::from(is_shared));
    }
}

/// Connects a queue pair to another number, in this process or not, at lines 70 to 73. With `resets`, it is
/// reset first.
fn connect(checker: &mut Checker, number: u32, other: u32, resets: bool, peer_is_here: bool) {
    let address = IpAddr::V6(Ipv6Addr::LOCALHOST);
    for (line, to) in [(70, QpState::Reset), (71, QpState::Init), (72, QpState::Rtr), (73, QpState::Rts)] {
        if to == QpState::Reset && !resets {
            continue;
        }
        at(line);
        let attributes = QpAttributes { qp_state: to as u32, dest_qp_num: other, ..QpAttributes::default() };
        let (is_done, active_mtu) = (true, Mtu::Mtu1024);
        let facts = ModifyFacts { is_done, active_mtu, source_is_ipv4: None, peer_is_here };
        let peer = (to == QpState::Rtr).then_some(Peer { address, qpn: Qpn::new(other) });
        checker.state_changed(number, to);
        checker.for_each_check(|check, context| check.state_changed(context, number, to, peer));
        let dest = if to == QpState::Rtr { AttributeMask::DEST_QPN } else { AttributeMask::STATE };
        checker.qp_modified(number, &attributes, AttributeMask::STATE | dest, &facts);
    }
}

/// Returns the findings about an end that was reset alone.
fn resets(checker: &mut Checker) -> Vec<(&'static str, u64, u64)> {
    kinds(checker).into_iter().filter(|(kind, ..)| *kind == "reset-at-one-end").collect()
}

#[test]
fn an_end_that_was_reset_alone_is_found_by_what_its_peer_drops() {
    for (both, found) in [(false, 1), (true, 0)] {
        let mut checker = checker(64);
        make(&mut checker, 0x13, 0x2100);
        connect(&mut checker, 0x12, 0x13, false, true);
        connect(&mut checker, 0x13, 0x12, false, true);
        connect(&mut checker, 0x12, 0x13, true, true);
        if both {
            connect(&mut checker, 0x13, 0x12, true, true);
        }
        checker.send_posted(0x12, false);
        let duplicate = QpEvent::DuplicateRequest { opcode: Opcode::from_byte(4), psn: Psn::new(0) };
        let its = QpContext { qpn: Qpn::new(0x13), ..context() };
        checker.on_event(&Event::Qp { qp: &its, event: &duplicate });
        checker.on_event(&Event::Qp { qp: &its, event: &duplicate });
        assert_eq!(resets(&mut checker), [("reset-at-one-end", 72, 1)][..found]);
    }
}

#[test]
fn an_end_that_was_reset_alone_is_found_though_its_peer_is_of_another_process() {
    for (other, found) in [(0x30013, 1), (0x30014, 0)] {
        let mut checker = checker(64);
        connect(&mut checker, 0x12, 0x30013, false, false);
        connect(&mut checker, 0x12, other, true, false);
        let (source, psn) = (IpAddr::V6(Ipv6Addr::LOCALHOST), Psn::new(7));
        let reason = DropReason::BeyondStart { expected: Psn::new(0) };
        let cause = Cause::PacketDropped { source, opcode: Opcode::from_byte(4), psn, reason };
        for _ in 0..2 {
            checker.on_event(&Event::Qp { qp: &context(), event: &QpEvent::Logged(&cause) });
        }
        assert_eq!(resets(&mut checker), [("reset-at-one-end", 72, 1)][..found], "{other:#x}");
    }
}
