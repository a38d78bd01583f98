//! Reads OpenMetrics text by its rules, and says which one is broken. It shares nothing with the program.

use std::collections::{BTreeMap, BTreeSet};

/// Labels of a sample, by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// A family as it was read.
#[derive(Debug, Default)]
pub(crate) struct ParsedFamily {
    pub(crate) kind: String,
    pub(crate) samples: Vec<(Labels, f64)>,
}

/// Reads a whole text.
///
/// # Panics
/// It breaks a rule.
pub(crate) fn read(text: &str) -> BTreeMap<String, ParsedFamily> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF and a line feed");
    let mut families = BTreeMap::<String, ParsedFamily>::new();
    let mut seen = BTreeSet::new();
    let mut current = String::new();
    for line in body.lines() {
        assert!(!line.is_empty() && !line.ends_with(' '), "an empty line, or a space at its end: {line:?}");
        let Some(meta) = line.strip_prefix("# ") else {
            let family = families.get_mut(&current).expect("samples stand below their family");
            let (name, labels, value) = sample(line);
            let end = match family.kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert_eq!(name, format!("{current}{end}"), "samples of a {}", family.kind);
            assert!(family.kind != "counter" || value >= 0.0, "{line}");
            assert!(family.kind != "info" || value == 1.0, "{line}");
            assert!(seen.insert((name, labels.clone())), "it comes twice: {line}");
            family.samples.push((labels, value));
            continue;
        };
        let words: Vec<&str> = meta.splitn(3, ' ').collect();
        let [what, name, rest] = words[..] else { panic!("{line}") };
        if what == "TYPE" {
            assert!(["counter", "gauge", "info"].contains(&rest), "{line}");
            let family = ParsedFamily { kind: rest.to_owned(), ..ParsedFamily::default() };
            assert!(families.insert(name.to_owned(), family).is_none(), "a second {name}");
            current = name.to_owned();
        } else {
            assert_eq!(name, current, "{line}");
            assert!(what == "HELP" || what == "UNIT" && name.ends_with(&format!("_{rest}")), "{line}");
        }
    }
    families
}

fn sample(line: &str) -> (String, Labels, f64) {
    let name_length = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').expect("a value");
    let (name, mut rest) = line.split_at(name_length);
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, behind) = rest.split_once("=\"").expect("a label");
            let (value, behind) = quoted(behind);
            assert!(labels.insert(label.to_owned(), value).is_none(), "two labels {label}: {line}");
            match behind.strip_prefix(',') {
                Some(next) => rest = next,
                None => {
                    rest = behind.strip_prefix('}').expect("the end of the labels");
                    break;
                }
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
    (name.to_owned(), labels, value)
}

/// What stands before the closing quote, and what stands behind it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next().expect("an escaped character").1 {
                'n' => '\n',
                other @ ('\\' | '"') => other,
                other => panic!("no such escape: {other}"),
            }),
            other => value.push(other),
        }
    }
    panic!("no closing quote: {text}");
}
