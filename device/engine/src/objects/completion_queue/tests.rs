//! What a completion queue keeps, frees and tells.

use pumice_transport::types::WcOpcode;

use super::*;
use crate::objects::completion_channel::CqEvent;

fn queue(depth: u32) -> (CompletionQueue, Arc<CompletionChannel>, Arc<FreedSendSlots>) {
    queue_that(depth, false)
}

fn queue_that(
    depth: u32,
    fires_late: bool,
) -> (CompletionQueue, Arc<CompletionChannel>, Arc<FreedSendSlots>) {
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let freed_send_slots = Arc::new(FreedSendSlots::new());
    let handle = Handle { index: 3, generation: 1 };
    let cq = CompletionQueue::new(
        handle,
        depth,
        77,
        Some(Arc::clone(&channel)),
        CqCommon { freed_send_slots: Arc::clone(&freed_send_slots), ..CqCommon::default() },
        None,
        fires_late,
    );
    (cq.unwrap(), channel, freed_send_slots)
}

fn send(wr_id: u64, qp_num: u32) -> WorkCompletion {
    WorkCompletion { wr_id, qp_num, ..WorkCompletion::default() }
}

fn polled(cq: &CompletionQueue, most: usize) -> Vec<u64> {
    let mut out = vec![WorkCompletion::default(); most];
    let count = cq.poll(&mut out);
    out[..count].iter().map(|completion| completion.wr_id).collect()
}

#[test]
fn completions_are_polled_once_in_order() {
    let (cq, ..) = queue(4);
    assert!(polled(&cq, 2).is_empty());
    for wr_id in 1..=4 {
        assert_eq!(cq.push(send(wr_id, 1), 1, false), CqPushOutcome::Stored);
    }
    assert!(polled(&cq, 0).is_empty());
    assert_eq!(polled(&cq, 3), [1, 2, 3]);
    assert_eq!(cq.push(send(5, 1), 1, false), CqPushOutcome::Stored);
    assert_eq!(cq.len(), 2);
    assert_eq!(polled(&cq, 9), [4, 5]);
    assert!(cq.is_empty());
}

#[test]
fn what_is_there_does_not_fire_at_arming() {
    let (cq, channel, _) = queue(8);
    assert_eq!(polled(&cq, 4).len(), 0);
    assert_eq!(cq.push(send(1, 1), 0, false), CqPushOutcome::Stored);
    cq.arm(false);
    assert!(channel.try_event().is_none());
    assert_eq!(cq.push(send(2, 1), 0, false), CqPushOutcome::Stored);
    assert!(channel.try_event().is_some(), "it stayed armed");
}

#[test]
fn a_queue_that_fires_late_fires_at_arming_for_what_came_after_an_empty_poll() {
    let (cq, channel, _) = queue_that(8, true);
    let next = || channel.try_event().is_some();
    let push = |solicited| {
        let recv = WorkCompletion { opcode: WcOpcode::Recv, ..send(1, 1) };
        assert_eq!(cq.push(recv, 0, solicited), CqPushOutcome::Stored);
    };
    // The application has not looked: it is there to be polled.
    push(false);
    cq.arm(false);
    assert!(!next());
    assert_eq!(polled(&cq, 4).len(), 1); // fewer than asked for
    push(false);
    assert!(next(), "it was armed");
    // The event told of the completion, which is polled after arming again.
    cq.arm(false);
    assert!(!next());
    assert_eq!(polled(&cq, 1).len(), 1);
    assert_eq!(polled(&cq, 1).len(), 0);
    push(false);
    assert!(next());
    // Found empty, filled, armed.
    assert_eq!(polled(&cq, 9).len(), 1);
    push(false);
    cq.arm(true);
    assert!(!next(), "not solicited");
    push(true);
    assert!(next());
    assert_eq!(polled(&cq, 9).len(), 2);
    push(true);
    cq.arm(true);
    assert!(next());
    cq.arm(false);
    assert!(!next(), "once");
    assert_eq!(polled(&cq, 9).len(), 1);
    push(false);
    assert!(next(), "it stays armed");
}

#[test]
fn arming_truth_table() {
    #[derive(Debug, Clone, Copy)]
    enum Arming {
        None,
        Solicited,
        Any,
        AnyThenSolicited,
        SolicitedThenAny,
    }
    use Arming::*;
    let recv = WcOpcode::Recv;
    let (ok, bad) = (WcStatus::Success, WcStatus::WrFlushErr);
    // (arming, opcode, status, solicited bit, fires)
    let table = [
        (None, recv, bad, true, false),
        (Solicited, recv, ok, false, false),
        (Solicited, recv, ok, true, true),
        (Solicited, WcOpcode::RecvRdmaWithImm, ok, true, true),
        (Solicited, WcOpcode::Send, ok, false, false),
        (Solicited, WcOpcode::Send, ok, true, false),
        (Solicited, WcOpcode::Send, bad, false, true),
        (Solicited, recv, bad, false, true),
        (Any, WcOpcode::Send, ok, false, true),
        (Any, recv, ok, false, true),
        (AnyThenSolicited, WcOpcode::Send, ok, false, true),
        (SolicitedThenAny, WcOpcode::Send, ok, false, true),
    ];
    for case @ (arming, opcode, status, solicited, fires) in table {
        let (cq, channel, _) = queue(8);
        // A completion that is there already does not fire, however the queue is armed then.
        let early = WorkCompletion { status: WcStatus::GeneralErr, ..WorkCompletion::default() };
        assert_eq!(cq.push(early, 0, true), CqPushOutcome::Stored);
        match arming {
            None => {}
            Solicited => cq.arm(true),
            Any => cq.arm(false),
            AnyThenSolicited => {
                cq.arm(false);
                cq.arm(true);
            }
            SolicitedThenAny => {
                cq.arm(true);
                cq.arm(false);
            }
        }
        assert_eq!(channel.queued(), 0, "{case:?}");
        let completion = WorkCompletion { opcode, status, ..WorkCompletion::default() };
        assert_eq!(cq.push(completion, 0, solicited), CqPushOutcome::Stored);
        assert_eq!(channel.queued(), usize::from(fires), "{case:?}");
        assert_eq!(channel.is_readable(), fires, "{case:?}");
        if fires {
            assert_eq!(cq.push(early, 0, true), CqPushOutcome::Stored);
            assert_eq!(channel.queued(), 1, "one event per arming: {case:?}");
            assert_eq!(channel.try_event(), Some(CqEvent { cq: cq.handle(), cookie: 77 }));
        }
    }
}

#[test]
fn a_completion_that_does_not_fire_leaves_the_queue_armed() {
    let (cq, channel, _) = queue(8);
    cq.arm(true);
    let recv = WorkCompletion { opcode: WcOpcode::Recv, ..WorkCompletion::default() };
    assert_eq!(cq.push(recv, 0, false), CqPushOutcome::Stored);
    assert_eq!(channel.queued(), 0);
    assert_eq!(cq.push(recv, 0, true), CqPushOutcome::Stored);
    assert_eq!(channel.queued(), 1);
}

#[test]
fn overrun_loses_the_new_entry_and_fails_the_queue_once() {
    let (cq, channel, _) = queue(2);
    assert_eq!(cq.push(send(1, 1), 1, false), CqPushOutcome::Stored);
    assert_eq!(cq.push(send(2, 1), 1, false), CqPushOutcome::Stored);
    cq.arm(false);
    assert_eq!(cq.push(send(3, 1), 1, false), CqPushOutcome::Overrun);
    assert_eq!(cq.push(send(4, 1), 1, false), CqPushOutcome::InError);
    assert!(cq.is_failed());
    assert_eq!(polled(&cq, 8), [1, 2]);
    cq.resize(10).unwrap();
    assert_eq!(cq.push(send(5, 1), 1, false), CqPushOutcome::InError, "resizing does not heal");
    assert_eq!(channel.queued(), 0);
}

#[test]
fn a_send_queue_entry_is_free_when_its_completion_is_polled() {
    let (cq, _, freed_send_slots) = queue(8);
    assert_eq!(cq.push(send(1, 0x01_0007), 3, false), CqPushOutcome::Stored);
    assert_eq!(cq.push(send(2, 0x01_0007), 1, false), CqPushOutcome::Stored);
    assert_eq!(cq.push(send(3, 0x01_0008), 5, false), CqPushOutcome::Stored);
    assert_eq!(freed_send_slots.count(0x01_0007), 0);
    assert_eq!(polled(&cq, 1), [1]);
    assert_eq!(freed_send_slots.count(0x01_0007), 3);
    assert_eq!(polled(&cq, 2), [2, 3]);
    assert_eq!((freed_send_slots.count(0x01_0007), freed_send_slots.count(0x01_0008)), (4, 5));
}

#[test]
fn a_removed_queue_pair_leaves_no_completions() {
    let (cq, ..) = queue(8);
    for (wr_id, qpn) in [(1, 5), (2, 6), (3, 5), (4, 6)] {
        assert_eq!(cq.push(send(wr_id, qpn), 1, false), CqPushOutcome::Stored);
    }
    cq.remove_of(5);
    assert_eq!(cq.len(), 2);
    assert_eq!(polled(&cq, 8), [2, 4]);
}

#[test]
fn completions_that_outlive_their_queue_pair_free_nothing_of_the_next_one_with_its_number() {
    let (cq, _, freed_send_slots) = queue(8);
    for (wr_id, qpn) in [(1, 5), (2, 6), (3, 5)] {
        assert_eq!(cq.push(send(wr_id, qpn), 1, false), CqPushOutcome::Stored);
    }
    cq.orphan(5);
    freed_send_slots.reset(5);
    assert_eq!(cq.push(send(4, 5), 2, false), CqPushOutcome::Stored);
    assert_eq!(polled(&cq, 3), [1, 2, 3]);
    assert_eq!((freed_send_slots.count(5), freed_send_slots.count(6)), (0, 1));
    assert_eq!(polled(&cq, 1), [4]);
    assert_eq!(freed_send_slots.count(5), 2);
}

#[test]
fn resizing_keeps_what_waits_and_refuses_to_lose_it() {
    let (cq, ..) = queue(4);
    for wr_id in 1..=4 {
        assert_eq!(cq.push(send(wr_id, 1), 1, false), CqPushOutcome::Stored);
    }
    assert_eq!(polled(&cq, 1), [1]);
    assert_eq!(cq.resize(2).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(cq.depth(), 4);
    cq.resize(3).unwrap();
    assert_eq!(cq.depth(), 3);
    assert_eq!(cq.push(send(5, 1), 1, false), CqPushOutcome::Overrun);
    assert_eq!(polled(&cq, 8), [2, 3, 4]);
    let (cq, ..) = queue(1);
    cq.resize(100).unwrap();
    for wr_id in 0..100 {
        assert_eq!(cq.push(send(wr_id, 1), 1, false), CqPushOutcome::Stored);
    }
    assert_eq!(cq.push(send(100, 1), 1, false), CqPushOutcome::Overrun);
}

#[test]
fn destroying_waits_for_the_events_that_were_got() {
    let (cq, channel, _) = queue(8);
    for _ in 0..2 {
        cq.arm(false);
        assert_eq!(cq.push(send(1, 1), 1, false), CqPushOutcome::Stored);
    }
    assert!(channel.try_event().is_some());
    let cq = Arc::new(cq);
    cq.detach_channel();
    assert_eq!(channel.queued(), 0, "an event that no thread took needs no acknowledgement");
    assert_eq!(cq.unacked_events(), 1);
    let waiter = std::thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            cq.wait_all_acked();
            cq.unacked_events()
        }
    });
    cq.ack_events(1);
    assert_eq!(waiter.join().unwrap(), 0);
}

#[test]
fn pollers_and_the_engine_run_at_once() {
    const COUNT: u64 = 10_000;
    let (cq, _, freed_send_slots) = queue(COUNT as u32);
    let seen = std::thread::scope(|scope| {
        let poller = || {
            let mut seen = 0;
            let mut out = [WorkCompletion::default(); 7];
            while freed_send_slots.count(9) < COUNT as u32 {
                let count = cq.poll(&mut out);
                assert!(out[..count].is_sorted_by_key(|completion| completion.wr_id));
                seen += count as u64;
            }
            seen
        };
        let pollers = [scope.spawn(poller), scope.spawn(poller)];
        for wr_id in 0..COUNT {
            assert_eq!(cq.push(send(wr_id, 9), 1, false), CqPushOutcome::Stored);
        }
        pollers.map(|poller| poller.join().unwrap()).iter().sum::<u64>()
    });
    assert_eq!(seen, COUNT);
}

fn overwriting(depth: u32) -> (CompletionQueue, Arc<CompletionChannel>, Arc<FreedSendSlots>) {
    let (cq, channel, freed_send_slots) = queue(depth);
    (cq.overwriting(), channel, freed_send_slots)
}

#[test]
fn a_queue_that_ignores_overruns_loses_its_oldest_completions_and_goes_on() {
    let (cq, channel, freed_send_slots) = overwriting(4);
    for wr_id in 1..=4 {
        assert_eq!(cq.push(send(wr_id, 1), 1, false), CqPushOutcome::Stored);
    }
    cq.arm(false);
    assert_eq!(cq.push(send(5, 1), 1, false), CqPushOutcome::Overwrote, "told once");
    assert!(channel.try_event().is_some(), "it wakes as ever");
    for wr_id in 6..=11 {
        assert_eq!(cq.push(send(wr_id, 1), 1, false), CqPushOutcome::Stored);
    }
    assert!(!cq.is_failed());
    assert_eq!(polled(&cq, 1), [8]);
    assert_eq!(freed_send_slots.count(1), 8, "the entries of those that are lost are free, too");
    assert_eq!(polled(&cq, 9), [9, 10, 11]);
    assert_eq!(freed_send_slots.count(1), 11);
    assert_eq!(cq.push(send(12, 1), 1, false), CqPushOutcome::Stored);
    assert_eq!((polled(&cq, 9), freed_send_slots.count(1)), (vec![12], 12));
}

#[test]
fn what_is_lost_of_one_queue_pair_frees_nothing_of_another_and_goes_with_it() {
    let (cq, _, freed_send_slots) = overwriting(2);
    for (wr_id, qpn) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
        let _ = cq.push(send(wr_id, qpn), 1, false);
    }
    let receive = WorkCompletion { opcode: WcOpcode::Recv, ..send(5, 2) };
    let _ = cq.push(receive, 0, false);
    assert_eq!(polled(&cq, 9), [4, 5]);
    let counts = |qpns: [u32; 3]| qpns.map(|qpn| freed_send_slots.count(qpn));
    assert_eq!(counts([1, 2, 3]), [0, 0, 2], "a receive frees no send");
    cq.remove_of(1);
    let _ = (cq.push(send(6, 1), 1, false), cq.push(send(7, 2), 1, false));
    assert_eq!(polled(&cq, 9), [6, 7]);
    assert_eq!(counts([1, 2, 3]), [1, 2, 2], "queue pair 1 has begun anew");
}

#[test]
fn a_completion_passes_over_an_empty_queue_that_nobody_waits_at() {
    let (cq, ..) = queue(2);
    assert!(cq.may_pass_over());
    assert_eq!(cq.push(send(1, 1), 1, false), CqPushOutcome::Stored);
    assert!(!cq.may_pass_over(), "an older one waits");
    assert_eq!(polled(&cq, 1), [1]);
    cq.arm(false);
    assert!(!cq.may_pass_over(), "the completion makes an event");
    assert_eq!(cq.push(send(2, 1), 1, false), CqPushOutcome::Stored);
    assert_eq!(polled(&cq, 1), [2]);
    assert!(cq.may_pass_over(), "the event has come");
    cq.fail();
    assert!(!cq.may_pass_over(), "the queue is in error");
    let (cq, ..) = overwriting(2);
    assert!(!cq.may_pass_over(), "what it has lost may be counted with this one");
}
