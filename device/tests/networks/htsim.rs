//! Incasts and permutations of csg-htsim's validation (`sim/datacenter/validate.txt`): 100 Gbit/s, links of
//! 1 us, fat trees, flows of 2 MB that all begin at 0.
//!
//! Its bounds are for EQDS, whose switches trim. Here switches pause, and nothing is lost: a run takes at
//! least what the payload takes on the receiver's link.

use pumice_device::port::Topology;
use pumice_transport::qp::Congestion;
use pumice_transport::types::Mtu;

use crate::transfers::{End, Start, Transfer, incast, transfers};

/// Bytes of a flow.
const FLOW_BYTES: u32 = 2_000_000;
/// `perm_16n_16c_2MB.cm`.
const PERMUTATION: [(u16, u16); 16] = [
    (7, 5),
    (15, 1),
    (0, 13),
    (14, 8),
    (1, 3),
    (6, 7),
    (5, 11),
    (9, 12),
    (11, 4),
    (3, 14),
    (12, 15),
    (2, 10),
    (13, 2),
    (10, 6),
    (4, 0),
    (8, 9),
];

/// A fat tree of switches with `ports` ports, which pause.
fn fat_tree(ports: u16) -> Topology {
    let half = ports / 2;
    let text = format!(
        "kind = \"three-tier\"\nhosts = {}\npods = {ports}\nleaves = {}\nspines = {}\ncores = {}\n\
         [link]\nrate_mbps = 100000\ndelay_ns = 1000\n[switch]\nqueue_bytes = 4000000\n\
         [switch.pause]\nxoff_bytes = 100000\nxon_bytes = 80000\n",
        ports * half * half,
        ports * half,
        ports * half,
        half * half
    );
    Topology::parse(&text).unwrap()
}

/// Runs transfers of so many queue pairs each, and checks that nothing is lost and all are between two
/// times, in us.
fn run(what: &str, ports: u16, transfers: Vec<Transfer>, queue_pairs: u32, [least, most]: [f64; 2]) -> End {
    let (topology, congestion) = (fat_tree(ports), Congestion::default());
    // Packets of htsim have 4150 bytes, these have 4158.
    let start = Start { topology, congestion, mtu: Mtu::Mtu4096, queue_pairs, transfers };
    let end = start.run();
    let (us, pauses) = (end.last_us(), end.stats.pauses);
    eprintln!(
        "{what}: {us:.1} us, of {least} to {most}; longest queue {} kB, {pauses} pauses",
        end.longest_queue_bytes() / 1000
    );
    assert_eq!((end.stats.queue_drops, end.stats.receive_drops, end.sent_again), (0, 0, 0));
    assert!((least..=most).contains(&us), "{what}: {us} us");
    end
}

#[test]
fn incasts_end_between_what_their_bytes_take_and_the_bound() {
    run("1 to 1", 4, incast(1, FLOW_BYTES), 1, [160.0, 180.0]);
    let end = run("15 to 1", 4, incast(15, FLOW_BYTES), 1, [2400.0, 2500.0]);
    assert!(end.stats.pauses > 100, "{:?}", end.stats);
}

#[test]
fn an_incast_of_127_ends_before_the_bound() {
    run("127 to 1", 8, incast(127, FLOW_BYTES), 1, [20_320.0, 23_000.0]);
}

#[test]
fn a_permutation_ends_before_the_bounds_for_one_way_and_for_many() {
    let transfers = || transfers(&PERMUTATION, FLOW_BYTES);
    run("permutation of 16, one way each", 4, transfers(), 1, [160.0, 1300.0]);
    run("permutation of 16, 128 queue pairs each", 4, transfers(), 128, [160.0, 210.0]);
}
