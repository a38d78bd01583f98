//! `pumice check` on programs with planted bugs, and on the same programs without them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A new folder. Tests of one process run at once, and two of them may use one name.
fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}-{own}-{number}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/check/{name}.c"))
}

/// Compiles `tests/check/<name>.c` against the system's library; none if there is no compiler or no library.
fn compile(name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
        return None;
    }
    let program = scratch(name).join(name);
    let usual = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"];
    let output =
        Command::new("cc").args(usual).arg(&program).args(flags).arg(source(name)).arg("-libverbs").output();
    let output = output.expect("cc runs");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs `pumice` with these words before the program.
fn pumice(words: &[&str], program: &Path) -> Output {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    // An address that no other test uses.
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed) % 250);
    command.env("PUMICE_ADDR", format!("127.{}.{}.{number}", 150 + (own >> 8 & 0x3f), own & 0xff));
    command.args(words).arg("--").arg(program).output().expect("the program can be run")
}

/// What is found in a program, by the report.
fn findings(name: &str, program: &Path, words: &[&str]) -> (Vec<Value>, Output) {
    let report = scratch(name).join("report.json");
    let name_of_report = report.to_string_lossy();
    let words = [&["check", "--check-report", &name_of_report], words].concat();
    let output = pumice(&words, program);
    // A child process has a report of its own, beside that of its parent.
    let folder = report.parent().expect("it is in a folder");
    let files =
        fs::read_dir(folder).expect("the folder is ours").map(|file| file.expect("it is there").path());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{name}: {error}: {output:?}"));
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        found.extend(report["findings"].as_array().expect("findings are a list").iter().cloned());
    }
    (found, output)
}

/// The lines of a source that have a planted bug, and its kinds.
fn planted(name: &str) -> Vec<(u64, String)> {
    let text = fs::read_to_string(source(name)).expect("the source is there");
    let marked =
        text.lines().zip(1..).filter_map(|(line, number)| Some((number, line.split_once("// BUG: ")?.1)));
    marked.flat_map(|(number, kinds)| kinds.split(' ').map(move |kind| (number, kind.to_owned()))).collect()
}

/// Whether a finding has a frame in this line of the program, in its place or in another that belongs to it.
fn is_at(finding: &Value, name: &str, line: u64) -> bool {
    let related = finding["related"].as_array().into_iter().flatten().map(|place| &place["stack"]);
    let stacks = std::iter::once(&finding["stack"]).chain(related);
    let mut frames = stacks.filter_map(Value::as_array).flatten();
    let file = format!("/{name}.c");
    frames.any(|frame| {
        frame["line"] == line && frame["file"].as_str().is_some_and(|path| path.ends_with(&file))
    })
}

/// Programs with planted bugs, and the further words that a run of them needs.
const PLANTED: [(&str, &[&str]); 36] = [
    ("remote_race", &[]),
    ("peers_race", &["--fault", "drop qp=0 opcode=write message=0 packet=7 transmission=1"]),
    ("read_relied_on", &[]),
    ("notified_on_other_qp", &[]),
    ("write_polled_in_memory", &[]),
    ("cq_too_small", &[]),
    ("send_queue_never_reaped", &[]),
    ("completions_never_polled", &[]),
    ("lost_wakeup", &[]),
    ("sleeps_unarmed", &[]),
    ("events_not_acknowledged", &[]),
    ("wc_field_of_error", &[]),
    ("receive_too_late", &[]),
    ("attributes", &[]),
    ("wrong_way", &[]),
    ("mtu_above_active", &[]),
    ("qkey_mismatch", &[]),
    ("pkey_mismatch", &["--profile", "tests/check/two_pkeys.toml"]),
    ("connected_too_late", &[]),
    ("in_flight_at_destroy", &[]),
    ("send_buffer_changed", &[]),
    ("receive_buffer_written", &[]),
    ("buffers_overlap", &[]),
    ("write_into_posted", &[]),
    ("unmapped_while_in_use", &[]),
    ("deregistered_while_in_use", &[]),
    ("stale_rkey", &[]),
    ("fork_without_init", &[]),
    ("used_after_fork", &[]),
    ("used_after_destroy", &[]),
    ("destroyed_twice", &[]),
    ("posted_after_destroy", &[]),
    ("objects_left", &[]),
    ("left_at_close", &[]),
    ("slow", &["--check=perf"]),
    ("slow_calls", &["--check=perf"]),
];

#[test]
fn planted_bugs_are_found_at_their_lines_and_nothing_else_is() {
    for (name, words) in PLANTED {
        let Some(program) = compile(name, &["-g"]) else { return };
        let planted = planted(name);
        assert!(!planted.is_empty(), "{name} says what is wrong with it");
        let (found, output) = findings(name, &program, words);
        for (line, kind) in &planted {
            let is_it = |finding: &&Value| finding["kind"] == **kind && is_at(finding, name, *line);
            assert!(
                found.iter().any(|finding| is_it(&finding)),
                "{name}: {kind} at {line}: {found:#?}\n{output:?}"
            );
        }
        let is_planted = |finding: &Value| planted.iter().any(|(_, kind)| finding["kind"] == **kind);
        assert!(found.iter().all(is_planted), "{name}: {found:#?}");
    }
}

#[test]
fn nothing_is_found_where_the_bugs_are_mended() {
    for (name, words) in PLANTED {
        let Some(program) = compile(name, &["-g", "-DFIXED"]) else { return };
        let (found, output) = findings(name, &program, words);
        assert!(found.is_empty(), "{name}: {found:#?}");
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[test]
fn the_exit_code_tells_of_findings_if_that_is_asked_for() {
    let Some(program) = compile("objects_left", &["-g"]) else { return };
    let said = pumice(&["check"], &program);
    assert!(said.status.success(), "{said:?}");
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("objects-left: completion queue 0") && text.contains("objects_left.c:7"), "{text}");
    assert!(text.contains("remedy: ") && text.contains("check: 2 findings"), "{text}");
    let told = pumice(&["run", "--check-exit", "42"], &program);
    assert_eq!(told.status.code(), Some(42), "{told:?}");
    let Some(fixed) = compile("objects_left", &["-DFIXED"]) else { return };
    let silent = pumice(&["check", "--check-exit", "42"], &fixed);
    assert_eq!(silent.status.code(), Some(0), "{silent:?}");
    let text = String::from_utf8_lossy(&silent.stderr);
    assert!(text.contains("check: nothing was found"), "{text}");
    let off = pumice(&["run"], &program);
    assert!(off.stderr.is_empty() && off.status.success(), "{off:?}");
}

#[test]
fn suppressed_findings_are_only_counted() {
    let Some(program) = compile("objects_left", &["-g"]) else { return };
    let file = scratch("suppress").join("known");
    fs::write(&file, "# known\nkind=objects-* function=main object=objects_left\n")
        .expect("the folder is ours");
    let name = file.to_string_lossy();
    let output = pumice(&["check", "--suppress", &name, "--check-exit", "42"], &program);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("2 more are suppressed") && !text.contains("objects_left.c"), "{text}");
    fs::write(&file, "where=main\n").expect("the folder is ours");
    let refused = pumice(&["check", "--suppress", &name], &program);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("line 1: \"where=main\" is none of kind="), "{text}");
}

#[test]
fn a_report_is_sarif_and_programs_without_debug_information_have_functions() {
    let Some(program) = compile("used_after_destroy", &["-rdynamic"]) else { return };
    let report = scratch("sarif").join("%p.sarif");
    let output = pumice(&["check", "--check-report", &report.to_string_lossy()], &program);
    let folder = report.parent().expect("it is in a folder");
    let files: Vec<PathBuf> =
        fs::read_dir(folder).expect("it is there").map(|file| file.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?} {output:?}") };
    let log: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).expect("it is JSON");
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&log["version"], &result["ruleId"]), (&"2.1.0".into(), &"used-after-destroy".into()));
    let frame = &result["stacks"][0]["frames"][0]["location"];
    assert_eq!(frame["logicalLocations"][0]["name"], "main");
    assert!(frame["physicalLocation"]["address"]["relativeAddress"].is_u64(), "{frame}");
}
