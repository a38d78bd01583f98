//! `pumice capture` on captures of other implementations' packets and on what is no capture.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pumice"))
}

fn capture(file: &Path, options: &[&str]) -> Output {
    program().arg("capture").arg(file).args(options).output().expect("the program can be run")
}

/// Runs the command on bytes given through standard input.
fn capture_bytes(bytes: &[u8]) -> Output {
    let mut child = program()
        .args(["capture", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    // The program may stop reading at the first damage.
    let _ = child.stdin.take().expect("a pipe").write_all(bytes);
    child.wait_with_output().expect("the program ends")
}

/// Captures taken from other implementations; those named "blast" contain wrong ICRCs on purpose.
fn golden() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("tests/golden is there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "there are no golden captures");
    found
}

/// Packets and summary of a `--json` listing.
fn listing(output: &Output) -> (Vec<Value>, Value) {
    let text = String::from_utf8(output.stdout.clone()).expect("a listing is text");
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    let summary = lines.pop().expect("a summary at the end");
    assert_eq!(summary["kind"], "summary");
    assert!(lines.iter().all(|line| line["kind"] == "packet"));
    (lines, summary)
}

#[test]
fn packets_of_other_implementations_are_understood() {
    for file in golden() {
        let on_purpose = file.to_string_lossy().contains("blast");
        let output = capture(&file, &["--json"]);
        let name = file.display();
        assert_eq!(output.status.code(), Some(i32::from(on_purpose)), "{name}: {output:?}");
        assert!(output.stderr.is_empty(), "{name}: {output:?}");
        let (packets, summary) = listing(&output);
        assert!(!packets.is_empty(), "{name}: no packet");
        assert_eq!(summary["packets"], packets.len(), "{name}");
        assert_eq!(summary["malformed"], 0, "{name}");
        assert_eq!(summary["icrc_bad"].as_u64().is_some_and(|bad| bad > 0), on_purpose, "{name}: {summary}");
        for packet in &packets {
            let opcode = packet["opcode"].as_str().unwrap_or_default();
            assert!(!opcode.is_empty() && !opcode.contains("0x"), "{name}: {packet}");
        }

        let text = capture(&file, &[]);
        let text = String::from_utf8(text.stdout).expect("a listing is text");
        assert_eq!(text.lines().count(), packets.len() + 1, "{name}: one line each and the totals");
        let summary = capture(&file, &["--summary"]);
        let summary = String::from_utf8(summary.stdout).expect("a summary is text");
        assert_eq!(summary.lines().last(), text.lines().last(), "{name}");
    }
}

#[test]
fn what_is_no_capture_gets_one_clear_sentence() {
    let missing = capture(Path::new("/nonexistent/file.pcap"), &[]);
    let folder = capture(Path::new("/"), &[]);
    let empty = capture_bytes(&[]);
    let text = capture_bytes(b"this is a text, not a capture");
    let header_only = capture_bytes(&[0xa1, 0xb2, 0xc3, 0xd4, 0, 2]);
    for output in [missing, folder, empty, text, header_only] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let sentence = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(sentence.starts_with("pumice: ") && sentence.lines().count() == 1, "{sentence}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn garbage_never_panics() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let magics: [&[u8]; 4] = [
        &[0x0a, 0x0d, 0x0d, 0x0a],
        &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0],
        &[0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
        &[],
    ];
    let files = golden();
    for round in 0..40_usize {
        let mut bytes = if round % 2 == 0 {
            // Noise behind a beginning that looks right.
            let mut bytes = magics[round / 2 % magics.len()].to_vec();
            bytes.extend((0..random() % 500).map(|_| random() as u8));
            bytes
        } else {
            // A golden capture with some bytes changed.
            fs::read(&files[random() as usize % files.len()]).expect("a golden capture can be read")
        };
        for _ in 0..random() % 8 {
            let index = random() as usize % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(index) {
                *byte = random() as u8;
            }
        }
        let output = capture_bytes(&bytes);
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "round {round}: {output:?}");
        assert!(
            !stderr_text.contains("panicked") && stderr_text.lines().count() <= 1,
            "round {round}: {stderr_text}"
        );
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    // More output than any pipe holds: the packets of a capture, many times over.
    let file = &golden()[0];
    let bytes = fs::read(file).expect("a golden capture can be read");
    let pcap_header = 24;
    let mut long = bytes.clone();
    while long.len() < 1_000_000 {
        long.extend_from_slice(&bytes[pcap_header..]);
    }
    let path = std::env::temp_dir().join(format!("pumice-long-{}.pcap", std::process::id()));
    fs::write(&path, &long).expect("the temporary folder is writable");
    let mut child = program()
        .arg("capture")
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().expect("a pipe"));
    reader.read_line(&mut line).expect("a first line");
    drop(reader);
    let output = child.wait_with_output().expect("the program ends");
    let _ = fs::remove_file(&path);
    assert!(line.contains(" > "), "{line}");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// The kinds of the rules of a plan, and how many there are of each.
fn kinds(plan: &str) -> BTreeMap<&str, usize> {
    let mut kinds = BTreeMap::new();
    for kind in plan.lines().filter_map(|line| line.strip_prefix("do = ")) {
        *kinds.entry(kind.trim_matches('"')).or_default() += 1;
    }
    kinds
}

#[test]
fn captures_of_another_implementation_become_plans() {
    // Of these only the requester's side was captured. Nothing was wrong in those that are not named.
    let wrong = [
        ("6.1/rc-loss", "drop", 2),
        ("6.12/rc-loss", "drop", 2),
        ("6.1/rc-retry-exhausted", "drop", 3),
        ("6.12/rc-retry-exhausted", "drop", 3),
        ("6.1/rc-rnr", "answer", 3),
        ("6.12/rc-rnr", "answer", 4),
        ("6.1/rc-rnr-exhausted", "answer", 3),
        ("6.12/rc-rnr-exhausted", "answer", 3),
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, kind, count) in wrong {
        let output = capture(&folder.join(name).with_extension("pcap"), &["--faults"]);
        let plan = String::from_utf8(output.stdout).expect("text");
        assert_eq!(kinds(&plan), BTreeMap::from([(kind, count)]), "{name}: {plan}");
    }
    for name in
        ["rc-send", "rc-write", "rc-read", "rc-atomic", "rc-psn-wrap", "uc-send-write", "tool-send_bw"]
    {
        let output = capture(&folder.join("6.12").join(name).with_extension("pcap"), &["--faults"]);
        let plan = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && kinds(&plan).is_empty(), "{name}: {plan}");
    }
}
