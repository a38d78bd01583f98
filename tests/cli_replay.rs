//! What `pumice replay` does about the order of calls and arrivals, and about how programs end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{Scratch, compile};

/// A program that is recorded and replayed on an address of its own.
struct ReplaySubject<'a> {
    scratch: &'a Scratch,
    record: PathBuf,
    address: String,
    wire: &'static str,
}

impl ReplaySubject<'_> {
    fn new<'a>(scratch: &'a Scratch, end: u8, wire: &'static str) -> ReplaySubject<'a> {
        ReplaySubject { scratch, record: scratch.0.join("record"), address: scratch::address(end), wire }
    }

    fn run(&self, by: &[&str], program: &[&str]) -> Output {
        let options = ["--addr", &self.address, "--wire", self.wire, "--tag", "keeper"];
        let mut command = self.scratch.pumice(&[by[0]]);
        command.args(options).args(&by[1..]).arg("--").args(program).output().expect("it can be run")
    }

    fn recorded(&self, program: &[&str]) -> Output {
        self.run(&["run", "--record", path(&self.record)], program)
    }

    /// Exit code, what the program and the replay print, and the result.
    fn replayed(&self, program: &[&str]) -> (Option<i32>, String, Value) {
        let output = self.run(&["replay", "--json", path(&self.record)], program);
        let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = output_text.lines().last().unwrap_or_default();
        let result =
            serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {output_text}{errors}"));
        (output.status.code(), output_text + &errors, result)
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A failure of order comes again: what came first when the run was recorded is let through first, though the
/// program sends it last now.
fn order_is_replayed(name: &str, end: u8, wire: &'static str) {
    let scratch = Scratch::new(name);
    let Some(program) = compile(&scratch, "turns") else { return };
    let program = path(&program);
    let subject = ReplaySubject::new(&scratch, end, wire);
    let recorded = subject.recorded(&[program, "told"]);
    assert_eq!(recorded.status.code(), Some(1), "{recorded:?}");
    let (code, output_text, result) = subject.replayed(&[program, "free"]);
    assert_eq!(code, Some(1), "{output_text}");
    assert!(output_text.starts_with("the first message is that of writer 1\n"), "{output_text}");
    assert_eq!((&result["exit"], &result["recorded_exit"]), (&1.into(), &1.into()), "{result}");
    assert_eq!(result["ended_otherwise"], false, "{result}");
    assert_eq!(result["order"]["departures"], Value::Array(Vec::new()), "{output_text}");
    assert_eq!(result["order"]["in_order"], result["order"]["points"], "{result}");
    assert!(result["order"]["points"].as_u64() > Some(30), "{result}");
}

#[test]
fn the_order_of_arrivals_is_replayed_in_shared_memory() {
    order_is_replayed("replay-order", 1, "auto");
}

#[test]
fn the_order_of_arrivals_is_replayed_by_udp() {
    order_is_replayed("replay-udp", 2, "udp");
}

#[test]
fn connections_of_tcp_are_made_in_the_recorded_order() {
    let scratch = Scratch::new("replay-dialers");
    let Some(program) = compile(&scratch, "dialers") else { return };
    let program = path(&program);
    let subject = ReplaySubject::new(&scratch, 8, "auto");
    let recorded = subject.recorded(&[program, "told"]);
    assert_eq!(recorded.status.code(), Some(1), "{recorded:?}");
    for _ in 0..3 {
        let (code, output_text, result) = subject.replayed(&[program, "free"]);
        assert_eq!(code, Some(1), "{output_text}");
        assert!(output_text.starts_with("the first connection is that of dialer 1\n"), "{output_text}");
        assert_eq!(result["order"]["departures"], Value::Array(Vec::new()), "{output_text}");
    }
}

#[test]
fn an_impossible_order_is_reported_at_once_and_ends() {
    let scratch = Scratch::new("replay-departs");
    let Some(program) = compile(&scratch, "turns") else { return };
    let program = path(&program);
    let subject = ReplaySubject::new(&scratch, 3, "auto");
    let recorded = subject.recorded(&[program, "told"]);
    assert_eq!(recorded.status.code(), Some(1), "{recorded:?}");
    // What writer 0 is to wait for does not come: it is let through after a time that is named.
    let (code, output_text, result) = subject.replayed(&[program, "one"]);
    assert!(output_text.starts_with("the first message is that of writer 0\n"), "{output_text}");
    let departures = result["order"]["departures"].as_array().expect("an array");
    assert!(!departures.is_empty(), "{result}");
    assert!(output_text.contains("of the recorded order"), "{output_text}");
    // What failed then has not failed now, and that is no success.
    assert_eq!((code, &result["ended_otherwise"]), (Some(1), &true.into()), "{output_text}");
}

#[test]
fn a_damaged_order_is_refused() {
    let scratch = Scratch::new("replay-damaged");
    let Some(program) = compile(&scratch, "turns") else { return };
    let program = path(&program);
    let subject = ReplaySubject::new(&scratch, 4, "auto");
    assert_eq!(subject.recorded(&[program, "told"]).status.code(), Some(1));
    let files = fs::read_dir(&subject.record).expect("a record").map(|entry| entry.expect("a file").path());
    let order = files.into_iter().find(|file| file.extension().is_some_and(|it| it == "order"));
    fs::write(order.expect("an order"), "17 0 ibv_post_send\n18 x y z\n").expect("ours");
    let output = subject.run(&["replay", path(&subject.record)], &[program, "free"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(errors.contains("line 2: it is no point: the record is damaged"), "{errors}");
}

#[test]
fn a_replay_that_passes_where_the_recorded_run_failed_is_no_success() {
    let scratch = Scratch::new("replay-ends");
    let subject = ReplaySubject::new(&scratch, 5, "auto");
    let ends = |code: u8| ["sh".to_owned(), "-c".to_owned(), format!("exit {code}")];
    let words = |ends: &[String; 3]| ends.clone();
    let run = |code| {
        let words = words(&ends(code));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        subject.recorded(&words).status.code()
    };
    assert_eq!(run(3), Some(3));
    let replay = |code| {
        let words = words(&ends(code));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        subject.replayed(&words)
    };
    let (code, _, result) = replay(0);
    assert_eq!((code, &result["recorded_exit"], &result["exit"]), (Some(1), &3.into(), &0.into()));
    assert_eq!((&result["ended_otherwise"], &result["departed"]), (&true.into(), &false.into()));
    let (code, _, result) = replay(3);
    assert_eq!((code, &result["ended_otherwise"]), (Some(3), &false.into()));
    let output = subject.run(&["replay", path(&subject.record)], &["sh", "-c", "exit 0"]);
    let output_text = String::from_utf8_lossy(&output.stdout);
    let sentence = "the recorded run ended with 3, and this one with 0: what failed then has not failed now";
    assert!(output_text.contains(sentence) && output.status.code() == Some(1), "{output_text}");
}

#[test]
fn a_recorded_program_ends_as_it_would_alone() {
    let scratch = Scratch::new("replay-signal");
    let subject = ReplaySubject::new(&scratch, 6, "auto");
    let killed = subject.recorded(&["sh", "-c", "kill -KILL $$"]);
    assert_eq!(killed.status.code(), Some(128 + 9), "{killed:?}");
    // A signal that comes to pumice is the program's.
    let terminated =
        subject.recorded(&["sh", "-c", "trap 'exit 5' TERM; kill -TERM $PPID; while :; do :; done"]);
    assert_eq!(terminated.status.code(), Some(5), "{terminated:?}");
}
