//! The flags of `pumice sim`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::quantity::{bits_per_second, bytes, duration_ns, probability_ppm};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimOperation {
    Write,
    Read,
    Send,
    Atomic,
    Mixed,
}

/// Maximum number of HCAs of a simulation.
pub(super) const MAX_HCAS: u16 = 64;

/// The reaction of HCAs to congestion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CongestionControl {
    #[default]
    Window,
    Dcqcn,
}

#[derive(Debug, Args)]
pub(crate) struct SimOptions {
    /// Seed of all chance: the same seed and flags give the same report on any machine
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Packets lost, e.g. 1%, 0.5% or 1e-3
    #[arg(long, default_value = "0", value_name = "P", value_parser = probability_ppm)]
    pub(crate) loss: u32,
    /// Packets overtaken by later ones
    #[arg(long, default_value = "0", value_name = "P", value_parser = probability_ppm)]
    pub(crate) reorder: u32,
    /// Packets that arrive twice
    #[arg(long, default_value = "0", value_name = "P", value_parser = probability_ppm)]
    pub(crate) duplicate: u32,
    /// Packets with a flipped bit
    #[arg(long, default_value = "0", value_name = "P", value_parser = probability_ppm)]
    pub(crate) corrupt: u32,
    /// Delay of each packet, one way
    #[arg(long, default_value = "10us", value_name = "TIME", value_parser = duration_ns)]
    pub(crate) delay: u64,
    /// Random addition to the delay, up to this
    #[arg(long, default_value = "0", value_name = "TIME", value_parser = duration_ns)]
    pub(crate) jitter: u64,
    /// Rate of each HCA's link in bits per second
    #[arg(long, default_value = "10G", value_name = "RATE", value_parser = bits_per_second)]
    pub(crate) rate: u64,
    /// Queue in front of each link
    #[arg(long, default_value = "4M", value_name = "BYTES", value_parser = bytes)]
    pub(crate) queue: u32,
    /// HCAs on the switch
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_HCAS)))]
    pub(crate) hcas: u16,
    /// Put the switches of this TOML file between the HCAs, which are its hosts; see docs/topology.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["delay", "jitter", "rate", "queue", "hcas"])]
    pub(crate) topology: Option<PathBuf>,
    /// Reaction of HCAs when switches mark their packets
    #[arg(long, value_enum, default_value_t)]
    pub(crate) congestion: CongestionControl,
    /// Let all connections go to the first HCA, from the others in turns
    #[arg(long)]
    pub(crate) incast: bool,
    /// Connections; the k-th goes from HCA k to the next one, round and round
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) qps: u16,
    /// Operation of the messages
    #[arg(long, value_enum, default_value_t = SimOperation::Write)]
    pub(crate) op: SimOperation,
    /// Size of a message (atomics are 8 bytes)
    #[arg(long, default_value = "64K", value_name = "BYTES", value_parser = bytes)]
    pub(crate) size: u32,
    /// Messages per connection
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) messages: u32,
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(long, default_value_t = 4096)]
    pub(crate) mtu: usize,
    /// Write what the first HCA sends and receives to a pcapng file
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
