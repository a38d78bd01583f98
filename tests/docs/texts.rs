//! Blocks that are read or compiled: TOML, Rust, C.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use pumice_device::faults::FaultPlan;
use pumice_device::port::Topology;
use pumice_device::profile::Profile;
use pumice_device::settings::DEFAULT_SEED;

use crate::blocks::{Block, blocks, documents, root};

fn blocks_in(language: &str) -> Vec<Block> {
    let all = documents().into_iter().flat_map(|document| blocks(&document));
    all.filter(|block| block.language == language && block.excuse().is_none()).collect()
}

#[test]
fn toml_of_documents_is_read() {
    let mut faults = Vec::new();
    for block in blocks_in("toml") {
        let kinds: Vec<&str> = block.remark.split(';').map(str::trim).collect();
        let read = if kinds.contains(&"profile") {
            Profile::parse(&block.text).map(drop)
        } else if kinds.contains(&"plan") {
            FaultPlan::parse(&block.text, DEFAULT_SEED).map(drop).map_err(|error| error.to_string())
        } else if kinds.contains(&"topology") {
            Topology::parse(&block.text).map(drop)
        } else {
            Err("say in a comment before it whether it is a profile, a plan or a topology".to_owned())
        };
        faults.extend(read.err().map(|problem| format!("{}: {problem}", block.location())));
    }
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
}

/// Code without what differs between a document, where lines may be long, and a program that rustfmt has
/// formatted: comments, spaces, and commas before a closing parenthesis.
fn bare(text: &str) -> String {
    let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
    let bare: String = code.flat_map(|line| line.chars().filter(|c| !c.is_whitespace())).collect();
    bare.replace(",)", ")").replace(",}", "}")
}

fn rust_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn rust_of_documents_stands_in_what_is_compiled() {
    let mut files = Vec::new();
    for folder in ["verbs/tests", "verbs/examples", "verbs/perf/tests"] {
        rust_sources(&root().join(folder), &mut files);
    }
    let compiled: Vec<String> = files.iter().map(|file| bare(&fs::read_to_string(file).unwrap())).collect();
    let mut faults = Vec::new();
    for block in blocks_in("rust") {
        let wanted = bare(&block.text);
        if !compiled.iter().any(|code| code.contains(&wanted)) {
            faults.push(format!(
                "{}: no test or example in verbs has these lines, one after the other: add them to \
                 verbs/perf/tests/documents.rs",
                block.location()
            ));
        }
    }
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
}

#[test]
fn the_page_of_shuffled_schedules_has_the_table_of_what_is_promised() {
    let page = fs::read_to_string(root().join("docs/shuffle.md")).expect("the page is there");
    let table = pumice_transport::types::guarantees_as_markdown();
    assert!(page.contains(&table), "docs/shuffle.md has to have:\n{table}");
}

#[test]
fn programs_of_the_course_are_the_files_beside_its_pages() {
    let mut shown = BTreeSet::new();
    for block in blocks_in("c").iter().filter(|block| block.document.starts_with("docs/course")) {
        let name = block.said("file").expect("the file that it is a copy of");
        let file = block.document.with_file_name(name);
        let source_text = fs::read_to_string(root().join(&file)).unwrap();
        assert_eq!(block.text, source_text, "{} and {} differ", block.location(), file.display());
        shown.insert(name.to_owned());
    }
    let files = fs::read_dir(root().join("docs/course")).unwrap().map(|entry| entry.unwrap().path());
    let programs = files.filter(|file| file.extension().is_some_and(|end| end == "c"));
    let names: BTreeSet<String> =
        programs.map(|file| file.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect();
    assert!(!names.is_empty() && names.is_subset(&shown), "{names:?} are not all in {shown:?}");
}

/// Words of a text that begin so.
fn words<'a>(text: &'a str, beginnings: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let all = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    all.filter(move |word| beginnings.iter().any(|beginning| word.starts_with(beginning)))
}

/// Blocks of C that are no files of their page are fragments, many of them wrong on purpose; the whole
/// programs are those of `tests/check`. Here: what they call exists.
#[test]
fn names_in_fragments_of_c_are_those_of_the_headers() {
    let folder = Path::new("/usr/include");
    let headers = ["infiniband/verbs.h", "infiniband/verbs_api.h", "rdma/rdma_cma.h"];
    let mut known = BTreeSet::new();
    let texts: Vec<String> =
        headers.iter().filter_map(|header| fs::read_to_string(folder.join(header)).ok()).collect();
    let beginnings = ["ibv_", "IBV_", "rdma_", "RDMA_CM_"];
    known.extend(texts.iter().flat_map(|text| words(text, &beginnings)));
    if known.is_empty() {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: apt-get install libibverbs-dev librdmacm-dev");
        return;
    }
    let mut faults = Vec::new();
    for block in blocks_in("c").iter().filter(|block| block.said("file").is_none()) {
        let unknown = words(&block.text, &beginnings).filter(|word| !known.contains(word));
        faults.extend(unknown.map(|word| format!("{}: the headers have no {word}", block.location())));
    }
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
}
