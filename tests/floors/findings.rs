//! One type says that something is wrong, and each format has one printer.

use super::assert_no;
use super::source::first_test_line;
use super::tree::{read, sources};

/// Where findings and their printers are.
const HOME: &str = "device/model/src/findings";

/// What only printers of findings have, and the type itself.
const SIGNS: [&str; 4] = ["struct Finding ", "sarif-2.1.0", "<testsuite", "**Remedy"];

#[test]
fn findings_have_one_type_and_each_format_has_one_printer() {
    let mut faults = Vec::new();
    let mut found = [0; SIGNS.len()];
    for source in sources().iter().filter(|file| !file.starts_with("tests")) {
        let text = read(source);
        let tests_from = first_test_line(source, &text);
        for (number, line) in (1..tests_from).zip(text.lines()) {
            for (sign, count) in SIGNS.iter().zip(&mut found).filter(|(sign, _)| line.contains(**sign)) {
                *count += 1;
                if !source.starts_with(HOME) {
                    faults.push(format!("{}:{number}: {sign} belongs into {HOME}", source.display()));
                }
            }
        }
    }
    assert_no(faults);
    assert!(found.iter().all(|count| *count > 0), "{SIGNS:?} are not there: {found:?}");
}
