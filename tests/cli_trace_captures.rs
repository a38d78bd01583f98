//! `pumice trace` of captures: of rdma_rxe's packets as tcpdump has them, and of what is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn pumice(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
    command.args(arguments).output().expect("the program can be run")
}

fn trace(arguments: &[&str]) -> Output {
    pumice(&[&["trace"], arguments].concat())
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn scratch(name: &str) -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("captures-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder is writable");
    folder
}

fn golden(name: &str) -> String {
    format!("{}/tests/golden/6.12/{name}.pcap", env!("CARGO_MANIFEST_DIR"))
}

/// What is in a Chrome trace of these files, and what is said.
fn timeline(files: &[&str]) -> (Vec<Value>, String) {
    let output = trace(&[&["to-perfetto", "-o", "-"], files].concat());
    assert_eq!(output.status.code(), Some(0), "{files:?}: {}", err(&output));
    let mut all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let events = all["traceEvents"].as_array_mut().expect("a list");
    (std::mem::take(events), err(&output))
}

fn of_phase<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["ph"] == phase).collect()
}

/// Packets that `pumice capture` shows in a capture.
fn packets(file: &str) -> usize {
    let output = pumice(&["capture", "--json", file]);
    let lines = String::from_utf8(output.stdout).expect("text");
    lines.lines().filter(|line| line.contains("\"kind\":\"packet\"")).count()
}

#[test]
fn every_packet_of_a_capture_goes_from_its_sender_to_its_receiver() {
    for name in ["rc-send", "rc-read", "rc-write", "rc-atomic", "tool-rc_pingpong", "cm-rping"] {
        let file = golden(name);
        let (events, stderr_text) = timeline(&[&file]);
        assert_eq!((of_phase(&events, "s").len(), stderr_text.as_str()), (packets(&file), ""), "{name}");
        let names: Vec<&str> = of_phase(&events, "M")
            .iter()
            .filter(|event| event["name"] == "process_name")
            .filter_map(|event| event["args"]["name"].as_str())
            .collect();
        assert_eq!(names.len(), 2, "{name}: {names:?}");
        assert!(names[0].starts_with("10.9.0.") && names[1].starts_with("10.9.0."), "{names:?}");
    }
}

#[test]
fn messages_are_those_that_packets_tell() {
    let (events, _) = timeline(&[&golden("rc-send")]);
    let spans = of_phase(&events, "X");
    let sends: Vec<&Value> =
        spans.into_iter().filter(|one| one["cat"] == "send" && one["args"]["wr_id"].is_string()).collect();
    assert!(!sends.is_empty());
    for send in &sends {
        assert!(send["name"].as_str().is_some_and(|name| name.starts_with("SEND")), "{send}");
        assert_eq!(send["args"]["status"], "SUCCESS", "{send}");
        assert!(send["args"]["us_until_acknowledged"].as_f64().is_some_and(|us| us > 0.0), "{send}");
    }
    let output = trace(&["why", "--json", &golden("rc-nak-access-write")]);
    let reasons: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let failed = reasons["failed"].as_array().expect("a list");
    assert!(failed.iter().any(|one| one["status"] == "REM_ACCESS_ERR"), "{reasons}");
}

#[test]
fn all_captures_of_the_laboratory_become_pages() {
    let folder = scratch("all");
    let page = folder.join("page.html").display().to_string();
    let mut count = 0;
    for kernel in ["6.1", "6.12", "peer"] {
        let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(kernel);
        for entry in fs::read_dir(captures).expect("a folder") {
            let path = entry.expect("an entry").path().display().to_string();
            if !path.ends_with(".pcap") || packets(&path) == 0 {
                continue;
            }
            count += 1;
            for action in [&["view", "-o", &page, &path][..], &["why", &path]] {
                let output = trace(action);
                assert_eq!(output.status.code(), Some(0), "{path}: {}", err(&output));
            }
            assert!(fs::read_to_string(&page).expect("a page").contains("id=\"data\""));
        }
    }
    assert!(count > 60, "{count}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn a_capture_of_this_device_says_which_way_packets_go() {
    let folder = scratch("own");
    let file = folder.join("own.pcapng").display().to_string();
    let measured = ["--op", "send", "--latency", "--rounds", "1", "--for", "0.05", "--capture", &file];
    let ends = ["--addr", "127.0.1.1", "--peer-addr", "127.0.1.2"];
    let output = pumice(&[&["perf", "loop"][..], &measured, &ends].concat());
    assert!(output.status.success(), "{}", err(&output));
    let (events, _) = timeline(&[&file]);
    let drawn = of_phase(&events, "s").len();
    let sent = of_phase(&events, "X").iter().filter(|one| one["args"]["transmission"].is_u64()).count();
    assert!(drawn > 40 && drawn <= sent, "{drawn} of {sent}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

/// A pcap with the times of this one and some more, in microseconds.
fn later(file: &str, by_us: u64) -> Vec<u8> {
    let mut bytes = fs::read(file).expect("a capture");
    assert_eq!(bytes[..4], [0xd4, 0xc3, 0xb2, 0xa1], "a pcap with microseconds");
    let mut at = 24;
    while at < bytes.len() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (time_us, length) = (u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4)), word(at + 8));
        let time_us = time_us + by_us;
        let parts = [(time_us / 1_000_000) as u32, (time_us % 1_000_000) as u32];
        for (offset, part) in [at, at + 4].into_iter().zip(parts) {
            bytes[offset..offset + 4].copy_from_slice(&part.to_le_bytes());
        }
        at += 16 + length as usize;
    }
    bytes
}

#[test]
fn captures_of_two_hosts_with_other_clocks_are_put_together_by_their_packets() {
    let folder = scratch("clocks");
    let (one, other) = (golden("rc-send"), folder.join("other.pcap").display().to_string());
    fs::write(&other, later(&one, 5_000_123)).expect("a new file");
    let (events, stderr_text) = timeline(&[&one, &other]);
    assert!(
        stderr_text.contains("was put beside another one's by ") && stderr_text.lines().count() == 1,
        "{stderr_text}"
    );
    assert!(stderr_text.contains("right within 0 ns"), "{stderr_text}");
    assert_eq!(of_phase(&events, "s").len(), packets(&one));
    let last = |events: &[Value]| {
        let times = events.iter().filter_map(|event| event["ts"].as_f64());
        times.fold(0.0, f64::max)
    };
    assert_eq!(last(&events), last(&timeline(&[&one]).0), "both begin at the same time");
    // Captures without a packet in common.
    let (_, stderr_text) = timeline(&[&one, &golden("tool-send_bw")]);
    assert!(stderr_text.contains("no packets say how their clocks differ"), "{stderr_text}");
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

#[test]
fn what_is_no_capture_of_roce_gets_one_sentence() {
    let folder = scratch("bad");
    let whole = fs::read(golden("rc-send")).expect("a capture");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a new file");
        path.display().to_string()
    };
    // The link type of a pcap: USB has no RoCE.
    let mut foreign = whole.clone();
    foreign[20] = 220;
    for (path, part) in [
        (file("foreign", &foreign), "it holds no RoCE packet"),
        (file("empty", &whole[..24]), "it holds no RoCE packet"),
        (file("head", &whole[..10]), "cannot be read as a capture"),
        (file("ng", b"\x0a\x0d\x0d\x0a and so on"), "cannot be read as a capture"),
    ] {
        for action in [&["why", &path][..], &["to-perfetto", &path, "-o", "-"], &["view", &path, "-o", "-"]] {
            let output = trace(action);
            let text = err(&output);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            assert!(text.starts_with("pumice: ") && text.contains(part), "{part}: {text}");
            assert!(text.lines().count() == 1 && output.stdout.is_empty(), "{text}");
        }
    }
    // What is there before the damage is shown.
    let cut = file("cut", &whole[..whole.len() - 5]);
    assert_eq!(of_phase(&timeline(&[&cut]).0, "s").len(), packets(&golden("rc-send")) - 1);
    fs::remove_dir_all(&folder).expect("a folder of ours");
}
