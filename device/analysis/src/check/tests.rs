//! The checker, told of calls and events as a device and the C ABI tell it.

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};

use pumice_calls::Call;
use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Cause, CqUse, Gid, Mtu, QpCapacity, QpState, WcStatus, WorkCompletion};
use pumice_transport::wire::Qpn;

use super::*;

thread_local! {
    static LINE: Cell<u64> = const { Cell::new(1) };
}

fn capture(addresses: &mut Vec<u64>) {
    addresses.push(LINE.get());
}

/// What follows happens at this line of the program.
pub(super) fn at(line: u64) {
    LINE.set(line);
}

const CHANNEL: u64 = 0x3000;

/// A checker that knows a completion queue of this depth and a queue pair on it.
pub(super) fn checker(depth: u32) -> Checker {
    checker_of("RC", depth)
}

/// The same; the queue pair is of this service.
fn checker_of(service: &'static str, depth: u32) -> Checker {
    let mut checker = Checker::new(capture, true);
    at(1);
    checker.object_made(0x1000, "completion queue", "ibv_create_cq");
    checker.cq_made(&CqMade { address: 0x1000, handle: 5, depth, channel: CHANNEL });
    at(2);
    checker.object_made(0x2000, "queue pair", "ibv_create_qp");
    let capacity = QpCapacity { max_send_wr: 4, max_recv_wr: 4, ..QpCapacity::default() };
    checker.qp_made(&QpMade {
        address: 0x2000,
        number: 0x12,
        ordinal: 0,
        service,
        send_cq: Some(5),
        recv_cq: Some(5),
        capacity,
    });
    checker
}

pub(super) fn completion(opcode: pumice_transport::types::WcOpcode) -> WorkCompletion {
    WorkCompletion { qp_num: 0x12, opcode, status: WcStatus::Success, ..WorkCompletion::default() }
}

pub(super) fn kinds(checker: &mut Checker) -> Vec<(&'static str, u64, u64)> {
    let all = checker.findings().all().iter();
    all.map(|one| (one.kind.name, one.call_site.addresses().first().copied().unwrap_or(0), one.count))
        .collect()
}

pub(super) fn send() -> WorkCompletion {
    completion(pumice_transport::types::WcOpcode::Send)
}

#[test]
fn a_queue_is_too_small_if_more_can_complete_than_fits() {
    let mut checker = checker(2);
    at(10);
    checker.send_posted(0x12, true);
    checker.send_posted(0x12, false);
    checker.receive_posted(0x12);
    assert_eq!(kinds(&mut checker), []);
    checker.completed(0x12, 5, &send(), 1);
    at(11);
    checker.receive_posted(0x12);
    checker.receive_posted(0x12);
    assert_eq!(kinds(&mut checker), [("cq-too-small", 11, 1)], "one waits to be polled, two will come");
}

#[test]
fn events_of_queues_that_librdmacm_made_are_waited_for_as_all_others() {
    let mut checker = checker(2);
    at(10);
    checker.waits_for_acknowledgements(0x9000, 1, "completion events", "ibv_ack_cq_events");
    assert_eq!(kinds(&mut checker), [("events-not-acknowledged", 10, 1)]);
}

#[test]
fn what_was_polled_or_flushed_by_a_reset_has_room_again() {
    let mut checker = checker(1);
    for _ in 0..100 {
        checker.send_posted(0x12, true);
        checker.completed(0x12, 5, &send(), 1);
        checker.polled(5, &send());
    }
    for _ in 0..100 {
        checker.receive_posted(0x12);
        checker.state_changed(0x12, QpState::Reset);
    }
    assert_eq!(kinds(&mut checker), []);
}

#[test]
fn a_full_queue_is_hopeless_without_a_signaled_request() {
    let mut checker = checker(8);
    at(20);
    (0..4).for_each(|_| checker.send_posted(0x12, false));
    checker.send_queue_is_full(0x12);
    checker.send_queue_is_full(0x12);
    assert_eq!(kinds(&mut checker), [("send-queue-never-reaped", 20, 1)]);
    let mut checker = self::checker(8);
    checker.send_posted(0x12, true);
    (0..3).for_each(|_| checker.send_posted(0x12, false));
    checker.send_queue_is_full(0x12);
    checker.completed(0x12, 5, &send(), 1);
    checker.send_queue_is_full(0x12);
    assert_eq!(kinds(&mut checker), [], "a completion is to come, or to be polled");
}

#[test]
fn a_thread_that_sleeps_beside_completions_is_told_once() {
    let mut checker = checker(8);
    checker.send_posted(0x12, true);
    checker.completed(0x12, 5, &send(), 1);
    let sleep = |checker: &mut Checker| (1..30).for_each(|look| checker.sleeps(CHANNEL, look >= 10));
    sleep(&mut checker);
    assert_eq!(kinds(&mut checker), [], "it was never armed: the program may poll it when it likes");
    checker.cq_armed(5, true);
    sleep(&mut checker);
    assert_eq!(kinds(&mut checker), [], "completions that are not solicited do not wake");
    checker.cq_armed(5, false);
    at(30);
    checker.sleeps(CHANNEL + 1, true);
    sleep(&mut checker);
    sleep(&mut checker);
    assert_eq!(kinds(&mut checker), [("lost-wakeup", 30, 1)]);
}

#[test]
fn a_thread_that_is_about_to_be_woken_sleeps_well() {
    let mut checker = checker(8);
    checker.cq_armed(5, false);
    checker.completed(0x12, 5, &send(), 1);
    checker.event_raised(5);
    (1..30).for_each(|_| checker.sleeps(CHANNEL, true));
    checker.event_delivered(5);
    for _ in 1..30 {
        checker.sleeps(CHANNEL, true);
        checker.cq_polled(0x1000);
    }
    assert_eq!(kinds(&mut checker), [], "another thread polls");
}

#[test]
fn attributes_are_found_that_mean_something_else() {
    let mut checker = checker(8);
    let facts = ModifyFacts {
        is_done: true,
        active_mtu: Mtu::Mtu2048,
        source_is_ipv4: Some(true),
        peer_is_here: true,
    };
    let mut attributes = QpAttributes { qp_state: 2, path_mtu: 5, ..QpAttributes::default() };
    attributes.address_vector.dgid = Gid::from(IpAddr::from(Ipv6Addr::LOCALHOST));
    at(40);
    let rtr =
        AttributeMask::STATE | AttributeMask::PATH_MTU | AttributeMask::MIN_RNR_TIMER | AttributeMask::AV;
    checker.qp_modified(0x12, &attributes, rtr, &facts);
    attributes = QpAttributes { qp_state: 3, dest_qp_num: 0x12, max_rd_atomic: 4, ..attributes };
    at(41);
    let rts = AttributeMask::STATE
        | AttributeMask::TIMEOUT
        | AttributeMask::RETRY_CNT
        | AttributeMask::DEST_QPN
        | AttributeMask::MAX_QP_RD_ATOMIC
        | AttributeMask::MAX_DEST_RD_ATOMIC;
    checker.qp_modified(0x12, &attributes, rts, &facts);
    let found = [
        ("rnr-timer-longest", 40, 1),
        ("mtu-above-active", 40, 1),
        ("gid-of-other-family", 40, 1),
        ("timeout-for-ever", 41, 1),
        ("read-depth-mismatch", 41, 1),
    ];
    assert_eq!(kinds(&mut checker), found);
}

#[test]
fn queue_pairs_of_vendors_services_are_called_by_them() {
    let name = |service| checker_of(service, 4).context.qps.get(&0x12).map(|qp| qp.name.clone());
    assert_eq!(name("RC").as_deref(), Some("queue pair 0 (number 0x12)"));
    for service in ["SRD", "DCI", "DCT"] {
        assert_eq!(name(service), Some(format!("queue pair 0 ({service}, number 0x12)")));
    }
}

#[test]
fn receives_are_late_if_messages_keep_coming_before_them() {
    let mut checker = checker(100);
    let recv = completion(pumice_transport::types::WcOpcode::Recv);
    let qpn = Qpn::new(0x12);
    let context = QpContext {
        qpn,
        pd: 1,
        send_cq: 5,
        recv_cq: 5,
        recv_queue: 9,
        xrcd: 0,
        ordinal: 0,
        out_of_order: false,
    };
    for message in 0..6 {
        checker.found_no_receive(&context, message);
        checker.found_no_receive(&context, message);
        at(50);
        checker.receive_posted(0x12);
        checker.completed(0x12, 5, &recv, 0);
        checker.polled(5, &recv);
    }
    assert_eq!(kinds(&mut checker), [("receive-too-late", 50, 3)], "from the fourth on");
}

#[test]
fn objects_are_found_that_are_gone_left_or_of_the_parent() {
    let mut checker = checker(8);
    at(60);
    checker.object_destroyed(0x2000);
    at(61);
    checker.used(0x2000, "ibv_post_send");
    checker.used(0x9999, "ibv_post_send");
    checker.ends(true);
    assert_eq!(kinds(&mut checker), [("used-after-destroy", 61, 1), ("objects-left", 1, 1)]);
    checker.forked();
    at(62);
    checker.used(0x1000, "ibv_poll_cq");
    checker.ends(false);
    assert_eq!(kinds(&mut checker), [("used-after-fork", 62, 1)]);
}

#[test]
fn a_fork_beside_registered_memory_is_found_unless_the_program_cares() {
    let mut checker = checker(8);
    checker.forks();
    at(70);
    checker.object_made(0x4000, "memory region", "ibv_reg_mr");
    at(71);
    checker.forks();
    assert_eq!(kinds(&mut checker), [("fork-without-init", 71, 1)]);
    checker.prepared_for_forks();
    checker.forks();
    assert_eq!(checker.findings().all()[0].count, 1);
}

#[test]
fn slow_ways_are_found_at_the_thousandth_time() {
    let mut checker = checker(1 << 20);
    at(80);
    for _ in 0..1100 {
        checker.enters(Call::ibv_post_send, 0x2000);
        checker.send_posted(0x12, false);
        checker.posted_from_memory(0x12, 64);
        checker.posted_from_memory(0x12, 65);
    }
    let slow = [("short-without-inline", 80, 1), ("one-post-per-doorbell", 80, 1)];
    assert_eq!(kinds(&mut checker), slow);
    at(81);
    (0..2000).for_each(|_| checker.completed(0x12, 5, &send(), 1));
    for _ in 0..1100 {
        checker.enters(Call::ibv_poll_cq, 0x1000);
        checker.polled(5, &send());
    }
    assert_eq!(kinds(&mut checker)[2], ("polls-one-at-a-time", 81, 1));
}

#[test]
fn lists_pauses_and_whole_polls_are_not_slow() {
    let mut checker = checker(1 << 20);
    for _ in 0..20_000 {
        checker.enters(Call::ibv_post_send, 0x2000);
        (0..2).for_each(|_| checker.send_posted(0x12, false));
    }
    for _ in 0..20_000 {
        checker.enters(Call::ibv_post_send, 0x2000);
        checker.send_posted(0x12, false);
        checker.enters(Call::ibv_poll_cq, 0x1000);
    }
    (0..4000).for_each(|_| checker.completed(0x12, 5, &send(), 1));
    for _ in 0..2000 {
        checker.enters(Call::ibv_poll_cq, 0x1000);
        (0..2).for_each(|_| checker.polled(5, &send()));
    }
    assert_eq!(kinds(&mut checker), []);
}

#[test]
fn a_long_wait_for_a_receive_is_told_once_where_it_has_no_limit() {
    let mut checker = checker(8);
    at(90);
    checker.rnr_retry_set(0x12, 7);
    at(91);
    let wait = |checker: &mut Checker, psn, retries_left, milliseconds: u64| {
        checker.peer_had_no_receive(0x12, psn);
        checker.waits_for_receive(0x12, retries_left, milliseconds * 1_000_000);
    };
    (0..20).for_each(|_| wait(&mut checker, 1, 6, 500));
    (2..20).for_each(|psn| wait(&mut checker, psn, 7, 900));
    (0..3).for_each(|_| wait(&mut checker, 20, 7, 500));
    assert_eq!(kinds(&mut checker), [], "a limit, other messages, a wait that may end with a receive");
    (0..3).for_each(|_| wait(&mut checker, 20, 7, 500));
    assert_eq!(kinds(&mut checker), [("rnr-retry-for-ever", 90, 1)]);
    let numbers = &checker.findings().all()[0].numbers;
    assert!(numbers.contains("waited for 1500 ms") && numbers.ends_with("4 RNR NAKs"), "{numbers}");
}

#[test]
fn a_connection_that_ends_because_of_no_retries_is_told_where_they_were_set() {
    let mut checker = checker(8);
    at(92);
    checker.rnr_retry_set(0x12, 0);
    at(93);
    checker.send_failed(0x12, WcStatus::RnrRetryExcErr);
    checker.peer_had_no_receive(0x12, 1);
    checker.send_failed(0x12, WcStatus::RetryExcErr);
    assert_eq!(kinds(&mut checker), [], "a planned failure, another failure");
    checker.send_failed(0x12, WcStatus::RnrRetryExcErr);
    checker.send_failed(0x12, WcStatus::RnrRetryExcErr);
    assert_eq!(kinds(&mut checker), [("rnr-retries-zero", 92, 1)]);
}

#[test]
fn an_empty_shared_queue_is_told_unless_its_limit_was_armed() {
    let mut checker = checker(8);
    for (address, handle) in [(0x5000, 9), (0x6000, 10)] {
        at(94);
        checker.object_made(address, "shared receive queue", "ibv_create_srq");
        checker.srq_made(address, handle);
        checker.srq_was_empty(handle);
        at(95);
        checker.srq_filled(handle);
        checker.srq_filled(handle);
        assert_eq!(kinds(&mut checker), [], "it was not filled yet");
    }
    checker.srq_limit_armed(9);
    for handle in [9, 10, 10] {
        checker.srq_was_empty(handle);
        at(96);
        checker.srq_filled(handle);
        checker.srq_destroyed(if handle == 9 { 9 } else { 11 });
    }
    assert_eq!(kinds(&mut checker), [("srq-limit-never-armed", 96, 1)]);
    assert_eq!(checker.findings().all()[0].object, "shared receive queue 1");
}

#[test]
fn a_call_that_waits_for_events_of_rdma_cm_is_told_where_the_first_was_got() {
    let mut checker = checker(8);
    at(93);
    checker.cm_event_got(0x1000, 0x9000);
    at(94);
    checker.waits_for_cm_acknowledgements(0x1000, "RDMA_CM_EVENT_ESTABLISHED");
    checker.waits_for_cm_acknowledgements(0x7000, "of an object that is none");
    checker.cm_event_acknowledged(0x9000);
    checker.waits_for_cm_acknowledgements(0x1000, "which were acknowledged meanwhile");
    assert_eq!(kinds(&mut checker), [("events-not-acknowledged", 93, 1)]);
    assert!(checker.findings().all()[0].numbers.contains("RDMA_CM_EVENT_ESTABLISHED"));
}

#[test]
fn private_data_that_is_read_after_the_acknowledgement_is_told_once() {
    let mut checker = checker(8);
    at(93);
    checker.cm_event_got(0x1000, 0x9000);
    at(94);
    checker.private_data_given_back(0x9000, "RDMA_CM_EVENT_ESTABLISHED", 3);
    checker.cm_event_acknowledged(0x9000);
    checker.private_data_read(4, &[95]);
    for _ in 0..2 {
        checker.private_data_read(3, &[96]);
    }
    assert_eq!(kinds(&mut checker), [("private-data-after-ack", 96, 1)]);
    let findings = checker.findings();
    let [finding] = findings.all() else { panic!("one finding") };
    assert_eq!(finding.object, "event RDMA_CM_EVENT_ESTABLISHED");
    let related: Vec<u64> = finding.related.iter().map(|one| one.call_site.addresses()[0]).collect();
    assert_eq!(related, [94, 93]);
}

#[test]
fn a_program_that_was_woken_at_the_arming_only_is_told() {
    let mut checker = checker(8);
    // Where nothing waits, or a poll comes first, or another completion fires it, nothing is said.
    at(87);
    checker.cq_armed(5, false);
    checker.completed(0x12, 5, &send(), 1);
    checker.event_raised(5);
    checker.event_delivered(5);
    checker.cq_armed(5, false);
    checker.event_raised(5);
    checker.cq_polled(0x1000);
    checker.event_delivered(5);
    assert_eq!(kinds(&mut checker), []);
    at(88);
    checker.cq_armed(5, false);
    checker.event_raised(5);
    at(89);
    checker.event_delivered(5);
    assert_eq!(kinds(&mut checker), [("lost-wakeup", 89, 1)]);
}

#[test]
fn events_that_are_left_are_told_at_the_end() {
    use pumice_transport::types::AsyncEventType;
    let mut checker = checker(8);
    let of_queue = pumice_model::event::AsyncElement::Cq { cookie: 0x1000 };
    checker.async_event_raised(AsyncEventType::CqErr, of_queue);
    at(97);
    (0..2).for_each(|_| checker.event_delivered(5));
    at(98);
    checker.event_delivered(5);
    checker.events_acknowledged(5, 2);
    checker.async_event_got(0x2000);
    checker.async_event_acknowledged(0x2000);
    at(99);
    checker.async_event_got(0x1000);
    for (line, event) in [(90, 0x9003), (91, 0x9001), (92, 0x9002)] {
        at(line);
        checker.cm_event_got(0x1000, event);
    }
    checker.cm_event_acknowledged(0x9003);
    checker.ends(true);
    let found: Vec<_> = kinds(&mut checker).into_iter().filter(|one| one.0 != "objects-left").collect();
    let left = |line| ("events-not-acknowledged", line, 1);
    assert_eq!(found, [left(97), left(99), left(91)], "the first of rdma_cm's that is not acknowledged");
    let mut checker = self::checker(8);
    checker.async_event_raised(AsyncEventType::CommEst, of_queue);
    checker
        .async_event_raised(AsyncEventType::CqErr, pumice_model::event::AsyncElement::Cq { cookie: 0x7000 });
    checker.ends(true);
    assert!(kinds(&mut checker).iter().all(|one| one.0 == "objects-left"), "no failure, no object");
    checker.async_event_raised(AsyncEventType::CqErr, of_queue);
    checker.ends(true);
    assert!(kinds(&mut checker).contains(&("async-events-never-read", 1, 1)));
}

#[test]
fn threads_meet_if_they_are_inside_of_one_domain_at_a_time() {
    let mut checker = checker(8);
    let (cq, qp, domain) = (0x1000, 0x2000, 0x8000);
    checker.belongs_to_thread_domain(qp, domain);
    at(100);
    checker.thread_enters(1, "ibv_post_send", qp);
    at(101);
    checker.thread_enters(2, "ibv_poll_cq", cq);
    checker.thread_leaves(2, cq);
    checker.thread_enters(1, "ibv_post_recv", qp);
    checker.thread_leaves(1, qp);
    checker.thread_enters(2, "ibv_post_send", qp);
    checker.thread_leaves(2, qp);
    assert_eq!(kinds(&mut checker), [], "another object, the same thread, one after the other");
    checker.belongs_to_thread_domain(cq, domain);
    checker.thread_enters(2, "ibv_post_send", qp);
    at(102);
    checker.thread_enters(1, "ibv_poll_cq", cq);
    checker.thread_leaves(1, cq);
    assert_eq!(kinds(&mut checker), [("thread-domain-shared", 102, 1)]);
    checker.object_destroyed(qp);
    checker.thread_enters(1, "ibv_poll_cq", cq);
    assert_eq!(checker.findings().all()[0].count, 1);
}

#[test]
fn handles_of_two_devices_are_told_apart() {
    let device = |index, name| DeviceTag { index, name: Some(name) };
    let (first, second) = (device(0, "pumice0"), device(1, "pumice1"));
    let mut checker = Checker::new(capture, false);
    for (one, address, number) in [(first, 0x1000, 0x12), (second, 0x9000, 0x112)] {
        at(address);
        checker.on(one).object_made(address, "completion queue", "ibv_create_cq");
        checker.cq_made(&CqMade { address, handle: 5, depth: 8, channel: 0 });
        checker.object_made(address + 1, "queue pair", "ibv_create_qp");
        checker.qp_made(&QpMade {
            address: address + 1,
            number,
            ordinal: 0,
            service: "RC",
            send_cq: Some(5),
            recv_cq: Some(5),
            capacity: QpCapacity { max_send_wr: 4, max_recv_wr: 4, ..QpCapacity::default() },
        });
    }
    // A completion comes on the second device, and the program destroys both queues.
    let done = WorkCompletion { qp_num: 0x112, ..send() };
    checker.on(second).send_posted(0x112, true);
    checker.completed(0x112, second.handle(5), &done, 1);
    checker.on(first).cq_destroyed(5);
    assert!(kinds(&mut checker).is_empty());
    checker.on(second).cq_destroyed(5);
    let [found] = checker.findings().all() else { panic!("{:?}", checker.findings()) };
    assert_eq!(
        (found.kind.name, found.object.as_str()),
        ("completions-never-polled", "completion queue 0 of pumice1")
    );
}

#[test]
fn calls_that_only_a_mistake_makes_fail_are_found_where_they_are_made() {
    let mut checker = checker(2);
    at(30);
    for (call, errno) in [
        (Call::ibv_post_send, libc::ENOMEM),
        (Call::ibv_reg_mr, libc::EINVAL),
        (Call::ibv_create_qp, libc::EINVAL),
        (Call::ibv_query_device_ex, libc::EINVAL),
        (Call::ibv_modify_qp, libc::EOPNOTSUPP),
        (Call::ibv_get_cq_event, libc::EAGAIN),
    ] {
        checker.call_refused(call, errno, "a program may ask");
    }
    assert_eq!(kinds(&mut checker), []);
    at(31);
    checker.call_refused(Call::ibv_post_send, libc::EINVAL, "2 scatter/gather elements");
    checker.call_refused(Call::ibv_post_send, libc::EINVAL, "2 scatter/gather elements");
    at(32);
    checker.call_refused(Call::ibv_modify_qp, libc::ENODATA, "GID index 3 has no GID");
    assert_eq!(kinds(&mut checker), [("call-refused", 31, 2), ("call-refused", 32, 1)]);
}

/// The queue pair fails for this reason.
fn fails(checker: &mut Checker, cause: &Cause) {
    checker.on_event(&Event::Qp { qp: &context(), event: &QpEvent::Logged(cause) });
}

fn context() -> QpContext {
    let qpn = Qpn::new(0x12);
    QpContext { qpn, pd: 0, send_cq: 5, recv_cq: 5, recv_queue: 0, xrcd: 0, ordinal: 0, out_of_order: false }
}

const OVERRUN: Cause = Cause::CqOverrun { cq: 5, depth: 2, completes: CqUse::Both };

#[test]
fn a_failure_is_found_unless_its_cause_is() {
    let mut first = checker(2);
    fails(&mut first, &Cause::Modified);
    fails(&mut first, &Cause::Planned);
    fails(&mut first, &OVERRUN);
    assert_eq!((first.settle(false), kinds(&mut first)), (vec![], vec![]), "its cause may come yet");
    assert!(first.settle(true).is_empty());
    assert_eq!(kinds(&mut first), [("queue-pair-failed", 0, 1)]);
    // Another finding names the completion queue.
    let mut second = checker(1);
    at(10);
    second.receive_posted(0x12);
    second.receive_posted(0x12);
    second.completed(0x12, 5, &completion(pumice_transport::types::WcOpcode::Recv), 0);
    fails(&mut second, &OVERRUN);
    let effects = second.settle(true);
    assert!(effects[0].sentence.contains("overran"), "{effects:?}");
    assert!(kinds(&mut second).iter().all(|(kind, ..)| *kind == "cq-too-small"));
}

#[test]
fn requests_that_a_reset_drops_are_found_where_it_is_asked_for() {
    let mut checker = checker(8);
    at(90);
    fails(&mut checker, &Cause::DroppedByReset { requests: 4 });
    assert_eq!(kinds(&mut checker), [("in-flight-at-destroy", 90, 1)]);
    let numbers = &checker.findings().all()[0].numbers;
    assert!(numbers.contains("4 requests were dropped by ibv_modify_qp to RESET"), "{numbers}");
}

#[test]
fn a_thread_in_poll_beside_completions_has_lost_a_wakeup_where_the_queue_was_armed() {
    let stalled_wait = |is_asleep| crate::waits::StalledWait {
        about: crate::waits::WaitTarget::Completions(5),
        sentence: "the thread that sleeps in poll(2) is not woken".to_owned(),
        stack: Vec::new(),
        is_asleep,
    };
    let mut armed = checker(8);
    at(91);
    armed.cq_armed(5, false);
    at(92);
    armed.wait_stalled(&stalled_wait(true), &[]);
    assert_eq!(kinds(&mut armed), [("lost-wakeup", 91, 1)]);
    let mut polls = checker(8);
    polls.cq_armed(5, false);
    polls.wait_stalled(&stalled_wait(false), &[]);
    assert_eq!(kinds(&mut polls)[0].0, "waits-in-vain");
}
