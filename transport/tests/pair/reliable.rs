//! RC: every message arrives once, whole, and in order, also over a link that loses and reorders packets.

use pumice_transport::host::Counter;
use pumice_transport::types::{Mtu, QpState, QpType, SendOpcode};

use crate::link::{Faults, Link, Random};
use crate::node::{Node, Terms};
use crate::workload::Workload;

/// A run, as it is printed when it fails.
#[derive(Debug, Clone, Copy)]
struct Case {
    seed: u64,
    terms: Terms,
    faults: Faults,
    requests: usize,
    kinds: &'static [SendOpcode],
}

/// Prints the case when its run panics.
struct OnFailure(Case);

impl Drop for OnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed case: {:?}", self.0);
        }
    }
}

const MIX: &[SendOpcode] = &[
    SendOpcode::Send,
    SendOpcode::SendWithImm,
    SendOpcode::RdmaWrite,
    SendOpcode::RdmaWriteWithImm,
    SendOpcode::RdmaRead,
    SendOpcode::FetchAdd,
    SendOpcode::AtomicWrite,
];

/// Events after which a run counts as stuck.
const MAX_EVENTS: usize = 2_000_000;

/// Runs a case to its end; the virtual time it took in ns, and the packets sent again.
fn run(case: Case) -> (u64, u64) {
    let _on_failure = OnFailure(case);
    let mut random = Random(case.seed);
    let mut link = Link::new(case.faults, random.next());
    let mut nodes = [Node::new(0, &case.terms), Node::new(1, &case.terms)];
    let mtu = case.terms.mtu.bytes() as u32;
    // Each end asks, each end serves.
    let mut workloads = [0, 1].map(|_| Workload::new(&mut random, case.requests, mtu, case.kinds));
    let mut before = Vec::new();
    for (end, workload) in workloads.iter().enumerate() {
        let (asking, serving) = two(&mut nodes, end);
        workload.prepare(&mut asking.host, &mut serving.host, &mut random);
        before.push(Workload::snapshot(&mut asking.host, &mut serving.host));
    }
    let mut now_ns = 1_000_000;
    for _ in 0..MAX_EVENTS {
        for (end, workload) in workloads.iter_mut().enumerate() {
            let (asking, serving) = two(&mut nodes, end);
            workload.post(asking);
            // Sometimes no receive is there in time.
            if random.chance(300) {
                workload.post_receive(&mut serving.host);
            }
            asking.transmit(now_ns, &mut random, &mut link);
        }
        let deadlines = nodes.iter().filter_map(|node| node.qp.deadline_ns());
        let Some(next_ns) = deadlines.chain(link.next_arrival_ns()).min() else {
            // Only a receive can be missing now, and that ends an RNR wait, which is a deadline.
            break;
        };
        now_ns = now_ns.max(next_ns);
        while let Some(frame) = link.arrival(now_ns) {
            let node = nodes.iter_mut().find(|node| node.is_at(&frame.flow)).expect("one of two");
            node.receive(now_ns, &frame.bytes, &frame.flow, frame.traffic_class);
        }
        nodes.iter_mut().for_each(|node| node.timeout(now_ns));
        assert!(
            nodes.iter().all(|node| node.qp.state() == QpState::Rts),
            "a queue pair failed at {now_ns} ns: {:?} {:?}",
            nodes[0].host.causes,
            nodes[1].host.causes
        );
    }
    for (end, workload) in workloads.iter().enumerate() {
        let (asking, serving) = two(&mut nodes, end);
        assert!(workload.is_done(&asking.host), "end {end} is stuck at {now_ns} ns");
        workload.check(&mut asking.host, &mut serving.host, &before[end]);
        assert_eq!(asking.qp.in_flight(), 0);
    }
    let resent = nodes.iter().map(|node| node.host.counter(Counter::RetransmittedPackets)).sum();
    (now_ns, resent)
}

/// The end that asks and the end that serves.
fn two(nodes: &mut [Node; 2], asking: usize) -> (&mut Node, &mut Node) {
    let [first, second] = nodes;
    if asking == 0 { (first, second) } else { (second, first) }
}

fn terms(mtu: Mtu, random: &mut Random) -> Terms {
    Terms {
        qp_type: QpType::Rc,
        mtu,
        // The PSNs wrap early in the run.
        psn: 0xff_ff00 + random.below(0x100) as u32,
        window_limit_packets: random.pick(&[4, 8, 16, 64]),
        read_limit_packets: random.pick(&[1, 3, 16, 64]),
        rd_atomic: random.pick(&[1, 2, 4, 16]),
    }
}

fn runs(faults: Faults, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        for mtu in Mtu::ALL {
            let terms = terms(mtu, &mut Random(seed ^ mtu as u64));
            run(Case { seed, terms, faults, requests: 120, kinds: MIX });
        }
    }
}

#[test]
fn a_clean_link_needs_no_repetition() {
    for mtu in Mtu::ALL {
        let terms = terms(mtu, &mut Random(7));
        let kinds = &MIX[4..];
        let (_, resent) = run(Case { seed: 1, terms, faults: Faults::NONE, requests: 200, kinds });
        assert_eq!(resent, 0, "{mtu:?}");
    }
}

#[test]
fn a_clean_link_with_receives_that_come_late() {
    runs(Faults::NONE, 0..10);
}

#[test]
fn a_link_that_loses() {
    runs(Faults { loss: 20, ..Faults::NONE }, 100..110);
}

#[test]
fn a_link_that_loses_much() {
    runs(Faults { loss: 100, ..Faults::NONE }, 200..206);
}

#[test]
fn a_link_that_doubles() {
    runs(Faults { duplication: 100, ..Faults::NONE }, 300..310);
}

#[test]
fn a_link_that_reorders() {
    runs(Faults { reordering: 50, ..Faults::NONE }, 400..410);
}

#[test]
fn a_link_that_does_everything() {
    runs(Faults { loss: 30, duplication: 30, reordering: 30 }, 500..520);
}

#[test]
fn reads_and_atomics_alone_over_a_bad_link() {
    for seed in 600..620 {
        let terms = terms(Mtu::Mtu256, &mut Random(seed));
        let faults = Faults { loss: 30, duplication: 30, reordering: 30 };
        run(Case { seed, terms, faults, requests: 150, kinds: &MIX[4..] });
    }
}
