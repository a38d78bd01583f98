//! `pumice sweep` on programs with planted faults, and on one without.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// A new folder. Tests of one process run at once, and two of them may use one name.
fn scratch(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sweep-{name}-{own}-{number}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Compiles `tests/sweep/<name>.c` against the system's libraries; none if there is no compiler or no
/// library.
fn compile(name: &str) -> Option<PathBuf> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev librdmacm-dev");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/sweep/{name}.c"));
    let program = scratch(name).join(name);
    let flags = ["-std=gnu11", "-Wall", "-Werror", "-O1", "-o"];
    let output =
        Command::new("cc").args(flags).arg(&program).arg(source).args(["-libverbs", "-lrdmacm"]).output();
    let output = output.expect("cc runs");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn sweep(options: &[&str], program: &Path) -> Output {
    swept(Command::new(env!("CARGO_BIN_EXE_pumice")), options, program)
        .output()
        .expect("the program can be run")
}

/// The command that sweeps a program; `command` is `pumice`, or runs it.
fn swept(mut command: Command, options: &[&str], program: &Path) -> Command {
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    // An address that no other test uses.
    let own = std::process::id();
    command.env("PUMICE_ADDR", format!("127.{}.{}.9", 80 + (own >> 8 & 0x3f), own & 0xff));
    command.arg("sweep").args(options).arg("--").arg(program);
    command
}

fn findings(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// A program with a planted fault: what a sweep finds, and at which call.
const PLANTED: [(&str, &str, &str); 10] = [
    ("leaks_domain", "leak", "ibv_reg_mr"),
    ("leaks_queue_pair", "leak", "ibv_modify_qp"),
    ("leaks_channel", "leak", "ibv_create_cq"),
    ("leaks_identifier", "leak", "rdma_bind_addr"),
    ("crashes_on_no_queue", "crash", "ibv_create_qp"),
    ("crashes_on_no_region", "crash", "ibv_reg_mr"),
    ("aborts_on_poll", "crash", "ibv_poll_cq"),
    ("hangs_without_request", "hang", "ibv_post_send"),
    ("hangs_without_arming", "hang", "ibv_req_notify_cq"),
    ("ignores_query", "silent", "ibv_query_port"),
];

#[test]
fn planted_faults_are_all_found() {
    for (name, verdict, call) in PLANTED {
        let Some(program) = compile(name) else { return };
        let output = sweep(&["--json", "--strict", "--timeout", "2s"], &program);
        let found = findings(&output);
        let is_it = |finding: &&Value| finding["verdict"] == verdict && finding["call"] == call;
        assert!(found.iter().any(|finding| is_it(&finding)), "{name}: {found:#?}\n{output:?}");
        assert_eq!(output.status.code(), Some(1), "{name}");
    }
}

#[test]
fn completions_fail_once_each_if_asked() {
    for (name, verdict, completion) in [
        ("ignores_status", "silent", "send"),
        ("ignores_status", "silent", "recv"),
        ("waits_for_receive", "hang", "recv"),
    ] {
        let Some(program) = compile(name) else { return };
        let output = sweep(
            &["--json", "--strict", "--completions", "--call", "ibv_fork_init", "--timeout", "2s"],
            &program,
        );
        let found = findings(&output);
        let is_it = |finding: &&Value| finding["verdict"] == verdict && finding["completion"] == completion;
        assert!(found.iter().any(|finding| is_it(&finding)), "{name}: {found:#?}\n{output:?}");
        assert_eq!(output.status.code(), Some(1), "{name}");
    }
    let Some(program) = compile("correct") else { return };
    let output = sweep(&["--json", "--strict", "--completions", "--call", "ibv_fork_init"], &program);
    let found = findings(&output);
    assert!(output.status.success(), "{output:?}");
    let handled =
        found.iter().filter(|finding| finding["status"] == "general" && finding["verdict"] == "handled");
    assert_eq!(handled.count(), 2, "{found:#?}");
}

#[test]
fn steps_of_connection_management_fail_once_each_if_asked() {
    let options = ["--json", "--strict", "--cm", "--call", "ibv_fork_init"];
    let Some(program) = compile("waits_for_request") else { return };
    let output = sweep(&[&options[..], &["--timeout", "2s"]].concat(), &program);
    let found = findings(&output);
    let is_it = |finding: &&Value| finding["verdict"] == "hang" && finding["opcode"] == "req";
    assert!(found.iter().any(|finding| is_it(&finding)), "{found:#?}\n{output:?}");
    assert_eq!(output.status.code(), Some(1));

    let Some(program) = compile("connects_to_itself") else { return };
    let output = sweep(&options, &program);
    let found = findings(&output);
    assert!(output.status.success(), "{output:?}");
    let steps = found.iter().filter(|finding| !finding["step"].is_null());
    let steps: Vec<(&str, &str, &str)> = steps
        .map(|finding| (&finding["opcode"], &finding["step"], &finding["verdict"]))
        .map(|(kind, step, verdict)| {
            (kind.as_str().unwrap_or(""), step.as_str().unwrap_or(""), verdict.as_str().unwrap_or(""))
        })
        .collect();
    for wanted in [("req", "rejected", "handled"), ("rep", "lost", "handled"), ("dreq", "lost", "handled")] {
        assert!(steps.contains(&wanted), "{wanted:?}: {steps:?}");
    }
}

#[test]
fn nothing_is_found_in_a_correct_program() {
    let Some(program) = compile("correct") else { return };
    let folder = scratch("correct-results");
    let (journal, junit) = (folder.join("journal"), folder.join("junit.xml"));
    let (journal_name, junit_name) = (journal.to_string_lossy(), junit.to_string_lossy());
    let options = ["--strict", "--all-errnos", "--resume", &journal_name, "--junit", &junit_name];
    let output = sweep(&options, &program);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains(" handled") && !text.contains("leak") && !text.contains("silent"), "{text}");
    let xml = fs::read_to_string(&junit).expect("the document is written");
    assert!(xml.contains("failures=\"0\"") && xml.contains("name=\"ibv_reg_mr 1 ENOMEM\""), "{xml}");

    // What was interrupted goes on: results that are there are not made again.
    let written = fs::read_to_string(&journal).expect("results are written down");
    let journal_start: String = written.split_inclusive('\n').take(4).collect();
    fs::write(&journal, format!("{journal_start}{{\"call\":\"ibv_")).expect("the file is ours");
    let resumed = sweep(&options, &program);
    assert!(resumed.status.success(), "{resumed:?}");
    let again = fs::read_to_string(&journal).expect("results are written down");
    assert!(again.starts_with(&journal_start), "{again}");
    assert_eq!(again.lines().count(), written.lines().count());
    let other = sweep(&["--resume", &journal_name], Path::new("/bin/true"));
    assert_eq!(other.status.code(), Some(1), "{other:?}");
}

#[test]
fn a_sweep_that_control_c_stops_resumes_where_it_was() {
    let Some(program) = compile("hangs_without_request") else { return };
    let journal = scratch("control-c").join("journal");
    let name = journal.to_string_lossy();
    let read = || fs::read_to_string(&journal).unwrap_or_default();
    // It cannot come to its end: one of its runs hangs for ever.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.process_group(0).stderr(Stdio::piped()).stdout(Stdio::null());
    let mut stopped = swept(command, &["--resume", &name, "--timeout", "100000s"], &program);
    let mut stopped = stopped.spawn().expect("the program can be run");
    while read().lines().count() < 3 {
        assert!(stopped.try_wait().expect("it is a child").is_none(), "{}", read());
        std::thread::yield_now();
    }
    // As a terminal does: to the whole group.
    let group = format!("-{}", stopped.id());
    let sent = Command::new("kill").args(["-INT", "--", &group]).status().expect("kill runs");
    let stopped = stopped.wait_with_output().expect("it ends");
    let stderr_text = String::from_utf8_lossy(&stopped.stderr);
    assert!(sent.success() && stopped.status.code() == Some(1), "{stderr_text}");
    assert!(stderr_text.contains("the same command goes on with what is left"), "{stderr_text}");
    let journal_start = read();
    assert!(journal_start.ends_with('\n') && !journal_start.contains("\"hang\""), "{journal_start}");

    let resumed = sweep(&["--resume", &name, "--timeout", "2s", "--json"], &program);
    assert_eq!(resumed.status.code(), Some(1), "{resumed:?}");
    assert!(read().starts_with(&journal_start), "{}", read());
    let found = findings(&resumed);
    assert!(found.iter().any(|finding| finding["verdict"] == "hang"), "{found:#?}");
    assert_eq!(read().lines().count(), found.len(), "the run without faults, and a heading: {found:#?}");
}

#[test]
fn jobs_of_a_user_without_privileges_have_namespaces_of_their_own() {
    let Some(program) = compile("correct") else { return };
    // This user, but with another number: that of no administrator.
    let as_user = ["--user", "--map-user=1000", "--map-group=1000"];
    let is_possible = Command::new("unshare").args(as_user).arg("true").status().is_ok_and(|it| it.success());
    if !is_possible {
        eprintln!("**** SKIPPED: user namespaces are forbidden here");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(as_user).arg(env!("CARGO_BIN_EXE_pumice")).env("XDG_RUNTIME_DIR", scratch("user"));
    let output = swept(command, &["--strict", "--jobs", "3", "--json"], &program).output();
    let output = output.expect("the program can be run");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let found = findings(&output);
    assert!(found.len() > 10 && found.iter().skip(1).all(|one| one["verdict"] == "handled"), "{found:#?}");
}

#[test]
fn what_cannot_be_swept_is_refused_in_a_sentence() {
    for (options, program, exit, about) in [
        (&[][..], "/bin/true", 1, "made no verbs calls"),
        (&[], "/bin/false", 1, "without faults the program ends with status 1"),
        (&[], "/nowhere/program", 127, "cannot be run"),
        (&["--call", "reg_mr"], "/bin/true", 2, "is ibv_reg_mr meant?"),
        (&["--timeout", "5"], "/bin/true", 2, "like 10s"),
        (&["--sweep-server"], "/bin/true", 2, "--server"),
    ] {
        let output = sweep(options, Path::new(program));
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{program} {options:?}: {stderr_text}");
        assert!(stderr_text.contains(about), "{program} {options:?}: {stderr_text}");
    }
}
