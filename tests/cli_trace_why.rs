//! `pumice trace why`: a run for each row of the table of causes, which has exactly this cause. The runs are
//! worlds: what else the machine does takes none of their time, so it is no cause.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A run, and the cause that it has.
struct CauseRow {
    /// What `tests/trace/causes.c` is to do.
    words: &'static [&'static str],
    /// Options of `pumice run`.
    options: &'static [&'static str],
    /// The cause of the first paragraph.
    cause: &'static str,
    /// What the paragraph must have.
    sentence: &'static str,
}

const fn row(
    words: &'static [&'static str],
    options: &'static [&'static str],
    cause: &'static str,
    sentence: &'static str,
) -> CauseRow {
    CauseRow { words, options, cause, sentence }
}

/// Faults have this name, so that each paragraph about one has it as well.
const UDP: &str = "--wire=udp";

/// What a fault plan makes: the paragraph names the rule.
const INJECTED: &[CauseRow] = &[
    row(
        &["single"],
        &[UDP, "--fault", "drop name=it opcode=write nth=9"],
        "request-lost",
        "lost a packet of request 8",
    ),
    row(&["single"], &[UDP, "--fault", "drop name=it opcode=ack nth=9"], "ack-lost", "had arrived"),
    row(
        &["reads"],
        &[UDP, "--fault", "drop name=it opcode=read-response nth=9"],
        "response-lost",
        "lost the peer's response",
    ),
    row(&["single"], &[UDP, "--fault", "corrupt name=it opcode=write nth=9"], "corrupted", "its ICRC showed"),
    row(&["single"], &["--fault", "duplicate name=it opcode=write nth=9"], "duplicated", "sent a duplicate"),
    row(
        &["single"],
        &[UDP, "--fault", "delay name=it opcode=write nth=9 time=120ms"],
        "delayed",
        "delayed a packet of request 8 by 120.0 ms",
    ),
    row(
        &["single"],
        &["--fault", "late name=it time=70ms side=send message=9"],
        "completion-late",
        "come 70.0 ms late. Of this: 70.0 ms acknowledged, until it completed",
    ),
    row(
        &["burst"],
        &["--fault", "late name=it time=70ms side=send message=3"],
        "completion-late",
        "others of the same",
    ),
    row(&["channel"], &["--fault", "late-event name=it time=60ms nth=5"], "event-late", "come 60.0 ms late"),
    row(
        &["channel"],
        &["--fault", "merge-events name=it count=8 within=60ms nth=5"],
        "events-merged",
        "merged event 5",
    ),
    row(
        &["burst"],
        &["--fault", "complete name=it status=retry-exceeded side=send message=7"],
        "status",
        "complete with RETRY_EXC_ERR",
    ),
    row(
        &["burst"],
        &[UDP, "--fault", "answer name=it with=access message=7"],
        "refused",
        "in the peer's name",
    ),
    row(
        &["single"],
        &[UDP, "--fault", "answer name=it with=rnr timer=30.72ms times=3 message=7"],
        "refused",
        "by an RNR NAK in the peer's name",
    ),
    row(
        &["single"],
        &["--fault", "slow name=it call=ibv_post_send nth=9 time=90ms"],
        "call-slowed",
        "slowed call 9 of ibv_post_send by 90.0 ms",
    ),
    row(
        &["single"],
        &["--fault", "slow name=it call=ibv_poll_cq nth=20 time=90ms"],
        "call-slowed",
        "slowed call 20 of ibv_poll_cq by 90.0 ms",
    ),
    row(
        &["single"],
        &[UDP, "--fault", "event name=it kind=freeze time=250ms qp=0 message=9"],
        "frozen",
        "freeze for 250000 us",
    ),
    row(
        &["single"],
        &[UDP, "--fault", "event name=it kind=port-down time=300ms qp=0 message=9"],
        "port-down",
        "port-down for 300000 us",
    ),
    row(
        &["single"],
        &[UDP, "--fault", "event name=it kind=link rate=60Kbit qp=0 message=9"],
        "link-rate",
        "rate=60",
    ),
    row(&["burst"], &["--fault", "event name=it kind=qp-fatal qp=0 message=9"], "device-event", "qp-fatal"),
    row(
        &["window"],
        &[UDP, "--fault", "mark name=it opcode=write every=3"],
        "congestion",
        "as congested (ECN)",
    ),
    row(
        &["single"],
        &[UDP, "--fault", "partition name=it message=9 time=250ms"],
        "partition",
        "began a partition",
    ),
    row(
        &["thin"],
        &["--fault", "fail name=it call=ibv_modify_qp nth=1"],
        "call-failed",
        "call 1 of ibv_modify_qp fail",
    ),
];

/// What the program, the peer, the link or the host makes.
const SEEN: &[CauseRow] = &[
    row(&["late-peer", "300"], &[], "peer-posts-late", "its program posted one"),
    row(&["lazy-peer", "300"], &[], "peer-polls-late", "its program polled slowly"),
    row(&["lazy", "300"], &[], "polls-late", "the program polled it"),
    row(&["thin", "240"], &[], "unsignaled", "others of the same cause"),
    row(&["full", "150"], &[], "send-queue-full", "send queue was full: ibv_post_send was refused"),
    row(&["depth"], &[UDP, "--delay=3ms"], "read-depth", "max_rd_atomic of the queue pair is 1"),
    row(&["single"], &[UDP, "--rate=400Kbit"], "link-rate", "at the rate of the link"),
    row(&["burst"], &[UDP, "--rate=1Mbit"], "switch-queue", "waited behind others in the queue"),
    row(&["gone"], &[UDP], "peer-gone", "had destroyed its queue pair"),
    row(&["idle", "500"], &[], "program-idle", "no request was under way"),
];

/// In a world no process is stopped by a signal. A machine that is busy makes the same cause.
const STOPPED: &[CauseRow] = &[
    row(&["stopped", "2000"], &[], "scheduler", "had no processor for"),
    // While nothing happens, too.
    row(&["stopped-idle", "400"], &[], "scheduler", "had no processor for"),
];

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("why-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// The program; none if there is no compiler or no library.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = PROGRAM.get_or_init(|| {
        if !Path::new("/usr/include/infiniband/verbs.h").exists()
            || Command::new("cc").arg("--version").output().is_err()
        {
            eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
            return None;
        }
        let program = scratch("program").join("causes");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/causes.c");
        let usual = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"];
        let cc = Command::new("cc")
            .args(usual)
            .arg(&program)
            .arg(source)
            .args(["-libverbs", "-lpthread"])
            .output();
        let output = cc.expect("cc runs");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    });
    made.as_deref()
}

fn pumice() -> Command {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    // An address that no other test uses.
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed) % 250);
    command.env("PUMICE_ADDR", format!("127.{}.{}.{number}", 90 + (own >> 8 & 0x0f), own & 0xff));
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How the run of a row goes on.
#[derive(Clone, Copy)]
enum ClockKind {
    /// In virtual time: each run is the same.
    World,
    Real,
}

/// What `why` says of the run of a row, as text and as JSON.
fn why(row: &CauseRow, time: ClockKind, program: &Path, trace: &Path) -> (String, Value) {
    let mut command = pumice();
    match time {
        ClockKind::World => command.args(["world", "--seed", "1"]),
        ClockKind::Real => command.arg("run"),
    };
    command.args(["--log", "off", "--trace"]).arg(trace).args(row.options).arg("--").arg(program);
    command.args(row.words).output().expect("it can be run");
    let asked = |words: &[&str]| {
        let output = pumice().args(["trace", "why"]).args(words).arg(trace).output().expect("it can be run");
        assert!(output.status.success(), "{output:?}");
        out(&output)
    };
    let json = serde_json::from_str(&asked(&["--json"])).expect("one JSON object");
    (asked(&[]), json)
}

/// The first paragraph behind the counts.
fn first(text: &str) -> &str {
    text.lines().skip(1).find(|line| !line.trim().is_empty()).unwrap_or_default()
}

fn of_first(json: &Value) -> Option<&Value> {
    ["failed", "slowest"].iter().find_map(|list| json[list].as_array()?.first())
}

/// Rows whose first paragraph is about something else.
fn wrong(rows: &[CauseRow], time: ClockKind, name: &str) -> Vec<String> {
    let Some(program) = program() else { return Vec::new() };
    let folder = scratch(name);
    let mut wrong = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let (text, json) = why(row, time, program, &folder.join(format!("{number}.trace")));
        let cause = of_first(&json).map_or(&Value::Null, |first| &first["cause"]["kind"]);
        let paragraph = first(&text);
        let is_injected = row.options.contains(&"--fault");
        let names_rule = paragraph.contains("rule \"it\"") || !is_injected;
        if cause != row.cause || !paragraph.contains(row.sentence) || !names_rule {
            wrong.push(format!("{:?} {:?}: {} wanted: {text}", row.words, row.options, row.cause));
        }
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
    wrong
}

#[test]
fn what_a_plan_did_is_reported_as_injected() {
    let wrong = wrong(INJECTED, ClockKind::World, "injected");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), INJECTED.len(), wrong.join("\n"));
}

#[test]
fn what_is_seen_is_judged_by_its_evidence() {
    let wrong = wrong(SEEN, ClockKind::World, "seen");
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), SEEN.len(), wrong.join("\n"));
}

#[test]
fn a_process_that_was_stopped_had_no_processor() {
    let wrong = wrong(STOPPED, ClockKind::Real, "stopped");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_trace_ends_when_its_process_was_killed() {
    let Some(program) = program() else { return };
    let folder = scratch("killed");
    let trace = folder.join("hang.trace");
    let mut command = pumice();
    command.args(["run", "--log", "off", "--trace"]).arg(&trace).arg("--").arg(program).arg("hang");
    let mut child = command.spawn().expect("it can be run");
    // The records of the program are there within some ms, those that say that it lives come later.
    let lives = || {
        let list = pumice().args(["trace", "list", "--json"]).arg(&trace).output().expect("it can be run");
        out(&list).matches("\"record\":\"Alive\"").count() >= 3
    };
    while !lives() {
        assert!(child.try_wait().expect("a child of ours").is_none(), "it has ended");
        std::thread::yield_now();
    }
    // std kills with SIGKILL.
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    let output = pumice().args(["trace", "why", "--json"]).arg(&trace).output().expect("it can be run");
    let json: Value = serde_json::from_str(&out(&output)).expect("one JSON object");
    let first = of_first(&json).expect("a paragraph");
    let duration_ns = first["duration_ns"].as_u64().expect("a number");
    assert!(first["status"].is_null() && duration_ns >= 900_000_000, "{first}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn siblings_are_one_paragraph() {
    let Some(program) = program() else { return };
    let folder = scratch("siblings");
    let rows = [
        row(&["thin", "48"], &[], "", ""),
        row(&["burst"], &["--fault", "late time=80ms side=send message=3"], "", ""),
        row(&["burst"], &["--fault", "slow call=ibv_poll_cq nth=1 time=90ms"], "", ""),
    ];
    for (number, row) in rows.iter().enumerate() {
        let (_, json) = why(row, ClockKind::World, program, &folder.join(format!("{number}.trace")));
        let paragraphs = json["slowest"].as_array().expect("a list");
        let mut causes: Vec<String> = paragraphs
            .iter()
            .map(|one| format!("{} {}", one["cause"]["kind"], one["cause"]["rule"]))
            .collect();
        let count = causes.len();
        causes.sort();
        causes.dedup();
        assert_eq!(causes.len(), count, "{json}");
        assert!(paragraphs[0]["others"].as_u64().is_some_and(|others| others >= 1), "{json}");
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
