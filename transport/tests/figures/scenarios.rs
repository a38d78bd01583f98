//! The scenarios, their figures, and the goals that MRC meets.

use std::time::Instant;

use crate::fabric::{OVERHEAD_BYTES, Shape, TRIMMED_LINK_BYTES};
use crate::flows::{Protocol, Simulation};

/// Eight planes of 100 Gb/s.
const SHAPE: Shape = Shape {
    planes: 8,
    leaves: 4,
    hosts_per_leaf: 4,
    rate: 12.5,
    trims: true,
    trimmed_link_bytes: TRIMMED_LINK_BYTES,
};
const MESSAGE: u32 = 1 << 20;
const DEPTH: u64 = 16;
const FOR_EVER: u64 = u64::MAX;
/// Until windows have found their sizes.
const WARM_UP_NS: u64 = 500_000;

/// Bytes of payload that a host can send in a time, by MRC with all its headers.
fn line(shape: &Shape, time_ns: u64) -> f64 {
    let payload = 4096.0 / (4096 + 40 + OVERHEAD_BYTES) as f64;
    shape.rate * f64::from(shape.planes) * payload * time_ns as f64
}

#[expect(clippy::print_stdout, reason = "what was measured")]
pub(crate) fn say(scenario: &str, protocol: Protocol, figures: &str, begun: Instant) {
    println!("{scenario:<34} {protocol:<4?} {figures}   ({:.1} s)", begun.elapsed().as_secs_f64());
}

/// The share of the line that a host has towards another one, behind another leaf.
fn share_of_line(scenario: &str, protocol: Protocol, loss_ppm: &[u64; 8]) -> f64 {
    let begun = Instant::now();
    let mut simulation = Simulation::new(SHAPE, protocol, 1);
    simulation.fabric.loss_ppm = loss_ppm.to_vec();
    let flows = simulation.bundle([0, 12], MESSAGE, DEPTH, FOR_EVER);
    simulation.run(WARM_UP_NS);
    let before = simulation.delivered_by(&flows);
    let time_ns = 4_000_000;
    simulation.run(time_ns);
    let share = (simulation.delivered_by(&flows) - before) as f64 / line(&SHAPE, time_ns);
    let (repeated, counts) = (simulation.flows[0].ends[0].repeated(), simulation.fabric.counts);
    let bad = simulation.flows[0].ends[0].bad_paths(0);
    let failed = simulation.failed();
    say(
        scenario,
        protocol,
        &format!(
            "{share:.3} of the line; lost {} trimmed {} again {repeated}, {bad} bad paths of \
             plane 0, {failed} failed",
            counts.lost, counts.trimmed
        ),
        begun,
    );
    if protocol == Protocol::Mrc {
        assert_eq!(failed, 0);
    }
    share
}

fn both(scenario: &str, loss_ppm: &[u64; 8]) -> [f64; 2] {
    [Protocol::Mrc, Protocol::Rc].map(|protocol| share_of_line(scenario, protocol, loss_ppm))
}

#[test]
fn no_loss() {
    let [mrc, _] = both("no loss", &[0; 8]);
    assert!(mrc >= 0.96, "{mrc}");
}

#[test]
fn one_packet_of_a_thousand_is_lost() {
    let [mrc, rc] = both("0.1 % lost on all planes", &[1_000; 8]);
    assert!(mrc >= 0.95 && mrc > rc, "{mrc} {rc}");
}

#[test]
fn one_packet_of_a_hundred_is_lost() {
    let [mrc, rc] = both("1 % lost on all planes", &[10_000; 8]);
    assert!(mrc >= 0.33 && mrc > rc, "{mrc} {rc}");
}

#[test]
fn one_plane_of_eight_loses() {
    let mut loss = [0; 8];
    loss[0] = 10_000;
    let [mrc, _] = both("1 % lost on one plane of eight", &loss);
    // The paths of the plane are left: what counts is what the seven others carry.
    assert!(mrc >= 0.95 * 7.0 / 8.0, "{mrc}");
}

/// A plane dies, and neither end is told; later it comes back.
fn plane_lost(protocol: Protocol) -> ([f64; 3], usize) {
    let begun = Instant::now();
    let mut simulation = Simulation::new(SHAPE, protocol, 1);
    let flows = simulation.bundle([0, 12], MESSAGE, DEPTH, FOR_EVER);
    simulation.run(WARM_UP_NS);
    let share_of = |simulation: &mut Simulation, time_ns: u64| {
        let before = simulation.delivered_by(&flows);
        simulation.run(time_ns);
        (simulation.delivered_by(&flows) - before) as f64 / line(&SHAPE, time_ns)
    };
    simulation.fabric.dead = Some(3);
    let first = share_of(&mut simulation, 100_000);
    let without = share_of(&mut simulation, 2_000_000);
    let bad = simulation.flows[0].ends[0].bad_paths(3);
    simulation.fabric.dead = None;
    // Three probes, a ms apart, show that a path is good again.
    let _ = share_of(&mut simulation, 4_500_000);
    let again = share_of(&mut simulation, 1_000_000);
    let failed = simulation.failed();
    say(
        "one plane of eight dies",
        protocol,
        &format!(
            "{first:.3} in the first 100 us, {without:.3} after, {again:.3} when it is back; \
             {bad} bad paths, {failed} failed"
        ),
        begun,
    );
    ([first, without, again], failed)
}

#[test]
fn a_plane_is_lost_and_comes_back() {
    let ([_, without, again], failed) = plane_lost(Protocol::Mrc);
    assert!(without >= 0.85 && again >= 0.96, "{without} {again}");
    assert_eq!(failed, 0, "a queue pair has failed");
    let (_, failed) = plane_lost(Protocol::Rc);
    assert_eq!(failed, 1, "the queue pair of the plane");
}

/// What a victim has beside so many senders to a neighbour of its peer, and what these have.
fn victim(protocol: Protocol, senders: &[usize]) -> (f64, Vec<f64>, String) {
    let mut simulation = Simulation::new(SHAPE, protocol, 1);
    let flows = simulation.bundle([1, 13], MESSAGE, DEPTH, FOR_EVER);
    let others: Vec<Vec<usize>> =
        senders.iter().map(|host| simulation.bundle([*host, 12], MESSAGE, DEPTH, FOR_EVER)).collect();
    simulation.run(2 * WARM_UP_NS);
    let count = |simulation: &Simulation| -> Vec<u64> {
        [&flows].into_iter().chain(&others).map(|one| simulation.delivered_by(one)).collect()
    };
    let before = count(&simulation);
    let time_ns = 3_000_000;
    simulation.run(time_ns);
    let whole = line(&SHAPE, time_ns);
    let after = count(&simulation);
    let shares: Vec<f64> =
        after.iter().zip(&before).map(|(after, before)| (after - before) as f64 / whole).collect();
    let counts = simulation.fabric.counts;
    let (failed, counted) = (simulation.failed(), (counts.trimmed, counts.dropped, counts.marked));
    (shares[0], shares[1..].to_vec(), format!("trimmed, dropped, marked {counted:?}, {failed} failed"))
}

#[test]
fn seven_senders_to_one_leave_their_neighbour_alone() {
    for protocol in [Protocol::Mrc, Protocol::Rc] {
        let begun = Instant::now();
        let (alone, _, _) = victim(protocol, &[]);
        let (beside, shares, what) = victim(protocol, &[0, 2, 4, 5, 8, 9, 10]);
        let sum: f64 = shares.iter().sum();
        let least = shares.iter().fold(f64::MAX, |least, share| least.min(*share)) * 7.0 / sum;
        let most = shares.iter().fold(0.0, |most: f64, share| most.max(*share)) * 7.0 / sum;
        say(
            "7 to 1, and a victim",
            protocol,
            &format!(
                "victim {beside:.3} of the line, {alone:.3} alone; the seven {sum:.3}, \
                 each {least:.2} to {most:.2} of its share; {what}"
            ),
            begun,
        );
        if protocol == Protocol::Mrc {
            assert!(beside >= 0.95 * alone, "{beside} {alone}");
            assert!(sum >= 0.9 && least > 0.5 && most < 1.5, "{sum} {least} {most}");
        }
    }
}

const LARGE: Shape = Shape {
    planes: 8,
    leaves: 8,
    hosts_per_leaf: 8,
    rate: 12.5,
    trims: true,
    trimmed_link_bytes: TRIMMED_LINK_BYTES,
};

/// Runs until all that was posted has ended. Returns the share of the line that each host has had.
fn whole_run(scenario: &str, protocol: Protocol, bytes_of_host: u64, simulation: &mut Simulation) -> f64 {
    let begun = Instant::now();
    let from_ns = simulation.fabric.now_ns;
    let flows: Vec<usize> = (0..simulation.flows.len()).collect();
    let whole = bytes_of_host * LARGE.hosts() as u64;
    let has_ended = |flow: &crate::flows::Flow| {
        let one = &flow.ends[0];
        one.has_failed() || (one.posted == flow.most && one.outstanding() == 0)
    };
    let mut most_ns = [0; 3];
    for _ in 0..10_000 {
        simulation.run(2_000);
        let passed_ns = simulation.fabric.now_ns - from_ns;
        for (at_ns, percent) in most_ns.iter_mut().zip([50, 90, 99]) {
            if simulation.delivered_by(&flows) * 100 < whole * percent {
                *at_ns = passed_ns;
            }
        }
        if simulation.flows.iter().all(has_ended) {
            break;
        }
    }
    let time_ns = simulation.fabric.now_ns - from_ns;
    let parts = most_ns.map(|ns| ns / 1000);
    let share = bytes_of_host as f64 / line(&LARGE, time_ns);
    let counts = simulation.fabric.counts;
    let (failed, us) = (simulation.failed(), time_ns / 1000);
    say(
        scenario,
        protocol,
        &format!(
            "{us} us, {share:.3} of the line; 50, 90, 99 % after {parts:?} us; trimmed {} dropped {} \
             marked {}, {failed} failed",
            counts.trimmed, counts.dropped, counts.marked
        ),
        begun,
    );
    if protocol == Protocol::Mrc {
        assert_eq!(failed, 0);
    }
    share
}

#[test]
fn each_of_64_hosts_sends_to_all_others() {
    let share = |protocol: Protocol| {
        let mut simulation = Simulation::new(LARGE, protocol, 1);
        for distance in 1..64 {
            for host in 0..64 {
                simulation.flow([host, (host + distance) % 64], ((host + distance) % 8) as u8, 1 << 15, 4, 4);
            }
        }
        whole_run("64 hosts, each to all", protocol, 63 << 17, &mut simulation)
    };
    let [mrc, rc] = [Protocol::Mrc, Protocol::Rc].map(share);
    assert!(mrc > rc, "{mrc} {rc}");
}

#[test]
fn each_of_64_hosts_sends_to_the_next_leaf() {
    let share = |protocol: Protocol| {
        let mut simulation = Simulation::new(LARGE, protocol, 1);
        for host in 0..64 {
            simulation.bundle([host, (host + 8) % 64], 1 << 20, 16, 16);
        }
        whole_run("64 hosts in a ring", protocol, 16 << 20, &mut simulation)
    };
    let [mrc, rc] = [Protocol::Mrc, Protocol::Rc].map(share);
    assert!(mrc > rc, "{mrc} {rc}");
}
