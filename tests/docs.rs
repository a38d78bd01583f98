//! Documents are true: every block of README.md and docs is run, compiled or read by this test, or says why
//! not in a comment before it. `PUMICE_DOCS=tutorials cargo test --test docs` takes only documents with that
//! in their paths.
//!
//! In front of a block may stand, in one comment with semicolons between them:
//!
//! * `not run: REASON`: it is neither run nor compiled,
//! * `run by: scripts/accept/quick-starts`, beside that: that script carries it out, in a clean Debian,
//! * `file: NAME`: it is the contents of this file, for the commands of the page,
//! * `first: COMMANDS`: they run before the block, unseen by readers,
//! * `may fail`: commands may end with any exit code that is not that of a wrong command line,
//! * `exit code: N`: the last command of the block ends with it,
//! * `servers go on`: servers in the background are stopped at the end of the block instead of waited for,
//! * `printed`: every line stands in what the commands before it print; `…` stands for anything, and alone in
//!   a line for the lines that are left out,
//! * `profile`, `plan` or `topology`: what a TOML block is.

#[path = "docs/blocks.rs"]
mod blocks;
#[path = "docs/shell.rs"]
mod shell;
#[path = "docs/texts.rs"]
mod texts;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use blocks::{blocks, documents};

/// The languages of blocks.
const KNOWN_LANGUAGES: [&str; 11] =
    ["sh", "text", "toml", "rust", "c", "yaml", "powershell", "cmake", "meson", "groovy", ""];

/// Documents that are asked for.
fn wanted() -> Vec<PathBuf> {
    let part = std::env::var("PUMICE_DOCS").unwrap_or_default();
    documents().into_iter().filter(|document| document.display().to_string().contains(&part)).collect()
}

#[test]
fn every_block_is_of_a_known_kind_and_excuses_are_reasons() {
    let mut faults = Vec::new();
    for block in wanted().iter().flat_map(|document| blocks(document)) {
        if !KNOWN_LANGUAGES.contains(&block.language.as_str()) {
            faults.push(format!("{}: no test reads blocks of {:?}", block.location(), block.language));
        }
        if block.excuse().is_some_and(|excuse| excuse.split_whitespace().count() < 3) {
            faults.push(format!("{}: say why it is not run", block.location()));
        }
        if ["yaml", "powershell", "groovy"].contains(&block.language.as_str()) && block.excuse().is_none() {
            faults.push(format!("{}: no test runs {}: say so, and why", block.location(), block.language));
        }
    }
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
}

/// Command lines of pumice in blocks that are not run are at least such that pumice understands them: with
/// `--help` behind them it refuses options that it does not know.
#[test]
fn command_lines_that_are_not_run_are_understood() {
    let mut faults = Vec::new();
    let blocks = wanted().into_iter().flat_map(|document| blocks(&document));
    for block in blocks.filter(|block| block.language == "sh" && block.excuse().is_some()) {
        for line in block.text.lines().filter(|line| line.starts_with("pumice ")) {
            let end =
                [" -- ", " | ", " > ", " # ", " && ", " &"].iter().filter_map(|mark| line.find(mark)).min();
            let words = line.get(..end.unwrap_or(line.len())).unwrap_or_default().split_whitespace().skip(1);
            let output =
                Command::new(env!("CARGO_BIN_EXE_pumice")).args(words).arg("--help").output().unwrap();
            if !output.status.success() {
                let stderr_text = String::from_utf8_lossy(&output.stderr);
                faults.push(format!("{}: {line}\n{stderr_text}", block.location()));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn commands_of_documents_run() {
    let Some(namespaces) = shell::namespaces() else {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: unshare(1) and ip(8) are not allowed here");
        return;
    };
    if !shell::can_compile() {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: apt-get install gcc libibverbs-dev");
        return;
    }
    let waiting = Mutex::new(wanted());
    let (faults, skipped) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(document) = waiting.lock().unwrap().pop() else { break };
                    let mut not_run = Vec::new();
                    if let Err(fault) = shell::run(&document, namespaces, &mut not_run) {
                        faults.lock().unwrap().push(fault);
                    }
                    skipped.lock().unwrap().extend(not_run);
                }
            });
        }
    });
    for reason in skipped.into_inner().unwrap() {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: {reason}");
    }
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
