//! The corpus of the fuzz target `mrc`, and mutants of it.

use std::path::Path;

use pumice_transport::mrc::wire::MrcOpcode;

use crate::fuzzed::{packets, survive};
use crate::replay::replay;

#[test]
fn hostile_packets_are_harmless() {
    replay(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz")), "mrc", 20_000, survive);
}

#[test]
fn each_opcode_has_a_seed() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/mrc"));
    let mut seen = std::collections::HashSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        seen.extend(packets(&bytes).filter_map(|packet| MrcOpcode::from_byte(*packet.get(1)?)));
    }
    let all = (0..=255).filter_map(MrcOpcode::from_byte).count();
    assert_eq!((seen.len(), all), (12, 12), "{seen:?}");
}
