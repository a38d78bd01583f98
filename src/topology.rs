//! `pumice topology`: checks and draws the switches between programs, and prints the counters of their ports.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use pumice_device::port::{
    EcnMarking, QueueReport, SwitchLink, SwitchPauses, SwitchQueues, Topology, TopologyKind,
};
use pumice_device::sharing as share;
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};

/// Draws the switches with the hosts at each, and describes their ports.
fn write_drawn(topology: &Topology, out: &mut dyn Write) -> io::Result<()> {
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
fn write_ports(ports: &[PortJson], out: &mut dyn Write) -> io::Result<()> {
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

/// Options of `pumice topology`.
#[derive(Debug, Args)]
pub(crate) struct TopologyOptions {
    /// The topology: a TOML file
    file: PathBuf,
    /// Set the counters to zero, and forget what waits
    #[arg(long)]
    reset: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(options: &TopologyOptions, out: &mut dyn Write) -> CommandResult {
    let topology = Topology::load(&options.file)
        .map_err(|(problem, _)| CommandError::Usage(format!("{}: {problem}", options.file.display())))?;
    let topology = Arc::new(topology);
    // Without addresses no program can be a host, so that there are no counters.
    let ports = if topology.named.is_empty() {
        Vec::new()
    } else {
        let switching =
            share::switches(&topology).map_err(|error| CommandError::Failed(error.to_string()))?;
        if options.reset {
            switching.reset();
        }
        switching.queues().iter().map(PortJson::from).collect()
    };
    let written = if options.json { json(&topology, &ports, out) } else { text(&topology, &ports, out) };
    written.map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn text(topology: &Topology, ports: &[PortJson], out: &mut dyn Write) -> std::io::Result<()> {
    write_drawn(topology, out)?;
    if ports.is_empty() {
        return writeln!(out, "\nfor simulations: it names no addresses, which programs need");
    }
    writeln!(out)?;
    write_ports(ports, out)
}

#[derive(Serialize)]
struct TopologyJson<'a> {
    kind: &'static str,
    leaves: u16,
    spines: u16,
    pods: u16,
    cores: u16,
    hosts: Vec<HostJson>,
    ecn: Option<EcnJson>,
    xoff_bytes: Option<u64>,
    xon_bytes: Option<u64>,
    ports: &'a [PortJson],
}

#[derive(Serialize)]
struct HostJson {
    address: Option<String>,
    leaf: usize,
    rate_mbps: u32,
    delay_ns: u64,
    queue_bytes: u64,
}

#[derive(Serialize)]
struct EcnJson {
    min_bytes: u64,
    max_bytes: u64,
    most_ppm: u32,
}

fn json(topology: &Topology, ports: &[PortJson], out: &mut dyn Write) -> std::io::Result<()> {
    let host = |index: usize| {
        let (named, cable) = (topology.named.get(index), topology.cable(index));
        HostJson {
            address: named.map(|host| host.address.to_string()),
            leaf: topology.leaf_of(index),
            rate_mbps: cable.rate_mbps,
            delay_ns: cable.delay_ns,
            queue_bytes: named.and_then(|host| host.queue_bytes).unwrap_or(topology.queues.queue_bytes),
        }
    };
    let document = TopologyJson {
        kind: match topology.kind {
            TopologyKind::Star => "star",
            TopologyKind::TwoTier => "two-tier",
            TopologyKind::ThreeTier => "three-tier",
        },
        leaves: topology.leaves.max(1),
        spines: topology.spines,
        pods: topology.pods.max(1),
        cores: topology.cores,
        hosts: (0..usize::from(topology.hosts)).map(host).collect(),
        ecn: match topology.queues.ecn {
            Some(EcnMarking::Ramp { min_bytes, max_bytes, most_ppm }) => {
                Some(EcnJson { min_bytes, max_bytes, most_ppm })
            }
            _ => None,
        },
        xoff_bytes: topology.queues.pause.map(|pause| pause.xoff_bytes),
        xon_bytes: topology.queues.pause.map(|pause| pause.xon_bytes),
        ports,
    };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}
