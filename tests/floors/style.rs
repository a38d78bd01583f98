//! What a source file looks like: lengths, and what tests may do.

use super::functions::functions;
use super::source::{code_lines, first_test_line};
use super::token::tokens;
use super::tree::{read, sources};
use super::{assert_at_most, assert_no, known};

const MAX_LINES: usize = 700;

/// The width of a line, as in rustfmt.toml.
const MAX_COLUMNS: usize = 110;
/// What fits a screen.
const MAX_FUNCTION_LINES: usize = 70;
/// The same for a test, which tells a story.
const MAX_TEST_LINES: usize = 135;

#[test]
fn files_can_be_read_in_one_sitting() {
    let mut faults = Vec::new();
    for source in sources() {
        let count = read(&source).lines().count();
        if count > MAX_LINES {
            faults.push(format!("{} has {count} lines (at most {MAX_LINES})", source.display()));
        }
    }
    assert_no(faults);
}

#[test]
fn functions_fit_a_screen() {
    let mut faults = Vec::new();
    for source in sources() {
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for function in functions(&tokens(&text)) {
            let most = if function.line >= tests_from { MAX_TEST_LINES } else { MAX_FUNCTION_LINES };
            if function.lines > most {
                let (name, line, lines) = (&function.name, function.line, function.lines);
                faults
                    .push(format!("{}:{line}: {name} has {lines} lines (at most {most})", source.display()));
            }
        }
    }
    assert_at_most(known::LONG_FUNCTIONS, faults);
}

#[test]
fn lines_fit_the_width() {
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in (1..).zip(read(&source).lines()) {
            let columns = line.chars().count();
            if columns > MAX_COLUMNS {
                faults.push(format!("{}:{number}: {columns} columns", source.display()));
            }
        }
    }
    assert_at_most(known::LONG_LINES, faults);
}

#[test]
fn ignored_tests_say_why() {
    let bare = concat!("#[", "ignore]");
    let mut faults = Vec::new();
    for source in sources() {
        for (number, line) in code_lines(&read(&source)) {
            if line.contains(bare) {
                faults.push(format!("{}:{number}: write #[ignore = \"reason\"]", source.display()));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn tests_do_not_sleep() {
    let sleep = concat!("thread::", "sleep");
    let mut faults = Vec::new();
    for source in sources() {
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number >= tests_from && line.contains(sleep) {
                faults.push(format!("{}:{number}: wait for the event instead", source.display()));
            }
        }
    }
    assert_no(faults);
}
