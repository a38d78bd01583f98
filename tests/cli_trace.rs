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

/// Rounds of long messages: few rounds, because on a busy machine each takes long, and many records.
const MANY_PACKETS: &str = "3000";

/// An end of ibv_rc_pingpong with options of `pumice run`.
fn end(options: &[&str], port: &str, rounds: &str) -> Command {
    let mut command = pumice();
    command.arg("run").args(options).args(["--", "ibv_rc_pingpong", "-d", "pumice0", "-g", "0"]);
    command.args(["-s", "100", "-n", rounds, "-p", port]);
    if rounds == MANY_PACKETS {
        // The last length counts.
        command.args(["-s", "65536"]);
    }
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
    // Packets of both ways arrive at another process than the one that sent them: each request, and its
    // acknowledgement unless a later one speaks for it.
    assert_eq!(found["arrows"], found["across"]);
    assert!(found["arrows"].as_u64().is_some_and(|arrows| arrows > 600), "{found}");
    let [lost] = found["lost"].as_array().expect("a list").as_slice() else { panic!("{}", found["lost"]) };
    assert_eq!((&lost["message"], &lost["transmission"]), (&150.into(), &1.into()));
    assert_eq!(lost["arrival"], "none: a fault plan lost it");
    let repeated = found["repeated"].as_array().expect("a list");
    let message = repeated.iter().find(|one| one["message"] == 150).expect("it was sent again");
    assert_eq!(message["status"], "SUCCESS");
    // Once more, unless the machine is so busy that the peer's answer takes longer than the timer.
    assert!(message["transmissions"].as_u64().is_some_and(|count| count >= 2), "{message}");
    let until_first = message["us_until_first_packet"].as_f64().expect("a number");
    let until_acknowledged = message["us_until_acknowledged"].as_f64().expect("a number");
    // ibv_rc_pingpong has timeout 14: 67 ms.
    assert!(until_acknowledged > until_first + 60_000.0, "{message}");
    let moments = found["moments"].as_array().expect("a list");
    let has = |part: &str| moments.iter().any(|one| one.as_str().is_some_and(|text| text.contains(part)));
    assert!(has("the acknowledgement timer expires") && has("fault \"one\" loses send"), "{moments:?}");
    assert!(has("INIT to RTR by the program"), "{moments:?}");
    let counters = found["counters"].to_string();
    for counter in ["completions that wait", "round trip", "window", "packets in flight"] {
        assert!(counters.contains(counter), "{counter}: {counters}");
    }
    // scripts/checks/perfetto.sh reads what is in it.
    let own_format = folder.join("out.pftrace").display().to_string();
    let output = trace(&["to-perfetto", &server, &client, "-o", &own_format]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let (own_format, json) = (fs::read(&own_format).expect("a file"), fs::read(&json).expect("a file"));
    // A packet of a trace is field 1, and has its length.
    assert!(own_format.first() == Some(&0x0a) && own_format.len() < json.len(), "{}", own_format.len());
    let output = trace(&["why", "--slowest", "600", &server, &client]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // On a busy machine another one may have been slower.
    let text = out(&output);
    assert!(text.starts_with("600 send requests: 0 failed, 0 were flushed"), "{text}");
    let its = |line: &&str| line.contains("Request 150 of QP") && line.contains("tag client");
    let text = text.lines().find(its).expect("its story");
    for part in [
        "ended with SUCCESS. Cause: injected: ",
        "the rule \"one\" of the fault plan lost a packet of request 150. ",
        "Of this: ",
        "ms until the acknowledgement timer expired",
        "(timeout 14) expired",
        "the fault plan had lost its packet with PSN",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // Without the peer's trace the plan's loss is still known, and JSON says the same.
    let output = trace(&["why", "--slowest", "300", "--json", &client]);
    let reasons: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(reasons["messages"], 300);
    let stories = reasons["slowest"].as_array().expect("a list");
    let story = stories.iter().find(|story| story["message"] == 150).expect("its story");
    let parts = story["parts"].as_array().expect("a list");
    assert!(parts.iter().any(|part| part["kind"] == "timeout"), "{story}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_capture_stands_in_for_the_trace_of_a_peer() {
    if !installed("ibv_rc_pingpong") || !installed("python3") {
        return;
    }
    let folder = scratch("captured");
    let [server_trace, capture, json] =
        ["server.trace", "client.pcapng", "out.json"].map(|name| folder.join(name).display().to_string());
    let port = port(3);
    let options = ["--addr", "127.101.2.8", "--trace", server_trace.as_str()];
    let mut server = end(&options, &port, "100").stdout(Stdio::null()).spawn().expect("it can be run");
    let client = client(&["--addr", "127.101.2.9", "--capture", capture.as_str()], &port, "100");
    assert!(client.status.success(), "{client:?}");
    assert!(server.wait().expect("a child of ours").success());
    let output = trace(&["to-perfetto", &server_trace, &capture, "-o", &json]);
    // The two have no clock in common but their packets.
    let stderr_text = err(&output);
    assert!(output.status.success() && stderr_text.contains("was put beside another one's by"), "{output:?}");
    assert_eq!(stderr_text.lines().count(), 1, "{stderr_text}");
    let found = checked(Path::new(&json));
    assert_eq!((found["requests"].as_u64(), &found["arrows"]), (Some(200), &found["across"]), "{found}");
    let processes = found["processes"].to_string();
    assert!(processes.contains("127.101.2.9") && !processes.contains("127.101.2.8"), "{processes}");
    assert!(found["arrows"].as_u64().is_some_and(|arrows| arrows > 200), "{found}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_process_that_is_killed_leaves_its_records() {
    if !installed("ibv_rc_pingpong") {
        return;
    }
    let folder = scratch("killed");
    let own = folder.join("%p.trace").display().to_string();
    // More rounds than there is time for: the server is killed in the middle.
    let port = port(1);
    let options = ["--addr", "127.101.2.3", "--trace", own.as_str()];
    let mut server = end(&options, &port, "100000000").stdout(Stdio::null()).spawn().expect("it can be run");
    let path = folder.join(format!("{}.trace", server.id()));
    let mut client = end(&["--addr", "127.101.2.4", "--log", "off"], &port, "100000000");
    client.arg("localhost").stdout(Stdio::null()).stderr(Stdio::null());
    let grown = |path: &Path| fs::metadata(path).is_ok_and(|about| about.len() > 100_000);
    let mut peer = client.spawn().expect("it can be run");
    while !grown(&path) {
        assert!(server.try_wait().expect("a child of ours").is_none(), "the server has ended");
        if peer.try_wait().expect("a child of ours").is_some() {
            peer = client.spawn().expect("it can be run");
        }
        std::thread::yield_now();
    }
    // std kills with SIGKILL.
    server.kill().expect("a child of ours");
    server.wait().expect("a child of ours");
    peer.kill().expect("a child of ours");
    peer.wait().expect("a child of ours");
    let path = path.display().to_string();
    let output = trace(&["list", &path]);
    let text = out(&output);
    assert!(output.status.success() || err(&output).contains("inside of a record"), "{output:?}");
    assert!(text.contains("ended suddenly") && text.matches("Polled").count() > 1000, "{}", text.len());
    let output = trace(&["list", "--json", &path]);
    let lines = out(&output);
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!((&lines[0]["record"], &lines[0]["is_ended"]), (&"Header".into(), &false.into()));
    assert!(lines[1..].iter().all(|line| line["at_ns"].is_u64() && line["record"].is_string()));
    assert_eq!(lines.len() - 1, text.lines().filter(|line| line.contains(" ns  ")).count());
    let output = trace(&["why", &path]);
    assert!(output.status.success() && out(&output).contains("send requests"), "{output:?}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn what_is_no_trace_is_refused_in_a_sentence() {
    let folder = scratch("bad");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a new file");
        path.display().to_string()
    };
    let mut newer = b"pumitrc\n\x02\x01".to_vec();
    newer.resize(64, 0);
    let mut damaged = b"pumitrc\n\x01\x00".to_vec();
    damaged.resize(28, 0);
    damaged.extend_from_slice(&[0xff; 40]);
    for (path, part) in [
        (file("empty", b""), "it is no trace"),
        (file("foreign", b"\x7fELF and so on"), "it is no trace"),
        (file("short", b"pumitrc\n\x01\x00"), "its header is cut off"),
        (file("newer", &newer), "it has version 258, and this program reads up to version 1"),
        (file("damaged", &damaged), "its header is damaged"),
        (folder.display().to_string(), "cannot be read"),
        (folder.join("none").display().to_string(), "cannot be read"),
    ] {
        for action in [&["list", &path][..], &["why", &path], &["to-perfetto", &path, "-o", "-"]] {
            let output = trace(action);
            let text = err(&output);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(text.starts_with("pumice: ") && text.contains(part), "{part}: {text}");
            assert!(text.lines().count() == 1 && output.stdout.is_empty(), "{text}");
        }
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_trace_has_its_limit_and_is_for_its_owner_only() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    if !installed("ibv_rc_pingpong") {
        return;
    }
    let folder = scratch("limit");
    let own = folder.join("own.trace").display().to_string();
    let port = port(2);
    let options = ["--addr", "127.101.2.5", "--trace", own.as_str(), "--trace-limit", "1MiB"];
    let server = end(&options, &port, MANY_PACKETS).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let server = server.expect("it can be run");
    let output = client(&["--addr", "127.101.2.6"], &port, MANY_PACKETS);
    assert!(output.status.success(), "{output:?}");
    let server = server.wait_with_output().expect("a child of ours");
    let stderr_text = err(&server);
    assert!(
        stderr_text.contains("records were left out") && stderr_text.contains("limit of 1 MiB"),
        "{stderr_text}"
    );
    let about = fs::metadata(&own).expect("a trace");
    assert!(about.mode() & 0o7777 == 0o600 && about.len() <= 1 << 20, "{about:?}");
    let output = trace(&["why", &own]);
    assert!(output.status.success() && err(&output).contains("reached its limit of 1 MiB"), "{output:?}");
    // A link is not followed: the device is not opened.
    let link = folder.join("link");
    symlink(&own, &link).expect("a link");
    let output = pumice()
        .args(["run", "--addr", "127.101.2.7", "--trace"])
        .arg(&link)
        .args(["--", "ibv_devinfo", "-d", "pumice0"])
        .output()
        .expect("it can be run");
    assert!(err(&output).contains("symbolic link, which is not followed"), "{output:?}");
    let output = pumice().args(["run", "--trace", &own, "--trace-limit", "7", "--", "true"]).output();
    let output = output.expect("it can be run");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(err(&output).contains("--trace-limit 7: it is a number of bytes with KiB"), "{output:?}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
