//! Chaos in virtual time: random connections and work under random faults.
//!
//! Each seed makes a scenario and runs it in three phases: safety under faults, healing, liveness.
//! `PUMICE_SEED=17 cargo test -p pumice-device --test chaos -- one_seed --exact --nocapture` runs one seed,
//! `PUMICE_CHAOS_SEEDS=5000` makes `many_seeds` run more than 200. `one_seed_on_rings` and
//! `many_seeds_on_rings` do the same on a medium like the rings of one host: late, with back-pressure, with
//! processes that stop and die, and without loss.
#![allow(unreachable_pub, clippy::print_stdout)]

#[path = "../kit/mod.rs"]
mod kit;

mod flow;
mod image;
mod plan;
mod run;
mod scenario;

use scenario::Medium;

const DEFAULT_SEEDS: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Says how to run a seed again if it panics.
struct Announce(Medium, u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Announce(medium, seed) = self;
            let test = if *medium == Medium::Rings { "one_seed_on_rings" } else { "one_seed" };
            eprintln!(
                "seed {seed} failed; again with:\n  \
                 PUMICE_SEED={seed} cargo test -p pumice-device --test chaos -- {test} --exact --nocapture"
            );
        }
    }
}

fn run(medium: Medium, seed: u64, verbose: bool) -> run::Outcome {
    let _announce = Announce(medium, seed);
    run::run(medium, seed, verbose)
}

fn run_one(medium: Medium) {
    let seed = number("PUMICE_SEED").unwrap_or(0);
    let outcome = run(medium, seed, true);
    eprintln!("{outcome:#?}");
}

fn run_many(medium: Medium) -> (u64, run::Outcome) {
    let count = number("PUMICE_CHAOS_SEEDS").unwrap_or(DEFAULT_SEEDS);
    let mut total = run::Outcome::default();
    for seed in 1..=count {
        total.add(&run(medium, seed, false));
    }
    eprintln!("{count} seeds: {total:#?}");
    assert!(total.failed_as_specified > 0 || count < DEFAULT_SEEDS);
    (count, total)
}

#[test]
fn one_seed() {
    run_one(Medium::Network);
}

#[test]
fn one_seed_on_rings() {
    run_one(Medium::Rings);
}

#[test]
fn many_seeds() {
    let (count, total) = run_many(Medium::Network);
    // A run in which nothing went wrong would prove nothing.
    assert!(total.lost > count && total.retransmitted > count && total.rnr_naks > 0);
}

#[test]
fn many_seeds_on_rings() {
    let (count, total) = run_many(Medium::Rings);
    // Senders waited for receivers that were late or stopped.
    assert!(total.back_pressured > count && total.rnr_naks > 0);
}

#[test]
fn a_seed_is_the_whole_truth() {
    for medium in [Medium::Network, Medium::Rings] {
        for seed in [3, 5, 8] {
            assert_eq!(run(medium, seed, false), run(medium, seed, false), "seed {seed} ran differently");
        }
    }
}
