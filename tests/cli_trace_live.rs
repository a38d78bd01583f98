//! `pumice trace live`: programs that run already are recorded for a while, and go on as before.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "fault/scratch.rs"]
mod scratch;

use scratch::{LineDrivenProgram, Scratch, compile};
use serde_json::Value;

/// How long the tests wait for what has to come.
const TIMEOUT: Duration = Duration::from_secs(120);

impl Scratch {
    fn run_pumice(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.pumice(arguments);
        let Output { status, stdout, stderr } = command.current_dir(&self.0).output().expect("it can be run");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (status.code(), text(stdout), text(stderr))
    }

    /// Begins to record; the command ends by itself.
    fn start_recorder(&self, arguments: &[&str]) -> Child {
        let mut command = self.pumice(&["trace", "live"]);
        command.args(arguments).current_dir(&self.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it can be run")
    }

    /// Waits until the file has a head, with which the recording has begun.
    fn has_begun(&self, file: &str) {
        let begun = Instant::now();
        while fs::metadata(self.0.join(file)).map_or(0, |about| about.len()) == 0 {
            assert!(begun.elapsed() < TIMEOUT, "{file} does not come");
            std::thread::yield_now();
        }
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (code, out, stderr_text) = self.run_pumice(arguments);
        assert!(matches!(code, Some(0 | 1)), "{arguments:?}: {out}{stderr_text}");
        serde_json::from_str(&out)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}{stderr_text}"))
    }
}

fn ended(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("a child of ours");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

/// Threads and open files of a process.
fn belongings(process: u32) -> (usize, usize) {
    let count = |what: &str| {
        let all = fs::read_dir(format!("/proc/{process}/{what}")).expect("it runs");
        all.count()
    };
    (count("task"), count("fd"))
}

/// What the trace says of the causes of a run, by name.
fn causes(found: &Value) -> Vec<String> {
    let all = ["failed", "slowest"].into_iter().filter_map(|name| found[name].as_array()).flatten();
    all.map(|one| one["cause"]["kind"].as_str().expect("a cause").to_owned()).collect()
}

#[test]
fn what_a_program_does_meanwhile_is_a_trace_that_begins_in_the_middle() {
    let scratch = Scratch::new("trace-live");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 41, &["--tag", "one"]);
    paced.sends(5);
    let before = belongings(paced.child.id());
    let recorder = scratch.start_recorder(&["--for", "1s", "--tag", "one", "-o", "a.trace", "--json"]);
    scratch.has_begun("a.trace");
    paced.sends(100);
    let (code, out, stderr_text) = ended(recorder);
    assert_eq!(code, Some(0), "{out}{stderr_text}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    let one = &all["traces"][0];
    assert_eq!((&one["is_whole"], &one["problem"]), (&Value::Bool(true), &Value::Null), "{out}");
    assert_eq!((one["tag"].as_str(), one["lost_records"].as_u64()), (Some("one"), Some(0)), "{out}");

    // What was before is not in it, and nothing is concluded from that.
    let (code, list, stderr_text) = scratch.run_pumice(&["trace", "list", "a.trace"]);
    assert_eq!(code, Some(0), "{stderr_text}");
    assert!(list.contains("Began") && list.contains("QpFound"), "{list}");
    let why = scratch.json(&["trace", "why", "a.trace", "--json"]);
    assert_eq!((why["messages"].as_u64(), why["failures"].as_u64()), (Some(100), Some(0)), "{why:#}");
    let (code, _, stderr_text) = scratch.run_pumice(&["trace", "why", "a.trace"]);
    assert!(code == Some(0) && stderr_text.contains("it begins while the program runs"), "{stderr_text}");
    for requirement in ["messages >= 100", "no failures", "no unfinished", "no retransmissions"] {
        let (code, out, stderr_text) =
            scratch.run_pumice(&["trace", "require", "a.trace", "--require", requirement]);
        assert_eq!(code, Some(0), "{requirement}: {out}{stderr_text}");
    }
    for line in [&["trace", "view", "a.trace"][..], &["trace", "diff", "a.trace", "a.trace"]] {
        let (code, out, stderr_text) = scratch.run_pumice(line);
        assert_eq!(code, Some(0), "{line:?}: {out}{stderr_text}");
    }

    // The program goes on, and has nothing of it.
    paced.sends(5);
    assert_eq!(belongings(paced.child.id()), before);
    paced.ends();
}

#[test]
fn recordings_leave_nothing_behind_and_several_may_go_on_at_once() {
    let scratch = Scratch::new("trace-live-again");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 43, &[]);
    let pid = paced.child.id().to_string();
    paced.sends(5);
    let before = belongings(paced.child.id());
    for round in 0..5 {
        let names = [format!("{round}a.trace"), format!("{round}b.trace")];
        let begun = names
            .each_ref()
            .map(|name| scratch.start_recorder(&["--for", "200ms", "--pid", &pid, "-o", name]));
        names.iter().for_each(|name| scratch.has_begun(name));
        paced.sends(20);
        for (child, name) in begun.into_iter().zip(&names) {
            let (code, out, stderr_text) = ended(child);
            assert_eq!(code, Some(0), "{out}{stderr_text}");
            assert!(out.contains(&format!("pumice trace why {name}")), "{out}");
            let why = scratch.json(&["trace", "why", name, "--json"]);
            assert_eq!(why["messages"].as_u64(), Some(20), "{why:#}");
        }
    }
    assert_eq!(belongings(paced.child.id()), before);
    paced.ends();
}

#[test]
fn a_signal_ends_a_recording_and_its_file_is_whole() {
    let scratch = Scratch::new("trace-live-signal");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 45, &[]);
    let begun = Instant::now();
    let recorder = scratch.start_recorder(&["--for", "600s", "-o", "long.trace", "--json"]);
    scratch.has_begun("long.trace");
    paced.sends(10);
    let number = recorder.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().expect("kill runs").success());
    let (code, out, stderr_text) = ended(recorder);
    assert!(code == Some(0) && begun.elapsed() < TIMEOUT, "{out}{stderr_text}");
    let all: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(all["traces"][0]["is_whole"], true, "{out}");
    assert_eq!(scratch.json(&["trace", "why", "long.trace", "--json"])["messages"].as_u64(), Some(10));

    // Also one whose command has gone ends by itself, at the time that it was given.
    let mut recorder = scratch.start_recorder(&["--for", "300ms", "-o", "gone.trace"]);
    scratch.has_begun("gone.trace");
    recorder.kill().expect("a child of ours");
    recorder.wait().expect("a child of ours");
    let end = Instant::now() + TIMEOUT;
    while belongings(paced.child.id()).0 > 0
        && !scratch.run_pumice(&["trace", "list", "gone.trace", "--json"]).1.contains("\"is_ended\":true")
    {
        assert!(Instant::now() < end, "it goes on for ever");
    }
    paced.ends();
}

#[test]
fn what_cannot_be_recorded_is_reported() {
    let scratch = Scratch::new("trace-live-not");
    let (code, _, stderr_text) = scratch.run_pumice(&["trace", "live"]);
    assert!(code == Some(1) && stderr_text.contains("start the program first"), "{stderr_text}");
    let Some(program) = compile(&scratch, "paced") else { return };
    let mut paced = LineDrivenProgram::alone(&scratch, &program, 47, &[]);
    let (code, _, stderr_text) = scratch.run_pumice(&["trace", "live", "-o", "/nowhere/at/all.trace"]);
    assert!(
        code == Some(1) && stderr_text.contains("/nowhere/at/all.trace cannot be written"),
        "{stderr_text}"
    );
    let (code, _, stderr_text) = scratch.run_pumice(&["trace", "live", "--pid", "1"]);
    assert!(code == Some(1) && stderr_text.contains("no process 1 of this user"), "{stderr_text}");

    // A file that is full: what has no room is counted and said, and the program goes on.
    let recorder = scratch.start_recorder(&["--for", "600s", "--limit", "64KiB", "-o", "full.trace"]);
    scratch.has_begun("full.trace");
    paced.sends(5000);
    let number = recorder.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().expect("kill runs").success());
    let (code, out, stderr_text) = ended(recorder);
    assert!(code == Some(0) && out.contains("records are missing in it"), "{out}{stderr_text}");
    let length = fs::metadata(scratch.0.join("full.trace")).expect("it is there").len();
    assert!(length <= 64 << 10, "{length}");

    // A program that is killed meanwhile: what it had written is there.
    let recorder = scratch.start_recorder(&["--for", "600s", "-o", "killed.trace"]);
    scratch.has_begun("killed.trace");
    paced.sends(20);
    // It is written some milliseconds later.
    let begun = Instant::now();
    while scratch.json(&["trace", "why", "killed.trace", "--json"])["unfinished"] != 0
        || scratch.json(&["trace", "why", "killed.trace", "--json"])["messages"] != 20
    {
        assert!(begun.elapsed() < TIMEOUT, "it is not written");
    }
    paced.child.kill().expect("a child of ours");
    paced.child.wait().expect("a child of ours");
    let number = recorder.id().to_string();
    assert!(Command::new("kill").args(["-INT", &number]).status().expect("kill runs").success());
    let (code, out, stderr_text) = ended(recorder);
    assert!(code == Some(1) && out.contains("it was killed"), "{out}{stderr_text}");
    assert_eq!(scratch.json(&["trace", "why", "killed.trace", "--json"])["messages"].as_u64(), Some(20));
}

/// A command of another package, until it is dropped.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_program(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// A tool of perftest that measures for a long time, at both ends.
fn measures(scratch: &Scratch, tool: &str, options: &[&str], end: u8) -> Option<[RunningProgram; 2]> {
    if !has_program(tool) {
        eprintln!("**** SKIPPED: apt-get install perftest");
        return None;
    }
    let own = scratch::address(end);
    let port = (18_700 + u16::from(end)).to_string();
    let start = |peer: &[&str]| {
        let mut command = scratch.pumice(&["run", "--log", "off", "--addr", &own, "--", tool]);
        command.args(["-d", "pumice0", "-x", "0", "-D", "300", "-p", &port]).args(options).args(peer);
        RunningProgram(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be run"))
    };
    let server = start(&[]);
    // It listens for its client.
    let begun = Instant::now();
    let listens = format!(":{:04X} ", 18_700 + u16::from(end));
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    while !tables.iter().any(|table| fs::read_to_string(table).unwrap_or_default().contains(&listens)) {
        assert!(begun.elapsed() < TIMEOUT, "{tool} does not listen");
        std::thread::yield_now();
    }
    Some([server, start(&[&own])])
}

#[test]
fn of_a_stream_that_goes_on_nothing_is_called_lost_or_never_posted() {
    for (tool, options, end) in [("ib_send_lat", ["-s", "8"], 49), ("ib_write_bw", ["-s", "65536"], 51)] {
        let scratch = Scratch::new(&format!("trace-live-{tool}"));
        let Some(both) = measures(&scratch, tool, &options, end) else { return };
        // They measure once they have found each other.
        let begun = Instant::now();
        let why = loop {
            let (code, out, stderr_text) = scratch.run_pumice(&["trace", "live", "--for", "400ms", "--json"]);
            assert!(begun.elapsed() < TIMEOUT, "{tool} does not begin: {out}{stderr_text}");
            let all: Value = serde_json::from_str(&out).unwrap_or_default();
            let traces = all["traces"].as_array().cloned().unwrap_or_default();
            if code != Some(0) || traces.len() < 2 {
                continue;
            }
            let files: Vec<&str> = traces.iter().map(|one| one["file"].as_str().expect("a name")).collect();
            let why = scratch.json(&[&["trace", "why", "--json"][..], &files].concat());
            if why["messages"].as_u64() > Some(100) {
                break why;
            }
        };
        let wrong =
            ["request-lost", "ack-lost", "response-lost", "peer-gone", "peer-silent", "failed", "flushed"];
        let found = causes(&why);
        assert!(!found.iter().any(|one| wrong.contains(&one.as_str())), "{tool}: {why:#}");
        drop(both);
    }
}
