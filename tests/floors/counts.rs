//! What `scripts/counts` prints.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::crates::{PACKAGES, main_file};
use super::functions::{Function, functions};
use super::graph::{circles, graph};
use super::modules::Modules;
use super::source::first_test_line;
use super::token::tokens;
use super::tree::{files, read, sources};

/// Names of one operation, which say how many files know it.
const ONE_OPERATION: [&str; 3] = ["atomic_write", "AtomicWrite", "ATOMIC_WRITE"];

#[test]
fn the_counts_are_printed() {
    println!(
        "\n{:16} {:>7} {:>7} {:>7} {:>8} {:>9} {:>7}",
        "", "code", "unsafe", "SAFETY", "circles", "in them", "> 110"
    );
    println!(
        "{:16} {:>7} {:>7} {:>7} {:>8} {:>9} {:>7}",
        "crate", "lines", "blocks", "repeat", "of files", "(files)", "columns"
    );
    let mut crates = 0;
    for package in PACKAGES {
        let sources = sources_of(package);
        let texts: Vec<String> = sources.iter().map(read).collect();
        let found = main_file(package).map(|main| circles(&graph(&Modules::read(&main, false))));
        let found = found.unwrap_or_default();
        println!(
            "{:16} {:7} {:7} {:7} {:8} {:9} {:7}",
            if package.is_empty() { "pumice (src …)" } else { package },
            texts.iter().map(|text| code_lines(text)).sum::<usize>(),
            texts.iter().map(|text| unsafe_blocks(text)).sum::<usize>(),
            repeated_safety_comments(&texts),
            found.len(),
            found.iter().map(Vec::len).sum::<usize>(),
            texts.iter().map(|text| long_lines(text)).sum::<usize>(),
        );
        crates += 1;
    }
    print_longest();
    let knowing = files_that_know_one_operation();
    println!("files of src folders that name ATOMIC WRITE: {}", knowing.len());
    assert_eq!(crates, PACKAGES.len());
}

/// The sources of a package, without those of packages inside it.
fn sources_of(package: &str) -> Vec<PathBuf> {
    let inside = |other: &&&str| **other != package && other.starts_with(package) && !other.is_empty();
    let inner: Vec<&&str> = PACKAGES.iter().filter(inside).collect();
    let all = if package.is_empty() { sources() } else { files(package, "rs") };
    all.into_iter().filter(|file| !inner.iter().any(|folder| file.starts_with(folder))).collect()
}

/// Lines that are neither empty nor a comment.
fn code_lines(text: &str) -> usize {
    let mut lines: Vec<usize> = tokens(text).iter().map(|token| token.line).collect();
    lines.dedup();
    lines.len()
}

fn unsafe_blocks(text: &str) -> usize {
    text.lines().filter(|line| line.contains("unsafe {") || line.contains("unsafe impl")).count()
}

fn long_lines(text: &str) -> usize {
    text.lines().filter(|line| line.chars().count() > 110).count()
}

/// SAFETY comments whose words another one of the crate has as well.
fn repeated_safety_comments(texts: &[String]) -> usize {
    let mut counts = BTreeMap::<String, usize>::new();
    for text in texts {
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            let Some((_, words)) = line.split_once("// SAFETY:") else { continue };
            let mut words = words.trim().to_owned();
            while let Some(more) = lines.peek().and_then(|line| line.strip_prefix("// ")) {
                words = format!("{words} {more}");
                lines.next();
            }
            *counts.entry(words).or_default() += 1;
        }
    }
    counts.values().filter(|count| **count > 1).sum()
}

fn print_longest() {
    let mut longest: Vec<(Function, String)> = Vec::new();
    let mut file = (0, String::new());
    for source in sources() {
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        let name = source.display().to_string();
        let found = functions(&tokens(&text)).into_iter().filter(|function| function.line < tests_from);
        longest.extend(found.map(|function| (function, name.clone())));
        file = file.max((text.lines().count(), name));
    }
    longest.sort_by_key(|(function, _)| std::cmp::Reverse(function.lines));
    if let Some((function, name)) = longest.first() {
        println!("\nlongest function, tests apart: {} with {} lines ({name})", function.name, function.lines);
    }
    let above = |lines: usize| longest.iter().filter(|(function, _)| function.lines > lines).count();
    println!("functions of more than 50 lines: {}, of more than 70: {}", above(50), above(70));
    println!("longest file: {} with {} lines", file.1, file.0);
}

fn files_that_know_one_operation() -> Vec<PathBuf> {
    let in_src = |file: &PathBuf| file.components().any(|part| part.as_os_str() == "src");
    let knows = |file: &PathBuf| ONE_OPERATION.iter().any(|name| read(file).contains(name));
    sources().into_iter().filter(in_src).filter(knows).collect()
}
