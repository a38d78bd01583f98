//! Random loss must not make a connection collapse: go-back-N with a window that knows the path.
#![allow(clippy::print_stdout)]

mod kit;

use kit::{Connection, Node, connect};
use pumice_device::faults::{Fault, WirePlan};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const MESSAGE_BYTES: u32 = 1 << 20;
const OUTSTANDING: usize = 8;
const MESSAGES: usize = 96;

struct Run {
    duration_ns: u64,
    megabits_per_second: u64,
    retransmitted: u64,
    timeouts: u64,
    early: u64,
    naks: u64,
}

fn post(a: &Node, qpn: Qpn, b: &Node, number: usize) {
    let offset = number % OUTSTANDING * MESSAGE_BYTES as usize;
    let request = SendRequest {
        sges: &[a.sge(offset, MESSAGE_BYTES)],
        remote: b.target(offset),
        ..SendRequest::new(number as u64, SendOpcode::RdmaWrite)
    };
    a.hca.post_send(qpn, &request).unwrap();
}

fn run(seed: u64, loss_ppm: u32) -> Run {
    let mut world = World::new(FabricConfig {
        seed,
        delay_ns: 100_000,
        rate_bits_per_second: Some(10_000_000_000),
        queue_bytes: 4 << 20,
        faults: WirePlan::seeded(seed).by_chance(loss_ppm, Fault::Drop),
        ..FabricConfig::default()
    });
    let room = OUTSTANDING * MESSAGE_BYTES as usize;
    let a = Node::new(&mut world, "10.0.0.1", room, 64);
    let b = Node::new(&mut world, "10.0.0.2", room, 64);
    let (qa, qb) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
    connect(&a, qa, &b, qb, true, Connection { mtu: Mtu::Mtu4096, ..Connection::default() });
    let mut posted = 0;
    while posted < OUTSTANDING {
        post(&a, qa, &b, posted);
        posted += 1;
    }
    let mut completed = 0;
    let finished = world.run_until(60_000_000_000, || {
        for completion in a.drain() {
            assert_eq!((completion.wr_id, completion.status), (completed as u64, WcStatus::Success));
            completed += 1;
            if posted < MESSAGES {
                post(&a, qa, &b, posted);
                posted += 1;
            }
        }
        completed == MESSAGES
    });
    assert!(finished, "seed {seed}: {completed} of {MESSAGES} messages after a minute");
    let duration_ns = world.now_ns();
    Run {
        duration_ns,
        megabits_per_second: MESSAGES as u64 * u64::from(MESSAGE_BYTES) * 8_000 / duration_ns,
        retransmitted: a.counter(Counter::RetransmittedPackets),
        timeouts: a.counter(Counter::Timeout),
        early: a.counter(Counter::EarlyRetransmit),
        naks: a.counter(Counter::RxNakSequence),
    }
}

#[test]
fn one_percent_loss_leaves_half_the_goodput() {
    let lossless = run(0, 0);
    eprintln!("no loss: {} Mb/s", lossless.megabits_per_second);
    assert_eq!(lossless.retransmitted, 0, "nothing is lost to a full queue or buffer");
    assert!(lossless.megabits_per_second > 9_000);
    let mut worst = u64::MAX;
    for seed in 1..=8 {
        let lossy = run(seed, 10_000);
        let percent = lossy.megabits_per_second * 100 / lossless.megabits_per_second;
        eprintln!(
            "seed {seed}: {} Mb/s, {percent} %, {} us, {} packets again, {} NAKs, {} early, {} timeouts",
            lossy.megabits_per_second,
            lossy.duration_ns / 1000,
            lossy.retransmitted,
            lossy.naks,
            lossy.early,
            lossy.timeouts
        );
        worst = worst.min(percent);
    }
    assert!(worst >= 50, "{worst} % of the lossless goodput");
}
