//! Documents that name tests, and tests that name statements of documents.

use super::assert_no;
use super::tree::{files, read};

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
