//! Shuffled schedules: programs that rely on an order which the specification does not promise fail with some
//! seed, and right ones pass with every seed.

mod kit;

use std::path::Path;
use std::process::Output;

/// Seeds within which each mistake is found.
const SEEDS: u32 = 50;
/// Seeds that right programs run with here; `scripts/accept/shuffle` tries more.
const RIGHT_SEEDS: u32 = 4;

fn run(program: &Path, arguments: &[&str], seed: Option<u32>) -> Output {
    let mut command = kit::on(kit::address(), program);
    if let Some(seed) = seed {
        command.env("PUMICE_SHUFFLE", seed.to_string());
    }
    // Fates and schedules depend on the tag, which depends on the address unless it is given.
    command.env("PUMICE_TAG", "shuffle").args(arguments).output().expect("timeout(1) runs")
}

/// The planted programs, by name.
fn names(program: &Path) -> Vec<String> {
    let output = run(program, &[], None);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn each_planted_mistake_is_found_within_fifty_seeds_and_not_without_a_seed() {
    let Some(program) = kit::compile("order_bugs") else { return };
    let names = names(&program);
    assert!(names.len() >= 10, "{names:?}");
    for name in &names {
        kit::succeeded(&format!("{name} without a seed"), &run(&program, &[name], None));
        let found = (1..=SEEDS).any(|seed| run(&program, &[name], Some(seed)).status.code() == Some(1));
        assert!(found, "{name} passed with {SEEDS} seeds");
    }
}

#[test]
fn the_same_programs_without_their_mistake_pass_with_every_seed() {
    let Some(program) = kit::compile("order_bugs") else { return };
    for name in names(&program) {
        for seed in 1..=RIGHT_SEEDS {
            let output = run(&program, &[&name, "careful"], Some(seed));
            kit::succeeded(&format!("{name} careful, seed {seed}"), &output);
        }
    }
}

#[test]
fn every_way_of_polling_finds_every_completion() {
    let Some(program) = kit::compile("ways_of_polling") else { return };
    for seed in 1..=12 {
        kit::succeeded(&format!("ways_of_polling, seed {seed}"), &run(&program, &[], Some(seed)));
    }
}

#[test]
fn the_other_c_programs_pass_with_every_seed() {
    // Not those that ask for events and polls to the last one: the manual pages allow more of both.
    let names = [
        "data_path",
        "ofed_xrc",
        "connections",
        "endpoints",
        "transitions",
        "domains",
        "regions",
        "multicast_groups",
        "async_events",
        "on_demand",
        "identifiers",
    ];
    for name in names {
        let Some(program) = kit::compile(name) else { return };
        for seed in 1..=RIGHT_SEEDS {
            kit::succeeded(&format!("{name}, seed {seed}"), &run(&program, &[], Some(seed)));
        }
    }
}

#[test]
fn a_profile_that_delivers_in_order_lets_programs_wait_for_the_last_byte() {
    let Some(program) = kit::compile("order_bugs") else { return };
    for name in
        ["last_byte_of_write", "flag_after_data", "read_before_completion", "receive_before_completion"]
    {
        for seed in 1..=RIGHT_SEEDS {
            let mut command = kit::on(kit::address(), &program);
            command.env("PUMICE_SHUFFLE", seed.to_string()).env("PUMICE_PROFILE", "connectx").arg(name);
            let output = command.output().expect("timeout(1) runs");
            kit::succeeded(&format!("{name}, seed {seed}"), &output);
        }
    }
}
