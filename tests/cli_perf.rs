//! `pumice perf`: every combination of operation and service, verified; what makes no sense is said.
//!
//! No test looks at how fast anything is: the machine may be busy.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use pumice_device::settings::WIRE;
use serde_json::Value;

fn perf(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pumice")).arg("perf").args(arguments).output().expect("the program runs")
}

/// Loopback addresses that no other test uses at the same time: UDP port 4791 of an address has one owner.
fn addresses() -> [String; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let block = NEXT.fetch_add(1, Ordering::Relaxed);
    // 127.64.0.0/10: away from the addresses that people choose.
    [1, 2].map(|end| format!("127.{}.{}.{}", 64 + high % 64, low, 1 + (block % 60) * 4 + end))
}

/// Measurements take turns: several at a time, each with two ends that spin, starve each other on two cores.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A short loop with these options: exit code, JSON lines, stderr.
fn short_loop(options: &[&str]) -> (Option<i32>, Vec<Value>, String) {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let [own, peer] = addresses();
    // Longer than the half second after which a lost datagram is given up: a round has answers even then.
    let mut arguments = vec!["loop", "--json", "--rounds", "1", "--for", "0.6"];
    arguments.extend(["--addr", &own, "--peer-addr", &peer]);
    arguments.extend(options);
    let output = perf(&arguments);
    let text = String::from_utf8(output.stdout).expect("JSON is text");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    (output.status.code(), lines, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn one_report(options: &[&str]) -> Value {
    let (code, mut lines, stderr) = short_loop(options);
    assert_eq!((code, lines.len()), (Some(0), 1), "{options:?}: {stderr}");
    lines.remove(0)
}

fn positive(report: &Value, field: &str) -> bool {
    report[field].as_f64().is_some_and(|value| value > 0.0)
}

#[test]
fn every_legal_combination_is_verified() {
    let combinations = [
        ("write", "rc", "20000"),
        ("read", "rc", "20000"),
        ("send", "rc", "5000"),
        ("atomic", "rc", "8"),
        ("write", "uc", "20000"),
        ("send", "uc", "5000"),
        ("send", "ud", "1000"),
    ];
    for (op, service, size) in combinations {
        let report =
            one_report(&["--op", op, "--transport", service, "--size", size, "--mtu", "1024", "--verify"]);
        for field in ["value", "raw", "ratio", "messages", "verified_messages", "verified_bytes"] {
            assert!(positive(&report, field), "{op} {service}: {field} in {report}");
        }
        let test = report["test"].as_str().unwrap_or_default();
        assert!(test.starts_with(&format!("{service}_{op}_")), "{report}");
        assert_eq!(report["verified"], true, "{report}");
        assert!(report["unit"].is_string() && report["retransmitted"].is_u64(), "{report}");
        if service == "rc" {
            assert_eq!(report["lost"], 0, "{report}");
        }
    }
}

#[test]
fn every_latency_is_verified() {
    let kinds = [
        &["--op", "send"][..],
        &["--op", "send", "--events"],
        &["--op", "send", "--shared"],
        &["--op", "send", "--transport", "uc"],
        &["--op", "send", "--transport", "ud"],
        &["--op", "write"],
        &["--op", "write", "--passive"],
        &["--op", "write", "--events"],
        &["--op", "read"],
        &["--op", "atomic"],
    ];
    for kind in kinds {
        let report = one_report(&[kind, &["--latency", "--verify"]].concat());
        assert_eq!(
            (&report["unit"], &report["verified"]),
            (&"us".into(), &true.into()),
            "{kind:?}: {report}"
        );
        for field in ["value", "raw", "ratio", "p99", "ratio_p99", "verified_messages"] {
            assert!(positive(&report, field), "{kind:?}: {field} in {report}");
        }
        assert_eq!(positive(&report, "ratio_round_trip"), !kind.contains(&"send"), "{kind:?}: {report}");
    }
}

#[test]
fn shared_memory_is_measured_beside_memory_itself() {
    let kinds = [
        (&["--op", "write", "--size", "20000"][..], "memcpy"),
        (&["--op", "send", "--size", "8"], "cache lines"),
        (&["--op", "send", "--latency"], "cache lines"),
        (&["--op", "send", "--latency", "--events"], "futex"),
        (&["--op", "read", "--latency"], "cache lines"),
        (&["--op", "write", "--latency", "--passive"], "cache lines"),
    ];
    for (kind, yardstick) in kinds {
        let report = one_report(&[kind, &["--wire", "auto", "--verify"]].concat());
        let how = [&report["wire"], &report["medium"], &report["yardstick"], &report["verified"]];
        assert_eq!(how, [&json("auto"), &json("shared memory"), &json(yardstick), &true.into()], "{report}");
        assert!(report["medium_reason"].is_null() && report["emulated"].is_boolean(), "{report}");
        for field in ["value", "raw", "ratio", "verified_messages"] {
            assert!(positive(&report, field), "{kind:?}: {field} in {report}");
        }
    }
}

#[test]
fn datagrams_have_no_peer_of_whom_the_medium_could_be_said() {
    let report = one_report(&["--op", "send", "--transport", "ud", "--wire", "auto", "--verify"]);
    assert_eq!((&report["wire"], &report["medium"]), (&json("auto"), &Value::Null), "{report}");
    assert!(positive(&report, "value") && report["verified"] == true, "{report}");
}

#[test]
fn a_shared_port_has_the_wire_that_programs_have() {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let shared = ("auto", "shared memory");
    for (set, had) in [("udp", ("udp", "UDP")), ("auto", shared), ("", shared)] {
        let [own, peer] = addresses();
        let short = ["--rounds", "1", "--for", "0.05", "--json"];
        let short = [&short[..], &["--addr", &own, "--peer-addr", &peer]].concat();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(["perf", "loop", "--op", "send", "--shared"]).args(short).env(WIRE, set);
        let output = command.output().expect("the program runs");
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        assert_eq!((word(&report, "wire"), word(&report, "medium")), had, "{report}");
    }
}

#[test]
fn a_shared_port_says_why_its_packets_go_by_udp() {
    let options = ["--op", "send", "--latency", "--shared", "--wire", "udp"];
    let report = one_report(&options);
    assert_eq!((&report["medium"], &report["yardstick"]), (&json("UDP"), &json("plain UDP")), "{report}");
    assert_eq!(report["medium_reason"], "this process uses UDP only");
}

/// Each test with its medium and its yardstick.
fn what_was_measured(lines: &[Value]) -> Vec<[&str; 3]> {
    let words = |line| ["test", "medium", "yardstick"].map(|field| word(line, field));
    lines.iter().map(words).collect()
}

fn word<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_else(|| panic!("no {field} in {line}"))
}

fn json(text: &str) -> Value {
    text.into()
}

#[test]
fn the_suite_measures_both_wires() {
    let (code, lines, stderr) = short_loop(&[]);
    assert_eq!(code, Some(0), "{stderr}");
    let by_udp = ["UDP", "plain UDP"];
    let [copied, spun, slept] = ["memcpy", "cache lines", "futex"].map(|name| ["shared memory", name]);
    let latency = "rc_send_latency";
    let expected = [
        ("rc_write_bandwidth", by_udp),
        ("rc_read_bandwidth", by_udp),
        (latency, by_udp),
        ("rc_send_latency_events", by_udp),
        ("rc_write_bandwidth", copied),
        ("rc_read_bandwidth", copied),
        (latency, spun),
        ("rc_send_latency_events", slept),
    ];
    let expected = expected.map(|(test, [medium, yardstick])| [test, medium, yardstick]);
    assert_eq!(what_was_measured(&lines), expected);
    for line in &lines {
        for field in ["value", "raw", "ratio", "min", "max"] {
            assert!(
                line[field].as_f64().is_some_and(|value| value.is_finite() && value > 0.0),
                "{field}: {line}"
            );
        }
    }
}

#[test]
fn one_test_can_be_measured_on_both_wires_and_the_table_names_them() {
    let options = ["--op", "atomic", "--latency", "--wire", "both"];
    let (code, lines, stderr) = short_loop(&options);
    assert_eq!(code, Some(0), "{stderr}");
    let media: Vec<&str> = lines.iter().map(|line| word(line, "medium")).collect();
    assert_eq!(media, ["UDP", "shared memory"]);
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let [own, peer] = addresses();
    let short = ["loop", "--rounds", "1", "--for", "0.05", "--addr", &own, "--peer-addr", &peer];
    let output = perf(&[&short, &options[..]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut rows = text.lines().skip_while(|line| !line.starts_with("test"));
    assert!(rows.next().is_some_and(|head| head.contains("medium") && head.ends_with("yardstick")), "{text}");
    assert!(rows.next().is_some_and(|row| row.contains(" UDP ") && row.contains("plain UDP")), "{text}");
    assert!(
        rows.next().is_some_and(|row| row.contains(" shared memory ") && row.contains("cache lines")),
        "{text}"
    );
    // Figures of an emulator are never without this.
    let says_so = text.starts_with("EMULATED PROCESSORS: latencies here are the emulator's");
    assert_eq!(lines[0]["emulated"], says_so, "{text}");
}

#[test]
fn many_queue_pairs_are_compared_with_one() {
    for count in ["3", "100"] {
        let report =
            one_report(&["--op", "send", "--size", "8", "--post-list", "8", "--qps", count, "--verify"]);
        assert!(positive(&report, "ratio_one_qp"), "{report}");
        assert_eq!(report["unit"], "M/s", "{report}");
    }
}

#[test]
fn many_pairs_are_compared_with_one() {
    let [own, _] = addresses();
    let output = perf(&["loop", "--json", "--rounds", "1", "--for", "0.05", "--pairs", "2", "--addr", &own]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert!(positive(&report, "value") && positive(&report, "ratio_one_pair"), "{report}");
    assert_eq!((&report["pairs"], &report["wire"]), (&2.into(), &json("udp")));
}

#[test]
fn senseless_options_are_refused_in_a_sentence() {
    let wrong = [
        (&["--op", "read", "--transport", "uc"][..], "UC has no read"),
        (&["--op", "atomic", "--transport", "uc"], "UC has no atomic"),
        (&["--op", "write", "--transport", "ud"], "UD has no write"),
        (&["--op", "read", "--transport", "ud"], "UD has no read"),
        (&["--op", "atomic", "--transport", "ud"], "UD has no atomic"),
        (&["--op", "send", "--transport", "ud", "--size", "2000", "--mtu", "1024"], "2000 bytes"),
        (&["--op", "atomic", "--size", "16"], "8 bytes"),
        (&["--op", "send", "--passive", "--latency"], "--passive"),
        (&["--mtu", "1500"], "1500"),
        (&["--op", "write", "--qps", "0"], "--qps 0"),
        (&["--op", "write", "--depth", "4", "--post-list", "5"], "--post-list 5"),
        (&["--op", "write", "--rounds", "0"], "--rounds"),
    ];
    for (options, sentence) in wrong {
        let output = perf(&[&["loop"], options].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{options:?}: {output:?}");
        assert!(stderr.contains(sentence) && output.stdout.is_empty(), "{options:?}: {output:?}");
    }
}

#[test]
fn an_address_that_is_in_use_is_named() {
    let [own, peer] = addresses();
    let _held = std::net::UdpSocket::bind((own.as_str(), 4791)).expect("an address of this test alone");
    let output = perf(&["loop", "--rounds", "1", "--addr", &own, "--peer-addr", &peer]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.lines().count() == 1 && stderr.contains(&own), "{stderr}");
}

struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_server_and_a_client_find_different_addresses_on_one_machine() {
    for (wire, medium) in [("udp", "UDP"), ("auto", "shared memory")] {
        client_of_a_server(wire, medium);
    }
}

fn client_of_a_server(wire: &str, medium: &str) {
    let [server_address, _] = addresses();
    let free = std::net::TcpListener::bind((server_address.as_str(), 0)).expect("a TCP port");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let mut server = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["perf", "server", "--addr", &server_address, "--oob-port", &port, "--once"])
        .stderr(Stdio::piped())
        .spawn()
        .map(KilledOnDrop)
        .expect("the program runs");
    let mut ready = String::new();
    BufReader::new(server.0.stderr.take().expect("a pipe")).read_line(&mut ready).expect("a line");
    assert!(ready.contains(&port), "{ready}");
    let options = ["--op", "write", "--size", "64K", "--rounds", "1", "--for", "0.02", "--verify", "--json"];
    let client = ["client", &server_address, "--oob-port", &port, "--wire", wire];
    let output = perf(&[&client, &options[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    assert!(positive(&report, "verified_bytes") && report["raw"].is_null(), "{report}");
    assert!(report["medium"] == medium && report["yardstick"].is_null(), "{report}");
    assert!(server.0.wait().expect("it was started").success());
}
