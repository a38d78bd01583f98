//! The network of a simulation: its HCAs, and the links and switches between them.

use std::net::{IpAddr, Ipv4Addr};

use pumice_device::faults::{Fault, WirePlan};
use pumice_device::port::{FabricConfig, Topology};
use pumice_device::profile::{Algorithm, CongestionProfile, PortProfile};
use pumice_transport::qp::Congestion;

use super::options::{CongestionControl, MAX_HCAS, SimOptions};
use crate::outcome::CommandError;

const BITS_PER_MBIT: u64 = 1_000_000;

pub(super) struct SimNetwork {
    /// Addresses of the HCAs, in order.
    pub(super) addresses: Vec<IpAddr>,
    pub(super) topology: Option<Topology>,
}

impl SimNetwork {
    /// # Errors
    /// The topology is invalid, or is none for a simulation.
    pub(super) fn new(options: &SimOptions) -> Result<SimNetwork, CommandError> {
        let Some(file) = &options.topology else {
            return Ok(SimNetwork { addresses: numbered(options.hcas), topology: None });
        };
        let refused = |problem: &str| CommandError::Usage(format!("{}: {problem}", file.display()));
        let topology = Topology::load(file).map_err(|(problem, _)| refused(&problem))?;
        if !(2..=MAX_HCAS).contains(&topology.hosts) {
            let hosts = topology.hosts;
            return Err(refused(&format!("it has {hosts} hosts, and a simulation has 2 to {MAX_HCAS} HCAs")));
        }
        let addresses = match topology.named.as_slice() {
            [] => numbered(topology.hosts),
            named => named.iter().map(|host| host.address).collect(),
        };
        Ok(SimNetwork { addresses, topology: Some(topology) })
    }

    pub(super) fn fabric(&self, options: &SimOptions) -> FabricConfig {
        FabricConfig {
            seed: options.seed,
            delay_ns: options.delay,
            jitter_ns: options.jitter,
            rate_bits_per_second: Some(options.rate),
            queue_bytes: options.queue as usize,
            faults: WirePlan::seeded(options.seed)
                .by_chance(options.loss, Fault::Drop)
                .by_chance(options.reorder, Fault::delay((2 * options.delay).max(10_000)))
                .by_chance(options.duplicate, Fault::DUPLICATE)
                .by_chance(options.corrupt, Fault::FLIP),
            topology: self.topology.clone(),
            ..FabricConfig::default()
        }
    }

    /// Returns how the HCA of this number reacts when its packets are marked.
    ///
    /// # Errors
    /// DCQCN has no parameters for the rate of its link.
    pub(super) fn congestion(&self, options: &SimOptions, hca: usize) -> Result<Congestion, CommandError> {
        let rate_mbps = match &self.topology {
            Some(topology) => topology.cable(hca).rate_mbps,
            None => u32::try_from(options.rate / BITS_PER_MBIT).unwrap_or(u32::MAX),
        };
        let algorithm = match options.congestion {
            CongestionControl::Window => Algorithm::Window,
            CongestionControl::Dcqcn => Algorithm::Dcqcn,
        };
        let profile = CongestionProfile { algorithm, line_rate: Some(rate_mbps), ..Default::default() };
        let congestion = profile.of_port(&PortProfile::default());
        congestion.check().map_err(|problem| {
            CommandError::Failed(format!("--congestion dcqcn is not possible with this link: {problem}"))
        })?;
        Ok(congestion)
    }

    /// Returns the HCAs at the two ends of a connection.
    pub(super) fn ends(&self, options: &SimOptions, connection: usize) -> [usize; 2] {
        let hcas = self.addresses.len();
        if options.incast {
            [1 + connection % hcas.saturating_sub(1).max(1), 0]
        } else {
            [connection % hcas, (connection + 1) % hcas]
        }
    }
}

fn numbered(hcas: u16) -> Vec<IpAddr> {
    (0..u32::from(hcas)).map(|hca| Ipv4Addr::from(0x0a00_0001 + hca).into()).collect()
}
