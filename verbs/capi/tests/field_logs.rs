//! Public reports of failures, replayed: a C program does what the reporter's did, a rule or the situation
//! itself makes it fail, and each line of the log has the same codes.

mod kit;

use std::collections::BTreeSet;
use std::path::Path;

/// The rows; the file says what is in them.
const LOGS: &str = include_str!("field/logs.txt");

/// A report.
struct FieldLog<'a> {
    thread: &'a str,
    device: &'a str,
    words: Vec<&'a str>,
    /// None: the situation is real.
    rules: Option<&'a str>,
    lines: Vec<&'a str>,
}

/// All rows.
fn rows() -> Vec<FieldLog<'static>> {
    let lines = LOGS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.map(|line| {
        let mut columns = line.split('|').map(str::trim);
        let mut next = || columns.next().unwrap_or_else(|| panic!("{line}: a column is missing"));
        let (thread, device, words, rules) = (next(), next(), next(), next());
        let words = words.split_whitespace().collect();
        let rules = Some(rules).filter(|rules| *rules != "-");
        FieldLog { thread, device, words, rules, lines: columns.collect() }
    });
    rows.collect()
}

/// The failures that the program printed.
fn failures(program: &Path, row: &FieldLog<'_>) -> Vec<String> {
    let mut command = kit::on(kit::address(), program);
    command.args(&row.words).env("PUMICE_PROFILE", row.device).env("PUMICE_SEED", "1");
    if row.words.contains(&"ulimit") {
        command.env("PUMICE_MEMLOCK", "ulimit");
    }
    if row.words.contains(&"elsewhere") {
        command.env("PUMICE_NO_NEIGHBOUR", "all");
    }
    if let Some(rules) = row.rules {
        command.env("PUMICE_FAULT", rules);
    }
    let output = command.output().expect("timeout(1) runs");
    kit::succeeded(row.thread, &output);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Whether a printed line has all the codes of a line of the log, and is about the same queue or call.
fn has_codes(printed: &str, logged: &str) -> bool {
    let printed: BTreeSet<&str> = printed.split(' ').collect();
    logged.split(' ').all(|code| printed.contains(code))
}

#[test]
fn the_lines_of_public_logs_have_the_same_codes_here() {
    let Some(program) = kit::compile("field_logs") else { return };
    let mut wrong = Vec::new();
    for row in rows() {
        let printed = failures(&program, &row);
        let is_same = printed.len() == row.lines.len()
            && printed.iter().zip(&row.lines).all(|(printed, logged)| has_codes(printed, logged));
        if !is_same {
            wrong.push(format!("{}: {printed:?}, in the log {:?}", row.thread, row.lines));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_rows_are_of_as_many_threads_and_each_names_a_code() {
    let rows = rows();
    let threads: BTreeSet<&str> = rows.iter().map(|row| row.thread).collect();
    assert!(rows.len() >= 50, "{} rows", rows.len());
    assert_eq!(threads.len(), rows.len(), "a thread has two rows");
    for row in rows {
        assert!(row.thread.contains('#') && row.thread.contains('/'), "{}", row.thread);
        assert!(!row.lines.is_empty(), "{}", row.thread);
        assert!(row.lines.iter().all(|line| line.contains('=')), "{}", row.thread);
    }
}
