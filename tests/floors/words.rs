//! Words that say less than the reader needs, in documents, comments, help texts and messages.

use std::path::{Path, PathBuf};

use super::tree::{read, tracked_files};
use super::{assert_at_most, assert_no, known};

/// Kinds of text in which people read sentences, by the ends of their names.
const TEXTS: [&str; 7] = ["md", "rs", "c", "h", "sh", "js", "awk"];

/// Names no actor: all combinations of these halves, such as the one of "any" and "one".
const HALVES: [(&[&str], &[&str]); 2] =
    [(&["no", "any", "some", "every"], &["body", "one"]), (&["who", "what", "which"], &["ever"])];

/// Words of documents that can be left out, or that praise instead of saying what is there.
const EMPTY: [&str; 15] = [
    "actually",
    "basically",
    "blazing",
    "effortless",
    "effortlessly",
    "leverage",
    "leverages",
    "obviously",
    "powerful",
    "really",
    "seamless",
    "seamlessly",
    "simply",
    "utilise",
    "utilize",
];

fn is_unnamed(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let is_of = |(firsts, lasts): &(&[&str], &[&str])| {
        firsts.iter().any(|first| word.strip_prefix(first).is_some_and(|rest| lasts.contains(&rest)))
    };
    HALVES.iter().any(is_of)
}

fn has_sentences(file: &Path) -> bool {
    let extension = file.extension().map(|extension| extension.to_string_lossy().into_owned());
    let is_script = file.starts_with("scripts") && extension.is_none();
    // What others wrote stays as they wrote it.
    let is_foreign = file.starts_with("tests/golden") || file.starts_with("fuzz/seeds");
    !is_foreign && (is_script || extension.is_some_and(|extension| TEXTS.contains(&extension.as_str())))
}

#[test]
fn sentences_name_the_actor() {
    let is_of_a_word = |c: char| c.is_alphanumeric() || c == '_';
    let files: Vec<PathBuf> = tracked_files().into_iter().filter(|file| has_sentences(file)).collect();
    let mut faults = Vec::new();
    for file in &files {
        for (number, line) in (1..).zip(read(file).lines()) {
            for word in line.split(|c| !is_of_a_word(c)).filter(|word| is_unnamed(word)) {
                let file = file.display();
                faults.push(format!(
                    "{file}:{number}: \"{word}\": write which program, process, user, reader, value or case"
                ));
            }
        }
    }
    assert_at_most(known::UNNAMED, faults);
}

#[test]
fn documents_have_no_empty_words() {
    let is_document = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let mut faults = Vec::new();
    for file in tracked_files().into_iter().filter(is_document).filter(|file| has_sentences(file)) {
        for (number, line) in (1..).zip(read(&file).lines()) {
            let words = line.split(|c: char| !c.is_alphanumeric()).map(str::to_ascii_lowercase);
            for word in words.filter(|word| EMPTY.contains(&word.as_str())) {
                faults.push(format!("{}:{number}: leave \"{word}\" out", file.display()));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn words_without_an_actor_are_known() {
    for word in
        [concat!("Who", "ever"), concat!("some", "body"), concat!("every", "one"), concat!("no", "body")]
    {
        assert!(is_unnamed(word), "{word}");
    }
    for word in ["none", "one", "however", "somewhere", "nobody_waits", "ever"] {
        assert!(!is_unnamed(word), "{word}");
    }
}
