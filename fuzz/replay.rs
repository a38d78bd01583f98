//! The corpus of a fuzz target, and mutants of it, on a stable toolchain: what `cargo test` does with
//! `fuzz/`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

/// Changes made to one mutant at most.
const MAX_CHANGES: u64 = 6;

/// SplitMix64: the same mutants on every machine.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * bound as u128) >> 64) as usize
    }
}

/// Runs `survive` on every file of `seeds/<target>` below `fuzz`, and on `mutants` inputs made from them; on
/// so many times more as PUMICE_FUZZ_FACTOR says.
pub(crate) fn replay(fuzz: &Path, target: &str, mutants: u64, survive: fn(&[u8]) -> usize) {
    let folder = fuzz.join("seeds").join(target);
    let mut seeds: Vec<(String, Vec<u8>)> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.display().to_string(), std::fs::read(&path).unwrap())
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    let mut meant = 0;
    for (name, bytes) in &seeds {
        meant += run(&format!("fuzz target {target}, seed {name}"), bytes, survive);
    }
    assert!(meant > 0, "no seed of {target} means anything to it");
    let factor =
        std::env::var("PUMICE_FUZZ_FACTOR").map_or(1, |factor| factor.parse().expect("a whole number"));
    for number in 0..mutants * factor {
        let mut chance = XorShift(number);
        let (name, bytes) = &seeds[chance.below(seeds.len())];
        let other = &seeds[chance.below(seeds.len())].1;
        let mutant = mutant(bytes, other, &mut chance);
        run(&format!("fuzz target {target}, mutant {number}, of seed {name}"), &mutant, survive);
    }
}

fn run(what: &str, bytes: &[u8], survive: fn(&[u8]) -> usize) -> usize {
    catch_unwind(AssertUnwindSafe(|| survive(bytes))).unwrap_or_else(|panic| {
        eprintln!("{what}: {bytes:02x?}");
        resume_unwind(panic)
    })
}

fn mutant(bytes: &[u8], other: &[u8], chance: &mut XorShift) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=chance.below(MAX_CHANGES as usize) {
        if bytes.is_empty() {
            bytes.push(0);
        }
        // Formats begin with what says how to go on: more often there.
        let reach = if chance.below(3) == 0 { bytes.len().min(64) } else { bytes.len() };
        let at = chance.below(reach);
        match chance.below(9) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][chance.below(5)],
            2 => bytes[at] = chance.below(256) as u8,
            3 => {
                let word = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, bytes.len() as u32][chance.below(6)];
                let word = if chance.below(2) == 0 { word.to_le_bytes() } else { word.to_be_bytes() };
                bytes.iter_mut().skip(at).zip(word).for_each(|(to, from)| *to = from);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..(at + 1 + chance.below(16)).min(bytes.len()))),
            6 => {
                let end = (at + 1 + chance.below(48)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            7 => {
                let from = chance.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ => bytes.insert(at, chance.below(256) as u8),
        }
    }
    bytes
}
