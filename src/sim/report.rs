//! The report at the end of a simulation.

use std::io::{self, Write};
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_device::port::{FabricStats, Topology};
use pumice_device::world::World;
use serde::Serialize;

use super::connection::SimConnection;
use super::options::SimOptions;
use crate::outcome::CommandError;
use crate::topology::{draw, ports};

/// Counters of dropped packets by reason, and of repaired losses.
const RECOVERY_COUNTERS: [&str; 9] = [
    "retransmitted_packets",
    "rx_nak_sequence",
    "rx_implied_nak",
    "rx_rnr_nak",
    "early_retransmit",
    "timeout",
    "rx_duplicate_request",
    "rx_stale_response",
    "rx_out_of_sequence",
];

#[derive(Debug, Serialize)]
pub(crate) struct SimReport {
    #[serde(skip)]
    hcas: usize,
    messages_wanted: u64,
    messages_done: u64,
    messages_wrong: u64,
    connections: u64,
    connections_failed: u64,
    failures: Vec<&'static str>,
    bytes: u64,
    virtual_ns: u64,
    goodput_bits_per_second: u64,
    fabric: FabricCounts,
    #[serde(skip)]
    topology: Option<Topology>,
    /// Queues of its links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ports: Vec<ports::PortJson>,
    /// Sums over all HCAs, by name, without zeros.
    counters: Vec<(&'static str, u64)>,
    digest: String,
}

#[derive(Debug, Serialize)]
struct FabricCounts {
    sent: u64,
    delivered: u64,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    queue_drops: u64,
    receive_drops: u64,
}

impl From<FabricStats> for FabricCounts {
    fn from(stats: FabricStats) -> FabricCounts {
        FabricCounts {
            sent: stats.sent,
            delivered: stats.delivered,
            lost: stats.lost,
            duplicated: stats.duplicated,
            reordered: stats.reordered,
            corrupted: stats.corrupted,
            queue_drops: stats.queue_drops,
            receive_drops: stats.receive_drops,
        }
    }
}

/// Formats `numerator / denominator` with three decimals, in integer arithmetic.
fn decimal(numerator: u128, denominator: u128) -> String {
    let thousandths = (numerator * 1000) / denominator.max(1);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

impl SimReport {
    pub(crate) fn new(
        world: &World,
        topology: Option<Topology>,
        hcas: &[Arc<Hca>],
        connections: &[SimConnection],
        wanted: u64,
    ) -> SimReport {
        let virtual_ns = world.now_ns();
        let sum = |of: fn(&SimConnection) -> u64| connections.iter().map(of).sum::<u64>();
        let bytes = sum(|one| one.bytes);
        let mut counters: Vec<(&'static str, u64)> = Vec::new();
        for hca in hcas {
            for (index, (info, value)) in hca.counters().snapshot().into_iter().enumerate() {
                match counters.get_mut(index) {
                    Some(counter) => counter.1 += value,
                    None => counters.push((info.name, value)),
                }
            }
        }
        counters.retain(|(_, value)| *value > 0);
        let failures: Vec<&'static str> =
            connections.iter().filter_map(|one| one.failure).map(|status| status.name()).collect();
        let rate = u128::from(bytes) * 8_000_000_000 / u128::from(virtual_ns.max(1));
        SimReport {
            hcas: hcas.len(),
            messages_wanted: wanted,
            messages_done: sum(|one| one.completed),
            messages_wrong: sum(|one| one.wrong),
            connections: connections.len() as u64,
            connections_failed: failures.len() as u64,
            failures,
            bytes,
            virtual_ns,
            goodput_bits_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
            fabric: world.fabric().stats().into(),
            topology,
            ports: world.fabric().queues().iter().map(ports::PortJson::from).collect(),
            counters,
            digest: format!("{:016x}", world.fabric().digest()),
        }
    }

    /// Reports whether every message arrived with the right bytes.
    pub(crate) fn is_good(&self) -> bool {
        self.messages_done == self.messages_wanted && self.messages_wrong == 0
    }

    pub(crate) fn print_json(&self, out: &mut dyn Write) -> Result<(), CommandError> {
        serde_json::to_writer(&mut *out, self)?;
        writeln!(out)?;
        Ok(())
    }

    pub(crate) fn print(&self, options: &SimOptions, out: &mut dyn Write) -> io::Result<()> {
        self.print_terms(options, out)?;
        writeln!(out)?;
        self.print_results(out)?;
        let traffic = |name: &str| {
            ["tx_packets", "rx_packets", "tx_bytes", "rx_bytes", "tx_batches", "rx_batches"].contains(&name)
        };
        self.print_counters(out, "recovery", &|name| RECOVERY_COUNTERS.contains(&name))?;
        self.print_counters(out, "other", &|name| !RECOVERY_COUNTERS.contains(&name) && !traffic(name))?;
        writeln!(out, "digest        {}", self.digest)?;
        for failure in &self.failures {
            writeln!(out, "a connection failed with {failure}")?;
        }
        let verdict =
            if self.is_good() { "every byte arrived as it was sent" } else { "NOT everything arrived" };
        writeln!(out, "{verdict}")
    }

    fn print_results(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "messages      {} of {} done, {} wrong",
            self.messages_done, self.messages_wanted, self.messages_wrong
        )?;
        writeln!(out, "virtual time  {} us", decimal(u128::from(self.virtual_ns), 1000))?;
        writeln!(
            out,
            "goodput       {} Gb/s ({} bytes)",
            decimal(u128::from(self.goodput_bits_per_second), 1_000_000_000),
            self.bytes
        )?;
        let FabricCounts { sent, delivered, lost, duplicated, reordered, corrupted, .. } = self.fabric;
        writeln!(
            out,
            "fabric        {sent} packets sent, {delivered} delivered, {lost} lost, {duplicated} duplicated, \
             {reordered} reordered, {corrupted} corrupted"
        )?;
        writeln!(
            out,
            "full queues   {} packets lost at {}, {} at receivers",
            self.fabric.queue_drops,
            if self.topology.is_some() { "senders and switches" } else { "senders" },
            self.fabric.receive_drops
        )?;
        if !self.ports.is_empty() {
            writeln!(out)?;
            ports::write(&self.ports, out)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn print_counters(
        &self,
        out: &mut dyn Write,
        title: &str,
        which: &dyn Fn(&str) -> bool,
    ) -> io::Result<()> {
        let mut title = title;
        for (name, value) in self.counters.iter().filter(|(name, _)| which(name)) {
            writeln!(out, "{title:<14}{name} {value}")?;
            title = "";
        }
        Ok(())
    }

    /// Prints the parameters of the simulation.
    fn print_terms(&self, options: &SimOptions, out: &mut dyn Write) -> io::Result<()> {
        let percent = |ppm: u32| decimal(u128::from(ppm), 10_000);
        writeln!(
            out,
            "seed {}: {} HCAs, {} connections, {} messages each ({}, {} bytes), path MTU {}",
            options.seed,
            self.hcas,
            options.qps,
            options.messages,
            format!("{:?}", options.op).to_lowercase(),
            options.size,
            options.mtu
        )?;
        match &self.topology {
            Some(topology) => {
                draw::write(topology, out)?;
                if topology.queues.ecn.is_some() {
                    let slowing = format!("{:?}", options.congestion).to_lowercase();
                    writeln!(out, "congestion: {slowing}")?;
                }
            }
            None => writeln!(
                out,
                "network: {} Gb/s, delay {} us, jitter {} us, queue {} bytes",
                decimal(u128::from(options.rate), 1_000_000_000),
                decimal(u128::from(options.delay), 1000),
                decimal(u128::from(options.jitter), 1000),
                options.queue
            )?,
        }
        writeln!(
            out,
            "faults: {} % lost, {} % reordered, {} % duplicated, {} % corrupted",
            percent(options.loss),
            percent(options.reorder),
            percent(options.duplicate),
            percent(options.corrupt)
        )
    }
}
