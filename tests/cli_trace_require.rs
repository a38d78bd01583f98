//! `pumice run --require`, `pumice trace require` and `pumice trace diff`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_device::trace::CauseKind;
use pumice_device::trace::require::QUANTITIES;
use serde_json::Value;

fn scratch(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("require-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Compiles `tests/trace/causes.c`; none if there is no compiler or no library.
fn compiled(folder: &Path) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists()
        || Command::new("cc").arg("--version").output().is_err()
    {
        eprintln!("**** SKIPPED: apt-get install gcc libibverbs-dev");
        return None;
    }
    let program = folder.join("causes");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/causes.c");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O1", "-o"]).arg(&program).arg(source).args(["-libverbs", "-lpthread"]);
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn pumice(words: &[&str]) -> Command {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    // An address that no other test uses.
    let (own, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed) % 250);
    command.env("PUMICE_ADDR", format!("127.{}.{}.{number}", 110 + (own >> 8 & 0x0f), own & 0xff));
    command.args(words);
    command
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ended(command: &mut Command) -> Output {
    command.output().expect("it can be run")
}

#[test]
fn a_program_that_uses_tcp_is_no_rdma() {
    let folder = scratch("tcp");
    // Bytes go through a TCP connection of one process.
    let tcp = "import socket as s; l = s.create_server(('127.0.0.1', 0)); c = \
               s.create_connection(l.getsockname()); c.sendall(b'x' * 4096); assert l.accept()[0].recv(1)";
    let report = folder.join("report.xml");
    let words = ["run", "--require", "rdma.bytes > 0", "--require", "no rnr", "--require-report"];
    let output = ended(pumice(&words).arg(&report).args(["--", "python3", "-c", tcp]));
    let stderr_text = err(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr_text}");
    assert!(
        stderr_text.contains("NOT MET: rdma.bytes > 0: rdma.bytes is 0 B")
            && stderr_text.contains("such as TCP"),
        "{stderr_text}"
    );
    assert!(stderr_text.contains("1 of 2 requirements are not met"), "{stderr_text}");
    let xml = fs::read_to_string(&report).expect("a report");
    assert!(
        xml.contains("tests=\"2\" failures=\"1\"") && xml.contains("name=\"rdma.bytes &gt; 0\""),
        "{xml}"
    );
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_program_that_uses_verbs_is_rdma_and_what_it_is_required_to_be() {
    let folder = scratch("verbs");
    let Some(program) = compiled(&folder) else { return };
    let trace = folder.join("%p.trace").display().to_string();
    let words =
        ["run", "--trace", &trace, "--require", "rdma.bytes > 16KB", "--require", "no retransmission"];
    let more = ["--require", "peers == 1", "--require", "p50(write) < 10s", "--require", "no failures", "--"];
    let output = ended(pumice(&words).args(more).arg(&program));
    let stderr_text = err(&output);
    assert!(output.status.success() && stderr_text.matches("pumice: met: ").count() == 5, "{stderr_text}");
    // Of the trace that is there.
    let files: Vec<PathBuf> =
        fs::read_dir(&folder).expect("ours").flatten().map(|entry| entry.path()).collect();
    let file = files.iter().find(|file| file.extension().is_some_and(|end| end == "trace")).expect("a trace");
    let judged = |requirement: &str| {
        ended(pumice(&["trace", "require", "--json", "--require", requirement]).arg(file))
    };
    let output = judged("messages == 48");
    let json: Value = serde_json::from_str(&out(&output)).expect("one JSON object");
    assert!(output.status.success() && json["is_met"] == true, "{json}");
    let output = judged("rdma.bytes > 1GB");
    let json: Value = serde_json::from_str(&out(&output)).expect("one JSON object");
    assert!(output.status.code() == Some(1) && json["requirements"][0]["is_met"] == false, "{json}");
    // A typing mistake is the command line's, with the nearest name, and before anything is run.
    let output = ended(pumice(&["run", "--require", "rdma.byts > 0", "--"]).arg("/nonexistent"));
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("did you mean rdma.bytes?"), "{}", err(&output));
    // The program's own failure comes first.
    let output = ended(&mut pumice(&["run", "--require", "rdma.bytes > 0", "--", "sh", "-c", "exit 7"]));
    assert_eq!(output.status.code(), Some(7), "{}", err(&output));
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn two_runs_are_compared_and_the_first_departure_comes_first() {
    let folder = scratch("diff");
    let Some(program) = compiled(&folder) else { return };
    let run = |name: &str, options: &[&str], style: &str| {
        let file = folder.join(name).display().to_string();
        let words = ["run", "--log", "off", "--tag", "causes", "--wire", "udp", "--trace", &file];
        ended(pumice(&words).args(options).arg("--").arg(&program).arg(style));
        file
    };
    let good = run("good", &[], "single");
    let lossy = run("lossy", &["--fault", "drop name=it opcode=write message=9 transmission=1"], "single");
    let failed = run("failed", &["--fault", "complete status=retry-exceeded side=send message=5"], "single");
    let other = run("other", &[], "burst");
    let compared = |other: &str| ended(&mut pumice(&["trace", "diff", &good, other]));
    let output = compared(&good);
    assert!(output.status.success() && out(&output).contains("No request departs."), "{output:?}");
    let output = compared(&lossy);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in
        ["request 9 of queue pair 0", "sent once in the first run, 2 times in the second", "rule \"it\""]
    {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = out(&compared(&failed));
    let first = text.lines().find(|line| line.starts_with("First departure: ")).expect("one");
    assert!(first.contains("request 5 of") && first.contains("RETRY_EXC_ERR in the second"), "{text}");
    let text = out(&compared(&other));
    let first = text.lines().find(|line| line.starts_with("First departure: ")).expect("one");
    assert!(first.contains("request 0 of") && first.contains("RDMA_WRITE of 700 B in the second"), "{text}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn the_pages_have_a_row_for_each_quantity_and_each_cause() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = |name: &str| fs::read_to_string(root.join("docs").join(name)).expect("a page");
    let (require, trace) = (page("require.md"), page("trace.md"));
    for info in QUANTITIES {
        let row = require.lines().find(|line| line.starts_with(&format!("| `{}` | ", info.name)));
        let row = row.unwrap_or_else(|| panic!("{} has no row in docs/require.md", info.name));
        assert!(row.contains(info.meaning) && info.aliases.iter().all(|alias| row.contains(alias)), "{row}");
    }
    for kind in CauseKind::ALL {
        let row = trace.lines().find(|line| line.starts_with(&format!("| `{}` | ", kind.name())));
        let row = row.unwrap_or_else(|| panic!("{} has no row in docs/trace.md", kind.name()));
        assert!(row.contains(kind.whose().words()) && row.contains(kind.needs()), "{row}");
    }
}
