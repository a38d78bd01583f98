//! Shuffled schedules: programs that rely on an order which the specification does not promise fail with some
//! seed, and right ones pass with every seed.

mod kit;

use std::path::Path;
use std::process::Output;

/// Programs with mistakes, and the profile of the device with which they run: none for the usual one. The
/// profiles of ConnectX store in order, but for what relaxed regions and queue pairs out of order allow.
const PLANTED: [(&str, Option<&str>); 4] = [
    ("order_bugs", None),
    ("relaxed_bugs", None),
    ("relaxed_bugs", Some("connectx-7")),
    ("out_of_order_bugs", Some("connectx-7")),
];
/// Seeds within which each mistake is found.
const SEEDS: u32 = 50;
/// Seeds that right programs run with here; `scripts/accept/shuffle` tries more.
const RIGHT_SEEDS: u32 = 4;

fn run(program: &Path, profile: Option<&str>, arguments: &[&str], seed: Option<u32>) -> Output {
    let mut command = kit::on(kit::address(), program);
    command.envs(profile.map(|profile| ("PUMICE_PROFILE", profile)));
    if let Some(seed) = seed {
        command.env("PUMICE_SHUFFLE", seed.to_string());
    }
    // Fates and schedules depend on the tag, which depends on the address unless it is given.
    command.env("PUMICE_TAG", "shuffle").args(arguments).output().expect("timeout(1) runs")
}

/// The planted programs, by name.
fn names(program: &Path) -> Vec<String> {
    let output = run(program, None, &[], None);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn each_planted_mistake_is_found_within_fifty_seeds_and_not_without_a_seed() {
    for (program, profile) in PLANTED {
        let Some(path) = kit::compile(program) else { return };
        let names = names(&path);
        assert!(names.len() >= 3, "{program}: {names:?}");
        for name in &names {
            kit::succeeded(&format!("{program} {name} without a seed"), &run(&path, profile, &[name], None));
            let found =
                (1..=SEEDS).find(|seed| run(&path, profile, &[name], Some(*seed)).status.code() == Some(1));
            assert!(found.is_some(), "{program} {name} passed with {SEEDS} seeds");
            eprintln!("{program} {name} {profile:?}: seed {found:?}");
        }
    }
}

#[test]
fn the_same_programs_without_their_mistake_pass_with_every_seed() {
    for (program, profile) in PLANTED {
        let Some(path) = kit::compile(program) else { return };
        for name in names(&path) {
            for seed in 1..=RIGHT_SEEDS {
                let output = run(&path, profile, &[&name, "careful"], Some(seed));
                kit::succeeded(&format!("{program} {name} careful, seed {seed}"), &output);
            }
        }
    }
}

#[test]
fn transfers_in_parts_that_end_with_immediates_are_right_with_every_seed() {
    let Some(program) = kit::compile("split_transfers") else { return };
    for seed in 1..=3 * RIGHT_SEEDS {
        let output = run(&program, None, &[], Some(seed));
        kit::succeeded(&format!("split_transfers, seed {seed}"), &output);
    }
}

#[test]
fn datagrams_whose_requests_completed_arrive_although_their_process_has_ended() {
    let Some(program) = kit::compile("last_datagrams") else { return };
    for seed in 1..=12 {
        kit::succeeded(&format!("last_datagrams, seed {seed}"), &run(&program, None, &[], Some(seed)));
    }
}

#[test]
fn every_polling_style_finds_every_completion() {
    let Some(program) = kit::compile("ways_of_polling") else { return };
    for seed in 1..=12 {
        kit::succeeded(&format!("ways_of_polling, seed {seed}"), &run(&program, None, &[], Some(seed)));
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
            kit::succeeded(&format!("{name}, seed {seed}"), &run(&program, None, &[], Some(seed)));
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
