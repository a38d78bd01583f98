//! Links of documents lead somewhere, and files that documents name exist.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::assert_no;
use super::tree::{exists, read, root, tracked_files};

/// Lines outside of code blocks, with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((number, line));
        }
    }
    lines
}

/// The line without its `code`.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Targets of the links and pictures of a line: `[text](target)`.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let ends = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(target, _)| target.to_owned()).collect()
}

/// What GitHub makes of a heading: lower case, without punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let files = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    files.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The anchors of a document; of headings with the same words, the second has `-1` behind it.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    for (_, heading) in headings {
        let first = anchor(heading.trim_start_matches('#'));
        let mut next = first.clone();
        for number in 1.. {
            if found.insert(next.clone()) {
                break;
            }
            next = format!("{first}-{number}");
        }
    }
    found
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = plain.pop(),
            other => plain.push(other),
        }
    }
    plain
}

/// Why a link of a document leads nowhere.
fn fault(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = document.parent().unwrap_or(Path::new(""));
    let path = if path.is_empty() { document.to_owned() } else { plain(&folder.join(path)) };
    if !root().join(&path).exists() {
        return Some(format!("there is no {}", path.display()));
    }
    let is_there = heading.is_empty() || anchors(&read(&path)).contains(heading);
    (!is_there).then(|| format!("{} has no heading #{heading}", path.display()))
}

#[test]
fn links_of_documents_lead_somewhere() {
    let is_document = |file: &PathBuf| file.extension().is_some_and(|e| e == "md");
    let mut faults = Vec::new();
    for document in tracked_files().into_iter().filter(is_document) {
        for (number, line) in prose(&read(&document)) {
            for target in targets(line) {
                if let Some(fault) = fault(&document, &target) {
                    faults.push(format!("{}:{number}: {target}: {fault}", document.display()));
                }
            }
        }
    }
    assert_no(faults);
}

/// The Rust sources and documents that a line names in `code`, by a path with a folder in it.
fn named_files(line: &str) -> Vec<&str> {
    let is_file = |name: &&str| {
        let is_path =
            name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c));
        is_path && (name.ends_with(".rs") || name.ends_with(".md")) && name.contains('/')
    };
    line.split('`').skip(1).step_by(2).filter(is_file).collect()
}

#[test]
fn files_that_documents_name_exist() {
    let is_document = |file: &PathBuf| file.extension().is_some_and(|e| e == "md");
    // The changelog also names files of its time.
    let files = tracked_files();
    let documents = files.iter().filter(|file| is_document(file) && !file.ends_with("CHANGELOG.md"));
    let mut faults = Vec::new();
    for document in documents {
        let folder = document.parent().unwrap_or(Path::new(""));
        for (number, line) in prose(&read(document)) {
            for name in named_files(line) {
                // The document of a crate may name files of that crate, and a path may leave out where it
                // begins.
                let is_end = || files.iter().any(|file| file.ends_with(name));
                if !exists(Path::new(name)) && !exists(&folder.join(name)) && !is_end() {
                    faults.push(format!("{}:{number}: there is no {name}", document.display()));
                }
            }
        }
    }
    assert_no(faults);
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# One `two`: three\n```\n# no heading\n[no](link)\n```\n## Four\n## Four\n";
    assert_eq!(anchors(text), ["four", "four-1", "one-two-three"].map(String::from).into());
    assert_eq!(targets("[a](b.md#c), `[no](link)` and ![d](e.png)"), ["b.md#c", "e.png"]);
    assert_eq!(
        named_files("`src/cli.rs`, `docs/x/NAME.md`, `a b`, `cli/a.rs` and `cli.rs`"),
        ["src/cli.rs", "cli/a.rs"]
    );
    assert_eq!(plain(Path::new("docs/checks/../a/./b.md")), Path::new("docs/a/b.md"));
    assert!(fault(Path::new("docs/x.md"), "../no-such-file.md").is_some());
    assert!(fault(Path::new("docs/x.md"), "../README.md#no-such-heading").is_some());
    assert_eq!(fault(Path::new("docs/x.md"), "../README.md#licence"), None);
}
