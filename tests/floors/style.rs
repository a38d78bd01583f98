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
/// The same for a function that is one dispatch table: a match is not cut, so that the compiler names each
/// missing arm.
const MAX_TABLE_LINES: usize = 200;

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
            let most = match function.line >= tests_from {
                true => MAX_TEST_LINES,
                false if is_table(&text, function.line, function.lines) => MAX_TABLE_LINES,
                false => MAX_FUNCTION_LINES,
            };
            if function.lines > most {
                let (name, line, lines) = (&function.name, function.line, function.lines);
                faults
                    .push(format!("{}:{line}: {name} has {lines} lines (at most {most})", source.display()));
            }
        }
    }
    assert_at_most(known::LONG_FUNCTIONS, faults);
}

/// Reports whether a function of so many lines, from this one on, is a dispatch table: one match and nothing
/// else.
fn is_table(text: &str, line: usize, lines: usize) -> bool {
    let body = text.lines().skip(line - 1).take(lines).skip_while(|line| !line.ends_with('{')).skip(1);
    let body: Vec<&str> = body.collect();
    let Some((first, rest)) = body.split_first() else { return false };
    let indent = first.len() - first.trim_start().len();
    let ends: Vec<usize> = (0..rest.len())
        .filter(|at| {
            rest[*at].starts_with('}') || rest[*at].trim_end() == format!("{}}}", " ".repeat(indent))
        })
        .collect();
    first.trim_start().starts_with("match ") && ends.first() == rest.len().checked_sub(2).as_ref()
}

#[test]
fn a_function_of_one_match_is_a_table() {
    let table = "fn f(x: u8) -> u8 {\n    match x {\n        0 => 1,\n        _ => 2,\n    }\n}\n";
    assert!(is_table(table, 1, 6));
    let steps = "fn f(x: u8) -> u8 {\n    match x {\n        _ => 2,\n    };\n    3\n}\n";
    assert!(!is_table(steps, 1, 6));
    let method = "    fn f(\n        &self,\n    ) -> u8 {\n        match self.0 {\n            \
                  _ => 2,\n        }\n    }\n";
    assert!(is_table(method, 1, 7));
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
