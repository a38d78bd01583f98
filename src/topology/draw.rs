//! Draws a topology as text.

use std::io::{self, Write};
use std::ops::Range;

use pumice_device::port::{EcnMarking, SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyKind};

/// Draws the switches with the hosts at each, and describes their ports.
pub(crate) fn write(topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
    let leaves = if topology.kind == TopologyKind::Star { 1 } else { usize::from(topology.leaves) };
    let pods = usize::from(topology.pods.max(1));
    let spines_per_pod = usize::from(topology.spines) / pods;
    if topology.kind == TopologyKind::ThreeTier {
        writeln!(out, "{}", named("core", 0..usize::from(topology.cores)))?;
        let per_spine = usize::from(topology.cores) / spines_per_pod.max(1);
        writeln!(out, "  │  {} from each spine to {per_spine} of them", cable(topology.corelink()))?;
    }
    for leaf in 0..leaves {
        if spines_per_pod > 0 && leaf % (leaves / pods) == 0 {
            let pod = leaf / (leaves / pods);
            writeln!(out, "{}", named("spine", pod * spines_per_pod..(pod + 1) * spines_per_pod))?;
            writeln!(out, "  │  {} from each leaf to each spine", cable(topology.uplink()))?;
        }
        let name = match topology.kind {
            TopologyKind::Star => "switch".to_owned(),
            TopologyKind::TwoTier | TopologyKind::ThreeTier => format!("leaf {leaf}"),
        };
        let hosts: Vec<usize> =
            (0..usize::from(topology.hosts)).filter(|host| topology.leaf_of(*host) == leaf).collect();
        for (row, host) in hosts.iter().enumerate() {
            let (left, corner) = match (row, hosts.len()) {
                (0, 1) => (name.as_str(), "───"),
                (0, _) => (name.as_str(), "─┬─"),
                (row, all) if row + 1 == all => ("", " └─"),
                _ => ("", " ├─"),
            };
            let width = name.chars().count();
            writeln!(out, "{left:<width$} {corner} {}", about_host(topology, *host))?;
        }
    }
    writeln!(out, "{}", about_queues(&topology.queues))
}

/// Returns the names of switches with these numbers.
fn named(kind: &str, numbers: Range<usize>) -> String {
    let names: Vec<String> = numbers.map(|number| format!("{kind} {number}")).collect();
    names.join("   ")
}

fn about_host(topology: &Topology, host: usize) -> String {
    let named = topology.named.get(host);
    let name = named.map_or_else(|| format!("host {host}"), |named| named.address.to_string());
    let own = named.and_then(|named| named.queue_bytes);
    let queue = own.map(|bytes| format!(", a queue of {bytes} bytes")).unwrap_or_default();
    format!("{name}  {}{queue}", cable(topology.cable(host)))
}

fn cable(link: SwitchLink) -> String {
    let SwitchLink { rate_mbps, delay_ns } = link;
    format!("{rate_mbps} Mbit/s, {delay_ns} ns")
}

fn about_queues(queues: &SwitchQueues) -> String {
    let mut sentence = format!("each port has a queue of {} bytes", queues.queue_bytes);
    if let Some(bytes) = queues.buffer_bytes {
        sentence += &format!(", of {bytes} bytes that the ports of a switch share");
    }
    match queues.ecn {
        Some(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm }) => {
            let percent = f64::from(most_ppm) / 10_000.0;
            sentence += &format!(", marks from {min_bytes} to {max_bytes} bytes up to {percent} %");
        }
        _ => sentence += ", marks no packet",
    }
    match queues.pause {
        Some(SwitchPauses { xoff_bytes, xon_bytes }) => {
            sentence += &format!(", and pauses senders above {xoff_bytes} bytes until {xon_bytes} are left");
        }
        None => sentence += ", and loses what does not fit",
    }
    sentence
}
