//! The text form: a paragraph for each process.

use std::io::{self, Write};

use pumice_device::counters::COUNTERS;
use pumice_device::share::Report;

use super::options::StatOptions;
use super::program::program;

/// What the counters that are not the device's mean.
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

pub(super) fn print(found: &[Report], options: &StatOptions, out: &mut dyn Write) -> io::Result<()> {
    if found.is_empty() {
        return writeln!(out, "no process of this user shares UDP port {}", options.port);
    }
    for (place, report) in found.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        let name = program(report.sharer.pid).unwrap_or_else(|| "?".to_owned());
        let address = report.address();
        let (pid, index) = (report.sharer.pid, report.sharer.process);
        writeln!(out, "process {pid} ({name})  process index {index}  {address}")?;
        let Some(counters) = &report.counters else {
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
    }
    Ok(())
}

fn meaning(name: &str) -> &'static str {
    let device = COUNTERS.iter().map(|info| (info.name, info.meaning));
    device.chain(SHARING).find(|(other, _)| *other == name).map_or("", |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use pumice_device::share::Sharer;
    use pumice_transport::wire::ProcessIndex;

    use super::*;

    fn report(counters: Option<Vec<(&str, u64)>>) -> Report {
        let sharer =
            Sharer { process: ProcessIndex::new(3), pid: u32::MAX, address: IpAddr::V4(Ipv4Addr::LOCALHOST) };
        let own =
            |list: Vec<(&str, u64)>| list.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Report { sharer, counters: counters.map(own) }
    }

    fn text(found: &[Report], all: bool) -> String {
        let options = StatOptions { json: false, all, pid: None, port: 4791, registry: None };
        let mut out = Vec::new();
        print(found, &options, &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn counters_come_with_their_meaning_and_zeros_only_when_asked_for() {
        let found =
            [report(Some(vec![("rx_bad_icrc", 7), ("timeout", 0), ("of_the_future", 1)])), report(None)];
        let some = text(&found, false);
        assert!(some.contains("packets with a wrong ICRC") && some.contains("of_the_future"), "{some}");
        assert!(!some.contains("timeout") && some.contains("does not answer"), "{some}");
        assert!(text(&found, true).contains("timeout"));
        assert!(text(&[], false).contains("no process"));
    }
}
