//! The plans that ship with pumice, each met by a C program that says what the plan promises.

mod kit;

use std::fs;
use std::path::{Path, PathBuf};

/// Plans about connections of rdma_cm, those about MRC, and the one whose damage only a check of the
/// program's own finds.
const ELSEWHERE: [&str; 6] =
    ["lost-handshake", "duplicate-handshake", "silent-corruption", "lost-plane", "lossy-plane", "lost-sacks"];

/// The program with this plan. What it printed; what the report says happened, sorted; the report.
fn run(program: &Path, name: &str, plan: &str, folder: &Path, run: u32) -> (String, String, PathBuf) {
    let report = folder.join(format!("{name}-{run}.jsonl"));
    let mut command = kit::on(kit::address(), program);
    command.arg(name).env("PUMICE_FAULTS", plan).env("PUMICE_TAG", "one").env("PUMICE_SEED", "3");
    let output = command.env("PUMICE_FAULT_REPORT", &report).output().expect("timeout(1) runs");
    kit::succeeded(name, &output);
    let text = fs::read_to_string(&report).expect("the report is written");
    let mut lines: Vec<&str> = text.lines().filter(|line| line.starts_with("{\"rule\":")).collect();
    lines.sort_unstable();
    (String::from_utf8_lossy(&output.stdout).into_owned(), lines.join("\n"), report)
}

#[test]
fn each_ready_plan_does_what_it_promises_and_its_report_does_it_again() {
    let Some(program) = kit::compile("ready_plans") else { return };
    let folder = kit::scratch("ready-plans");
    for plan in pumice_device::faults::READY.iter().filter(|plan| !ELSEWHERE.contains(&plan.name)) {
        let (printed, faults, report) = run(&program, plan.name, plan.name, &folder, 1);
        assert!(!faults.is_empty(), "{}: no rule applied", plan.name);
        let report = report.to_str().expect("the target folder has a name");
        let again = run(&program, plan.name, report, &folder, 2);
        assert_eq!((again.0, again.1), (printed, faults), "{}", plan.name);
    }
}
