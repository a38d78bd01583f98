//! Answers that a fault plan gives in the peer's name.

mod kit;

use kit::planned::{node, plan};
use kit::{Connection, connect};
use pumice_device::faults::{FaultPlan, WirePlan};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::types::*;

const SECOND_NS: u64 = 1_000_000_000;
const MESSAGES: u64 = 8;

/// What a run came to.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Of the sender.
    report: String,
    statuses: Vec<WcStatus>,
    state: QpState,
    refused: [u64; 3],
}

/// Eight SENDs, WRITEs and READs of up to four packets. The network loses packets if its seed is not 0.
fn run(plan: &FaultPlan, network_seed: u64, rnr_retry: u8, opcode: SendOpcode) -> Outcome {
    let loss = pumice_device::faults::Fault::Drop;
    let mut world = World::new(FabricConfig {
        seed: network_seed,
        delay_ns: 1_000 * (1 + network_seed),
        faults: WirePlan::seeded(network_seed).by_chance(20_000 * network_seed.min(2) as u32, loss),
        ..FabricConfig::default()
    });
    let (a, report) = node(&mut world, "10.0.0.1", plan);
    let (b, _) = node(&mut world, "10.0.0.2", &FaultPlan::new());
    let (qa, qb) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
    connect(&a, qa, &b, qb, true, Connection { rnr_retry, ..Connection::default() });
    for k in 0..MESSAGES {
        let length = 1 + 1000 * (k as u32 % 4);
        b.post_recv(qb, k, 0, length);
        let request = SendRequest {
            sges: &[a.sge(0, length)],
            remote: b.target(0),
            flags: SendFlags::SIGNALED,
            ..SendRequest::new(k, opcode)
        };
        a.hca.post_send(qa, &request).unwrap();
    }
    let mut statuses = Vec::new();
    let done = world.run_until(60 * SECOND_NS, || {
        for completion in a.drain() {
            assert_eq!(completion.wr_id, statuses.len() as u64);
            statuses.push(completion.status);
        }
        b.drain();
        statuses.len() as u64 == MESSAGES
    });
    assert!(done, "network {network_seed}: {statuses:?}");
    let refused =
        [Counter::RxRnrNak, Counter::RxNakSequence, Counter::RxCnp].map(|counter| a.counter(counter));
    let state = a.state(qa);
    drop((a, b, world));
    Outcome { report: report.sorted(), statuses, state, refused }
}

fn lines(outcome: &Outcome) -> usize {
    outcome.report.lines().filter(|line| line.contains("\"rule\":")).count()
}

/// The first ones succeed, one fails with this, the rest is flushed.
fn fails_at(message: usize, status: WcStatus) -> Vec<WcStatus> {
    let mut statuses = vec![WcStatus::Success; message];
    statuses.push(status);
    statuses.resize(MESSAGES as usize, WcStatus::WrFlushErr);
    statuses
}

const OPCODES: [SendOpcode; 3] = [SendOpcode::Send, SendOpcode::RdmaWrite, SendOpcode::RdmaRead];

#[test]
fn a_receiver_that_is_not_ready_is_asked_again_until_it_is() {
    for opcode in OPCODES {
        for selector in ["message=3", "message=3 packet=6"] {
            let plan = plan(&[&format!("answer with=rnr timer=1.28ms times=3 {selector}")]);
            let first = run(&plan, 0, 3, opcode);
            if opcode == SendOpcode::RdmaRead && selector.contains("packet") {
                continue; // one packet asks for all
            }
            assert_eq!((lines(&first), first.refused), (3, [3, 0, 0]), "{opcode:?} {selector}: {first:#?}");
            assert_eq!(first.statuses, [WcStatus::Success; MESSAGES as usize]);
            assert!(
                first
                    .report
                    .contains("\"transmission\":3,\"lost\":true,\"answered\":\"rnr\",\"timer_code\":14}")
            );
            for seed in 1..6 {
                assert_eq!(run(&plan, seed, 3, opcode).report, first.report, "{opcode:?}, network {seed}");
            }
        }
    }
}

#[test]
fn a_receiver_that_is_never_ready_ends_the_queue_pair() {
    let plan = plan(&["answer with=rnr timer=10us message=2"]);
    let first = run(&plan, 0, 2, SendOpcode::Send);
    assert_eq!(first.statuses, fails_at(2, WcStatus::RnrRetryExcErr));
    assert_eq!((lines(&first), first.state), (3, QpState::Err));
}

#[test]
fn a_fatal_nak_ends_the_queue_pair_at_its_message_with_its_status() {
    let answers = [
        ("access", WcStatus::RemAccessErr),
        ("operation", WcStatus::RemOpErr),
        ("invalid-request", WcStatus::RemInvReqErr),
    ];
    for (word, status) in answers {
        for opcode in OPCODES {
            let plan = plan(&[&format!("answer with={word} nth=1 message=5")]);
            let first = run(&plan, 0, 7, opcode);
            let expected = (fails_at(5, status), QpState::Err, 1);
            assert_eq!((first.statuses.clone(), first.state, lines(&first)), expected, "{word} {opcode:?}");
            for seed in 1..4 {
                let other = run(&plan, seed, 7, opcode);
                assert_eq!((&other.report, &other.statuses), (&first.report, &first.statuses), "{seed}");
            }
            let again = FaultPlan::parse(&first.report, 1).unwrap();
            assert_eq!(run(&again, 2, 7, opcode).report, first.report);
        }
    }
}

#[test]
fn a_sequence_nak_repeats_the_packet_and_too_many_end_the_queue_pair() {
    let few = run(&plan(&["answer with=sequence times=4 message=6 packet=10"]), 0, 7, SendOpcode::RdmaWrite);
    assert_eq!((lines(&few), few.refused), (4, [0, 4, 0]), "{few:#?}");
    assert_eq!(few.statuses, [WcStatus::Success; MESSAGES as usize]);
    let many = run(&plan(&["answer with=sequence message=6"]), 0, 7, SendOpcode::Send);
    assert_eq!((lines(&many), many.statuses), (8, fails_at(6, WcStatus::RetryExcErr)));
}

#[test]
fn a_congestion_notification_lets_the_packet_through() {
    let first = run(&plan(&["answer with=cnp every=2"]), 0, 7, SendOpcode::Send);
    assert_eq!((first.statuses.len(), first.state), (MESSAGES as usize, QpState::Rts));
    assert_eq!((lines(&first), first.refused), (7, [0, 0, 7]), "{first:#?}");
    assert!(!first.report.contains("lost"));
}
