//! `pumice world --model`: what perftest prints in a world is what the arithmetic of the model says.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "world/kit.rs"]
mod kit;

use std::path::Path;

use kit::{Scratch, text};
use pumice_device::performance::PerformanceModel;
use pumice_device::performance::sum::Measured;

/// Server and client of a program of perftest.
const PAIR: &str = "\"$@\" > server.log & sleep 0.1; \"$@\" 127.0.0.1; wait";
const DEVICE: [&str; 3] = ["-d", "pumice0", "-F"];

/// Whether perftest is installed; a sentence if not.
fn has_perftest() -> bool {
    let is_there = Path::new("/usr/bin/ib_send_lat").exists();
    if !is_there {
        eprintln!("**** SKIPPED: apt-get install perftest");
    }
    is_there
}

/// Runs perftest in a world, and returns the numbers of its last row.
fn measured(scratch: &Scratch, world: &[&str], tool: &str, options: &[&str]) -> Vec<f64> {
    let arguments = [world, &["--addr", "127.0.0.1", "--", "sh", "-c", PAIR, "sh", tool], &DEVICE, options];
    let ran = scratch.world(&arguments.concat());
    let (output, errors) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success() && errors.contains("pumice: certified"), "{output}{errors}");
    let row = output.lines().rev().find(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    let row = row.unwrap_or_else(|| panic!("no row: {output}{errors}"));
    row.split_whitespace().map(|number| number.parse().unwrap_or_else(|_| panic!("{row}"))).collect()
}

#[test]
fn links_alone_take_what_their_delays_say() {
    if !has_perftest() {
        return;
    }
    let scratch = Scratch::new("model-wire");
    let world = ["--model", "wire", "--delay", "1us"];
    // Bytes, iterations, least, most and typical latency: out by one link, in by the other, for READs twice.
    for (tool, us) in [("ib_send_lat", 2.0), ("ib_write_lat", 2.0), ("ib_read_lat", 4.0)] {
        let row = measured(&scratch, &world, tool, &["-s", "2", "-n", "100"]);
        assert_eq!([row[2], row[4]], [us, us], "{tool}: {row:?}");
    }
}

/// What perftest prints in a world beside what the sum of the model says; both in us.
#[test]
fn perftest_prints_what_the_sum_of_a_model_says() {
    if !has_perftest() {
        return;
    }
    let scratch = Scratch::new("model-latency");
    let rows = [
        ("connectx-5", "ib_send_lat", Measured::Send, 2),
        ("connectx-6", "ib_send_lat", Measured::Send, 1024),
        ("connectx-7", "ib_send_lat", Measured::Send, 64),
        ("connectx-5", "ib_write_lat", Measured::Write, 2),
        ("connectx-6", "ib_write_lat", Measured::Write, 1024),
        ("connectx-6", "ib_read_lat", Measured::Read, 2),
        ("connectx-7", "ib_read_lat", Measured::Read, 1024),
        ("connectx-6", "ib_atomic_lat", Measured::Atomic, 8),
    ];
    let mut table = String::new();
    for (name, tool, measure, bytes) in rows {
        let model = PerformanceModel::built_in(name).expect("it is built in");
        let size = u64::to_string(&bytes);
        let of_size: &[&str] = if tool == "ib_atomic_lat" { &[] } else { &["-s", &size] };
        let row = measured(&scratch, &["--model", name], tool, &[of_size, &["-n", "100"]].concat());
        let sum_us = model.latency_ns(measure, bytes) / 1e3;
        let [least, most, typical] = [row[2], row[3], row[4]];
        table += &format!(
            "{name} {tool} {bytes} B: {least:.2} {most:.2} {typical:.2} us, the sum is {sum_us:.3} us\n"
        );
        assert!((typical - sum_us).abs() <= 0.011, "{table}");
        assert_eq!([least, most], [typical, typical], "least, most and typical: {table}");
    }
    eprintln!("{table}");
}
