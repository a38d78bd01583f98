use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use pumice_calls::Call;
use pumice_device::counters::COUNTERS;
use pumice_transport::types::AsyncEventType;

use super::entry::{ExplainEntry, ExplainedKind};
use super::*;

fn entries(kind: ExplainedKind) -> &'static [ExplainEntry] {
    tables().into_iter().find(|(found, _)| *found == kind).map_or(&[], |(_, entries)| entries)
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns names and numbers of the variants of an enumeration from its source: `Name = 7,`.
fn variants(file: &str, name: &str) -> Vec<(String, i32)> {
    let text = fs::read_to_string(source(file)).expect("a source file of ours");
    let start = text.find(&format!("pub enum {name} {{")).expect("the enumeration is in this file");
    let body = text[start..].split("\n}").next().expect("split gives one piece at least");
    let variant = |line: &str| {
        let (name, number) = line.trim().strip_suffix(',')?.split_once(" = ")?;
        Some((name.to_owned(), number.parse().ok()?))
    };
    body.lines().filter_map(variant).collect()
}

fn upper_snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

#[test]
fn every_status_of_the_code_is_explained() {
    let variants = variants("transport/src/types/completion.rs", "WcStatus");
    assert!(variants.len() >= 16, "{variants:?}");
    for (name, number) in variants {
        let entry = entries(ExplainedKind::Status).iter().find(|entry| entry.number == Some(number));
        assert_eq!(entry.map(|entry| entry.name), Some(upper_snake(&name).as_str()));
    }
    // The entries have all numbers that ibv_wc_status_str names.
    let numbers: Vec<i32> = entries(ExplainedKind::Status).iter().filter_map(|entry| entry.number).collect();
    assert_eq!(numbers, (0..24).collect::<Vec<_>>());
}

#[test]
fn every_asynchronous_event_of_the_code_is_explained() {
    for event in AsyncEventType::ALL {
        let entry =
            entries(ExplainedKind::AsyncEvent).iter().find(|entry| entry.number == Some(*event as i32));
        assert_eq!(entry.map(|entry| entry.name), event.name().strip_prefix("IBV_EVENT_"));
    }
}

#[test]
fn every_event_of_the_connection_manager_is_explained() {
    let text =
        fs::read_to_string(source("verbs/capi/src/rdma_cm/constants.rs")).expect("a source file of ours");
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("c\"RDMA_CM_EVENT_")?.strip_suffix("\","))
        .collect();
    assert!(names.len() >= 19, "{names:?}");
    let explained: Vec<&str> = entries(ExplainedKind::CmEvent).iter().map(|entry| entry.name).collect();
    assert_eq!(explained, names);
    let numbers: Vec<Option<i32>> =
        entries(ExplainedKind::CmEvent).iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, (0..names.len() as i32).map(Some).collect::<Vec<_>>());
}

#[test]
fn every_counter_of_the_code_is_explained() {
    let explained: Vec<&str> = entries(ExplainedKind::Counter).iter().map(|entry| entry.name).collect();
    assert_eq!(explained, COUNTERS.map(|info| info.name));
}

/// Errnos of the operating system that the device converts before a program sees them.
const INTERNAL: [&str; 6] = ["EHOSTDOWN", "ENETDOWN", "ENOTSUP", "EISDIR", "ELOOP", "EFBIG"];

#[test]
fn every_errno_of_the_code_is_explained() {
    let crates = fs::read_dir(source("device")).expect("a folder of ours");
    let mut files: Vec<PathBuf> = crates.map(|entry| entry.expect("an entry").path().join("src")).collect();
    files.retain(|folder| folder.is_dir());
    assert!(files.len() >= 8, "the crates of the device are not where this test looks for them");
    files.extend([source("verbs/capi/src"), source("device/src")]);
    let mut used = HashSet::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(
                fs::read_dir(&path).expect("a folder of ours").map(|entry| entry.expect("an entry").path()),
            );
            continue;
        }
        // Errnos of the simulated kernel in tests reach no program.
        if path.to_string_lossy().contains("fabric/src/simulation/")
            || path.ends_with("fabric/src/system/switch.rs")
        {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source file of ours");
        for piece in text.split("libc::E").skip(1) {
            let end = piece.find(|letter: char| {
                !letter.is_ascii_uppercase() && !letter.is_ascii_digit() && letter != '_'
            });
            used.insert(format!("E{}", &piece[..end.unwrap_or(piece.len())]));
        }
    }
    used.retain(|name| {
        let others = ["EPOLL", "EFD_", "ETH_"];
        // `Elf64_…` is a structure.
        name != "E"
            && !others.iter().any(|front| name.starts_with(front))
            && !INTERNAL.contains(&name.as_str())
    });
    assert!(used.len() > 30, "{used:?}");
    let explained: HashSet<String> =
        entries(ExplainedKind::Errno).iter().map(|entry| entry.name.to_owned()).collect();
    let missing: Vec<_> = used.difference(&explained).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn all_texts_are_sentences() {
    for (kind, entries) in tables() {
        let mut names = HashSet::new();
        for entry in entries {
            assert!(names.insert(entry.name), "{kind:?} {} is there twice", entry.name);
            assert!(!entry.look_at.is_empty(), "{}", entry.name);
            assert!(entry.name == "SUCCESS" || !entry.causes.is_empty(), "{}", entry.name);
            for text in [entry.meaning].iter().chain(entry.causes).chain(entry.look_at) {
                assert!(text.ends_with('.') && text.len() > 8, "{}: {text}", entry.name);
                assert!(!text.contains("  "), "{}: {text}", entry.name);
            }
        }
    }
}

fn names(given: &str) -> Vec<String> {
    search::matches(given).into_iter().map(|(kind, entry)| entry.full_name(kind)).collect()
}

#[test]
fn names_are_found_with_and_without_their_prefix() {
    for given in ["RETRY_EXC_ERR", "IBV_WC_RETRY_EXC_ERR", "ibv_wc_retry_exc_err", " retry_exc_err "] {
        assert_eq!(names(given), ["IBV_WC_RETRY_EXC_ERR"], "{given}");
    }
    assert_eq!(names("GID_CHANGE"), ["IBV_EVENT_GID_CHANGE"]);
    assert_eq!(names("rejected"), ["RDMA_CM_EVENT_REJECTED"]);
    assert_eq!(names("einval"), ["EINVAL"]);
    assert_eq!(names("timeout"), ["timeout"]);
    assert_eq!(names("IBV_WC_TIMEOUT"), Vec::<String>::new());
}

#[test]
fn a_number_means_everything_that_has_it() {
    assert_eq!(
        names("12"),
        ["IBV_WC_RETRY_EXC_ERR", "ENOMEM", "IBV_EVENT_PKEY_CHANGE", "RDMA_CM_EVENT_MULTICAST_JOIN"]
    );
    assert_eq!(names("-22"), ["EINVAL"]);
    assert_eq!(names("110"), ["ETIMEDOUT"]);
    for number in ["1000", "-2147483648", "99999999999"] {
        assert_eq!(names(number), Vec::<String>::new(), "{number}");
    }
}

#[test]
fn names_that_are_nearly_right_are_suggested() {
    for (given, meant) in [
        ("RETRY_EXEC_ERR", "RETRY_EXC_ERR"),
        ("IBV_WC_LOC_PROT", "LOC_PROT_ERR"),
        ("einvall", "EINVAL"),
        ("rx_bad_icrcs", "rx_bad_icrc"),
        ("icrc", "rx_bad_icrc"),
        ("flush", "WR_FLUSH_ERR"),
    ] {
        let sentence = search::unknown(given);
        assert!(sentence.contains("did you mean") && sentence.contains(meant), "{given}: {sentence}");
    }
    for given in ["", "qqqqq", "1000"] {
        let sentence = search::unknown(given);
        assert!(!sentence.contains("did you mean") && sentence.contains("lists all names"), "{sentence}");
    }
}

/// Checks that words that look like calls are names of calls.
#[test]
fn calls_that_are_named_exist() {
    const NO_CALLS: [&str; 4] = ["ibv_devinfo", "ibv_rvh", "rdma_cm", "rdma_rxe"];
    for (_, entries) in tables() {
        for entry in entries {
            let texts = [entry.meaning].into_iter().chain(entry.causes.iter().chain(entry.look_at).copied());
            for word in texts.flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')) {
                let has_start = word.starts_with("ibv_") || word.starts_with("rdma_");
                let is_named = has_start && !word.ends_with('_') && !NO_CALLS.contains(&word);
                assert!(!is_named || Call::of(word).is_some(), "{}: there is no call {word}", entry.name);
            }
        }
    }
}
