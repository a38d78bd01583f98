//! docs/sentences.md lists the sentences that pumice prints when something is wrong, taken from the sources, each with the
//! page that explains it. `UPDATE=1 cargo test --test docs_sentences` writes the page anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Where sentences are, who says them, and the page about them, from docs. The first row that fits counts.
const SPEAKERS: [(&str, &str, &str); 27] = [
    ("transport/src/types/cause", "the log: a queue pair, a message", "troubleshooting.md#messages-fail-or-are-slow"),
    ("device/instruments/src/check", "pumice check", "checks/README.md"),
    ("device/instruments/src/waits", "the log: what waits in vain", "checks/waits-in-vain.md"),
    ("device/instruments/src/trace", "pumice trace", "trace.md"),
    ("device/instruments/src/capture", "pumice capture", "commands.md#captures-pumice-capture"),
    ("device/profile/src/settings", "a setting", "reference/environment.md"),
    ("device/profile/src/addresses", "an address", "troubleshooting.md#connecting-fails"),
    ("device/profile/src", "a profile", "reference/profiles.md"),
    ("device/faults/src", "a fault plan", "fault-plans.md"),
    ("device/ground/src/order", "a replay", "fault-plans.md#record-and-replay"),
    ("device/ports/src/switched", "a topology", "topology.md"),
    ("device/share/src", "processes that share an address", "same-host.md"),
    ("device/ports/src", "a port", "troubleshooting.md#the-program-finds-no-device"),
    ("device/engine/src/hca", "a call that was refused", "reference/errnos.md"),
    ("device/src", "opening the device", "troubleshooting.md#the-program-finds-no-device"),
    ("verbs/capi/src/ground", "the library", "troubleshooting.md"),
    ("verbs/capi/src/rsocket", "rsockets", "run.md"),
    ("verbs/capi/src", "a call that was refused", "reference/errnos.md"),
    ("verbs/world/src", "pumice world", "world.md"),
    ("verbs/perf/src", "pumice perf", "commands.md#measuring-pumice-perf"),
    ("src/world", "pumice world", "world.md"),
    ("src/doctor", "pumice doctor", "troubleshooting.md"),
    ("src/sweep", "pumice sweep", "sweep.md"),
    ("src/fault", "pumice fault", "fault-plans.md"),
    ("src/run", "pumice run", "run.md"),
    ("src/course", "pumice course", "course/README.md"),
    ("src", "a command", "commands.md"),
];
/// Sentences have more words than names and labels.
const FEWEST_WORDS: usize = 4;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files of the program, without those of tests, by name.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "target", "examples", "benches"].contains(&name.as_str()) {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") && name != "build.rs" {
            found.push(path);
        }
    }
}

/// The string literals of a source before its tests; comments and attributes have none.
fn literals(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") || rest.starts_with("#[") || rest.starts_with("#![") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            3 + raw.find("\"#").map_or(raw.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            3
        } else if first == '"' {
            let (literal, length) = literal(rest);
            found.push(literal);
            length
        } else {
            first.len_utf8()
        };
        rest = rest.get(skipped..).unwrap_or_default();
    }
    found
}

/// The contents of the literal with which the text begins, and its length.
fn literal(text: &str) -> (String, usize) {
    let mut contents = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (contents, at + 1),
            '\\' => match letters.next() {
                // The line goes on behind the spaces of the next one.
                Some((_, '\n')) => {
                    while letters.next_if(|(_, space)| space.is_whitespace()).is_some() {}
                }
                Some((_, 'n')) => contents.push('\n'),
                Some((_, escaped)) => contents.push(escaped),
                None => {}
            },
            _ => contents.push(letter),
        }
    }
    (contents, text.len())
}

/// The sentence with `…` for what differs from run to run; none if it is a name, a form or a pattern.
fn sentence(literal: &str) -> Option<String> {
    let mut said = String::new();
    let mut rest = literal;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, behind) = rest.split_at(at);
        said.push_str(before);
        if behind.starts_with("{{") || behind.starts_with("}}") {
            said.push_str(&behind[..1]);
            rest = &behind[2..];
            continue;
        }
        said.push('…');
        rest = behind.split_once('}').map_or("", |(_, rest)| rest);
    }
    said.push_str(rest);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = said.split(' ').filter(|word| word.chars().any(char::is_alphabetic)).count();
    let is_plain = !literal.contains(['\n', '\t', '<', '\u{1b}']) && !literal.contains("  ");
    (words >= FEWEST_WORDS && is_plain).then_some(said)
}

/// Each sentence with who says it and where to read on.
fn table() -> BTreeMap<String, (&'static str, &'static str)> {
    let mut table = BTreeMap::new();
    for (folder, who, page) in SPEAKERS {
        let path = root().join(folder);
        let mut files = Vec::new();
        if path.is_dir() {
            sources(&path, &mut files);
        }
        files.extend(Some(path.with_extension("rs")).filter(|file| file.is_file()));
        assert!(!files.is_empty(), "there is nothing at {folder}");
        for file in files {
            for said in literals(&fs::read_to_string(file).unwrap()).iter().filter_map(|one| sentence(one)) {
                table.entry(said).or_insert((who, page));
            }
        }
    }
    table
}

fn page() -> String {
    let table = table();
    let mut page = String::from(
        "# What pumice printed\n\nSentences that pumice prints when something is not as it should be, with the page to read. `…` stands for numbers and \
         names.\nIn the book the field above the table finds a whole line that you paste. The list comes from the sources.\n\n\
         | Sentence | Who says it | Read |\n|---|---|---|\n",
    );
    for (said, (who, link)) in &table {
        let name = link.split(['#', '.']).next().unwrap_or_default().trim_end_matches("/README");
        let cell = said.replace('|', "\\|").replace('[', "\\[").replace('*', "\\*").replace('_', "\\_");
        let _ = writeln!(page, "| {cell} | {who} | [{name}]({link}) |");
    }
    page
}

#[test]
fn the_page_of_sentences_is_what_the_sources_say() {
    let file = root().join("docs/sentences.md");
    let page = page();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let first = page.lines().zip(written.lines().chain(std::iter::repeat(""))).find(|(a, b)| a != b);
    assert!(
        written == page,
        "docs/sentences.md is not what the sources say (first difference: {first:?}): UPDATE=1 cargo test --test \
         docs_sentences writes it anew"
    );
}

#[test]
fn literals_are_read_as_rust_reads_them() {
    let text = "// \"no\"\n#[doc = \"no\"]\nlet a = ['\"', '\\''];\nsay(\"one \\\n    two \\\"x\\\"\", \"b\");\nr#\"no\"#\n";
    assert_eq!(literals(text), ["one two \"x\"", "b"]);
    assert_eq!(sentence("QP {qpn} {}: no {{room}} here").as_deref(), Some("QP … …: no {room} here"));
    assert_eq!(sentence("a name"), None);
}

#[test]
fn known_sentences_are_in_the_page() {
    let page = page();
    for said in ["is no variable of pumice, and has no effect", "name a program to run", "missing for"] {
        assert!(page.contains(said), "{said}");
    }
    assert!(page.lines().count() > 300, "{}", page.lines().count());
}
