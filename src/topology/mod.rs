//! `pumice topology`: checks and draws the switches between programs, and prints the counters of their ports.

pub(crate) mod draw;
pub(crate) mod ports;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use pumice_device::port::{EcnMarking, Topology, TopologyKind};
use pumice_device::sharing as share;
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};
use ports::PortJson;

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
    draw::write(topology, out)?;
    if ports.is_empty() {
        return writeln!(out, "\nfor simulations: it names no addresses, which programs need");
    }
    writeln!(out)?;
    ports::write(ports, out)
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
