//! Seeds: 200 in every run of the tests, as many as wanted by hand (`scripts/nightly`), or one that failed.

use super::ledger::LedgerTally;
use super::scenario::{self, Options, ScenarioOutcome};
use crate::system::Guard;

const SEEDS: u64 = 200;
/// Failures that are told.
const TOLD: usize = 10;

/// The seeds that the environment asks for, or the usual ones.
fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("PUMICE_SIM_SEED") {
        return seed..seed + 1;
    }
    let first = number("PUMICE_SIM_FIRST").unwrap_or(1);
    first..first + number("PUMICE_SIM_SEEDS").unwrap_or(SEEDS)
}

fn command(seed: u64) -> String {
    format!("PUMICE_SIM_SEED={seed} cargo test -p pumice-fabric --lib simulation -- --nocapture every_seed")
}

#[test]
fn every_seed_keeps_what_is_promised() {
    let mut sum = LedgerTally::default();
    let (mut calls, mut failures) = (0, Vec::new());
    let seeds = seeds();
    for seed in seeds.clone() {
        let ScenarioOutcome { violation, tally, calls: made, .. } = scenario::run(seed, Options::default());
        sum.add(&tally);
        calls += made;
        if let Some(violation) = violation {
            failures.push(format!("seed {seed}: {violation}\n    {}", command(seed)));
        }
    }
    eprintln!("{} seeds, {calls} system calls: {sum:?}", seeds.end - seeds.start);
    let count = failures.len();
    failures.truncate(TOLD);
    assert!(count == 0, "{count} seeds failed:\n  {}", failures.join("\n  "));
    if seeds.end - seeds.start >= SEEDS {
        assert!(sum.least() > 20, "the simulation does too little: {sum:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in [1, 7, 99] {
        let run = || scenario::run(seed, Options::default());
        assert_eq!(run(), run(), "seed {seed}");
    }
}

/// The first violation that the usual seeds find.
fn found(options: Options) -> Option<(u64, String)> {
    (1..=SEEDS).find_map(|seed| scenario::run(seed, options).violation.map(|violation| (seed, violation)))
}

/// Once, relays had names that any user could take, and sent to the names of the dead.
#[test]
fn a_payload_that_reaches_another_user_is_found() {
    let without = &[Guard::PrivateNames, Guard::OwnerBeforeRelay];
    let (seed, violation) = found(Options { without }).expect("a leak");
    eprintln!("seed {seed}: {violation}");
    assert!(violation.contains("sent a payload to another user's socket"), "{violation}");
}

/// Once, the process with the lowest index got all requests, stopped or not.
#[test]
fn requests_that_a_stopped_process_swallows_are_found() {
    let without = &[Guard::AroundStopped, Guard::RequestsToListeners];
    let (seed, violation) = found(Options { without }).expect("a request");
    eprintln!("seed {seed}: {violation}");
    assert!(violation.contains("which listens and runs"), "{violation}");
}
