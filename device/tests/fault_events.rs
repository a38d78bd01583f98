//! What happens to a device by a fault plan.

mod kit;

use kit::planned::{named, node, plan};
use kit::{Connection, Node, connect};
use pumice_device::event::async_event::AsyncElement;
use pumice_device::faults::{Fault, FaultPlan, WirePlan};
use pumice_device::hca::SrqSetup;
use pumice_device::platform::link_settings::{Speed, Width};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const MILLISECOND_NS: u64 = 1_000_000;
const MESSAGES: u64 = 12;
/// How long a run may take: far more than any of them does.
const PATIENCE_NS: u64 = 60_000 * MILLISECOND_NS;

/// Two connected devices, the first of which has a plan and two queue pairs, of which the first one takes
/// its receives from a shared queue with an armed limit.
struct Pair {
    world: World,
    a: Node,
    b: Node,
    qps: [(Qpn, Qpn); 2],
    srq: pumice_device::platform::table::Handle,
    report: kit::planned::FaultReport,
}

impl Pair {
    fn new(plan: &FaultPlan, network_seed: u64) -> Pair {
        let mut world = World::new(FabricConfig {
            seed: network_seed,
            delay_ns: 1_000 * (1 + network_seed),
            faults: WirePlan::seeded(network_seed)
                .by_chance(20_000 * network_seed.min(2) as u32, Fault::Drop),
            ..FabricConfig::default()
        });
        let (a, report) = node(&mut world, "10.0.0.1", plan);
        let (b, _) = node(&mut world, "10.0.0.2", &FaultPlan::new());
        let setup = SrqSetup { pd: a.pd, max_wr: 8, max_sge: 1, cookie: 77, xrc: None, tags: None };
        let srq = a.hca.create_srq(&setup).unwrap();
        let mut first = a.qp_init(QpType::Rc);
        first.srq = Some(srq);
        let first = a.hca.create_qp(&first).unwrap().0;
        let qps = [(first, b.create_qp(QpType::Rc)), (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc))];
        for (mine, theirs) in qps {
            connect(&a, mine, &b, theirs, true, Connection::default());
        }
        Pair { world, a, b, qps, srq, report }
    }

    /// Writes of the first queue pair, in a row, until all of them have ended; their statuses.
    fn write(&mut self) -> Vec<WcStatus> {
        self.write_until(MESSAGES as usize)
    }

    /// The same, until so many have ended.
    fn write_until(&mut self, count: usize) -> Vec<WcStatus> {
        for k in 0..MESSAGES {
            let length = 1 + 1000 * (k as u32 % 4);
            let request = SendRequest {
                sges: &[self.a.sge(0, length)],
                remote: self.b.target(0),
                flags: SendFlags::SIGNALED,
                ..SendRequest::new(k, SendOpcode::RdmaWrite)
            };
            self.a.hca.post_send(self.qps[0].0, &request).unwrap();
        }
        let mut statuses = Vec::new();
        self.world.run_until(PATIENCE_NS, || {
            statuses.extend(self.a.drain().iter().map(|completion| completion.status));
            statuses.len() >= count
        });
        statuses
    }

    fn events(&self) -> Vec<(AsyncEventType, AsyncElement)> {
        std::iter::from_fn(|| self.a.hca.async_events().try_event())
            .map(|event| {
                let told = (event.event, event.element);
                event.ack();
                told
            })
            .collect()
    }

    fn kinds(&self) -> Vec<AsyncEventType> {
        self.events().into_iter().map(|(event, _)| event).collect()
    }

    /// The lines of the report about what happened.
    fn end(self) -> String {
        let Pair { world, a, b, report, .. } = self;
        drop((a, b, world));
        let report = report.sorted();
        report.lines().filter(|line| line.contains("\"rule\":")).collect::<Vec<_>>().join("\n")
    }
}

/// Runs a rule in several networks: it meets the same packet each time, once. What `look` finds is the same
/// too.
fn everywhere<T: PartialEq + std::fmt::Debug>(rule: &str, look: impl Fn(&mut Pair) -> T) -> T {
    let run = |plan: &FaultPlan, seed| {
        let mut pair = Pair::new(plan, seed);
        let found = look(&mut pair);
        (pair.end(), found)
    };
    let plan = plan(&[rule]);
    let first = run(&plan, 0);
    assert_eq!(first.0.lines().count(), 1, "{}", first.0);
    for seed in 1..6 {
        assert_eq!(run(&plan, seed), first, "{rule}, network {seed}");
    }
    let again = FaultPlan::parse(&first.0, 1).unwrap();
    assert_eq!(run(&again, 3), first, "{rule} by its report");
    first.1
}

fn succeed(count: usize) -> Vec<WcStatus> {
    let mut statuses = vec![WcStatus::Success; count];
    statuses.resize(MESSAGES as usize, WcStatus::WrFlushErr);
    statuses
}

#[test]
fn a_queue_pair_fails_before_a_packet_and_others_go_on() {
    for (kind, event) in
        [("qp-fatal", AsyncEventType::QpFatal), ("qp-access-error", AsyncEventType::QpAccessErr)]
    {
        let found = everywhere(&format!("event kind={kind} qp=0 message=5"), |pair| {
            let statuses = pair.write();
            let states = pair.qps.map(|(mine, _)| pair.a.state(mine));
            (statuses, pair.kinds(), states)
        });
        let expected = vec![event, AsyncEventType::QpLastWqeReached];
        assert_eq!(found, (succeed(5), expected, [QpState::Err, QpState::Rts]), "{kind}");
    }
}

#[test]
fn a_completion_queue_fails_with_its_queue_pairs() {
    everywhere("event kind=cq-error cq=0 qp=0 message=7", |pair| {
        let statuses = pair.write_until(7);
        let kinds = pair.kinds();
        assert_eq!((statuses, pair.a.cq.is_failed()), (vec![WcStatus::Success; 7], true));
        assert_eq!(kinds[0], AsyncEventType::CqErr);
        assert_eq!(kinds.iter().filter(|kind| **kind == AsyncEventType::QpFatal).count(), 2);
        assert_eq!(pair.qps.map(|(mine, _)| pair.a.state(mine)), [QpState::Err; 2]);
    });
}

#[test]
fn a_shared_receive_queue_reaches_its_limit_or_fails() {
    let element = AsyncElement::Srq { cookie: 77 };
    everywhere("event kind=srq-limit srq=0 qp=0 message=3 packet=5", |pair| {
        assert_eq!(pair.write(), succeed(MESSAGES as usize));
        assert_eq!(pair.events(), [(AsyncEventType::SrqLimitReached, element)]);
    });
    everywhere("event kind=srq-error qp=0 message=3", |pair| {
        assert_eq!(pair.write(), succeed(3));
        assert_eq!(pair.events()[0], (AsyncEventType::SrqErr, element));
        let request = RecvRequest { wr_id: 1, sges: &[] };
        let refused = pair.a.hca.post_srq_recv(pair.srq, &request).unwrap_err().to_string();
        assert!(refused.contains("has failed"), "{refused}");
        assert_eq!(pair.qps.map(|(mine, _)| pair.a.state(mine)), [QpState::Err, QpState::Rts]);
    });
}

#[test]
fn a_port_is_down_for_a_time_and_nothing_passes() {
    everywhere("event kind=port-down time=40ms qp=0 message=4", |pair| {
        let begin_ns = pair.world.now_ns();
        assert_eq!(pair.write_until(4), [WcStatus::Success; 4]);
        assert!(!pair.a.hca.port(1).unwrap().is_active());
        assert_eq!(pair.kinds(), [AsyncEventType::PortErr]);
        let mut statuses = 0;
        assert!(pair.world.run_until(PATIENCE_NS, || {
            statuses += pair.a.drain().len() as u64;
            statuses == MESSAGES - 4
        }));
        assert!(
            pair.world.now_ns() - begin_ns >= 40 * MILLISECOND_NS && pair.a.hca.port(1).unwrap().is_active()
        );
        assert_eq!(pair.kinds(), [AsyncEventType::PortActive]);
    });
}

#[test]
fn an_address_moves_and_connections_stay() {
    everywhere("event kind=gid-move gid=0 to=5 qp=0 message=2", |pair| {
        assert_eq!(pair.write(), succeed(MESSAGES as usize));
        assert_eq!(pair.kinds(), [AsyncEventType::GidChange]);
        let indices: Vec<u32> = pair.a.hca.gids().iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [5]);
    });
}

#[test]
fn a_device_that_stands_still_goes_on_later_and_one_that_is_lost_does_not() {
    everywhere("event kind=freeze time=30ms qp=0 message=6", |pair| {
        let begin_ns = pair.world.now_ns();
        assert_eq!(pair.write_until(6), [WcStatus::Success; 6]);
        let mut statuses = 0;
        assert!(pair.world.run_until(PATIENCE_NS, || {
            statuses += pair.a.drain().len() as u64;
            statuses == MESSAGES - 6
        }));
        assert!(pair.world.now_ns() - begin_ns >= 30 * MILLISECOND_NS);
        assert_eq!(pair.kinds(), []);
    });
    everywhere("event kind=device-fatal qp=0 message=6", |pair| {
        assert_eq!(pair.write_until(6), [WcStatus::Success; 6]);
        assert!(!pair.world.run_until(5_000 * MILLISECOND_NS, || !pair.a.drain().is_empty()));
        assert_eq!(pair.events(), [(AsyncEventType::DeviceFatal, AsyncElement::Device)]);
    });
}

#[test]
fn events_alone_are_told_and_change_nothing() {
    for (kind, event) in [
        ("lid-change", AsyncEventType::LidChange),
        ("pkey-change", AsyncEventType::PkeyChange),
        ("path-mig-error", AsyncEventType::PathMigErr),
    ] {
        everywhere(&format!("event kind={kind} message=1"), |pair| {
            assert_eq!(pair.write(), succeed(MESSAGES as usize));
            assert_eq!(pair.kinds(), [event]);
        });
    }
}

#[test]
fn a_pulled_cable_lets_nothing_pass_and_no_event_tells_of_it() {
    everywhere("event kind=cable-pull time=40ms qp=0 message=4", |pair| {
        let begin_ns = pair.world.now_ns();
        assert_eq!(pair.write_until(4), [WcStatus::Success; 4]);
        assert!(pair.a.hca.port(1).unwrap().is_active() && !pair.a.hca.port(1).unwrap().is_cable_in());
        let mut statuses = 0;
        assert!(pair.world.run_until(PATIENCE_NS, || {
            statuses += pair.a.drain().len() as u64;
            statuses == MESSAGES - 4
        }));
        assert!(
            pair.world.now_ns() - begin_ns >= 40 * MILLISECOND_NS
                && pair.a.hca.port(1).unwrap().is_cable_in()
        );
        assert_eq!(pair.kinds(), []);
    });
}

#[test]
fn a_port_comes_up_when_it_is_told_to() {
    for (down, events) in [
        ("event kind=port-down qp=0 message=4", &[AsyncEventType::PortErr, AsyncEventType::PortActive][..]),
        ("event kind=cable-pull qp=0 message=4", &[]),
    ] {
        let mut pair = Pair::new(&plan(&[down, "event name=up kind=port-up after=\"time 70ms\""]), 1);
        assert_eq!(pair.write(), succeed(MESSAGES as usize), "{down}");
        assert!(pair.world.now_ns() >= 70 * MILLISECOND_NS);
        assert!(pair.a.hca.port(1).unwrap().is_active() && pair.a.hca.port(1).unwrap().is_cable_in());
        assert_eq!(pair.kinds(), events, "{down}");
    }
}

#[test]
fn a_link_has_another_rate_and_loses_nothing() {
    everywhere("event kind=speed-change speed=edr width=2 qp=0 message=4", |pair| {
        assert_eq!(pair.a.hca.port(1).unwrap().changed_rate(), (None, None));
        assert_eq!(pair.write(), succeed(MESSAGES as usize));
        assert_eq!(pair.a.hca.port(1).unwrap().changed_rate(), (Some(Speed::Edr), Width::new(2).ok()));
        assert_eq!(pair.kinds(), [AsyncEventType::PortErr, AsyncEventType::PortActive]);
    });
}

#[test]
fn a_device_that_is_pulled_out_is_flushed_and_another_one_replaces_it() {
    everywhere("event kind=unplug time=1s qp=0 message=6", |pair| {
        assert_eq!(pair.a.hca.back_ns(), None);
        assert_eq!(pair.write(), succeed(6));
        assert_eq!(pair.kinds(), [AsyncEventType::DeviceFatal, AsyncEventType::QpLastWqeReached]);
        let left_ns = pair.a.hca.back_ns().unwrap() - 1_000 * MILLISECOND_NS;
        assert!(left_ns <= pair.world.now_ns());
        assert_eq!(pair.qps.map(|(mine, _)| pair.a.state(mine)), [QpState::Err; 2]);
        // What was posted to the peer's queue pair does not arrive.
        let request = SendRequest {
            sges: &[pair.b.sge(0, 8)],
            remote: pair.a.target(0),
            flags: SendFlags::SIGNALED,
            ..SendRequest::new(1, SendOpcode::RdmaWrite)
        };
        pair.b.hca.post_send(pair.qps[1].1, &request).unwrap();
        let mut statuses = Vec::new();
        pair.world.run_until(PATIENCE_NS, || {
            statuses.extend(pair.b.drain().iter().map(|completion| completion.status));
            !statuses.is_empty()
        });
        assert_eq!(statuses, [WcStatus::RetryExcErr]);
    });
}

#[test]
fn what_waits_for_a_time_only_happens_without_a_packet_and_again_by_its_report() {
    let run = |plan: &FaultPlan| {
        let mut pair = Pair::new(plan, 2);
        pair.world.run_for(50 * MILLISECOND_NS);
        assert!(pair.a.hca.port(1).unwrap().is_active());
        assert!(pair.world.run_until(PATIENCE_NS, || !pair.a.hca.port(1).unwrap().is_active()));
        let down_ns = pair.world.now_ns();
        assert!(pair.world.run_until(PATIENCE_NS, || pair.a.hca.port(1).unwrap().is_active()));
        assert_eq!(pair.kinds(), [AsyncEventType::PortErr, AsyncEventType::PortActive]);
        (down_ns, pair.world.now_ns(), pair.end())
    };
    let first = run(&plan(&["event kind=port-down time=20ms after=\"time 60ms\""]));
    assert_eq!((first.0, first.1), (60 * MILLISECOND_NS, 80 * MILLISECOND_NS));
    assert_eq!(first.2.lines().count(), 1, "{}", first.2);
    assert_eq!(run(&FaultPlan::parse(&first.2, 1).unwrap()), first);
}

#[test]
fn a_rule_for_one_device_leaves_the_others_alone_and_changes_no_fate() {
    let run = |lines: &[&str]| {
        let plan = plan(lines);
        let mut world = World::new(FabricConfig::default());
        let nodes = [("rail0", "10.0.0.1"), ("rail1", "10.0.0.2"), ("peer", "10.0.0.3")]
            .map(|(name, address)| named(&mut world, name, address, &plan).0);
        let [a, b, peer] = &nodes;
        let mut events = Vec::new();
        for rail in [a, b] {
            let (mine, theirs) = (rail.create_qp(QpType::Rc), peer.create_qp(QpType::Rc));
            connect(rail, mine, peer, theirs, true, Connection::default());
            for k in 0..MESSAGES {
                let request = SendRequest {
                    sges: &[rail.sge(0, 5000)],
                    remote: peer.target(0),
                    flags: SendFlags::SIGNALED,
                    ..SendRequest::new(k, SendOpcode::RdmaWrite)
                };
                rail.hca.post_send(mine, &request).unwrap();
            }
        }
        let mut done = [0, 0];
        assert!(world.run_until(PATIENCE_NS, || {
            done[0] += a.drain().len() as u64;
            done[1] += b.drain().len() as u64;
            done == [MESSAGES; 2]
        }));
        for rail in [a, b] {
            let told = std::iter::from_fn(|| rail.hca.async_events().try_event());
            events.push(told.map(|event| (event.event, event.ack()).0).collect::<Vec<_>>());
        }
        let dropped = [a, b].map(|rail| rail.hca.counters().value(Counter::TxPackets));
        (events, dropped)
    };
    let loss = "drop chance=5% opcode=write";
    let cut = "event kind=port-down time=5ms message=3 device=rail1";
    let (events, packets) = run(&[loss, cut]);
    let flap = vec![AsyncEventType::PortErr, AsyncEventType::PortActive];
    assert_eq!(events, [vec![], flap]);
    let (none, alone) = run(&[loss]);
    assert_eq!((none, packets[0]), (vec![vec![], vec![]], alone[0]));
    let calls = FaultPlan::new().with_line("fail call=ibv_reg_mr device=rail1").unwrap_err();
    assert!(calls.to_string().contains("remove device"), "{calls}");
}
