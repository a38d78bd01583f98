//! `pumice check live`: programs that run already are checked for a while. They are the programs with planted
//! bugs of `tests/check`, which wait between their beginning and their mistake.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{Scratch, address};
use serde_json::Value;

/// How long the tests wait for what has to come.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Programs, and the kind that is found in each while it runs. The line of a frame has `// BUG: ` and the
/// kind.
const PLANTED: [(&str, &str); 12] = [
    ("send_buffer_changed", "send-buffer-changed"),
    ("receive_buffer_written", "receive-buffer-written"),
    ("buffers_overlap", "buffers-overlap"),
    ("write_into_posted", "write-into-posted"),
    ("deregistered_while_in_use", "deregistered-while-in-use"),
    ("stale_rkey", "stale-rkey"),
    ("queue_pair_failed", "queue-pair-failed"),
    ("receive_too_late", "receive-too-late"),
    ("in_flight_at_destroy", "in-flight-at-destroy"),
    ("read_relied_on", "read-result-early"),
    ("notified_on_other_qp", "notified-on-other-qp"),
    ("remote_race", "remote-race"),
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/check/{name}.c"))
}

fn compile(scratch: &Scratch, name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
        return None;
    }
    let program = scratch.0.join(name);
    let usual = ["-g", "-std=gnu11", "-Wall", "-Werror", "-O1", "-o"];
    let mut command = Command::new("cc");
    command.args(usual).arg(&program).args(flags).arg(source(name)).arg("-libverbs");
    let output = command.output().expect("cc runs");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// A program that waits for a line after its queue pairs are connected, until it is dropped.
struct WaitingProgram(Child);

impl WaitingProgram {
    fn start(scratch: &Scratch, program: &Path, end: u8) -> WaitingProgram {
        let mut command = scratch.pumice(&["run", "--log", "off", "--addr", &address(end), "--"]);
        command.arg(program).env("PAUSED", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("the program can be run");
        let mut from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        from.read_line(&mut line).expect("text");
        assert_eq!(line, "paused\n", "{program:?}");
        WaitingProgram(child)
    }

    fn resume(&mut self) {
        let mut to = self.0.stdin.take().expect("a pipe");
        writeln!(to).expect("the program reads");
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a report has been begun.
fn has_begun(scratch: &Scratch) {
    let begun = Instant::now();
    let is_report = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("live-") && fs::metadata(&path).is_ok_and(|about| about.len() > 0)
    };
    let has_any = |folder: &Path| {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.into_iter().any(|file| is_report(file.path()))
    };
    while !has_any(&scratch.0) && !has_any(&scratch.0.join("pumice")) {
        assert!(begun.elapsed() < TIMEOUT, "no report is begun");
        std::thread::yield_now();
    }
}

/// What is found in a program from when it waits until it ends.
fn found(scratch: &Scratch, program: &Path, end: u8) -> (Vec<Value>, Output) {
    let mut waiting = WaitingProgram::start(scratch, program, end);
    let pid = waiting.0.id().to_string();
    let mut command = scratch.pumice(&["check", "live", "--for", "60s", "--json", "--pid", &pid]);
    let checks = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be run");
    has_begun(scratch);
    waiting.resume();
    let _ = waiting.0.wait();
    // It has nothing more to wait for.
    let number = checks.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().expect("kill runs").success());
    let output = checks.wait_with_output().expect("a child of ours");
    let all: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let findings = all["programs"][0]["report"]["findings"].as_array();
    (findings.unwrap_or_else(|| panic!("{output:?}")).clone(), output)
}

/// Whether a finding has a frame in this line of the program.
fn is_at(finding: &Value, name: &str, line: u64) -> bool {
    let related = finding["related"].as_array().into_iter().flatten().map(|one| &one["stack"]);
    let stacks = std::iter::once(&finding["stack"]).chain(related);
    let file = format!("/{name}.c");
    stacks.filter_map(Value::as_array).flatten().any(|frame| {
        frame["line"] == line && frame["file"].as_str().is_some_and(|path| path.ends_with(&file))
    })
}

#[test]
fn mistakes_of_programs_that_run_already_are_found_and_their_places() {
    let mut wrong = Vec::new();
    for ((name, kind), end) in PLANTED.into_iter().zip(1_u8..) {
        let scratch = Scratch::new(&format!("check-live-{name}"));
        let Some(program) = compile(&scratch, name, &[]) else { return };
        let (findings, output) = found(&scratch, &program, end);
        let text = fs::read_to_string(source(name)).expect("the source is there");
        let mark = format!("// BUG: {kind}");
        let lines = text.lines().zip(1_u64..).filter(|(line, _)| line.contains(&mark));
        let lines: Vec<u64> = lines.map(|(_, number)| number).collect();
        let is_it = |one: &Value| one["kind"] == kind && lines.iter().any(|line| is_at(one, name, *line));
        if !findings.iter().any(is_it) || output.status.code() != Some(1) {
            wrong.push(format!("{name}: {kind} at {lines:?}, and not {findings:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn of_corrected_programs_that_run_already_nothing_is_found() {
    let mut wrong = Vec::new();
    for ((name, _), end) in PLANTED.into_iter().zip(101_u8..) {
        let scratch = Scratch::new(&format!("check-live-right-{name}"));
        let Some(program) = compile(&scratch, name, &["-DFIXED"]) else { return };
        let (findings, output) = found(&scratch, &program, end);
        if !findings.is_empty() || output.status.code() != Some(0) {
            wrong.push(format!("{name}: {findings:#?} {output:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_program_continues_as_before_and_what_is_not_judged_is_reported() {
    let scratch = Scratch::new("check-live-paced");
    let Some(program) = scratch::compile(&scratch, "paced") else { return };
    let mut paced = scratch::LineDrivenProgram::alone(&scratch, &program, 201, &[]);
    paced.sends(10);
    let process = paced.child.id();
    let count = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).expect("it runs").count();
    let before = (count("task"), count("fd"));
    for _ in 0..3 {
        let mut command = scratch.pumice(&["check", "live", "--for", "200ms"]);
        let checks = command.stdout(Stdio::piped()).spawn().expect("it can be run");
        has_begun(&scratch);
        paced.sends(50);
        let output = checks.wait_with_output().expect("a child of ours");
        let output_text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output_text.contains("nothing was found"), "{output_text}");
        assert!(
            output_text.contains("Not judged in programs that run already")
                && output_text.contains("lost-wakeup"),
            "{output_text}"
        );
    }
    paced.sends(10);
    assert_eq!((count("task"), count("fd")), before);
    paced.ends();
    let output = scratch.pumice(&["check", "live"]).output().expect("it can be run");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && output_text.contains("start the program first"), "{output:?}");
}

#[test]
fn a_program_that_is_checked_already_says_so() {
    let scratch = Scratch::new("check-live-twice");
    let Some(program) = scratch::compile(&scratch, "paced") else { return };
    let paced = scratch::LineDrivenProgram::begin(&scratch, &program, 203, &["check"], &["--log", "off"]);
    let mut paced = paced;
    paced.expect_line("ready\n");
    let output = scratch.pumice(&["check", "live", "--for", "50ms"]).output().expect("it can be run");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1) && output_text.contains("it is checked already"), "{output:?}");
    paced.ends();
}
