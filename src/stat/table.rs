//! The text output, and all counters of a process with their meanings.

use std::io::{self, Write};

use pumice_device::counters::COUNTERS;
use pumice_device::inspect::InspectedObjects;
use pumice_transport::wire::Qpn;

use super::options::StatOptions;
use crate::observe::{ProcessView, copied, plain, round_trip};

/// Counters that are not the device's, but of port sharing.
const SHARING: [(&str, &str); 6] = [
    ("share_forwarded", "runs of packets forwarded to the process they are for"),
    ("share_forward_dropped", "runs of packets lost because that process did not keep up"),
    ("share_taken_over", "runs of packets taken over from other processes"),
    ("share_rejected", "datagrams of others, dropped"),
    (
        "share_rerouted",
        "requests forwarded to another process, because the one that the kernel chose did not run",
    ),
    ("share_mended", "looks at the registry that repair the steering"),
];

/// Returns names and meanings.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    COUNTERS.iter().map(|info| (info.name, info.meaning)).chain(SHARING)
}

/// Returns the meaning of a counter; empty if the process has one that this version does not know.
pub(super) fn meaning(name: &str) -> &'static str {
    all().find(|(other, _)| *other == name).map_or("", |(_, meaning)| meaning)
}

/// Maximum number of queue pairs of one process that are shown without `--all`.
const MAX_QPS: usize = 16;

pub(super) fn print(found: &[ProcessView], options: &StatOptions, out: &mut dyn Write) -> io::Result<()> {
    if found.is_empty() {
        return writeln!(out, "no process of this user shares UDP port {}", options.port);
    }
    for (number, process) in found.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let name = process.program.as_deref().unwrap_or("?");
        let ProcessView { pid, index, address, .. } = process;
        writeln!(out, "process {pid} ({name})  process index {index}  {address}")?;
        let Some(counters) = &process.counters else {
            writeln!(out, "  does not answer: it is stopped, or just begins or ends; try again")?;
            continue;
        };
        let shown = counters.iter().filter(|(_, value)| options.all || *value != 0);
        let widest = counters.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut any = false;
        for (name, value) in shown {
            any = true;
            writeln!(out, "  {name:<widest$} {value:>14}  {}", meaning(name))?;
        }
        if !any {
            writeln!(out, "  nothing counted yet")?;
        }
        if let Some(objects) = &process.objects {
            queue_pairs(objects, if options.all { usize::MAX } else { MAX_QPS }, out)?;
        }
    }
    Ok(())
}

fn queue_pairs(objects: &InspectedObjects, most: usize, out: &mut dyn Write) -> io::Result<()> {
    for qp in objects.qps.iter().take(most) {
        let peer = match qp.peer {
            Some(peer) => format!(" with {} of {}", Qpn::new(peer.qpn), peer.address),
            None => String::new(),
        };
        let (service, state) = (plain(&qp.service), plain(&qp.state));
        write!(out, "  queue pair {}  {service} {state}{peer}", Qpn::new(qp.qpn))?;
        write!(out, "  {} of {} sends ended, {} messages received", qp.ended, qp.posted, qp.received)?;
        match qp.rtt_ns {
            Some(ns) => writeln!(out, ", round trip {}", round_trip(ns))?,
            None => writeln!(out)?,
        }
        if let Some(medium) = &qp.medium {
            writeln!(out, "    by {}", plain(medium))?;
        }
        if let Some(copy) = &qp.copy {
            writeln!(out, "    long messages copied {}", copied(copy))?;
        }
        if let Some(error) = &qp.last_error {
            writeln!(out, "    last error: {}", plain(error))?;
        }
    }
    let left = objects.qps.len().saturating_sub(most) as u64 + u64::from(objects.qps_left_out());
    if left > 0 {
        let all = if objects.qps.len() > most { " (--all shows more)" } else { "" };
        writeln!(out, "  and {left} more queue pairs{all}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::tests::{process, qp};

    fn counted(counters: Option<Vec<(&str, u64)>>) -> ProcessView {
        let own =
            |list: Vec<(&str, u64)>| list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        ProcessView { counters: counters.map(own), ..process(u32::MAX, Vec::new()) }
    }

    fn text(found: &[ProcessView], all: bool) -> String {
        let options = StatOptions { all, port: 4791, ..StatOptions::default() };
        let mut out = Vec::new();
        print(found, &options, &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn counters_come_with_their_meaning_and_zeros_only_when_asked_for() {
        let found =
            [counted(Some(vec![("rx_bad_icrc", 7), ("timeout", 0), ("of_the_future", 1)])), counted(None)];
        let some = text(&found, false);
        assert!(some.contains("packets with a wrong ICRC") && some.contains("of_the_future"), "{some}");
        assert!(!some.contains("timeout") && some.contains("does not answer"), "{some}");
        assert!(text(&found, true).contains("timeout"));
        assert!(text(&[], false).contains("no process"));
    }

    #[test]
    fn queue_pairs_are_few_unless_all_are_asked_for_and_their_words_are_harmless() {
        let mut failed = qp(0x01_0011);
        failed.last_error = Some("retry\u{1b}[2J counter".to_owned());
        let many = (0..40).map(|_| failed.clone()).collect();
        let shown = text(&[process(1, many)], false);
        assert!(shown.contains("queue pair 0x010011  RC RTS with 0x020011 of 127.0.0.2"), "{shown}");
        assert!(shown.contains("last error: retry?[2J counter") && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.contains("and 24 more queue pairs (--all shows more)"), "{shown}");
        assert!(!text(&[process(1, vec![failed])], false).contains("more"));
    }
}
