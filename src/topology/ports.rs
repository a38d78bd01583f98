//! What the ports of switches counted, as a table and in JSON.

use std::io::{self, Write};

use pumice_device::port::QueueReport;
use serde::Serialize;

/// A queue, as JSON has it.
#[derive(Debug, Serialize)]
pub(crate) struct Port {
    name: String,
    packets: u64,
    sent_bytes: u64,
    waiting_bytes: u64,
    longest_bytes: u64,
    marked: u64,
    dropped: u64,
    pauses: u64,
}

impl From<&QueueReport> for Port {
    fn from(queue: &QueueReport) -> Port {
        Port {
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

/// One line for each queue, below a line of titles.
pub(crate) fn write(ports: &[Port], out: &mut dyn Write) -> io::Result<()> {
    let width = ports.iter().map(|port| port.name.chars().count()).max().unwrap_or(0).max("port".len());
    let [packets, bytes, waiting, longest] = ["packets", "bytes", "waiting", "longest"];
    let [marked, dropped, pauses] = ["marked", "dropped", "pauses"];
    writeln!(
        out,
        "{:<width$} {packets:>11} {bytes:>15} {waiting:>9} {longest:>9} {marked:>9} {dropped:>9} {pauses:>9}",
        "port"
    )?;
    for port in ports {
        let Port { name, packets, sent_bytes, waiting_bytes, longest_bytes, marked, dropped, pauses } = port;
        writeln!(
            out,
            "{name:<width$} {packets:>11} {sent_bytes:>15} {waiting_bytes:>9} {longest_bytes:>9} {marked:>9} \
             {dropped:>9} {pauses:>9}"
        )?;
    }
    Ok(())
}
