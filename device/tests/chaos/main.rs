//! Chaos in virtual time: random connections and work under random faults.
//!
//! Each seed makes a scenario and runs it in three phases: safety under faults, healing, liveness.
//! `PUMICE_SEED=17 cargo test -p pumice-device --test chaos -- one_seed --nocapture` runs one seed,
//! `PUMICE_CHAOS_SEEDS=5000` makes `many_seeds` run more than 200.
#![allow(unreachable_pub, clippy::print_stdout)]

#[path = "../kit/mod.rs"]
mod kit;

mod flow;
mod image;
mod plan;
mod run;
mod scenario;

const DEFAULT_SEEDS: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Says how to run a seed again if it panics.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!(
                "seed {seed} failed; again with:\n  \
                 PUMICE_SEED={seed} cargo test -p pumice-device --test chaos -- one_seed --nocapture"
            );
        }
    }
}

fn run(seed: u64, verbose: bool) -> run::Outcome {
    let _announce = Announce(seed);
    run::run(seed, verbose)
}

#[test]
fn one_seed() {
    let seed = number("PUMICE_SEED").unwrap_or(0);
    let outcome = run(seed, true);
    eprintln!("{outcome:#?}");
}

#[test]
fn many_seeds() {
    let count = number("PUMICE_CHAOS_SEEDS").unwrap_or(DEFAULT_SEEDS);
    let mut total = run::Outcome::default();
    for seed in 1..=count {
        total.add(&run(seed, false));
    }
    eprintln!("{count} seeds: {total:#?}");
    // A run in which nothing went wrong would prove nothing.
    assert!(total.lost > count && total.retransmitted > count && total.rnr_naks > 0);
    assert!(total.failed_as_specified > 0 || count < DEFAULT_SEEDS);
}

#[test]
fn a_seed_is_the_whole_truth() {
    for seed in [3, 5, 8] {
        assert_eq!(run(seed, false), run(seed, false), "seed {seed} ran differently the second time");
    }
}
