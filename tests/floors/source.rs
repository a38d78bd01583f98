//! Source files line by line.

use std::path::Path;

/// Where a file's tests begin, counted from 1: at its test module, or at once in a file of tests.
pub(super) fn first_test_line(source: &Path, text: &str) -> usize {
    let stem = source.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let in_tests_folder = source.components().any(|part| part.as_os_str() == "tests");
    if in_tests_folder || stem == "tests" || stem.ends_with("_tests") {
        return 1;
    }
    // An attribute on a single import or on `mod tests;` does not begin a module of tests.
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = |line: &str| line.starts_with("mod ") && line.ends_with('{');
    let module = |pair: &[&str]| matches!(pair, ["#[cfg(test)]", next] if begins(next));
    lines.windows(2).position(module).map_or(usize::MAX, |index| index + 1)
}

/// Lines with their numbers from 1, without comments and without the contents of string literals
/// that begin and end on the line.
pub(super) fn code_lines(text: &str) -> Vec<(usize, String)> {
    let strip = |line: &str| {
        let mut code = String::new();
        let mut in_string = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if in_string => {
                    characters.next();
                }
                '"' => in_string = !in_string,
                '\'' if !in_string && characters.peek() == Some(&'"') => {
                    characters.next();
                }
                '/' if !in_string && characters.peek() == Some(&'/') => break,
                _ if in_string => {}
                _ => code.push(character),
            }
        }
        code.trim().to_owned()
    };
    text.lines().enumerate().map(|(index, line)| (index + 1, strip(line))).collect()
}

/// Whether code (without comments and strings) uses the keyword.
pub(super) fn has_unsafe(code: &str) -> bool {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
}

/// Whether a SAFETY comment stands on the line (from 1) or above it: reached over other comments,
/// attributes and the beginning of the same statement, but not over an empty line or a finished one.
pub(super) fn safety_comment_above(lines: &[&str], number: usize) -> bool {
    let mut index = number - 1;
    loop {
        let line = lines.get(index).map_or("", |line| line.trim());
        if line.contains("SAFETY:") {
            return true;
        }
        let Some(above) = index.checked_sub(1) else { return false };
        let above_line = lines.get(above).map_or("", |line| line.trim());
        let comment = above_line.starts_with("//") || above_line.starts_with("#[");
        if above_line.is_empty() || (!comment && above_line.ends_with([';', '}'])) {
            return false;
        }
        index = above;
    }
}

#[test]
fn the_reader_of_sources_skips_comments_and_knows_unsafe() {
    let text = "// unsafe { in words }\nlet a = 1; // unsafe {\nlet b = \"unsafe {\";\nunsafe { f() }\n";
    let found: Vec<usize> =
        code_lines(text).into_iter().filter(|(_, line)| has_unsafe(line)).map(|(n, _)| n).collect();
    assert_eq!(found, [4]);
    assert!(!has_unsafe("#![forbid(unsafe_code)]"));
    assert!(has_unsafe("pub unsafe fn f() {}"));
    let lines = ["// SAFETY: because", "// of that.", "let x = unsafe { y };", "", "unsafe { z };"];
    assert!(safety_comment_above(&lines, 3));
    assert!(!safety_comment_above(&lines, 5));
}
