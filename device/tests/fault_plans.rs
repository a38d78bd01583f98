//! A fault plan of a device does the same to the same packets, with every order and timing of the network
//! and of the program.

mod kit;

use kit::planned::{node, plan as plan_of};
use kit::{Connection, Node, connect};
use pumice_device::faults::{Fault, FaultPlan, WirePlan};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::types::*;

const MESSAGES: u64 = 60;
const SECOND_NS: u64 = 1_000_000_000;

/// Message number `k`: of each kind some, of different lengths.
fn post(a: &Node, qa: pumice_transport::wire::Qpn, b: &Node, qb: pumice_transport::wire::Qpn, k: u64) {
    let opcodes = [SendOpcode::Send, SendOpcode::RdmaWrite, SendOpcode::RdmaRead, SendOpcode::FetchAdd];
    let opcode = opcodes[(k % 4) as usize];
    let length = if opcode == SendOpcode::FetchAdd { 8 } else { 100 + (k as u32 * 977) % 9_000 };
    if opcode == SendOpcode::Send {
        b.post_recv(qb, k, 0, length);
    }
    let atomic = (opcode == SendOpcode::FetchAdd).then_some(AtomicOperation::FetchAdd { add: 1 });
    let request = SendRequest {
        sges: &[a.sge(0, length)],
        remote: b.target(0),
        atomic,
        flags: SendFlags::SIGNALED,
        ..SendRequest::new(k, opcode)
    };
    a.hca.post_send(qa, &request).unwrap();
}

/// Both reports of a run in which the network has this seed and the program so many messages under way.
fn run(plan: &FaultPlan, network_seed: u64, outstanding: u64) -> [String; 2] {
    let mut world = World::new(FabricConfig {
        seed: network_seed,
        delay_ns: 1_000 * (1 + network_seed % 50),
        jitter_ns: 500 * network_seed,
        faults: WirePlan::seeded(network_seed)
            .by_chance(20_000 * (network_seed % 3) as u32, Fault::Drop)
            .by_chance(10_000 * (network_seed % 2) as u32, Fault::delay(50_000)),
        ..FabricConfig::default()
    });
    let (a, of_a) = node(&mut world, "10.0.0.1", plan);
    let (b, of_b) = node(&mut world, "10.0.0.2", plan);
    let (qa, qb) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
    connect(&a, qa, &b, qb, true, Connection { psn_here: 0xff_fff0, ..Connection::default() });
    let (mut posted, mut completed) = (0, 0);
    let done = world.run_until(600 * SECOND_NS, || {
        for completion in a.drain() {
            assert_eq!((completion.wr_id, completion.status), (completed, WcStatus::Success));
            completed += 1;
        }
        b.drain();
        while posted < MESSAGES && posted < completed + outstanding {
            post(&a, qa, &b, qb, posted);
            posted += 1;
        }
        completed == MESSAGES
    });
    assert!(done, "network {network_seed}, {outstanding} outstanding: {completed} of {MESSAGES}");
    drop((a, b, world));
    [of_a.sorted(), of_b.sorted()]
}

fn plan() -> FaultPlan {
    plan_of(&[
        "drop name=loss chance=3%",
        "drop name=bursts burst-begin=0.5% burst-end=40% side=responder",
        "duplicate chance=2%",
        "delay chance=3% time=10us..200us correlation=30%",
        "reorder chance=2% packets=2 within=100us",
        "corrupt chance=2% opcode=write,read-response",
        "truncate chance=1%",
        "mark every=7 opcode=ack",
        "answer name=not-ready with=rnr timer=20us chance=3%",
        "answer name=gap with=sequence chance=1%",
        "answer name=congested with=cnp every=9",
        "drop name=second nth=2 opcode=send transmission=1",
        "drop name=never opcode=req",
    ])
}

#[test]
fn the_same_plan_does_the_same_in_every_network() {
    let plan = plan();
    let first = run(&plan, 0, 1);
    assert!(first[0].lines().count() > 20 && first[1].lines().count() > 20, "{first:#?}");
    let unused = |report: &String| {
        report.lines().any(|line| line.contains("never\":[") && line.contains("\"never\"]"))
    };
    assert!(unused(&first[0]) && first[1].contains("\"never\",\"not-ready\",\"second\"]"), "{first:#?}");
    for seed in 1..12 {
        for outstanding in [1, 3, 12] {
            assert_eq!(run(&plan, seed, outstanding), first, "network {seed}, {outstanding} outstanding");
        }
    }
}

#[test]
fn a_report_is_a_plan_that_does_the_same_again() {
    let first = run(&plan(), 3, 4);
    let again = FaultPlan::parse(&first.join("\n"), 1).unwrap();
    assert_eq!(run(&again, 8, 12), first);
    assert_ne!(run(&plan().reseeded(43), 3, 4), first);
}

#[test]
fn a_partition_ends_and_the_connection_goes_on() {
    let plan = FaultPlan::seeded(1).with_line("partition nth=20 side=requester time=30ms").unwrap();
    let first = run(&plan.clone().losing(20_000), 0, 4);
    assert!(first[0].contains("\"partition_ns\":30000000"), "{}", first[0]);
    for seed in 1..6 {
        assert_eq!(run(&plan.clone().losing(20_000), seed, 4), first, "network {seed}");
    }
}
