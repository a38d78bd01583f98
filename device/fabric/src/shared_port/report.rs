//! Reports of the processes that share a port: their counters, for processes of the same user that ask.
//!
//! A process is asked through the socket that receives forwarded packets, and answers with lines of a name
//! and a number. Nothing is written to a file, and there is no work while no process asks.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pumice_model::counters::Counters;

use super::SharingStats;
use crate::members::error::SharingError;
use crate::members::member_index::MemberIndex;
use crate::queries::{SingleQuery, collect_replies};
use crate::registry::port_processes::PortProcess;

/// First line of an answer, followed by the number of the member that answers.
const GREETING: &str = "pumice-stat-1";
/// Largest length of an answer, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Largest number of lines of an answer.
const MAX_LINES: usize = 256;

/// The counters of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessReport {
    /// Process that was asked.
    pub sharer: PortProcess,
    /// Counters by name: those of the device ([`COUNTERS`](pumice_model::counters::COUNTERS)), and `share_*`
    /// about forwarding between processes. `None` if the process did not answer in time, because it is
    /// stopped or exits.
    pub counters: Option<Vec<(String, u64)>>,
}

/// Asks all processes that share a UDP port of this network namespace for their counters. `folder` is that of
/// [`SharedPortConfig`](super::SharedPortConfig). Takes as long as the slowest process, and at most
/// `patience` for each of this user's folders.
///
/// # Errors
/// Fails if the registry cannot be opened or read, or if no socket can be made.
pub fn reports(
    port: u16,
    folder: Option<&Path>,
    patience: Duration,
) -> Result<Vec<ProcessReport>, SharingError> {
    let question = SingleQuery {
        is_selected: &|_| true,
        send_query: &|querier, registry, member| {
            // The question is asked again if this datagram is lost.
            let _ = querier.send_query(registry, member);
        },
        read: &decode,
        max_bytes: MAX_BYTES,
    };
    let all = collect_replies(port, folder, patience, &question)?;
    Ok(all.into_iter().map(|(sharer, counters)| ProcessReport { sharer, counters }).collect())
}

/// Encodes the answer of `member`.
pub(crate) fn encode(member: MemberIndex, sharing: &SharingStats, device: Option<&Counters>) -> Vec<u8> {
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

/// Decodes the member and the counters of an answer; `None` if the bytes are not an answer. Unknown names are
/// included: the other process may be newer.
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
    /// Returns the address that the process's socket is bound to.
    pub fn address(&self) -> IpAddr {
        self.sharer.address
    }

    /// Returns the value of a counter; `None` if the process did not answer or does not have that counter.
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
        let sharing = SharingStats { taken_over: 3, ..SharingStats::default() };
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
