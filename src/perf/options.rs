//! The options of `pumice perf`, and the plans that they stand for.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};

use super::control;
use super::plan::{Operation, Plan, Quantity, Service, parse_size};

#[derive(Debug, Args)]
pub(crate) struct PerfOptions {
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Serve clients until interrupted; what to measure is the client's choice
    Server(ServerOptions),
    /// Measure against a server
    ///
    /// The server's device has the address HOST. The client's has the local address of the way there or,
    /// if that is the server's own because both run on one machine, the next loopback address after
    /// 127.0.0.1: only one of them can have UDP port 4791 of an address.
    Client(ClientOptions),
    /// Measure between two processes of this machine, against plain UDP in the same run
    ///
    /// Every test alternates with plain UDP of the same sizes, and the ratio is the median of the rounds'
    /// ratios: absolute numbers of a busy or virtual machine mean little. Without --op, a suite of a few
    /// seconds measures RC WRITE and READ of 1 MiB and the latency of RC SEND.
    Loop(LoopOptions),
    /// One end of a loop
    #[command(name = "__end", hide = true)]
    End(EndOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Address of the device; by default the one by which the client came
    #[arg(long)]
    pub(crate) addr: Option<IpAddr>,
    /// TCP port for the out-of-band exchange
    #[arg(long, default_value_t = control::PORT, value_name = "PORT")]
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
    #[arg(long, default_value_t = control::PORT, value_name = "PORT")]
    pub(crate) oob_port: u16,
    #[command(flatten)]
    pub(crate) test: TestOptions,
    #[command(flatten)]
    pub(crate) end: EndSettings,
    /// Measure plain UDP alternately, and report ratios
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
    /// So many concurrent pairs of processes that exchange messages, compared with one pair
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) pairs: Option<u16>,
    /// Run in two network namespaces that a veth pair connects; needs root
    #[arg(long)]
    pub(crate) netns: bool,
    /// MTU of the veth pair
    #[arg(long, value_name = "BYTES", default_value_t = 1500, requires = "netns", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) link_mtu: u16,
}

/// What to measure.
#[derive(Debug, Clone, Args)]
pub(crate) struct TestOptions {
    /// Operation [default: write]
    #[arg(long, value_enum)]
    pub(crate) op: Option<Operation>,
    /// Transport service
    #[arg(long, value_enum, default_value = "rc", value_name = "SERVICE")]
    pub(crate) transport: Service,
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
    /// Check every byte at its destination: whole numbered messages before each round, and the final
    /// contents of all buffers after it
    #[arg(long)]
    pub(crate) verify: bool,
    /// Seconds of all rounds together, plain UDP not counted [default: 0.25 per round]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) duration: Option<f64>,
    /// Rounds
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) rounds: usize,
}

/// How an end works and reports.
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
    /// JSON
    pub(crate) task: String,
}

const SECONDS_PER_ROUND: f64 = 0.25;

impl TestOptions {
    /// The one test that the options describe.
    ///
    /// # Errors
    /// A sentence that says what does not fit together.
    pub(crate) fn plan(&self, raw: bool, link_mtu: Option<u16>) -> Result<Plan, String> {
        let operation = self.op.unwrap_or(Operation::Write);
        let mtu_bytes = self.mtu.unwrap_or_else(|| link_mtu.map_or(4096, default_mtu));
        let size_bytes = self.size.unwrap_or(match (operation, self.transport) {
            (Operation::Atomic, _) => 8,
            _ if self.latency => 8,
            (_, Service::Rc) => 1 << 20,
            (_, Service::Uc) => 64 << 10,
            (_, Service::Ud) => mtu_bytes,
        });
        let quantity = if self.latency { Quantity::Latency } else { Plan::throughput_of(size_bytes) };
        let post_list = self.post_list.unwrap_or(1);
        let depth = self.depth.unwrap_or_else(|| default_depth(size_bytes, post_list, self.latency));
        let plan = Plan {
            operation,
            service: self.transport,
            quantity,
            size_bytes,
            mtu_bytes,
            qp_count: self.qps,
            post_list,
            depth,
            events: self.events,
            passive: self.passive,
            shared: self.shared,
            verify: self.verify,
            raw,
            rounds: self.rounds,
            round_seconds: self.round_seconds(),
        };
        plan.check().map(|()| plan)
    }

    /// The tests of a loop: the one described, or the suite if none is.
    ///
    /// # Errors
    /// As [`plan`](TestOptions::plan).
    pub(crate) fn plans(&self, link_mtu: Option<u16>) -> Result<Vec<Plan>, String> {
        let described = self.op.is_some() || self.size.is_some() || self.latency || self.qps != 1;
        if described || self.transport != Service::Rc {
            return Ok(vec![self.plan(true, link_mtu)?]);
        }
        let suite = [(Operation::Write, false), (Operation::Read, false), (Operation::Send, true)];
        let with = |(op, latency)| TestOptions { op: Some(op), latency, ..self.clone() }.plan(true, link_mtu);
        suite.into_iter().map(with).collect()
    }

    fn round_seconds(&self) -> f64 {
        self.duration.map_or(SECONDS_PER_ROUND, |seconds| seconds / self.rounds.max(1) as f64)
    }
}

/// The largest path MTU that a link carries, with room for all headers.
fn default_mtu(link_mtu: u16) -> usize {
    let link = pumice_transport::types::Mtu::largest_for_link(u32::from(link_mtu));
    link.map_or(256, pumice_transport::types::Mtu::bytes)
}

fn default_depth(size_bytes: usize, post_list: usize, latency: bool) -> usize {
    if latency {
        return 1;
    }
    let for_pipe = ((4 << 20) / size_bytes.max(1)).clamp(16, 256);
    for_pipe.max(post_list.saturating_mul(8).min(super::plan::MAX_OUTSTANDING)).max(post_list)
}
