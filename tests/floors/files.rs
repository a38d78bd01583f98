//! Every file of the repository is one that belongs there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::assert_no;
use super::crates::{PACKAGES, targets};
use super::modules::Modules;
use super::tree::{root, sources, tracked_files};

/// What may be at the top.
const TOP: [&str; 22] = [
    ".cargo",
    ".ci",
    ".github",
    ".gitignore",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "benches",
    "device",
    "docs",
    "fuzz",
    "rustfmt.toml",
    "scripts",
    "src",
    "tests",
    "transport",
    "verbs",
];
/// Kinds of text by the ends of their names.
const TEXTS: [&str; 20] = [
    "rs", "toml", "md", "txt", "c", "h", "sh", "py", "awk", "tsv", "supp", "lock", "svg", "html", "css",
    "js", "json", "typed", "yml", "patch",
];
/// Folders with files without such an end: programs that the shell runs, seeds of the fuzzer; the counts of
/// each release.
const WITHOUT_END: [&str; 5] = ["scripts", ".ci", "fuzz/seeds", "docs/deploy", "benches/history"];
/// Folders with files that are no text, or a text of others, and the end of their names.
const BINARIES: [(&str, &str); 5] = [
    ("tests/golden", "pcap"),
    ("tests/golden/sarif", "json"),
    ("fuzz/seeds", "pcap"),
    ("fuzz/seeds", ""),
    ("docs/pictures", "png"),
];

#[test]
fn every_source_is_compiled() {
    let mut reached = BTreeSet::new();
    let mut faults = Vec::new();
    for package in PACKAGES {
        for (target, is_test) in targets(package) {
            let modules = Modules::read(&target, is_test);
            reached.extend(modules.all.into_iter().map(|module| module.file));
            reached.extend(modules.included);
            faults.extend(modules.missing);
        }
    }
    let dead = sources().into_iter().filter(|source| !reached.contains(source));
    faults.extend(dead.map(|source| format!("{}: no mod and no target leads to it", source.display())));
    assert_no(faults);
}

#[test]
fn no_file_is_stray() {
    let mut faults = Vec::new();
    for file in tracked_files().iter().filter(|file| root().join(file).is_file()) {
        let top = file.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        if !top.is_some_and(|top| TOP.contains(&top.as_str())) {
            faults.push(format!("{}: nothing of that name belongs at the top", file.display()));
        } else if let Some(problem) = stray(file, &fs::read(root().join(file)).unwrap_or_default()) {
            faults.push(format!("{}: {problem}", file.display()));
        }
    }
    assert_no(faults);
}

/// Why a file does not belong where it is; none if it does.
fn stray(file: &Path, contents: &[u8]) -> Option<&'static str> {
    let end = file.extension().map(|end| end.to_string_lossy().into_owned()).unwrap_or_default();
    if BINARIES.iter().any(|(folder, kind)| file.starts_with(folder) && *kind == end) {
        return None;
    }
    let is_known = TEXTS.contains(&end.as_str())
        || WITHOUT_END.iter().any(|folder| file.starts_with(folder))
        || file.parent() == Some(Path::new(""))
        // Every package that is published has the licences.
        || file.file_name().is_some_and(|name| name == "LICENSE-APACHE" || name == "LICENSE-MIT");
    if !is_known {
        return Some("files of this kind are not kept here");
    }
    let is_text = !contents.contains(&0) && std::str::from_utf8(contents).is_ok();
    (!is_text).then_some("it is not text")
}

#[test]
fn stray_files_are_distinguished_from_others() {
    let is_stray = |name: &str, contents: &[u8]| stray(&PathBuf::from(name), contents).is_some();
    assert!(is_stray("device/local-job-0-verify.state", b"text"));
    assert!(is_stray("scripts/local-job-0-verify", b"\0\x01"));
    assert!(is_stray("tests/golden/x.bin", b""));
    assert!(!is_stray("tests/golden/6.1/x.pcap", b"\0"));
    assert!(!is_stray("scripts/test", b"#!/bin/sh\n"));
    assert!(!is_stray("LICENSE-MIT", b"text"));
}
