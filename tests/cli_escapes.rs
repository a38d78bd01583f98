//! What is in a file, or is its name, does not steer the terminal: every command that reads a file gets
//! hostile ones, and what it prints has no control character but line ends and tabs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a terminal would obey: it sets the title, clears the screen (by one character of two bytes), and
/// turns the direction of text.
const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r";
/// The same as TOML and JSON write it.
const ESCAPED: &str = r"\u001b]0;owned\u0007\u009b2J\u202e\r";

struct EscapeFolder(PathBuf);

impl EscapeFolder {
    fn new(name: &str) -> EscapeFolder {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("escapes-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the target folder is writable");
        EscapeFolder(folder)
    }

    /// A file with this name and text; its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("the folder is ours");
        path.to_str().expect("text").to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        for variable in pumice_device::settings::VARIABLES {
            command.env_remove(variable);
        }
        command.args(arguments).stdin(Stdio::null()).current_dir(&self.0);
        command.output().expect("the program can be run")
    }

    /// Runs a command; what it prints is harmless, and not nothing.
    fn is_clean(&self, arguments: &[&str]) {
        let output = self.run(arguments);
        for bytes in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(harmful(&text), None, "{arguments:?}: {text:?}");
        }
        let silent = output.stdout.is_empty() && output.stderr.is_empty();
        assert!(!silent || arguments[0] == "man", "{arguments:?} says nothing: {output:?}");
    }
}

impl Drop for EscapeFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A character that a terminal would obey.
fn harmful(text: &str) -> Option<char> {
    text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t') || *c == '\u{202e}')
}

/// Commands that read no file, but say its name.
const READ_NONE: [&[&str]; 9] = [
    &["man"],
    &["completions"],
    &["explain"],
    &["doctor"],
    &["stat"],
    &["top"],
    &["perf"],
    &["fault", "add"],
    &["course"],
];

/// Texts that commands read as TOML, JSON lines, or anything else.
fn texts() -> Vec<String> {
    let mut texts =
        vec![HOSTILE.to_owned(), format!("{{\"{ESCAPED}\": 1}}\n"), format!("\"{ESCAPED}\" = 1\n")];
    for field in
        ["name", "do", "opcode", "tag", "service", "side", "chance", "after", "device", "peer", "from"]
    {
        let known = if field == "do" { "" } else { "do = \"drop\"\n" };
        texts.push(format!("[[rule]]\n{known}{field} = \"{ESCAPED}\"\n"));
    }
    for (field, rest) in [("kind", "hosts = [\"127.0.0.2\"]\n"), ("hosts", "kind = \"star\"\n")] {
        texts.push(format!("{field} = \"{ESCAPED}\"\n{rest}"));
        texts.push(format!("{field} = [\"{ESCAPED}\"]\n{rest}"));
    }
    texts.push(format!("name = \"{ESCAPED}\"\nvendor = 1\n"));
    texts.push(format!("[[rule]]\nname = \"{HOSTILE}\"\n"));
    let report = format!("{{\"rules\":[\"{ESCAPED}\"],\"process\":\"{ESCAPED}\",\"seed\":1}}\n");
    texts.push(report);
    texts
}

/// A pcapng file whose only packet has this comment.
fn capture(comment: &str) -> Vec<u8> {
    let mut file = Vec::new();
    let mut words = |words: &[u32]| words.iter().for_each(|word| file.extend_from_slice(&word.to_le_bytes()));
    words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28]);
    words(&[1, 20, 101, 0, 20]);
    let packet = [
        0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0xc0, 0xde, 0x12, 0xb7, 0,
        24, 0, 0, 4, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1, 0, 0, 0, 0,
    ];
    let padded = comment.len().next_multiple_of(4);
    let length = 32 + packet.len() + 4 + padded + 4;
    words(&[6, length as u32, 0, 0, 0, packet.len() as u32, packet.len() as u32]);
    file.extend_from_slice(&packet);
    file.extend_from_slice(&1_u16.to_le_bytes());
    file.extend_from_slice(&(comment.len() as u16).to_le_bytes());
    file.extend_from_slice(comment.as_bytes());
    file.resize(file.len() + padded - comment.len(), 0);
    file.extend_from_slice(&0_u32.to_le_bytes());
    file.extend_from_slice(&(length as u32).to_le_bytes());
    file
}

/// Command lines with `FILE` where a file is named.
const LINES: &[&[&str]] = &[
    &["fault", "check", "FILE"],
    &["fault", "check", "FILE", "--json"],
    &["fault", "assert", "FILE"],
    &["fault", "compare", "FILE", "FILE"],
    &["fault", "plans", "FILE"],
    &["run", "--faults", "FILE", "--", "true"],
    &["run", "--profile", "FILE", "--", "true"],
    &["run", "--topology", "FILE", "--", "true"],
    &["run", "--check", "--check-suppress", "FILE", "--", "true"],
    &["check", "--faults", "FILE", "--", "true"],
    &["sweep", "--resume", "FILE", "--", "true"],
    &["replay", "FILE", "--", "true"],
    &["capture", "FILE"],
    &["capture", "FILE", "--json"],
    &["capture", "FILE", "FILE", "--faults"],
    &["trace", "list", "FILE"],
    &["trace", "why", "FILE"],
    &["trace", "require", "FILE", "--require", "rdma.bytes > 0"],
    &["trace", "require", "FILE", "--require", "FILE"],
    &["trace", "diff", "FILE", "FILE"],
    &["trace", "live", "--tag", "FILE"],
    &["check", "live", "--tag", "FILE"],
    &["hang", "--hosts", "FILE", "--rsh", "FILE"],
    &["trace", "view", "FILE", "-o", "page.html"],
    &["trace", "to-perfetto", "FILE", "-o", "out.json"],
    &["topology", "FILE"],
    &["world", "replay", "FILE"],
    &["world", "merge", "FILE"],
    &["world", "compare", "FILE", "FILE"],
    &["world", "vary", "--delay", "FILE", "true"],
    &["course", "check", "FILE"],
    &["devices", "--devices", "FILE"],
    &["explain", "FILE"],
    &["reference", "FILE"],
    &["hang", "--with", "FILE"],
    &["fault", "add", "--faults", "FILE"],
    &["perf", "loop", "--faults", "FILE"],
    &["completions", "FILE"],
    &["man", "--out", "FILE"],
    &["doctor", "FILE"],
    &["stat", "--pid", "FILE"],
    &["top", "--pid", "FILE"],
    &["mrc", "--pid", "FILE"],
];

#[test]
fn every_command_is_run() {
    let help = EscapeFolder::new("all").run(&["--help"]);
    let help = String::from_utf8(help.stdout).expect("text");
    let (groups, _) = help.split_once("Options:\n").expect("the groups of commands");
    let listed = groups.lines().filter_map(|line| line.strip_prefix("  "));
    let names = listed.filter_map(|line| line.split_whitespace().next());
    let listed_commands: BTreeSet<&str> = LINES.iter().map(|line| line[0]).collect();
    let missing: Vec<&str> = names.filter(|name| !listed_commands.contains(name)).collect();
    assert!(
        listed_commands.len() > 10 && missing.is_empty(),
        "these commands are not in the list above: {missing:?}"
    );
}

#[test]
fn what_is_in_files_and_names_is_printed_as_text() {
    let scene = EscapeFolder::new("texts");
    for (number, text) in texts().iter().enumerate() {
        let file = scene.file(&format!("file-{number}"), text);
        for line in LINES.iter().filter(|line| !READ_NONE.iter().any(|words| line.starts_with(words))) {
            let line: Vec<&str> =
                line.iter().map(|word| if *word == "FILE" { &file } else { *word }).collect();
            let output = scene.run(&line);
            let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert_eq!(harmful(&shown), None, "{line:?} of {text:?}: {shown:?}");
        }
    }
}

#[test]
fn names_of_files_are_printed_as_text() {
    let scene = EscapeFolder::new("names");
    let missing = scene.0.join(format!("missing-{HOSTILE}"));
    let there = scene.file(&format!("there-{HOSTILE}"), "nothing of use\n");
    for line in LINES {
        for file in [missing.to_str().expect("text"), &there] {
            let line: Vec<&str> =
                line.iter().map(|word| if *word == "FILE" { file } else { *word }).collect();
            // What clap refuses before a command runs are the user's own words.
            let output = scene.run(&line);
            let stderr_text = String::from_utf8_lossy(&output.stderr);
            if !stderr_text.starts_with("error: ") {
                scene.is_clean(&line);
            }
        }
    }
}

#[test]
fn what_a_capture_says_is_printed_as_text() {
    let scene = EscapeFolder::new("capture");
    let path = scene.0.join("hostile.pcapng");
    fs::write(&path, capture(HOSTILE)).expect("the folder is ours");
    let path = path.to_str().expect("text");
    let shown = scene.run(&["capture", path]);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("RC_SEND_ONLY") && shown.contains("]0;owned"), "{shown}");
    for line in [&["capture", path][..], &["capture", path, "--json"], &["trace", "why", path]] {
        scene.is_clean(line);
    }
    // And JSON stays JSON.
    let json = scene.run(&["capture", path, "--json"]);
    for line in String::from_utf8(json.stdout).expect("text").lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("JSON");
    }
}

#[test]
fn what_a_program_loads_is_printed_as_text() {
    // The sentences of the library in a program that `pumice run` did not check before.
    let scene = EscapeFolder::new("loaded");
    let plan = scene.file("plan", &format!("[[rule]]\nname = \"{ESCAPED}\"\ndo = \"{ESCAPED}\"\n"));
    let output = scene.run(&["run", "--", "env", &format!("PUMICE_FAULTS={plan}"), "ibv_devinfo"]);
    let shown = [output.stdout, output.stderr].concat();
    let shown = String::from_utf8_lossy(&shown);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{9b}'), "{shown:?}");
}
