//! The scenarios, their figures, and the goals that MRC meets.

use std::time::Instant;

use crate::fabric::{OVERHEAD_BYTES, Shape};
use crate::flows::{Protocol, Simulation};

/// Eight planes of 100 Gb/s.
const SHAPE: Shape = Shape { planes: 8, leaves: 4, hosts_per_leaf: 4, rate: 12.5, trims: true };
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
fn say(scenario: &str, protocol: Protocol, figures: &str, begun: Instant) {
    println!("{scenario:<34} {protocol:<4?} {figures}   ({:.1} s)", begun.elapsed().as_secs_f64());
}

/// The share of the line that a host has towards another one, behind another leaf.
fn share_of_line(scenario: &str, protocol: Protocol, loss_ppm: &[u64; 8]) -> f64 {
    let begun = Instant::now();
    let mut simulation = Simulation::new(SHAPE, protocol, 1);
    simulation.fabric.loss_ppm = loss_ppm.to_vec();
    let flows = simulation.bundle([0, 12], MESSAGE, DEPTH, FOR_EVER);
    simulation.run(WARM_UP_NS, |_| false);
    let before = simulation.delivered_by(&flows);
    let time_ns = 4_000_000;
    simulation.run(time_ns, |_| false);
    let share = (simulation.delivered_by(&flows) - before) as f64 / line(&SHAPE, time_ns);
    let (repeated, counts) = (simulation.flows[0].ends[0].repeated(), simulation.fabric.counts);
    let bad = simulation.flows[0].ends[0].bad_paths(0);
    let failed = simulation.failed();
    say(
        scenario,
        protocol,
        &format!(
            "{share:.3} of the line; lost {} trimmed {} again {repeated}, {bad} bad paths of plane 0, {failed} failed",
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
