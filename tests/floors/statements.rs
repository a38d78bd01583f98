//! Documents that name tests, and tests that name statements of documents.

use std::collections::BTreeSet;

use super::assert_no;
use super::tree::{files, read};

/// The statements: number, who sees it, statement, with tabs between them.
const LIST: &str = "tests/statements.tsv";

/// A promise without a test is none: the last column of the threat model's tables of promises names tests.
#[test]
fn the_tests_that_the_threat_model_names_exist() {
    let text = read("docs/threat-model.md");
    let sources: Vec<String> = ["transport", "device", "verbs", "src", "tests"]
        .iter()
        .flat_map(|folder| files(folder, "rs"))
        .map(read)
        .collect();
    let (mut faults, mut count) = (Vec::new(), 0);
    let mut in_promises = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_promises = line.starts_with("| Promise | Test |") || in_promises && line.starts_with('|');
        let Some((_, tests)) = line.trim_end_matches(" |").rsplit_once('|').filter(|_| in_promises) else {
            continue;
        };
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if names.is_empty() && !line.contains("---") && !line.contains("| Test |") {
            faults.push(format!("docs/threat-model.md:{number} names no test"));
        }
        for name in names {
            count += 1;
            if !sources.iter().any(|source| source.contains(&format!("fn {name}("))) {
                faults.push(format!("docs/threat-model.md:{number}: there is no test {name}"));
            }
        }
    }
    assert_no(faults);
    assert!(count > 20, "{count} tests are named");
}

/// The numbers of the list of statements.
fn listed() -> BTreeSet<u32> {
    let text = read(LIST);
    text.lines().filter_map(|line| line.split('\t').next()?.parse().ok()).collect()
}

/// The numbers that a source cites: `statement_07_…` and "Statement 7".
fn cited(text: &str) -> BTreeSet<u32> {
    let numbers = ["statement_", "Statement "].iter().flat_map(|word| text.split(word).skip(1));
    numbers.filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).collect()
}

#[test]
fn every_statement_has_a_test_and_every_number_a_statement() {
    let listed = listed();
    assert!(listed.len() >= 55, "{LIST} is not where this test looks for it");
    let mut faults = Vec::new();
    let mut all = BTreeSet::new();
    let sources = ["transport", "device", "verbs"].iter().flat_map(|folder| files(folder, "rs"));
    for source in sources.chain(files("scripts/checks", "sh")) {
        let numbers = cited(&read(&source));
        for number in numbers.difference(&listed) {
            faults.push(format!("{} cites {number}, which {LIST} has not", source.display()));
        }
        all.extend(numbers);
    }
    let alone = listed.difference(&all);
    faults.extend(alone.map(|number| format!("no test cites statement {number} of {LIST}")));
    assert_no(faults);
}
