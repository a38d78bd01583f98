//! What the processes that share a port have counted, told to processes of the same user that ask.
//!
//! A process is asked through the socket that forwarded packets come to, and answers with lines of a name and
//! a number. Nothing is written anywhere, and nothing happens while no process asks.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pumice_events::counters::Counters;

use super::asking::{Question, answers};
use super::member_index::MemberIndex;
use super::{ShareError, ShareStats, Sharer};

/// The first line of an answer, with the number of the member that answers.
const GREETING: &str = "pumice-stat-1";
/// The longest answer, in bytes and in lines.
const MAX_BYTES: usize = 16 << 10;
const MAX_LINES: usize = 256;

/// What one process has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReport {
    /// The process.
    pub sharer: Sharer,
    /// Its counters by name: those of the device ([`COUNTERS`](pumice_events::counters::COUNTERS)), and
    /// `share_*` about forwarding between processes. None: it did not answer in time, because it is stopped,
    /// or exits.
    pub counters: Option<Vec<(String, u64)>>,
}

/// Asks all processes that share a UDP port of this network namespace. `folder` is that of
/// [`ShareConfig`](super::ShareConfig). Takes as long as the slowest, and at most `patience` for each of this
/// user's folders.
///
/// # Errors
/// The registry cannot be opened or read; no socket is to be had.
pub fn reports(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
) -> Result<Vec<ProcessReport>, ShareError> {
    let question = Question {
        is_asked: &|_| true,
        ask: &|asker, registry, member| {
            // It is asked again if this is lost.
            let _ = asker.ask(registry, member);
        },
        read: &decode,
        max_bytes: MAX_BYTES,
    };
    let all = answers(port, folder, patience, &question)?;
    Ok(all.into_iter().map(|(sharer, counters)| ProcessReport { sharer, counters }).collect())
}

/// The answer of `member`.
pub(super) fn encode(member: MemberIndex, sharing: &ShareStats, device: Option<&Counters>) -> Vec<u8> {
    let mut text = format!("{GREETING} {member}\n");
    let mut line = |name: &str, value: u64| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name} {value}");
    };
    for (info, value) in device.map(Counters::snapshot).into_iter().flatten() {
        line(info.name, value);
    }
    line("share_forwarded", sharing.forwarded);
    line("share_forward_dropped", sharing.forward_dropped);
    line("share_taken_over", sharing.taken_over);
    line("share_rejected", sharing.rejected);
    line("share_rerouted", sharing.rerouted);
    line("share_mended", sharing.repaired);
    text.into_bytes()
}

/// Member and counters of an answer; nothing if it is none. Unknown names are kept: the other process
/// may be newer.
fn decode(bytes: &[u8]) -> Option<(MemberIndex, Vec<(String, u64)>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let number = lines.next()?.strip_prefix(GREETING)?.trim_start().parse().ok()?;
    let member = MemberIndex::of_number(number)?;
    let mut counters = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(' ')?;
        let sound = (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !sound || counters.len() >= MAX_LINES {
            return None;
        }
        counters.push((name.to_owned(), value.parse().ok()?));
    }
    Some((member, counters))
}

impl ProcessReport {
    /// What its socket is bound to.
    pub fn address(&self) -> IpAddr {
        self.sharer.address
    }

    /// The value of a counter; None if the process did not answer or does not count that.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.counters.as_ref()?.iter().find(|(other, _)| other == name).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::host::Counter;

    use super::*;

    fn nth(number: u16) -> MemberIndex {
        MemberIndex::of_number(number).unwrap()
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let counters = Counters::new();
        counters.add(Counter::RxBadIcrc, 7);
        let sharing = ShareStats { taken_over: 3, ..ShareStats::default() };
        let bytes = encode(nth(0x309), &sharing, Some(&counters));
        assert!(bytes.len() < MAX_BYTES);
        let (member, read) = decode(&bytes).unwrap();
        assert_eq!((member, read.len()), (nth(0x309), Counter::COUNT + 6));
        assert!(read.contains(&("rx_bad_icrc".to_owned(), 7)));
        assert!(read.contains(&("share_taken_over".to_owned(), 3)));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let many = format!("{GREETING} 1\n{}", "a 1\n".repeat(MAX_LINES + 1));
        let long = format!("{GREETING} 1\n{} 1\n", "a".repeat(65));
        for text in
            ["", "pumice", "pumice-stat-1 70000\n", "pumice-stat-1 1\nname\n", "pumice-stat-1 1\nA 1\n"]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(decode(many.as_bytes()), None);
        assert_eq!(decode(long.as_bytes()), None);
        assert_eq!(decode(b"pumice-stat-1 1\na -1\n"), None);
        assert_eq!(decode(&[0xff, 0xfe]), None);
        assert_eq!(decode(b"pumice-stat-1 4\n"), Some((nth(4), Vec::new())));
    }
}
