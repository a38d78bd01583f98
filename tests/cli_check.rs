//! `pumice check` on programs with planted bugs, and on the same programs without them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

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
    let output = Command::new("cc")
        .args(usual)
        .arg(&program)
        .args(flags)
        .arg(source(name))
        .arg("-libverbs")
        .args(name.starts_with("cm_").then_some("-lrdmacm"))
        .output();
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

/// Whether a finding has a frame in this line of the program, in its stack or in one that belongs to it.
fn is_at(finding: &Value, name: &str, line: u64) -> bool {
    let related = finding["related"].as_array().into_iter().flatten().map(|one| &one["stack"]);
    let stacks = std::iter::once(&finding["stack"]).chain(related);
    let mut frames = stacks.filter_map(Value::as_array).flatten();
    let file = format!("/{name}.c");
    frames.any(|frame| {
        frame["line"] == line && frame["file"].as_str().is_some_and(|path| path.ends_with(&file))
    })
}

/// Whether a finding is the note that the fault plan of a run slowed a call, or applied to a queue pair that
/// has failed.
fn is_of_plan(finding: &Value, words: &[&str]) -> bool {
    words.contains(&"--fault") && finding["kind"] == "failure-injected" && finding["level"] == "note"
}

/// Programs with planted bugs, and the further words that a run of them needs.
static PLANTED: &[(&str, &[&str])] = &[
    ("remote_race", &[]),
    ("peers_race", &["--fault", "drop qp=0 opcode=write message=0 packet=7 transmission=1"]),
    ("read_relied_on", &[]),
    ("read_used_early", &[]),
    ("notified_on_other_qp", &[]),
    ("relaxed_region", &[]),
    ("write_polled_in_memory", &[]),
    ("cq_too_small", &[]),
    ("send_queue_never_reaped", &[]),
    ("completions_never_polled", &[]),
    ("lost_wakeup", &[]),
    ("sleeps_unarmed", &[]),
    ("sleeps_in_poll", &[]),
    ("events_not_acknowledged", &[]),
    ("events_acknowledged_twice", &[]),
    ("wc_field_of_error", &[]),
    ("receive_too_late", &[]),
    ("rnr_storm", &[]),
    ("reset_at_one_end", &[]),
    ("taken_elsewhere", &["--hang-after", "1s"]),
    ("header_as_payload", &[]),
    ("attributes", &[]),
    ("wrong_way", &[]),
    ("mtu_above_active", &[]),
    ("qkey_mismatch", &[]),
    ("datagram_too_long", &[]),
    ("datagram_to_no_qp", &[]),
    ("datagram_to_nothing", &[]),
    ("group_not_attached", &[]),
    ("datagram_without_receive", &[]),
    ("pkey_mismatch", &["--profile", "tests/check/two_pkeys.toml"]),
    ("connected_too_late", &[]),
    ("in_flight_at_destroy", &[]),
    ("send_buffer_changed", &[]),
    ("receive_buffer_written", &[]),
    ("buffers_overlap", &[]),
    ("buffer_shared", &[]),
    ("write_into_posted", &[]),
    ("unmapped_while_in_use", &[]),
    ("freed_while_in_use", &[]),
    ("unpolled_in_use", &[]),
    ("deregistered_while_in_use", &[]),
    ("stale_rkey", &[]),
    ("keys_crossed", &[]),
    ("fork_without_init", &[]),
    ("used_after_fork", &[]),
    ("used_after_destroy", &[]),
    ("destroyed_twice", &[]),
    ("posted_after_destroy", &[]),
    ("polled_after_destroy", &[]),
    ("other_context", &[]),
    ("read_depth_zero", &[]),
    ("queue_pair_failed", &[]),
    ("mrc_failed", &[]),
    ("mrc_operation", &[]),
    ("mrc_profile", &[]),
    ("mrc_without_receive", &[]),
    ("mrc_limits", &["--fault", "drop qp=0 opcode=write message=0 packet=0 transmission=1"]),
    ("mrc_caps", &[]),
    ("call_refused", &[]),
    ("crash_after_refusal", &[]),
    ("given_back_in_use", &[]),
    ("cm_out_of_turn", &[]),
    ("cm_acknowledged_twice", &[]),
    ("cm_channel_first", &[]),
    ("cm_rejected", &[]),
    ("cm_before_event", &[]),
    ("cm_accept_without_qp", &[]),
    ("device_list_freed", &[]),
    ("psn_of_other_start", &[]),
    ("number_too_long", &[]),
    ("queue_full_ignored", &["--hang-after", "1s"]),
    ("own_number", &[]),
    ("waits_in_vain", &[]),
    ("objects_left", &[]),
    ("left_at_close", &[]),
    ("rnr_retries_zero", &[]),
    ("rnr_retry_for_ever", &["--fault", "answer with=rnr timer=491.52ms times=4 qp=0 message=0"]),
    ("shared_receive_written", &[]),
    ("stack_buffer", &[]),
    ("async_events_never_read", &["--suppress", "tests/check/meant_to_fail.txt"]),
    ("event_left", &[]),
    ("cm_event_not_acknowledged", &[]),
    ("cm_queue_not_acknowledged", &[]),
    ("cm_event_left", &[]),
    ("cm_private_data_after_ack", &[]),
    ("cm_receive_late", &[]),
    ("thread_domain_shared", &["--fault", "slow call=ibv_post_send time=1s"]),
    ("single_threaded_cq", &["--fault", "slow call=ibv_req_notify_cq time=1s"]),
    ("srq_limit_never_armed", &["--check=perf"]),
    ("slow", &["--check=perf"]),
    ("slow_turns", &["--check=perf"]),
    ("slow_calls", &["--check=perf"]),
];

/// Does this for each of [`PLANTED`], several at once: most of their time they wait.
fn for_each_planted(judge: impl Fn(&str, &[&str]) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((name, words)) = PLANTED.get(next.fetch_add(1, Ordering::Relaxed)) {
                    judge(name, words);
                }
            });
        }
    });
}

#[test]
fn planted_bugs_are_found_at_their_lines_and_nothing_else_is() {
    for_each_planted(|name, words| {
        let Some(program) = compile(name, &["-g"]) else { return };
        let planted = planted(name);
        assert!(!planted.is_empty(), "{name} says what is wrong with it");
        let (found, output) = findings(name, &program, words);
        if lacks_breakpoints(name, &output) {
            return;
        }
        for (line, kind) in &planted {
            let is_it = |finding: &&Value| finding["kind"] == **kind && is_at(finding, name, *line);
            assert!(
                found.iter().any(|finding| is_it(&finding)),
                "{name}: {kind} at {line}: {found:#?}\n{output:?}"
            );
        }
        let is_planted = |finding: &Value| {
            planted.iter().any(|(_, kind)| finding["kind"] == **kind) || is_of_plan(finding, words)
        };
        assert!(found.iter().all(is_planted), "{name}: {found:#?}");
    });
}

/// Whether a program has ended because this machine gives programs no breakpoints.
fn lacks_breakpoints(name: &str, output: &Output) -> bool {
    let lacks = output.status.code() == Some(77);
    if lacks {
        eprintln!("**** SKIPPED: {name} needs breakpoints of perf_event_open(2)");
    }
    lacks
}

#[test]
fn a_program_that_handles_traps_itself_is_left_alone() {
    let Some(program) = compile("read_used_early", &["-DHANDLES"]) else { return };
    let (found, output) = findings("read_used_early", &program, &[]);
    assert!(found.is_empty(), "{found:#?}");
    assert!(lacks_breakpoints("read_used_early", &output) || output.status.success(), "{output:?}");
}

#[test]
fn what_the_library_opens_for_itself_is_not_the_programs() {
    let Some(program) = compile("cm_channel_after_list", &["-g"]) else { return };
    let (found, output) = findings("cm_channel_after_list", &program, &[]);
    assert!(found.is_empty() && output.status.success(), "{found:#?} {output:?}");
}

#[test]
fn what_librdmacm_cannot_destroy_is_not_the_programs() {
    let Some(program) = compile("cm_queues_reused", &["-g"]) else { return };
    let (found, output) = findings("cm_queues_reused", &program, &[]);
    assert!(found.is_empty() && output.status.success(), "{found:#?} {output:?}");
    let output_text = String::from_utf8_lossy(&output.stderr);
    assert!(!output_text.contains("still in use"), "{output_text}");
}

#[test]
fn nothing_is_found_where_the_bugs_are_mended() {
    for_each_planted(|name, words| {
        let Some(program) = compile(name, &["-g", "-DFIXED"]) else { return };
        let (mut found, output) = findings(name, &program, words);
        found.retain(|finding| !is_of_plan(finding, words));
        assert!(found.is_empty(), "{name}: {found:#?}");
        assert!(lacks_breakpoints(name, &output) || output.status.success(), "{name}: {output:?}");
    });
}

#[test]
fn a_failure_names_why_the_other_end_did_not_answer() {
    let Some(program) = compile("psn_of_other_start", &["-g"]) else { return };
    let (found, output) = findings("psn_of_other_start", &program, &[]);
    let [found] = found.as_slice() else { panic!("{found:#?} {output:?}") };
    let numbers = found["numbers"].as_str().unwrap();
    assert!(numbers.contains("failed with RETRY_EXC_ERR: queue pair 1"), "{numbers}");
    assert!(numbers.ends_with("rq_psn here is not sq_psn of the peer"), "{numbers}");
}

#[test]
fn fields_that_failed_completions_do_not_have_are_filled_conspicuously() {
    let Some(program) = compile("fields_of_error", &[]) else { return };
    let (found, output) = findings("fields_of_error", &program, &[]);
    assert!(found.is_empty() && output.status.success(), "{found:#?} {output:?}");
    let fields = String::from_utf8_lossy(&output.stdout);
    let of_words = ["0xdeadbeef"; 5].join(" ");
    assert_eq!(fields.trim(), format!("{of_words} 0xbeef 0xbeef 0xef 0xef"));
    let unchecked = pumice(&["run"], &program);
    assert!(!String::from_utf8_lossy(&unchecked.stdout).contains("0xdeadbeef"), "{unchecked:?}");
}

#[test]
fn posted_receives_are_filled_if_that_is_asked_for() {
    let Some(program) = compile("reads_early", &[]) else { return };
    for (words, early) in [(&["--check=poison"][..], "0xa5 0xa5 0"), (&[], "0 0 0")] {
        let (found, output) = findings("reads_early", &program, words);
        assert!(found.is_empty() && output.status.success(), "{found:#?} {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), format!("{early} 0x33"), "{words:?}");
    }
}

#[test]
fn the_exit_code_reports_findings_on_request() {
    let Some(program) = compile("objects_left", &["-g"]) else { return };
    let output_text = pumice(&["check"], &program);
    assert!(output_text.status.success(), "{output_text:?}");
    let text = String::from_utf8_lossy(&output_text.stderr);
    assert!(text.contains("objects-left: completion queue 0") && text.contains("objects_left.c:7"), "{text}");
    assert!(text.contains("remedy: ") && text.contains("check: 2 findings"), "{text}");
    let with_exit_code = pumice(&["run", "--check-exit", "42"], &program);
    assert_eq!(with_exit_code.status.code(), Some(42), "{with_exit_code:?}");
    let Some(fixed) = compile("objects_left", &["-DFIXED"]) else { return };
    let silent = pumice(&["check", "--check-exit", "42"], &fixed);
    assert_eq!(silent.status.code(), Some(0), "{silent:?}");
    let text = String::from_utf8_lossy(&silent.stderr);
    assert!(text.contains("check: nothing was found"), "{text}");
    let off = pumice(&["run"], &program);
    assert!(off.stderr.is_empty() && off.status.success(), "{off:?}");
}

#[test]
fn a_run_in_which_no_device_was_opened_is_red_if_the_exit_code_is_asked_for() {
    let none = pumice(&["check", "--check-exit", "42"], Path::new("true"));
    assert_eq!(none.status.code(), Some(42), "{none:?}");
    let text = String::from_utf8_lossy(&none.stderr);
    assert!(text.contains("no process of it opened a device, so nothing was checked"), "{text}");
    let unasked = pumice(&["check"], Path::new("true"));
    assert_eq!(unasked.status.code(), Some(0), "{unasked:?}");
}

#[test]
fn a_program_that_uses_no_device_is_reported_at_its_end() {
    let Some(program) = compile("asks_for_nothing", &[]) else { return };
    let output_text =
        "the program has loaded libibverbs and never asked for a device: nothing was done with RDMA";
    let output = pumice(&["run"], &program);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), format!("pumice: {output_text}\n"));
    let quiet = pumice(&["run", "--log", "error"], &program);
    assert!(quiet.status.success() && quiet.stderr.is_empty(), "{quiet:?}");
    let Some(lists) = compile("asks_for_nothing", &["-DFIXED"]) else { return };
    let output = pumice(&["run"], &lists);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn failures_of_one_cause_are_one_paragraph_and_an_exit_at_once_loses_none() {
    let Some(program) = compile("many_fail", &["-g"]) else { return };
    let (found, output) = findings("many_fail", &program, &[]);
    let failed: Vec<&Value> = found.iter().filter(|one| one["kind"] == "queue-pair-failed").collect();
    assert_eq!(failed.len(), 1, "{found:#?}");
    assert_eq!((&failed[0]["count"], &failed[0]["level"]), (&10.into(), &"error".into()), "{failed:#?}");
    let numbers = failed[0]["numbers"].as_str().unwrap();
    assert!(numbers.contains("; and 9 others of the same cause: queue pair"), "{numbers}");
    let (line, _) = planted("many_fail")[0];
    assert!(is_at(failed[0], "many_fail", line), "{failed:#?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("pumice: check: "), "{output:?}");
    let Some(program) = compile("many_fail", &["-DWELL"]) else { return };
    let logged = pumice(&["run"], &program);
    let text = String::from_utf8_lossy(&logged.stderr);
    assert!(text.contains("others of the same cause: QP "), "{text}");
    let Some(fixed) = compile("many_fail", &["-DFIXED"]) else { return };
    let (found, _) = findings("many_fail", &fixed, &[]);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_a_plan_injects_is_a_note_that_names_the_rule_and_fails_only_if_that_is_asked_for() {
    let Some(program) = compile("many_fail", &["-g", "-DFIXED"]) else { return };
    let rule = "drop qp=0 opcode=write";
    let (found, output) = findings("many_fail", &program, &["--fault", rule, "--check-exit", "42"]);
    let injected: Vec<&Value> = found.iter().filter(|one| one["kind"] == "failure-injected").collect();
    assert_eq!(injected.len(), 1, "{found:#?} {output:?}");
    assert_eq!(injected[0]["level"], "note");
    assert!(injected[0]["numbers"].as_str().unwrap().contains("rule \""), "{injected:#?}");
    assert!(found.iter().all(|one| one["kind"] != "queue-pair-failed"), "{found:#?}");
    let code = |words: &[&str]| {
        let words = [&["check", "--fault", rule][..], words].concat();
        pumice(&words, &program).status.code()
    };
    assert_eq!(code(&["--fail-on", "error"]), Some(0));
    assert_eq!(code(&["--fail-on", "injected", "--check-exit", "7"]), Some(7));
}

#[test]
fn calls_and_completions_that_a_plan_fails_or_slows_are_notes_with_the_name_of_the_rule() {
    let Some(program) = compile("many_fail", &["-g", "-DFIXED", "-DWELL"]) else { return };
    let cases = [
        ("fail name=it call=ibv_post_send nth=1", "fails ibv_post_send with"),
        ("slow name=it call=ibv_post_send nth=1 time=1ms", "delays ibv_post_send by 1000 us"),
        ("late name=it side=send message=0 time=1ms", ": write request 0 comes 1000 us later"),
        ("complete name=it side=send message=0 status=retry-exceeded", "ends with RETRY_EXC_ERR"),
    ];
    for (rule, wanted) in cases {
        let (found, output) = findings("many_fail", &program, &["--fault", rule]);
        let notes: Vec<&Value> = found.iter().filter(|one| one["kind"] == "failure-injected").collect();
        assert_eq!(notes.len(), 1, "{rule}: {found:#?} {output:?}");
        let numbers = notes[0]["numbers"].as_str().unwrap();
        assert!(numbers.starts_with("rule \"it\" of the fault plan"), "{numbers}");
        assert!(numbers.contains(wanted) && notes[0]["level"] == "note", "{notes:#?}");
        let blamed = found.iter().find(|one| one["kind"] == "queue-pair-failed");
        assert_eq!(blamed, None, "{rule}: {output:?}");
    }
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

/// A report that the schema of SARIF 2.1.0 accepts.
fn sarif_log(file: &Path) -> Value {
    let schema = include_str!("golden/sarif/sarif-schema-2.1.0.json");
    let mut schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    // Its pattern for languages has a stray bracket, and is no regular expression. Our reports have none.
    for definition in ["run", "toolComponent"] {
        let language = &mut schema["definitions"][definition]["properties"]["language"];
        assert_eq!(language["pattern"], "^[a-zA-Z]{2}|^[a-zA-Z]{2}-[a-zA-Z]{2}]?$");
        language.as_object_mut().expect("a property").remove("pattern");
    }
    let judge = jsonschema::options().should_validate_formats(true).build(&schema).expect("it is a schema");
    let log: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).expect("it is JSON");
    let problems: Vec<String> =
        judge.iter_errors(&log).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    // The judge is one that judges.
    let mut broken = log.clone();
    broken["runs"][0]["results"][0]["level"] = "loud".into();
    broken["runs"][0]["tool"]["driver"]["rules"][0]["shortDescription"] = "plain".into();
    assert_eq!(judge.iter_errors(&broken).count(), 2, "{broken}");
    log
}

#[test]
fn reports_are_sarif_by_its_schema_with_lines_and_related_locations() {
    for name in ["used_after_destroy", "lost_wakeup", "objects_left"] {
        let Some(program) = compile(name, &["-g"]) else { return };
        // A name that has to be written differently in a URI.
        let report = scratch("sarif of a schema").join("a report.sarif");
        let output = pumice(&["check", "--check-report", &report.to_string_lossy()], &program);
        let log = sarif_log(&report);
        let results = log["runs"][0]["results"].as_array().expect("results are a list");
        assert!(!results.is_empty(), "{name}: {output:?}");
        for result in results {
            let location = &result["locations"][0]["physicalLocation"];
            assert!(location["region"]["startLine"].is_u64(), "{name}: {result}");
            assert!(
                location["artifactLocation"]["uri"]
                    .as_str()
                    .is_some_and(|uri| uri.ends_with(".c") || uri.ends_with("ends.h"))
            );
        }
    }
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
    let log = sarif_log(file);
    let result = &log["runs"][0]["results"][0];
    assert_eq!((&log["version"], &result["ruleId"]), (&"2.1.0".into(), &"used-after-destroy".into()));
    let frame = &result["stacks"][0]["frames"][0]["location"];
    assert_eq!(frame["logicalLocations"][0]["name"], "main");
    assert!(frame["physicalLocation"]["address"]["relativeAddress"].is_u64(), "{frame}");
}

#[test]
fn reports_are_junit_and_markdown_by_their_names_or_by_the_option() {
    let Some(program) = compile("used_after_destroy", &["-g"]) else { return };
    let folder = scratch("junit and markdown");
    let report = |file: &str, format: &[&str]| {
        let report = folder.join(file);
        let name = report.to_string_lossy();
        let words = [&["check", "--check-report", &name][..], format].concat();
        let output = pumice(&words, &program);
        fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    };
    let xml = report("report.xml", &[]);
    assert!(xml.starts_with("<?xml ") && xml.ends_with("</testsuite>\n"), "{xml}");
    assert!(xml.contains("<failure type=\"used-after-destroy\" message=\""), "{xml}");
    assert!(xml.contains("used_after_destroy.c:"), "{xml}");
    let markdown = report("report.md", &[]);
    assert!(markdown.starts_with("# pumice check: 1 finding\n"), "{markdown}");
    assert!(markdown.contains("\n## used-after-destroy\n"), "{markdown}");
    // The process has another number.
    let without = |text: &str| text.lines().filter(|line| !line.starts_with("Program: ")).count();
    assert_eq!(without(&report("report", &["--check-format", "markdown"])), without(&markdown));
    let output = pumice(&["check", "--check-report", "x", "--check-format", "yaml"], &program);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the formats are text, json, sarif, junit, markdown and github"), "{text}");
}

/// Asks for more completions than there is room for, by the Rust API.
#[inline(never)]
fn plants_in_rust() -> pumice_verbs::Result<()> {
    use pumice_verbs::{Device, DeviceOptions, RcQueuePair, RecvRequest};
    let own: std::net::IpAddr = std::env::var("PUMICE_ADDR").expect("set").parse().expect("an address");
    let device = Device::open(DeviceOptions::new().addresses([own]))?;
    let (domain, cq) = (device.protection_domain()?, device.completion_queue(2)?);
    let qp = RcQueuePair::builder(&domain, &cq, &cq).build()?;
    (0..3).try_for_each(|wr_id| qp.post_recv(&RecvRequest { wr_id, sges: &[] }))
}

/// What a program is told by that it is the planted one.
const PLANTS: &str = "PUMICE_TEST_PLANTS";

/// Not a test: what the next one runs as a program.
#[test]
fn rust_program() {
    if std::env::var_os(PLANTS).is_some() {
        plants_in_rust().expect("the device works");
    }
}

#[test]
fn programs_that_use_the_rust_api_are_checked_by_the_same_command() {
    let report = scratch("rust").join("report.json");
    let own = std::env::current_exe().expect("a test knows its program");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    let process = std::process::id();
    command.env("PUMICE_ADDR", format!("127.{}.{}.251", 150 + (process >> 8 & 0x3f), process & 0xff));
    command.args(["check", "--check-exit", "42", "--check-report"]).arg(&report).arg("--").arg(own);
    let output = command.args(["--exact", "rust_program"]).env(PLANTS, "1").output().expect("it can be run");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(42), "{text}");
    let report: Value = serde_json::from_str(&fs::read_to_string(report).expect("a report")).expect("JSON");
    let [found] = report["findings"].as_array().expect("a list").as_slice() else { panic!("{report}") };
    assert_eq!(found["kind"], "cq-too-small");
    let functions =
        found["stack"].as_array().into_iter().flatten().filter_map(|frame| frame["function"].as_str());
    let functions: Vec<&str> = functions.collect();
    assert!(functions.iter().any(|name| name.contains("plants_in_rust")), "{functions:?}");
}
