//! The counters of switch ports, as a table and as JSON.

use std::io::{self, Write};

use pumice_device::port::QueueReport;
use serde::Serialize;

/// A port's queue, as JSON has it.
#[derive(Debug, Serialize)]
pub(crate) struct PortJson {
    name: String,
    packets: u64,
    sent_bytes: u64,
    waiting_bytes: u64,
    longest_bytes: u64,
    marked: u64,
    dropped: u64,
    pauses: u64,
}

impl From<&QueueReport> for PortJson {
    fn from(queue: &QueueReport) -> PortJson {
        PortJson {
            name: queue.name.clone(),
            packets: queue.packets,
            sent_bytes: queue.sent_bytes,
            waiting_bytes: queue.bytes,
            longest_bytes: queue.most_bytes,
            marked: queue.marked,
            dropped: queue.dropped,
            pauses: queue.pauses,
        }
    }
}

/// Writes a heading, and a line for each queue.
pub(crate) fn write(ports: &[PortJson], out: &mut dyn Write) -> io::Result<()> {
    let width = ports.iter().map(|port| port.name.chars().count()).max().unwrap_or(0).max("port".len());
    let [packets, bytes, waiting, longest] = ["packets", "bytes", "waiting", "longest"];
    let [marked, dropped, pauses] = ["marked", "dropped", "pauses"];
    writeln!(
        out,
        "{:<width$} {packets:>11} {bytes:>15} {waiting:>9} {longest:>9} {marked:>9} {dropped:>9} {pauses:>9}",
        "port"
    )?;
    for port in ports {
        let PortJson { name, packets, sent_bytes, waiting_bytes, longest_bytes, marked, dropped, pauses } =
            port;
        writeln!(
            out,
            "{name:<width$} {packets:>11} {sent_bytes:>15} {waiting_bytes:>9} {longest_bytes:>9} {marked:>9} \
             {dropped:>9} {pauses:>9}"
        )?;
    }
    Ok(())
}
