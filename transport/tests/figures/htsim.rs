//! Incasts and permutations of csg-htsim's validation (`sim/datacenter/validate.txt`) by MRC with NSCC: one
//! plane of 100 Gb/s, flows of 2 MB that all begin at once, and its bounds for EQDS with 128 paths.

use std::time::Instant;

use crate::fabric::{Shape, TRIMMED_LINK_BYTES};
use crate::flows::{Protocol, Simulation};
use crate::scenarios::say;

const FLOW_BYTES: u32 = 2_000_000;
/// What a trimmed packet takes on a link of htsim (`ACKSIZE` in its `eqdspacket.h`).
const HTSIM_TRIMMED_LINK_BYTES: usize = 64;
/// Between two looks at whether all have ended.
const LOOK_NS: u64 = 1_000;

const fn shape(leaves: usize, hosts_per_leaf: usize, trims: bool) -> Shape {
    let trimmed_link_bytes = TRIMMED_LINK_BYTES;
    Shape { planes: 1, leaves, hosts_per_leaf, rate: 12.5, trims, trimmed_link_bytes }
}

/// Runs flows between these hosts. Returns after how many us the last one has ended.
fn last_us(what: &str, shape: Shape, flows: impl Iterator<Item = [usize; 2]>) -> f64 {
    let begun = Instant::now();
    let mut simulation = Simulation::new(shape, Protocol::Mrc, 1);
    let from_ns = simulation.fabric.now_ns;
    for hosts in flows {
        simulation.flow(hosts, 0, FLOW_BYTES, 1, 1);
    }
    while simulation.flows.iter().any(|flow| flow.ends[0].posted == 0 || flow.ends[0].outstanding() > 0) {
        simulation.run(LOOK_NS);
        assert!(simulation.fabric.now_ns - from_ns < 100_000_000, "it does not end");
    }
    let (counts, us) = (simulation.fabric.counts, (simulation.fabric.now_ns - from_ns) as f64 / 1e3);
    let figures = format!(
        "{us} us; trimmed {} dropped {} marked {}, {} failed",
        counts.trimmed,
        counts.dropped,
        counts.marked,
        simulation.failed()
    );
    say(what, Protocol::Mrc, &figures, begun);
    assert_eq!(simulation.failed(), 0);
    us
}

/// All hosts but the last one of this shape, to that.
fn incast(shape: &Shape) -> impl Iterator<Item = [usize; 2]> + use<> {
    let last = shape.hosts() - 1;
    (0..last).map(move |host| [host, last])
}

/// Each host to the one that is `step` places on.
fn permutation(shape: &Shape, step: usize) -> impl Iterator<Item = [usize; 2]> + use<> {
    let hosts = shape.hosts();
    (0..hosts).map(move |host| [host, (host + step) % hosts])
}

#[test]
fn permutations_of_16_and_1024_hosts_end_before_the_bounds() {
    let (small, large) = (shape(4, 4, true), shape(32, 32, true));
    let us = last_us("htsim, permutation of 16", small, permutation(&small, 5));
    assert!((160.0..=210.0).contains(&us), "{us}");
    let us = last_us("htsim, permutation of 1024", large, permutation(&large, 357));
    assert!((160.0..=220.0).contains(&us), "{us}");
}

#[test]
fn incasts_end_before_the_bounds() {
    for (what, shape, least, most) in [
        ("htsim, 15 to 1", shape(4, 4, false), 2_400.0, 2_500.0),
        ("htsim, 127 to 1", shape(8, 16, false), 20_320.0, 23_000.0),
    ] {
        let us = last_us(what, shape, incast(&shape));
        assert!((least..=most).contains(&us), "{what}: {us}");
        // With trimming, each sender has a packet on its way at least, and what is left of those that are
        // trimmed takes the last link's time. In htsim that is 64 bytes of each; with Ethernet's gap and the
        // headers of IP and UDP it is 110, and the bounds are missed by less than a hundredth.
        for (left, bytes, most) in
            [("64", HTSIM_TRIMMED_LINK_BYTES, most), ("110", TRIMMED_LINK_BYTES, 1.01 * most)]
        {
            let trims = Shape { trims: true, trimmed_link_bytes: bytes, ..shape };
            let us = last_us(&format!("{what}, trims to {left}"), trims, incast(&trims));
            assert!((least..=most).contains(&us), "{what}: {us}");
        }
    }
    let one = shape(4, 4, false);
    let us = last_us("htsim, 1 to 1", one, [[0, 15]].into_iter());
    assert!((160.0..=180.0).contains(&us), "{us}");
}
