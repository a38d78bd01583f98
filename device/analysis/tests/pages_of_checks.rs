//! What docs/checks says of a check is its row in the table of checks. Example, and when it is reported,
//! are the page's own. `UPDATE=1 cargo test -p pumice-analysis --test pages_of_checks` writes the rows
//! into the pages and makes those that are missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use pumice_analysis::check::{FindingKind, KINDS};

const WHY: &str = "Why it matters on real hardware";
const REMEDY: &str = "Remedy";
/// A page without a kind: the table, and what checks found in programs of others.
const OTHERS: [&str; 2] = ["README", "found"];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/checks")
}

/// The page of a kind: its row, and the sections of this page that are no part of the row, where they are.
fn page_of(kind: &FindingKind, page: &str) -> String {
    let mut text = format!("# {}\n{}\n", kind.name, kind.what);
    let mut sections: Vec<(&str, &str)> = page
        .split("\n## ")
        .skip(1)
        .map(|section| section.split_once('\n').unwrap_or((section, "")))
        .collect();
    if sections.is_empty() {
        sections = vec![(WHY, ""), ("Example", "```c\n```"), (REMEDY, "")];
    }
    for (title, own) in sections {
        let body = match title {
            WHY => kind.why,
            REMEDY => kind.remedy,
            _ => own.trim_end(),
        };
        text += &format!("\n## {title}\n{body}\n");
    }
    text
}

/// The table of the kinds, in which each has the line of its row.
fn table_of(list: &str) -> String {
    let line = |line: &str| {
        let kind = KINDS.iter().find(|kind| line.starts_with(&format!("| [{0}]({0}.md) |", kind.name)));
        kind.map_or_else(|| line.to_owned(), |kind| format!("| [{0}]({0}.md) | {1} |", kind.name, kind.what))
    };
    list.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

#[test]
fn every_kind_has_a_page_of_its_row_and_every_page_a_kind() {
    let update = std::env::var_os("UPDATE").is_some();
    let pages = KINDS.iter().map(|kind| (kind.name, Some(*kind))).chain([("README", None)]);
    for (name, kind) in pages {
        let path = folder().join(format!("{name}.md"));
        let page = fs::read_to_string(&path).unwrap_or_default();
        let wanted = kind.map_or_else(|| table_of(&page), |kind| page_of(kind, &page));
        if update {
            fs::write(&path, &wanted).unwrap();
        } else {
            let first = wanted.lines().zip(page.lines().chain(std::iter::repeat(""))).find(|(a, b)| a != b);
            assert!(
                page == wanted,
                "docs/checks/{name}.md is not what the table of checks says (first difference: {first:?}): \
                 UPDATE=1 cargo test -p pumice-analysis --test pages_of_checks writes it"
            );
        }
        let text = fs::read_to_string(&path).unwrap();
        match kind {
            Some(_) => assert!(text.contains("```c\n"), "{name}: without an example"),
            None => KINDS
                .iter()
                .for_each(|kind| assert!(text.contains(&format!("| [{}](", kind.name)), "{}", kind.name)),
        }
    }
    let known: BTreeSet<&str> = KINDS.iter().map(|kind| kind.name).chain(OTHERS).collect();
    for page in fs::read_dir(folder()).unwrap() {
        let name = page.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned();
        assert!(known.contains(name.as_str()), "docs/checks/{name}.md is the page of no kind");
    }
}
