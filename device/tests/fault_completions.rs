//! Rules about completions: a work request meets exactly what its rule says, with what follows for its queue
//! pair, and a report of that is a plan by which it happens again.

mod kit;

use std::sync::Arc;

use kit::planned::{FaultReport, node, plan as plan_of};
use kit::{Connection, Node, connect};
use pumice_device::faults::FaultPlan;
use pumice_device::hca::{CqSetup, QpInit, SrqSetup};
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::platform::table::Handle;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Two nodes, `a` with a plan, and a connection between them.
struct Pair {
    world: World,
    a: Node,
    b: Node,
    qa: Qpn,
    qb: Qpn,
    report: FaultReport,
}

fn pair(qp_type: QpType, plan: &FaultPlan) -> Pair {
    pair_of(qp_type, plan, &FaultPlan::new())
}

/// The same, with a plan for each.
fn pair_of(qp_type: QpType, plan: &FaultPlan, of_peer: &FaultPlan) -> Pair {
    let mut world = World::new(FabricConfig { seed: 1, delay_ns: 1_000, ..FabricConfig::default() });
    let (a, report) = node(&mut world, "10.0.0.1", plan);
    let (b, _) = node(&mut world, "10.0.0.2", of_peer);
    let (qa, qb) = (a.create_qp(qp_type), b.create_qp(qp_type));
    match qp_type {
        QpType::Ud => {
            a.to_rts_datagram(qa, 1);
            b.to_rts_datagram(qb, 1);
        }
        _ => connect(&a, qa, &b, qb, qp_type == QpType::Rc, Connection::default()),
    }
    Pair { world, a, b, qa, qb, report }
}

/// What completions are: request and status.
fn seen(completions: &[WorkCompletion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|one| (one.wr_id, one.status)).collect()
}

impl Pair {
    /// `a` sends `count` messages, which `b` receives; only every third makes a completion if `sparse`.
    fn send(&mut self, count: u64, sparse: bool) {
        for k in 0..count {
            self.b.post_recv(self.qb, k, 0, 64);
        }
        for k in 0..count {
            let flags = if sparse && k % 3 != 2 { SendFlags::empty() } else { SendFlags::SIGNALED };
            let request =
                SendRequest { sges: &[self.a.sge(0, 64)], flags, ..SendRequest::new(k, SendOpcode::Send) };
            self.a.hca.post_send(self.qa, &request).unwrap();
        }
    }

    /// `b` sends so many messages to a shared receive queue of `a`'s.
    fn send_to_srq(&self, srq: Handle, number: u32, count: u64) {
        for wr_id in 0..count {
            let request = RecvRequest { wr_id, sges: &[self.a.sge(0, 64)] };
            self.a.hca.post_srq_recv(srq, &request).unwrap();
        }
        for k in 0..count {
            let sges = [self.b.sge(0, 64)];
            let request =
                SendRequest { xrc_srqn: number, sges: &sges, ..SendRequest::new(k, SendOpcode::Send) };
            self.b.hca.post_send(self.qb, &request).unwrap();
        }
    }

    /// Takes the next completions of `b`, so many.
    fn take_of_peer(&mut self, count: usize) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        let (b, world) = (&self.b, &mut self.world);
        assert!(world.run_until(SECOND_NS, || {
            all.extend(b.drain());
            all.len() == count
        }));
        all
    }

    /// Takes the next completions of `a`, so many.
    fn take(&mut self, count: usize) -> Vec<WorkCompletion> {
        let mut all = Vec::new();
        let (a, world) = (&self.a, &mut self.world);
        let done = world.run_until(SECOND_NS, || {
            all.extend(a.drain());
            all.len() >= count
        });
        assert!(done, "{} of {count} completions: {:?}", all.len(), seen(&all));
        all
    }
}

use WcStatus::{Success, WrFlushErr};

#[test]
fn a_send_request_ends_with_the_status_of_its_rule_and_the_rest_is_flushed() {
    for (name, status) in [
        ("retry-exceeded", WcStatus::RetryExcErr),
        ("rnr-retry-exceeded", WcStatus::RnrRetryExcErr),
        ("remote-access", WcStatus::RemAccessErr),
        ("local-protection", WcStatus::LocProtErr),
        ("flushed", WrFlushErr),
        ("general", WcStatus::GeneralErr),
    ] {
        let rule = format!("complete status={name} vendor-err=129 side=send message=2");
        let mut pair = pair(QpType::Rc, &plan_of(&[&rule]));
        pair.send(5, false);
        let completions = pair.take(5);
        let expected = [(0, Success), (1, Success), (2, status), (3, WrFlushErr), (4, WrFlushErr)];
        assert_eq!(seen(&completions), expected, "{name}");
        assert_eq!((completions[2].vendor_err, completions[3].vendor_err), (129, 0));
        assert_eq!((completions[2].opcode, pair.a.state(pair.qa)), (WcOpcode::Send, QpState::Err));
        // The peer is none of the rule's: it hears of nothing.
        assert_eq!(pair.b.state(pair.qb), QpState::Rts);
    }
}

#[test]
fn an_unsignaled_request_that_fails_makes_a_completion() {
    let mut pair = pair(QpType::Rc, &plan_of(&["complete status=remote-operation message=3"]));
    pair.send(6, true);
    let completions = pair.take(4);
    let expected = [(2, Success), (3, WcStatus::RemOpErr), (4, WrFlushErr), (5, WrFlushErr)];
    assert_eq!(seen(&completions), expected);
    // The send queue has all its slots again.
    pair.a.move_to(pair.qa, QpState::Reset);
}

#[test]
fn datagrams_fail_on_the_send_side_alone() {
    let plan = plan_of(&[
        "complete status=local-qp-operation side=send message=1",
        "complete status=retry-exceeded",
    ]);
    let mut pair = pair(QpType::Ud, &plan);
    let (_, path) = pair.a.hca.create_ah(pair.a.pd, &kit::address_vector(pair.b.ip)).unwrap();
    for k in 0..3 {
        let ud = UdDestination { path: path.clone(), qpn: pair.qb, qkey: 0x1111_1111 };
        let request =
            SendRequest { sges: &[pair.a.sge(0, 64)], ud: Some(ud), ..SendRequest::new(k, SendOpcode::Send) };
        pair.a.hca.post_send(pair.qa, &request).unwrap();
    }
    let completions = pair.take(3);
    let expected = [(0, Success), (1, WcStatus::LocQpOpErr), (2, WrFlushErr)];
    assert_eq!((seen(&completions), pair.a.state(pair.qa)), (expected.to_vec(), QpState::Sqe));
    let report = pair.report.clone();
    drop(pair);
    // No datagram ends so: that rule never applied.
    assert!(report.sorted().contains("\"never\":[\"complete-2\"]"), "{}", report.sorted());
}

#[test]
fn a_receive_request_ends_with_the_status_of_its_rule() {
    let plan = plan_of(&["complete status=local-protection side=receive message=1 vendor-err=7"]);
    let mut pair = pair(QpType::Rc, &plan);
    for k in 0..4 {
        pair.a.post_recv(pair.qa, k, 0, 64);
        pair.b.send(pair.qb, k, 0, 64);
    }
    let completions = pair.take(4);
    let expected = [(0, Success), (1, WcStatus::LocProtErr), (2, WrFlushErr), (3, WrFlushErr)];
    assert_eq!((seen(&completions), completions[1].vendor_err), (expected.to_vec(), 7));
    // As after a real one, the peer hears of it by a NAK.
    let (b, world) = (&pair.b, &mut pair.world);
    let mut of_peer = Vec::new();
    assert!(world.run_until(SECOND_NS, || {
        of_peer.extend(b.drain());
        of_peer.len() == 4
    }));
    let told = [(0, Success), (1, WcStatus::RemOpErr), (2, WrFlushErr), (3, WrFlushErr)];
    assert_eq!(seen(&of_peer), told);
}

#[test]
fn late_completions_keep_their_order_and_other_queues_do_not_wait() {
    let mut pair = pair(QpType::Rc, &plan_of(&["late time=5ms side=send message=1"]));
    for k in 0..4 {
        pair.a.post_recv(pair.qa, 100 + k, 0, 64);
        pair.b.send(pair.qb, k, 0, 64);
    }
    pair.send(4, false);
    let begin_ns = pair.world.now_ns();
    let first = pair.take(5);
    assert!(pair.world.now_ns() - begin_ns < MS_NS);
    let of_sends =
        |all: &[WorkCompletion]| seen(all).into_iter().filter(|(wr_id, _)| *wr_id < 100).collect::<Vec<_>>();
    assert_eq!(of_sends(&first), [(0, Success)]);
    let rest = pair.take(3);
    assert_eq!(of_sends(&rest), [(1, Success), (2, Success), (3, Success)]);
    assert!((5 * MS_NS..6 * MS_NS).contains(&(pair.world.now_ns() - begin_ns)));
}

#[test]
fn a_completion_is_held_until_its_trigger() {
    let plan = plan_of(&[
        "late until=\"rule enough\" side=send message=0",
        "late name=enough time=1us side=receive message=2",
    ]);
    let mut pair = pair(QpType::Rc, &plan);
    pair.send(2, false);
    for k in 0..2 {
        pair.a.post_recv(pair.qa, 100 + k, 0, 64);
        pair.b.send(pair.qb, k, 0, 64);
    }
    assert_eq!(seen(&pair.take(2)), [(100, Success), (101, Success)]);
    let (a, world) = (&pair.a, &mut pair.world);
    assert!(!world.run_until(100 * MS_NS, || !a.drain().is_empty()));
    pair.a.post_recv(pair.qa, 102, 0, 64);
    pair.b.send(pair.qb, 2, 0, 64);
    let mut rest = seen(&pair.take(3));
    rest.sort_by_key(|(wr_id, _)| *wr_id);
    assert_eq!(rest, [(0, Success), (1, Success), (102, Success)]);
}

#[test]
fn what_waits_of_a_queue_pair_that_is_reset_or_destroyed_is_gone() {
    let mut pair = pair(QpType::Rc, &plan_of(&["late time=5ms side=send"]));
    pair.send(2, false);
    let (b, world) = (&pair.b, &mut pair.world);
    let mut arrived = 0;
    assert!(world.run_until(SECOND_NS, || {
        arrived += b.drain().len();
        arrived == 2
    }));
    pair.a.move_to(pair.qa, QpState::Reset);
    let (a, world) = (&pair.a, &mut pair.world);
    assert!(!world.run_until(20 * MS_NS, || !a.drain().is_empty()));
    pair.a.hca.destroy_qp(pair.qa).unwrap();
}

#[test]
fn sends_of_uc_fail_on_the_send_side_alone_unless_the_adapter_fails() {
    for (name, status, state) in [
        ("local-qp-operation", WcStatus::LocQpOpErr, QpState::Sqe),
        ("local-protection", WcStatus::LocProtErr, QpState::Sqe),
        ("fatal", WcStatus::FatalErr, QpState::Err),
    ] {
        let rule = format!("complete status={name} side=send message=1");
        let mut pair = pair(QpType::Uc, &plan_of(&[&rule]));
        pair.send(3, false);
        let expected = [(0, Success), (1, status), (2, WrFlushErr)];
        assert_eq!(seen(&pair.take(3)), expected, "{name}");
        assert_eq!((pair.a.state(pair.qa), pair.b.state(pair.qb)), (state, QpState::Rts), "{name}");
    }
}

#[test]
fn a_receive_of_ud_fails_and_its_queue_pair_with_it() {
    let plan = plan_of(&["complete status=local-protection side=receive message=1"]);
    let mut pair = pair(QpType::Ud, &plan);
    let (_, path) = pair.b.hca.create_ah(pair.b.pd, &kit::address_vector(pair.a.ip)).unwrap();
    for k in 0..4 {
        pair.a.post_recv(pair.qa, k, 0, 104);
    }
    for k in 0..2 {
        let ud = UdDestination { path: path.clone(), qpn: pair.qa, qkey: 0x1111_1111 };
        let request =
            SendRequest { sges: &[pair.b.sge(0, 64)], ud: Some(ud), ..SendRequest::new(k, SendOpcode::Send) };
        pair.b.hca.post_send(pair.qb, &request).unwrap();
    }
    let completions = pair.take(4);
    let expected = [(0, Success), (1, WcStatus::LocProtErr), (2, WrFlushErr), (3, WrFlushErr)];
    assert_eq!((seen(&completions), pair.a.state(pair.qa)), (expected.to_vec(), QpState::Err));
    // The sender of a datagram hears of nothing.
    assert_eq!(seen(&pair.b.drain()), [(0, Success), (1, Success)]);
}

/// Two pairs whose ends at `a` share a receive queue with `requests` requests.
fn sharing(plan: &FaultPlan, requests: u64) -> (Pair, [(Qpn, Qpn); 2]) {
    let pair = pair(QpType::Rc, plan);
    let setup = SrqSetup { pd: pair.a.pd, max_wr: 16, max_sge: 1, cookie: 0, xrc: None, tags: None };
    let srq = pair.a.hca.create_srq(&setup).unwrap();
    let qps = [(); 2].map(|()| {
        let init = QpInit { srq: Some(srq), ..pair.a.qp_init(QpType::Rc) };
        let (qa, qb) = (pair.a.hca.create_qp(&init).unwrap().0, pair.b.create_qp(QpType::Rc));
        connect(&pair.a, qa, &pair.b, qb, true, Connection::default());
        (qa, qb)
    });
    for wr_id in 0..requests {
        let request = RecvRequest { wr_id, sges: &[pair.a.sge(0, 64)] };
        pair.a.hca.post_srq_recv(srq, &request).unwrap();
    }
    (pair, qps)
}

#[test]
fn a_request_of_a_shared_receive_queue_fails_with_its_queue_pair_alone() {
    // Queue pair 0 is the one that `pair` makes.
    let plan = plan_of(&["complete status=local-access side=receive qp=1 message=0"]);
    let (mut pair, [(one, of_one), (two, of_two)]) = sharing(&plan, 3);
    pair.b.send(of_two, 7, 0, 64);
    assert_eq!(seen(&pair.take(1)), [(0, Success)]);
    pair.b.send(of_one, 8, 0, 64);
    assert_eq!(seen(&pair.take(1)), [(1, WcStatus::LocAccessErr)]);
    let next = || pair.a.hca.async_events().try_event().map(|taken| (taken.event, taken.ack()).0);
    assert_eq!(next(), Some(AsyncEventType::QpLastWqeReached));
    assert_eq!((pair.a.state(one), pair.a.state(two)), (QpState::Err, QpState::Rts));
    // The requests of others stay.
    pair.b.send(of_two, 9, 0, 64);
    assert_eq!(seen(&pair.take(1)), [(2, Success)]);
    let mut of_peer = Vec::new();
    let (b, world) = (&pair.b, &mut pair.world);
    assert!(world.run_until(SECOND_NS, || {
        of_peer.extend(b.drain());
        of_peer.len() == 3
    }));
    assert_eq!(seen(&of_peer), [(7, Success), (8, WcStatus::RemAccessErr), (9, Success)]);
}

/// `b` sends to a shared receive queue of `a`'s XRC domain: the pair, the queue's number, and its completion
/// queue. Each end has a plan.
fn xrc(plan: &FaultPlan, of_initiator: &FaultPlan) -> (Pair, u32, Handle) {
    let mut pair = pair_of(QpType::Rc, plan, of_initiator);
    let xrcd = pair.a.hca.open_xrcd().unwrap();
    let xrc = Some((xrcd, pair.a.cq.handle()));
    let setup = SrqSetup { pd: pair.a.pd, max_wr: 8, max_sge: 1, cookie: 0, xrc, tags: None };
    let srq = pair.a.hca.create_srq(&setup).unwrap();
    let init = QpInit { recv_cq: None, ..pair.b.qp_init(QpType::XrcInitiator) };
    pair.qb = pair.b.hca.create_qp(&init).unwrap().0;
    let init = pair.a.qp_init(QpType::XrcTarget);
    let init = QpInit { pd: None, send_cq: None, recv_cq: None, xrcd: Some(xrcd), ..init };
    pair.qa = pair.a.hca.create_qp(&init).unwrap().0;
    connect(&pair.a, pair.qa, &pair.b, pair.qb, true, Connection::default());
    let number = pair.a.hca.srq_number(srq).unwrap();
    (pair, number, srq)
}

#[test]
fn a_receive_of_an_xrc_target_fails_with_the_target_and_the_initiator_is_told() {
    let plan = plan_of(&["complete status=local-length side=receive qp=1 message=1"]);
    let (mut pair, number, srq) = xrc(&plan, &FaultPlan::new());
    pair.send_to_srq(srq, number, 3);
    assert_eq!(seen(&pair.take(2)), [(0, Success), (1, WcStatus::LocLenErr)]);
    assert_eq!(pair.a.state(pair.qa), QpState::Err);
    let of_peer = pair.take_of_peer(3);
    assert_eq!(seen(&of_peer), [(0, Success), (1, WcStatus::RemInvReqErr), (2, WrFlushErr)]);
}

#[test]
fn a_send_of_an_xrc_initiator_fails_and_the_target_has_what_arrived() {
    for (name, status) in [
        ("retry-exceeded", WcStatus::RetryExcErr),
        ("remote-access", WcStatus::RemAccessErr),
        ("flushed", WrFlushErr),
    ] {
        let rule = format!("complete status={name} vendor-err=129 side=send qp=1 message=1");
        let (mut pair, number, srq) = xrc(&FaultPlan::new(), &plan_of(&[&rule]));
        pair.send_to_srq(srq, number, 3);
        let of_initiator = pair.take_of_peer(3);
        assert_eq!(seen(&of_initiator), [(0, Success), (1, status), (2, WrFlushErr)], "{name}");
        assert_eq!(of_initiator[1].vendor_err, 129);
        assert_eq!(pair.b.state(pair.qb), QpState::Err);
        // The message has arrived, and the target hears of nothing.
        assert_eq!(seen(&pair.take(2))[..2], [(0, Success), (1, Success)], "{name}");
        assert_eq!(pair.a.state(pair.qa), QpState::Rts);
    }
}

/// The sorted report of `a` while it sends and receives 40 messages, in a network of this seed.
fn run(plan: &FaultPlan, seed: u64) -> String {
    let mut pair = pair(QpType::Rc, plan);
    let mut random = kit::Random::new(seed);
    let (mut sent, mut came) = (0, 0);
    let mut failed = false;
    while came < 40 && !failed {
        let burst = (1 + random.below(4)).min(40 - sent);
        pair.send(burst, false);
        sent += burst;
        let completions = pair.take(usize::try_from(burst).unwrap());
        failed = completions.iter().any(|one| one.status != Success);
        came += burst;
        pair.b.drain();
    }
    let report = pair.report.clone();
    drop(pair);
    report.sorted()
}

#[test]
fn the_same_requests_meet_the_same_in_every_run_and_by_the_report() {
    let plan = plan_of(&[
        "late chance=20% time=300us",
        "late name=begun after=\"completions 10 qp=0\" nth=2 time=1us",
        "late name=bytes after=\"bytes 1000\" nth=1..3 until=\"rule begun\"",
        "complete after=\"rule begun\" nth=12 status=general vendor-err=3",
        "drop name=other after=\"rule begun\" chance=10%",
        "complete name=never status=window-bind",
    ]);
    let first = run(&plan, 1);
    assert!(first.contains("\"message\":11") && first.contains("\"never\":[\"never\""), "{first}");
    assert_eq!(first.matches("\"until\":\"rule begun\"").count(), 3, "{first}");
    let of_completions = |report: &str| {
        let lines = report.lines().filter(|line| line.contains("\"completion\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for seed in 2..8 {
        assert_eq!(of_completions(&run(&plan, seed)), of_completions(&first), "{seed}");
    }
    let again = FaultPlan::parse(&first, 9).unwrap();
    assert_eq!(of_completions(&run(&again, 3)), of_completions(&first));
}

/// A pair whose first completion queue of `a` has a channel.
fn with_channel(plan: &FaultPlan) -> (Pair, Arc<CompletionChannel>) {
    let mut pair = pair(QpType::Rc, plan);
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let setup = CqSetup { depth: 64, channel: Some(Arc::clone(&channel)), ..CqSetup::default() };
    pair.a.cq = pair.a.hca.create_cq(setup).unwrap();
    pair.qa = pair.a.create_qp(QpType::Rc);
    pair.qb = pair.b.create_qp(QpType::Rc);
    connect(&pair.a, pair.qa, &pair.b, pair.qb, true, Connection::default());
    (pair, channel)
}

impl Pair {
    /// How long it takes until the channel has an event, and how many completions there are then.
    fn event(&mut self, channel: &CompletionChannel) -> (u64, usize) {
        let begin_ns = self.world.now_ns();
        assert!(self.world.run_until(SECOND_NS, || channel.try_event().is_some()), "no event");
        self.a.cq.ack_events(1);
        (self.world.now_ns() - begin_ns, self.a.cq.len())
    }
}

#[test]
fn an_event_comes_late_and_its_completions_in_time() {
    let (mut pair, channel) = with_channel(&plan_of(&["late-event time=5ms cq=1 nth=2"]));
    for expected_ms in [0, 5, 0] {
        pair.a.cq.arm(false);
        pair.send(1, false);
        let (took_ns, completions) = pair.event(&channel);
        assert_eq!((took_ns / MS_NS, completions), (expected_ms, 1));
        assert_eq!(pair.a.drain().len(), 1);
    }
}

#[test]
fn an_event_tells_of_several_completions_and_the_last_one_comes() {
    let (mut pair, channel) = with_channel(&plan_of(&["merge-events count=3 within=5ms cq=1"]));
    pair.a.cq.arm(false);
    pair.send(3, false);
    let (took_ns, completions) = pair.event(&channel);
    assert_eq!((took_ns / MS_NS, completions), (0, 3));
    assert_eq!(pair.a.drain().len(), 3);
    // Too few come: the event does not wait for ever.
    pair.a.cq.arm(false);
    pair.send(2, false);
    let (took_ns, completions) = pair.event(&channel);
    assert_eq!((took_ns / MS_NS, completions), (5, 2));
    pair.a.drain();
    // A program that polls and arms while the event waits gets it all the same.
    pair.a.cq.arm(false);
    pair.send(1, false);
    pair.take(1);
    pair.a.cq.arm(false);
    pair.send(2, false);
    assert_eq!(pair.event(&channel).1, 2);
    pair.a.drain();
    let report = pair.report.clone();
    drop((pair, channel));
    let lines = report.sorted();
    assert_eq!(lines.matches("\"cq\":1").count(), 3, "{lines}");
    FaultPlan::parse(&lines, 1).unwrap().check().unwrap();
}

#[test]
fn an_armed_queue_that_is_destroyed_leaves_no_event() {
    let (mut pair, channel) = with_channel(&plan_of(&["late-event time=5ms"]));
    pair.a.cq.arm(false);
    pair.send(1, false);
    pair.take(1);
    pair.a.hca.destroy_qp(pair.qa).unwrap();
    let cq = std::mem::replace(
        &mut pair.a.cq,
        pair.a.hca.create_cq(CqSetup { depth: 4, ..CqSetup::default() }).unwrap(),
    );
    pair.a.hca.destroy_cq(cq.handle()).unwrap();
    assert!(!pair.world.run_until(20 * MS_NS, || channel.try_event().is_some()));
}

#[test]
fn rules_wait_for_events_that_the_program_gets() {
    let plan = plan_of(&[
        "late name=never time=1ms after=\"event qp-fatal\"",
        "complete status=fatal side=send qp=1 after=\"event communication-established\"",
    ]);
    let mut pair = pair(QpType::Rc, &plan);
    (pair.qa, pair.qb) = (pair.a.create_qp(QpType::Rc), pair.b.create_qp(QpType::Rc));
    let c = Connection::default();
    pair.a.to_rtr(pair.qa, true, pair.b.ip, pair.qb, c);
    pair.b.to_rtr(pair.qb, true, pair.a.ip, pair.qa, c.reversed());
    pair.b.to_rts(pair.qb, true, c.reversed());
    pair.a.post_recv(pair.qa, 9, 0, 64);
    pair.b.send(pair.qb, 9, 0, 64);
    assert_eq!(seen(&pair.take(1)), [(9, Success)]);
    pair.a.to_rts(pair.qa, true, c);
    pair.send(1, false);
    // The event was raised, and the program has not got it yet.
    assert_eq!(seen(&pair.take(1)), [(0, Success)]);
    pair.a.hca.async_events().try_event().unwrap().ack();
    pair.send(2, false);
    assert_eq!(seen(&pair.take(2)), [(0, WcStatus::FatalErr), (1, WrFlushErr)]);
}
