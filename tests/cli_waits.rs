//! What `pumice run` says of programs that wait in vain, and `pumice hang` of several at once: each reason
//! has a program below tests/waits, which is right with -DFIXED.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// How the sentences begin.
const BEGIN: &str = "pumice: waits in vain: ";

/// Programs, and what has to be said of them. Those with a line `// HERE` have it named.
const PLANTED: [(&str, &str); 28] = [
    ("unarmed", "the queue is not armed; call ibv_req_notify_cq"),
    ("solicited", "armed for solicited completions only, and the sender did not set IBV_SEND_SOLICITED"),
    ("unsignaled", "all send requests since the last completion, 5, are unsignaled"),
    ("once_too_often", "nothing is outstanding: no request is posted that completes there"),
    ("other_queue", "and the program polls completion queue 1, in which nothing can complete"),
    ("other_channel", "that queue has no channel"),
    ("no_receive", "the peer has no receive request for it"),
    ("read_depth", "max_rd_atomic"),
    ("peer_stopped", "is stopped; `kill -CONT"),
    ("peer_ended", "has ended"),
    ("peer_not_ready", "is in INIT: it receives from RTR on"),
    ("both_wait", "wait for each other"),
    ("nobody_listens", "no program of this user listens there; programs of this user listen at"),
    ("unread", "has not read 1 event (CONNECT_REQUEST)"),
    ("rejected", "the peer rejected the connection"),
    ("datagram_too_long", "a datagram of 8 needs 48: 40 for the GRH come in front"),
    ("no_such_number", "which no queue pair has: is remote_qpn the qp_num of the receiver?"),
    ("not_attached", "no queue pair of this user is attached to it"),
    ("sleeps_unsignaled", "the newest send request is unsignaled, which completes without a word"),
    ("drained", "the queue pair is in SQD, where no request begins"),
    ("overran", "polls completion queue 0 of 2 entries, which overran or failed"),
    ("wrong_number", "is connected to this one: dest_qp_num has to be"),
    ("other_srq", "the peer has no receive request for it"),
    ("limit_once", "its limit is not armed: IBV_EVENT_SRQ_LIMIT_REACHED comes once"),
    ("last_event", "is in ERR and has no shared receive queue"),
    ("no_channel", "on an event channel that no identifier uses; 1 event waits"),
    (
        "event_kept",
        "ibv_destroy_cq waits, as libibverbs' does, until the program has called ibv_ack_cq_events",
    ),
    ("lock_held", "waits for a lock that thread"),
];

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/waits/{name}.c"))
}

/// A new folder.
fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("waits-{own}-{number}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Compiles a program; none if there is no compiler or no library.
fn compile(name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev librdmacm-dev");
        return None;
    }
    let program = scratch().join(name);
    let include = format!("-I{}", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check").display());
    let mut command = Command::new("cc");
    command.args(["-g", "-std=gnu11", "-Wall", "-Werror", "-O1", &include, "-o"]).arg(&program);
    let output = command.args(flags).arg(source(name)).args(["-libverbs", "-lrdmacm", "-lpthread"]).output();
    let output = output.expect("cc runs");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// `pumice run` of a program at an address of its own.
fn run(program: &Path, after: &str) -> Command {
    started_by(&["run"], program, after)
}

/// A run in virtual time, in which a program does not wait longer because the machine is busy.
fn run_in_a_world(program: &Path, after: &str) -> Command {
    let has_worlds = cfg!(all(target_os = "linux", target_arch = "x86_64"));
    started_by(if has_worlds { &["world", "--seed", "1"] } else { &["run"] }, program, after)
}

fn started_by(words: &[&str], program: &Path, after: &str) -> Command {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed) % 250);
    let address = format!("127.{}.{}.{number}", 60 + (own >> 8 & 0x3f), own & 0xff);
    command.args(words).args(["--log", "warn", "--hang-after", after, "--addr", &address, "--"]);
    command.arg(program).arg(&address);
    command
}

/// A program that waits in vain, until it is dropped.
struct WaitingProgram {
    child: Child,
    stderr_lines: BufReader<ChildStderr>,
    output_so_far: String,
}

impl WaitingProgram {
    fn start(program: &Path, after: &str) -> WaitingProgram {
        WaitingProgram::of(&mut run(program, after))
    }

    fn of(command: &mut Command) -> WaitingProgram {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program can be run");
        let stderr_lines = BufReader::new(child.stderr.take().expect("a pipe"));
        WaitingProgram { child, stderr_lines, output_so_far: String::new() }
    }

    /// Reads until a line has this. The program ends itself after a while.
    fn read_until_line(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stderr_lines.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended without {wanted:?}: {}", self.output_so_far);
            self.output_so_far.push_str(&line);
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Ends it as a time limit does: what it says to the end.
    fn terminate(mut self) -> String {
        let number = self.child.id().to_string();
        assert!(Command::new("kill").arg(&number).status().expect("kill runs").success());
        let mut rest = String::new();
        // A child of the program may live a moment longer.
        self.stderr_lines.read_to_string(&mut rest).expect("text");
        let _ = self.child.wait();
        rest
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn each_reason_is_reported_alone_and_with_its_line() {
    for (name, wanted) in PLANTED {
        let Some(program) = compile(name, &[]) else { return };
        let mut waiting = WaitingProgram::start(&program, "500ms");
        waiting.read_until_line(wanted);
        let text = fs::read_to_string(source(name)).expect("the source is there");
        if let Some(line) = text.lines().position(|line| line.contains("// HERE")) {
            waiting.read_until_line(&format!("{name}.c:{}", line + 1));
        }
    }
}

#[test]
fn corrected_programs_are_not_reported() {
    for (name, _) in PLANTED {
        let Some(program) = compile(name, &["-DFIXED"]) else { return };
        let output = run_in_a_world(&program, "500ms").output().expect("the program can be run");
        let stderr_lines = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !stderr_lines.contains("waits in vain"), "{name}: {output:?}");
    }
}

#[test]
fn what_a_program_waits_for_is_the_last_thing_that_is_said_when_it_is_ended() {
    let Some(program) = compile("unarmed", &[]) else { return };
    let mut waiting = WaitingProgram::start(&program, "300ms");
    waiting.read_until_line(BEGIN);
    waiting.read_until_line("unarmed.c:");
    let rest = waiting.terminate();
    let last = rest.lines().last().unwrap_or_default();
    assert!(last.starts_with("pumice: the program is ended while it waits in vain: "), "{rest}");
}

#[test]
fn nothing_is_reported_if_it_is_turned_off() {
    let Some(program) = compile("unarmed", &[]) else { return };
    let mut command = run(&program, "0");
    // It ends itself by a signal.
    let output = command.arg("3").output().expect("the program can be run");
    assert!(!output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// `pumice hang`, of the programs that meet in this folder.
fn hang(runtime: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.env("XDG_RUNTIME_DIR", runtime).arg("hang").args(arguments);
    command.output().expect("it runs")
}

#[test]
fn pumice_hang_names_the_circle_of_two_programs_at_once() {
    let Some(program) = compile("both_wait", &[]) else { return };
    // Programs of other tests wait at the same time, and meet elsewhere.
    let runtime = tempfile::tempdir().expect("the folder of temporary files is writable");
    let hang = |arguments: &[&str]| hang(runtime.path(), arguments);
    // It says nothing itself before it ends.
    let _waiting = WaitingProgram::of(run(&program, "60s").env("XDG_RUNTIME_DIR", runtime.path()));
    let folder = scratch();
    let (svg, dot) = (folder.join("hang.svg"), folder.join("hang.dot"));
    let (svg, dot) = (svg.to_string_lossy(), dot.to_string_lossy());
    let found = loop {
        let output = hang(&["--json", "--svg", &svg, "--dot", &dot]);
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let verdicts = found["verdicts"].as_array().expect("a list");
        if let Some(circle) =
            verdicts.iter().find(|one| one["is_circle"] == true && one["is_certain"] == true)
        {
            assert_eq!(output.status.code(), Some(1));
            assert!(circle["sentence"].as_str().unwrap().contains("wait for each other"), "{circle}");
            assert_eq!(circle["processes"].as_array().unwrap().len(), 2);
            break found;
        }
    };
    let frames = found["processes"][0]["objects"]["waits"]["threads"][0]["stack"].to_string();
    assert!(frames.contains("both_wait.c:"), "{frames}");
    assert!(fs::read_to_string(&*svg).unwrap().starts_with("<svg "));
    assert!(fs::read_to_string(&*dot).unwrap().contains("waits for a message"));
    let text = String::from_utf8(hang(&[]).stdout).unwrap();
    assert!(text.starts_with("hang: process ") && text.contains("polls completion queue"), "{text}");
    // As another host would say it.
    let file = folder.join("other.json");
    let other =
        serde_json::json!({"host": "elsewhere", "before": found["before"], "processes": found["processes"]});
    fs::write(&file, other.to_string()).unwrap();
    let both = String::from_utf8(hang(&["--with", &file.to_string_lossy()]).stdout).unwrap();
    assert!(both.contains(" on elsewhere"), "{both}");
    fs::write(&file, "{}").unwrap();
    let refused = hang(&["--with", &file.to_string_lossy()]);
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("pumice hang --json")
    );
}
