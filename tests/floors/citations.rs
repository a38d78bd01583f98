//! Citations: comments that say which rule the next line of code realises, and where the rule is written.
//!
//! A citation is a line `//= ` with the source, and below it one or more lines `//| ` with the rule in one
//! sentence. `python3 docs/statements.py page` prints the list of all of them, which the book has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::assert_no;
use super::tree::{files, read};

/// Where code cites.
const FOLDERS: [&str; 3] = ["transport", "device", "verbs"];
/// Fewer mean that citations were lost.
const MIN_CITATIONS: usize = 300;
/// A source that is cited more often than that names no single rule.
const MAX_OF_ONE: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Citation {
    source: String,
    rule: String,
    /// The line below the rule.
    code: String,
    line: usize,
}

/// The citations of a file, and the lines of rules that no source stands above.
fn citations(text: &str) -> (Vec<Citation>, Vec<usize>) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let (mut found, mut stray) = (Vec::new(), Vec::new());
    let mut index = 0;
    while let Some(line) = lines.get(index) {
        let number = index + 1;
        index += 1;
        let Some(source) = line.strip_prefix("//= ") else {
            if line.starts_with("//|") || line.starts_with("//=") {
                stray.push(number);
            }
            continue;
        };
        let mut rule = Vec::new();
        while let Some(part) = lines.get(index).and_then(|line| line.strip_prefix("//| ")) {
            rule.push(part);
            index += 1;
        }
        let code = lines.get(index).copied().unwrap_or_default().to_owned();
        found.push(Citation { source: source.to_owned(), rule: rule.join(" "), code, line: number });
    }
    (found, stray)
}

/// Each source file with its citations.
fn all() -> Vec<(PathBuf, Citation)> {
    let sources = FOLDERS.iter().flat_map(|folder| files(folder, "rs"));
    let of = |file: PathBuf| citations(&read(&file)).0.into_iter().map(move |found| (file.clone(), found));
    sources.flat_map(of).collect()
}

/// Kinds of sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CitationKind {
    Statement(u32),
    Ibta,
    Man,
    Linux,
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Numbers with points between them.
fn is_numbers(text: &str) -> bool {
    text.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A section (9.7.5), one of an annex (A17.4.3), or a compliance statement (C9-57, o10-37.2.1, CA17-2).
fn is_rule_of_ibta(text: &str) -> bool {
    let is_section = |text: &str| text.contains('.') && is_numbers(text);
    let is_compliance = || {
        let rest = ["CA", "oA", "C", "o"].iter().find_map(|begin| text.strip_prefix(begin));
        let parts = rest.and_then(|rest| rest.split_once('-'));
        parts.is_some_and(|(chapter, number)| is_numbers(chapter) && is_numbers(number))
    };
    is_section(text) || text.strip_prefix('A').is_some_and(is_section) || is_compliance()
}

/// A file of C and a function in it.
fn is_function_of_linux(text: &str) -> bool {
    let Some((file, function)) = text.split_once('#') else { return false };
    let name = file.strip_suffix(".c").or_else(|| file.strip_suffix(".h"));
    name.is_some_and(is_word) && is_word(function)
}

/// What a source is, if its form is right.
fn kind(source: &str) -> Option<CitationKind> {
    if let Some(number) = source.strip_prefix("statement:") {
        let number: u32 = number.parse().ok().filter(|parsed: &u32| parsed.to_string() == number)?;
        return Some(CitationKind::Statement(number));
    }
    if let Some(rule) = source.strip_prefix("ibta-1.5#") {
        return is_rule_of_ibta(rule).then_some(CitationKind::Ibta);
    }
    if let Some(page) = source.strip_prefix("man:") {
        return is_word(page).then_some(CitationKind::Man);
    }
    is_function_of_linux(source.strip_prefix("linux:")?).then_some(CitationKind::Linux)
}

/// One sentence: it begins with a capital letter and has one full stop, at its end.
fn is_sentence(rule: &str) -> bool {
    let begins = rule.starts_with(|c: char| c.is_uppercase());
    begins && rule.ends_with('.') && !rule.ends_with("..") && !rule.contains(". ")
}

/// What is wrong with the form of a citation.
fn fault(citation: &Citation) -> Option<&'static str> {
    if kind(&citation.source).is_none() {
        return Some("is of no known kind, or has not its form");
    }
    if citation.rule.is_empty() {
        return Some("has no line //| with the rule");
    }
    if !is_sentence(&citation.rule) {
        return Some("has a rule that is not one sentence with a full stop");
    }
    // Another citation may stand above the same line.
    let is_code = !citation.code.is_empty() && !citation.code.starts_with("//");
    (!is_code && !citation.code.starts_with("//= ")).then_some("does not stand above a line of code")
}

/// The numbers and names of the tests of statements.
fn tests() -> BTreeMap<u32, BTreeSet<String>> {
    let mut tests = BTreeMap::<u32, BTreeSet<String>>::new();
    for source in FOLDERS.iter().flat_map(|folder| files(folder, "rs")) {
        for line in read(source).lines() {
            let Some(name) = line.trim_start().strip_prefix("fn ") else { continue };
            let Some(rest) = name.strip_prefix("statement_") else { continue };
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
            let name = name.split('(').next().unwrap_or_default();
            if let Some(number) = digits.and_then(|digits| digits.parse().ok()) {
                tests.entry(number).or_default().insert(name.to_owned());
            }
        }
    }
    tests
}

#[test]
fn citations_have_their_form() {
    let mut faults = Vec::new();
    for source in FOLDERS.iter().flat_map(|folder| files(folder, "rs")) {
        let (found, stray) = citations(&read(&source));
        let file = source.display();
        faults.extend(stray.iter().map(|line| format!("{file}:{line}: this belongs below a line //= ")));
        for citation in found {
            if let Some(fault) = fault(&citation) {
                faults.push(format!("{file}:{}: {} {fault}", citation.line, citation.source));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn citations_are_many_and_no_source_is_cited_often() {
    let all = all();
    assert!(all.len() >= MIN_CITATIONS, "{} citations are left", all.len());
    let mut counts = BTreeMap::<&str, usize>::new();
    for (_, citation) in &all {
        *counts.entry(&citation.source).or_default() += 1;
    }
    let often = counts.iter().filter(|(_, count)| **count > MAX_OF_ONE);
    assert_no(often.map(|(source, count)| format!("{source} is cited {count} times")).collect());
}

#[test]
fn statements_that_code_cites_have_tests_and_the_other_way_round() {
    let tests = tests();
    let mut cited = BTreeSet::new();
    let mut faults = Vec::new();
    for (file, citation) in all() {
        let Some(CitationKind::Statement(number)) = kind(&citation.source) else { continue };
        cited.insert(number);
        if !tests.contains_key(&number) {
            let (file, line) = (file.display(), citation.line);
            faults.push(format!("{file}:{line}: there is no test statement_{number:02}_…"));
        }
    }
    let alone = tests.keys().filter(|number| !cited.contains(number));
    faults.extend(alone.map(|number| format!("no code cites statement:{number}, which a test checks")));
    assert_no(faults);
    assert!(tests.len() > 40, "{} statements have tests", tests.len());
}

#[test]
fn forms_of_citations_are_distinguished() {
    let is_right = |source: &str| kind(source).is_some();
    for source in [
        "ibta-1.5#C9-57",
        "ibta-1.5#C10-97.2.1",
        "ibta-1.5#o10-37.2",
        "ibta-1.5#CA17-24",
        "ibta-1.5#9.7.5.2.8",
        "ibta-1.5#A17.4.3",
        "man:ibv_poll_cq",
        "linux:rxe_resp.c#check_rkey",
        "linux:ib_verbs.h#rdma_calc_flow_label",
        "statement:12",
    ] {
        assert!(is_right(source), "{source}");
    }
    for source in [
        "ibta#C9-57",
        "ibta-1.5#9",
        "ibta-1.5#C9",
        "ibta-1.5#A17",
        "ibta-1.5#9..1",
        "man:",
        "man:ibv_poll_cq(3)",
        "linux:rxe_resp.c",
        "linux:rxe_resp#check_rkey",
        "linux:rxe_resp.c#",
        "statement:07",
        "statement:x",
        "rfc:768",
    ] {
        assert!(!is_right(source), "{source}");
    }
    assert_eq!(kind("statement:12"), Some(CitationKind::Statement(12)));
}

#[test]
fn citations_are_found_with_their_rules() {
    let text = "    //= man:ibv_poll_cq\n    //| One\n    //| sentence.\n    let a = 1;\n//| lost\n";
    let (found, stray) = citations(text);
    let source = String::from("man:ibv_poll_cq");
    let (rule, code) = (String::from("One sentence."), String::from("let a = 1;"));
    assert_eq!((found, stray), (vec![Citation { source, rule, code, line: 1 }], vec![5]));
    let citation = |rule: &str, code: &str| Citation {
        source: "statement:1".to_owned(),
        rule: rule.to_owned(),
        code: code.to_owned(),
        line: 1,
    };
    assert_eq!(fault(&citation("The timer is 4.096 µs long.", "f();")), None);
    assert_eq!(fault(&citation("A rule.", "//= statement:2")), None);
    for wrong in [
        citation("", "f();"),
        citation("A rule", "f();"),
        citation("a rule.", "f();"),
        citation("One. Two.", "f();"),
        citation("A rule.", ""),
        citation("A rule.", "// a comment"),
    ] {
        assert!(fault(&wrong).is_some(), "{wrong:?}");
    }
}
