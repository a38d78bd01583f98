//! Each counter counts something: product code adds to it, and a test looks at it.

use std::path::Path;

use super::assert_no;
use super::source::{code_lines, first_test_line};
use super::tree::{read, sources};

/// The table of the counters.
const TABLE: &str = "transport/src/types/counter.rs";
/// Files that name counters and count nothing: their names, and what sysfs makes of them.
const NAMING: [&str; 3] = [TABLE, "device/model/src/counters.rs", "device/analysis/src/sysfs/live.rs"];

/// The rows of the table: the variants of `Counter`.
fn counters(text: &str) -> Vec<String> {
    let rows = text.split_once("\ncounters! {").map_or("", |(_, rows)| rows);
    let lines = code_lines(rows.split("\n}").next().unwrap_or_default());
    lines.iter().filter_map(|(_, line)| line.strip_suffix(',').map(str::to_owned)).collect()
}

/// The name of a counter where people read it: `rx_bad_icrc`.
fn name(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Whether a line has a word as a whole.
fn has(line: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part))
}

#[test]
fn each_counter_is_counted_and_each_count_is_tested() {
    let (mut product, mut tests) = (String::new(), String::new());
    for source in sources().iter().filter(|source| !NAMING.iter().any(|file| source.ends_with(file))) {
        let text = read(source);
        let first = first_test_line(source, &text);
        for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)) {
            let part = if number < first { &mut product } else { &mut tests };
            if line.contains("Counter::") || (number >= first && line.contains('_')) {
                part.push_str(line);
                part.push('\n');
            }
        }
    }
    let counters = counters(&read(Path::new(TABLE)));
    assert!(counters.len() >= 50, "the counters are not where this test looks for them");
    let mut faults = Vec::new();
    for variant in counters {
        let of_code = format!("Counter::{variant}");
        if !product.lines().any(|line| has(line, &of_code)) {
            faults.push(format!("{variant} is in the table, and no code counts it"));
        }
        if !tests.lines().any(|line| has(line, &of_code) || has(line, &name(&variant))) {
            faults.push(format!("{variant} is counted, and no test looks at it"));
        }
    }
    assert_no(faults);
}

#[test]
fn counters_are_found_in_their_table() {
    let text = "macro_rules! counters {}\n\ncounters! {\n    // First.\n    RxTooShort,\n    Timeout,\n}\n";
    assert_eq!(counters(text), ["RxTooShort", "Timeout"]);
    assert_eq!((name("RxTooShort").as_str(), has("(Counter::Rx, 1)", "Counter::Rx")), ("rx_too_short", true));
    assert!(!has("Counter::RxBytes", "Counter::Rx") && !has("xCounter::Rx", "Counter::Rx"));
}
