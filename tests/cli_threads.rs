//! Threads that make objects at the same time: what they make has the same names in every run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{Scratch, compile};

/// A program whose threads race, on an address of its own.
struct MakersRun {
    scratch: Scratch,
    program: PathBuf,
    address: String,
}

impl MakersRun {
    /// None if it cannot be compiled.
    fn new(name: &str, end: u8) -> Option<MakersRun> {
        let scratch = Scratch::new(name);
        let program = compile(&scratch, "makers")?;
        Some(MakersRun { scratch, program, address: scratch::address(end) })
    }

    /// The sorted report of a run with these options.
    fn report(&self, options: &[&str]) -> Vec<String> {
        let report = self.scratch.0.join("report.jsonl");
        let _ = fs::remove_file(&report);
        let mut command = self.scratch.pumice(&["run"]);
        command.args(["--addr", &self.address, "--tag", "makers", "--log", "off"]);
        command.args(["--fault-report", path(&report)]).args(options).arg("--").arg(&self.program);
        let output = command.args(["4", "4", "6"]).output().expect("it can be run");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut lines: Vec<String> =
            fs::read_to_string(&report).expect("a report").lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// What the lines of a report call queue pairs.
fn queue_pairs(report: &[String]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for line in report {
        let value: Value = serde_json::from_str(line).expect("JSON");
        if !value["qp"].is_null() && !all.contains(&value["qp"]) {
            all.push(value["qp"].clone());
        }
    }
    all
}

/// Two reports are equal; the first line that differs is shown.
fn assert_same(one: &[String], other: &[String]) {
    let parting = one.iter().zip(other).find(|(one, other)| one != other);
    assert!(one == other, "{} and {} lines, which differ first in {parting:?}", one.len(), other.len());
}

#[test]
fn reports_of_threads_that_race_are_equal_and_are_plans() {
    let Some(makers) = MakersRun::new("makers", 61) else { return };
    let options = ["--seed", "3", "--fault", "drop chance=20%", "--fault", "note"];
    let first = makers.report(&options);
    for _ in 0..7 {
        assert_same(&makers.report(&options), &first);
    }
    let known = queue_pairs(&first);
    for name in ["0:0", "3:3", "0.0:0", "3.0:3"] {
        assert!(known.contains(&name.into()), "{name} is not in {known:?}");
    }
    let plan = makers.scratch.0.join("plan.jsonl");
    fs::write(&plan, first.join("\n")).expect("ours");
    assert_same(&makers.report(&["--faults", path(&plan)]), &first);
}

#[test]
fn rules_name_queue_pairs_of_one_thread_or_of_any() {
    let Some(makers) = MakersRun::new("named", 62) else { return };
    let met = |rule: &str| queue_pairs(&makers.report(&["--fault", rule]));
    assert_eq!(met("drop qp=2:0 opcode=send nth=2"), ["2:0"]);
    assert_eq!(met("drop qp=1.0:2.. opcode=send nth=1"), ["1.0:2"]);
    assert_eq!(met("drop qp=main:0 opcode=send nth=1"), [""; 0]);
    // The first queue pair of each thread.
    let mut any = met("delay time=1ms qp=0 opcode=send nth=1");
    any.sort_by_key(Value::to_string);
    assert_eq!(any, ["0.0:0", "0:0", "1.0:0", "1:0", "2.0:0", "2:0", "3.0:0", "3:0"]);
}
