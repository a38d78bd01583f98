//! `pumice run --trace` and `pumice trace`, with programs that know nothing of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn pumice() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.env_remove("LD_LIBRARY_PATH");
    for variable in pumice_device::settings::VARIABLES {
        command.env_remove(variable);
    }
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

/// Whether a program is there; if not, a test is skipped, and says so.
fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|folder| folder.join(program).is_file());
    if !found {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: no {program}");
    }
    found
}

fn trace(arguments: &[&str]) -> Output {
    pumice().arg("trace").args(arguments).output().expect("the program can be run")
}

/// A port of this test process that no other test here has.
fn port(number: u32) -> String {
    (22_000 + (std::process::id() * 7 + number) % 900).to_string()
}

/// An end of ibv_rc_pingpong with options of `pumice run`.
fn end(options: &[&str], port: &str, rounds: &str) -> Command {
    let mut command = pumice();
    command.arg("run").args(options).args(["--", "ibv_rc_pingpong", "-d", "pumice0", "-g", "0"]);
    command.args(["-s", "100", "-n", rounds, "-p", port]);
    command
}

/// Runs the client until it gets through to the server, which does not say when it listens.
fn client(options: &[&str], port: &str, rounds: &str) -> Output {
    loop {
        let output = end(options, port, rounds).arg("localhost").output().expect("it can be run");
        if !err(&output).contains("Couldn't connect") {
            return output;
        }
    }
}

/// Traces of a server and a client of which one message is lost once: the server's and the client's.
fn lossy_run(folder: &Path, port: &str) -> [String; 2] {
    let [server_trace, client_trace] =
        ["server.trace", "client.trace"].map(|name| folder.join(name).display().to_string());
    let options = ["--addr", "127.101.2.1", "--tag", "server", "--trace", server_trace.as_str()];
    let mut server = end(&options, port, "300").stdout(Stdio::null()).spawn().expect("it can be run");
    let rule = "drop name=one opcode=send message=150 transmission=1";
    let options =
        ["--addr", "127.101.2.2", "--tag", "client", "--trace", client_trace.as_str(), "--fault", rule];
    let client = client(&options, port, "300");
    assert!(client.status.success() && out(&client).contains("usec/iter"), "{client:?}");
    assert!(server.wait().expect("a child of ours").success());
    [server_trace, client_trace]
}

/// What Python finds in a Chrome trace.
fn checked(file: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace/check.py");
    let output = Command::new("python3").arg(script).arg(file).output().expect("Python is there");
    assert!(output.status.success(), "{}", err(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

#[test]
fn one_lost_packet_is_seen_in_the_timeline_of_two_processes() {
    if !installed("ibv_rc_pingpong") || !installed("python3") {
        return;
    }
    let folder = scratch("lossy");
    let [server, client] = lossy_run(&folder, &port(0));
    let json = folder.join("out.json").display().to_string();
    let output = trace(&["to-perfetto", &server, &client, "-o", &json]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let found = checked(Path::new(&json));
    let processes = found["processes"].as_array().expect("a list");
    let is_of =
        |tag: &str| processes.iter().any(|name| name.as_str().is_some_and(|name| name.ends_with(tag)));
    assert!(processes.len() == 2 && is_of("(client)") && is_of("(server)"), "{processes:?}");
    assert_eq!(found["requests"], 600, "{found}");
    // Packets of both ways arrive at another process than the one that sent them.
    assert_eq!(found["arrows"], found["across"]);
    assert!(found["arrows"].as_u64().is_some_and(|arrows| arrows >= 1200), "{found}");
    let [lost] = found["lost"].as_array().expect("a list").as_slice() else { panic!("{}", found["lost"]) };
    assert_eq!((&lost["message"], &lost["transmission"]), (&150.into(), &1.into()));
    assert_eq!(lost["arrival"], "none: a fault plan lost it");
    let repeated = found["repeated"].as_array().expect("a list");
    let message = repeated.iter().find(|one| one["message"] == 150).expect("it was sent again");
    assert_eq!((&message["status"], &message["transmissions"]), (&"SUCCESS".into(), &2.into()));
    let until_first = message["us_until_first_packet"].as_f64().expect("a number");
    let until_acknowledged = message["us_until_acknowledged"].as_f64().expect("a number");
    // ibv_rc_pingpong has timeout 14: 67 ms.
    assert!(until_acknowledged > until_first + 60_000.0, "{message}");
    let moments = found["moments"].as_array().expect("a list");
    let has = |part: &str| moments.iter().any(|one| one.as_str().is_some_and(|text| text.contains(part)));
    assert!(has("the acknowledgement timer expires") && has("fault \"one\" loses send"), "{moments:?}");
    assert!(has("INIT to RTR by the program"), "{moments:?}");
    assert!(found["counters"].to_string().contains("completions that wait"), "{found}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
