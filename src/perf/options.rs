//! The options of `pumice perf`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pumice_device::settings::Wire;
use pumice_perf::{DEFAULT_PORT, Operation, Service};
use serde::{Deserialize, Serialize};

#[derive(Debug, Args)]
pub(crate) struct PerfOptions {
    #[command(subcommand)]
    pub(crate) role: PerfRole,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PerfRole {
    /// Serve clients until interrupted; what to measure is the client's choice
    Server(ServerOptions),
    /// Measure against a server
    ///
    /// The server's device has the address HOST. The client's has the local address of the way there or,
    /// if that is the server's own because both run on one machine, the next loopback address after
    /// 127.0.0.1: only one of them can have UDP port 4791 of an address.
    Client(ClientOptions),
    /// Measure between two processes of this machine, against plain UDP or plain memory in the same run
    ///
    /// Every test alternates with a yardstick: plain UDP of the same sizes or, where packets go through
    /// shared memory, cache lines on which two threads spin, a futex on which they sleep, or memcpy. The
    /// ratio is the median of the rounds' ratios: absolute numbers of a busy or virtual machine mean little.
    /// Without --op, a suite of about 20 seconds measures RC WRITE and READ of 1 MiB and the latency of RC
    /// SEND, polling and sleeping, on both wires.
    Loop(LoopOptions),
    /// An end of a loop
    #[command(name = "__end", hide = true)]
    End(EndOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Address of the device; by default the one by which the client came
    #[arg(long)]
    pub(crate) addr: Option<IpAddr>,
    /// TCP port for the out-of-band exchange
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT")]
    pub(crate) oob_port: u16,
    /// Exit after one client
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Name or address of the server
    pub(crate) host: String,
    /// TCP port for the out-of-band exchange
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT")]
    pub(crate) oob_port: u16,
    #[command(flatten)]
    pub(crate) test: TestOptions,
    #[command(flatten)]
    pub(crate) end: EndSettings,
    /// Measure plain UDP alternately, or memory if that carries the packets, and report ratios
    #[arg(long)]
    pub(crate) raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LoopOptions {
    #[command(flatten)]
    pub(crate) test: TestOptions,
    #[command(flatten)]
    pub(crate) end: EndSettings,
    /// Address of the device of the second process [default: 127.0.0.2]
    #[arg(long)]
    pub(crate) peer_addr: Option<IpAddr>,
    /// Run this many concurrent pairs of processes that exchange messages, compared with one pair
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) pairs: Option<u16>,
    /// Run in two network namespaces that a veth pair connects; needs root
    #[arg(long)]
    pub(crate) netns: bool,
    /// MTU of the veth pair
    #[arg(long, value_name = "BYTES", default_value_t = 1500, requires = "netns")]
    #[arg(value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) link_mtu: u16,
}

/// Addresses of the two ends of a loop.
pub(crate) const LOOPBACK_ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))];

impl LoopOptions {
    /// Returns the addresses of both devices, which are `defaults` unless options give others.
    ///
    /// # Errors
    /// A sentence: both are the same address.
    pub(crate) fn addresses(&self, defaults: [IpAddr; 2]) -> Result<[IpAddr; 2], String> {
        let [first, second] = defaults;
        let (own, peer) = (self.end.addr.unwrap_or(first), self.peer_addr.unwrap_or(second));
        if own == peer {
            let both = "both devices would have the address";
            return Err(format!("{both} {peer}: use another --addr or --peer-addr"));
        }
        Ok([own, peer])
    }
}

/// The options of a test.
#[derive(Debug, Clone, Args)]
pub(crate) struct TestOptions {
    /// Operation [default: write]
    #[arg(long, value_enum)]
    pub(crate) op: Option<OperationName>,
    /// Transport service
    #[arg(long, value_enum, default_value = "rc", value_name = "SERVICE")]
    pub(crate) transport: ServiceName,
    /// Bytes of a message, with K, M, G [default: 8 for latency, 1M for bandwidth, 64K for UC, the MTU for
    /// UD]
    #[arg(long, value_parser = parse_size, value_name = "BYTES")]
    pub(crate) size: Option<usize>,
    /// Path MTU [default: 4096, or what the link carries]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<usize>,
    /// Queue pairs, used in turn
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) qps: usize,
    /// Requests per post
    #[arg(long, value_name = "N")]
    pub(crate) post_list: Option<usize>,
    /// Requests outstanding on a queue pair [default: 16, more for small messages]
    #[arg(long, value_name = "N")]
    pub(crate) depth: Option<usize>,
    /// Measure the time of single messages instead of throughput
    #[arg(long)]
    pub(crate) latency: bool,
    /// Sleep until a completion event comes instead of polling
    #[arg(long)]
    pub(crate) events: bool,
    /// The target's application computes and never calls a verb
    #[arg(long)]
    pub(crate) passive: bool,
    /// Share the UDP port with other processes, as unmodified programs do
    #[arg(long)]
    pub(crate) shared: bool,
    /// Transport of packets between processes of this user on one host: auto (shared memory, in a shared UDP
    /// port), udp, or both in turns [default: both for the suite of a loop; with --shared what programs have,
    /// by PUMICE_WIRE or its default; else udp]
    #[arg(long, value_enum, value_name = "WIRE")]
    pub(crate) wire: Option<WireName>,
    /// Check every byte at its destination: whole numbered messages before each round, and the final
    /// contents of all buffers after it
    #[arg(long)]
    pub(crate) verify: bool,
    /// Seconds of all rounds together, yardsticks not counted [default: 0.25 per round]
    #[arg(long = "for", alias = "duration", value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) rounds: usize,
}

/// The options of an end: its device, and its reports.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub(crate) struct EndSettings {
    /// Address of the device of the measuring process
    #[arg(long)]
    pub(crate) addr: Option<IpAddr>,
    /// Write the measuring device's packets to this pcapng file
    #[arg(long, value_name = "FILE")]
    pub(crate) capture: Option<PathBuf>,
    /// Print one JSON object per test instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EndOptions {
    /// The task as JSON
    pub(crate) task: String,
}

/// The transport of packets, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WireName {
    /// Shared memory where both processes can have it, else UDP
    Auto,
    /// UDP
    Udp,
    /// Run each test by UDP, then by shared memory
    Both,
}

impl WireName {
    /// Returns the wires that the name stands for.
    pub(crate) fn wires(self) -> Vec<Wire> {
        match self {
            WireName::Auto => vec![Wire::Auto],
            WireName::Udp => vec![Wire::Udp],
            WireName::Both => vec![Wire::Udp, Wire::Auto],
        }
    }
}

/// An operation, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperationName {
    /// RDMA WRITE into the peer's memory
    Write,
    /// RDMA READ from the peer's memory
    Read,
    /// SEND into a posted receive
    Send,
    /// Fetch-and-add on eight bytes of the peer's memory
    Atomic,
}

/// A transport service, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceName {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
}

impl From<OperationName> for Operation {
    fn from(name: OperationName) -> Operation {
        match name {
            OperationName::Write => Operation::Write,
            OperationName::Read => Operation::Read,
            OperationName::Send => Operation::Send,
            OperationName::Atomic => Operation::Atomic,
        }
    }
}

impl From<ServiceName> for Service {
    fn from(name: ServiceName) -> Service {
        match name {
            ServiceName::Rc => Service::Rc,
            ServiceName::Uc => Service::Uc,
            ServiceName::Ud => Service::Ud,
        }
    }
}

/// Parses "8", "64K", "1M", "1G".
///
/// # Errors
/// A sentence, if the text is no size.
fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.trim_end_matches(['B', 'b']).char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 10),
        Some((at, 'm' | 'M')) => (text.get(..at), 20),
        Some((at, 'g' | 'G')) => (text.get(..at), 30),
        _ => (Some(text), 0),
    };
    let number = digits.and_then(|digits| digits.parse::<usize>().ok());
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("\"{text}\" is no size: write bytes, or a number with K, M or G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (text, bytes) in [("8", 8), ("64K", 65_536), ("1m", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "K", "1T", "-1", "99999999999999999999", "99999999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
