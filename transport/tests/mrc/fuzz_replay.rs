//! The corpus of the fuzz target `mrc`, and mutants of it.

use std::path::Path;

use crate::fuzzed::survive;
use crate::replay::replay;

#[test]
fn hostile_packets_are_harmless() {
    replay(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz")), "mrc", 20_000, survive);
}
