//! The rows of the table: the measurement, its comparisons, and its goal.

use clap::builder::PossibleValuesParser;
use pumice_device::settings::Wire;
use pumice_perf::{Operation, Plan, PlanBuilder, Service};

use super::figure::{Figure, FigureComparison, alone, at_least, at_most, beside};
use Figure::{
    CacheLines, Futex, Memcpy, OneQueuePair, P99, PerSecond, PlainUdp, Tcp, UcxMemory, UcxTcp, Value,
    Without, YardstickP99,
};

/// A row of the table.
#[derive(Debug)]
pub(super) struct PerfRow {
    /// Name of the row on the command line.
    pub(super) name: &'static str,
    /// Description of its value.
    pub(super) what: &'static str,
    /// Unit of its figures.
    pub(super) unit: &'static str,
    pub(super) work: RowWork,
    /// Measurements by UCX in the same rounds.
    pub(super) peers: &'static [UcxPeer],
    pub(super) comparisons: &'static [FigureComparison],
}

/// The way in which a row is measured.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowWork {
    /// Two ends measure, with the yardstick of the medium. The value is their time
    /// multiplied by `factor`.
    EndPair { plan: fn() -> PlanBuilder, factor: f64 },
    /// The first messages of a connection are measured.
    FirstMessages { plan: fn() -> PlanBuilder, messages: u64 },
    /// Messages of each size are measured; the figure is the smallest bandwidth divided by the largest.
    MessageSizes { plan: fn() -> PlanBuilder, sizes_bytes: &'static [usize] },
    /// Several pairs of processes, each with its own device, are compared with one pair times their number.
    Pairs,
    /// Two ends of UCX run on `pumice run`.
    Ucx { test: UcxTest, messages: u32 },
    /// `ib_send_lat` runs on `pumice run` with an instrument, and without.
    Under(Instrument),
    /// Connections by rdma_cm are compared with connections by TCP.
    Connections,
}

/// An instrument of `pumice run` that is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instrument {
    Check,
    Trace,
}

/// A measurement by UCX.
#[derive(Debug, Clone, Copy)]
pub(super) struct UcxTest {
    pub(super) test: &'static str,
    pub(super) size_bytes: usize,
    pub(super) gives: UcxUnit,
}

/// The kind of figure that is taken from UCX's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UcxUnit {
    Microseconds,
    GigabytesPerSecond,
    MillionsPerSecond,
}

/// UCX on its own transports, as a comparison.
#[derive(Debug, Clone, Copy)]
pub(super) struct UcxPeer {
    pub(super) figure: Figure,
    pub(super) transports: &'static str,
    /// Device of UCX for these transports.
    pub(super) device: &'static str,
    /// Number of messages of a round of 0.25 s.
    pub(super) messages: u32,
    pub(super) test: UcxTest,
}

const TAG_LATENCY: UcxTest = UcxTest { test: "tag_lat", size_bytes: 8, gives: UcxUnit::Microseconds };
const PUT_LATENCY: UcxTest = UcxTest { test: "ucp_put_lat", ..TAG_LATENCY };
const TAG_RATE: UcxTest = UcxTest { test: "tag_bw", size_bytes: 8, gives: UcxUnit::MillionsPerSecond };
const TAG_BANDWIDTH: UcxTest =
    UcxTest { test: "tag_bw", size_bytes: 1 << 20, gives: UcxUnit::GigabytesPerSecond };

const fn ucx_memory(test: UcxTest, messages: u32) -> UcxPeer {
    UcxPeer { figure: UcxMemory, transports: "posix,cma,self", device: "all", messages, test }
}
const fn ucx_tcp(test: UcxTest, messages: u32) -> UcxPeer {
    UcxPeer { figure: UcxTcp, transports: "tcp,self", device: "lo", messages, test }
}

/// Comparisons with messages of 1 MiB, for both directions.
const MEBIBYTE_PEERS: &[UcxPeer] = &[ucx_memory(TAG_BANDWIDTH, 2_000), ucx_tcp(TAG_BANDWIDTH, 1_000)];
const MEBIBYTE_GOALS: &[FigureComparison] =
    &[at_least(beside(Value, UcxMemory), 0.85), at_least(beside(Value, UcxTcp), 1.5), beside(Value, Memcpy)];

fn throughput(operation: Operation, wire: Wire) -> PlanBuilder {
    Plan::throughput(operation, Service::Rc).wire(wire)
}
fn latency(operation: Operation, wire: Wire) -> PlanBuilder {
    Plan::latency(operation, Service::Rc).wire(wire)
}
fn small_sends(post_list: usize) -> PlanBuilder {
    throughput(Operation::Send, Wire::Auto).size_bytes(8).post_list(post_list)
}

/// All rows, in the order in which they are printed.
pub(super) static ROWS: &[PerfRow] = &[
    PerfRow {
        name: "send-latency",
        what: "SEND of 8 bytes through shared memory, half the time until the answer",
        unit: "us",
        work: RowWork::EndPair { plan: || latency(Operation::Send, Wire::Auto), factor: 1.0 },
        peers: &[ucx_memory(TAG_LATENCY, 100_000), ucx_tcp(TAG_LATENCY, 10_000)],
        comparisons: &[
            at_most(alone(Value), 0.45),
            at_most(beside(Value, UcxMemory), 2.5),
            beside(Value, UcxTcp),
            beside(Value, CacheLines),
            at_most(beside(P99, Value), 2.0),
        ],
    },
    PerfRow {
        name: "write-latency",
        what: "WRITE of 8 bytes through shared memory, half the time until its completion",
        unit: "us",
        work: RowWork::EndPair { plan: || latency(Operation::Write, Wire::Auto), factor: 0.5 },
        peers: &[ucx_memory(PUT_LATENCY, 100_000)],
        comparisons: &[
            at_most(alone(Value), 0.40),
            at_most(beside(Value, UcxMemory), 2.5),
            beside(Value, CacheLines),
            at_most(beside(P99, Value), 2.0),
        ],
    },
    PerfRow {
        name: "first-messages",
        what: "the first 100 SENDs of 8 bytes of a connection through shared memory, one way",
        unit: "us",
        work: RowWork::FirstMessages { plan: || latency(Operation::Send, Wire::Auto), messages: 100 },
        peers: &[],
        comparisons: &[alone(Value), at_most(alone(P99), 5.0)],
    },
    PerfRow {
        name: "rate-list-32",
        what: "SENDs of 8 bytes through shared memory, posted in lists of 32",
        unit: "M/s",
        work: RowWork::EndPair { plan: || small_sends(32), factor: 1.0 },
        peers: &[ucx_memory(TAG_RATE, 1_000_000)],
        comparisons: &[at_least(alone(Value), 10.0), beside(Value, UcxMemory), beside(Value, CacheLines)],
    },
    PerfRow {
        name: "rate-list-1",
        what: "SENDs of 8 bytes through shared memory, posted one by one",
        unit: "M/s",
        work: RowWork::EndPair { plan: || small_sends(1), factor: 1.0 },
        peers: &[ucx_memory(TAG_RATE, 1_000_000)],
        comparisons: &[at_least(alone(Value), 7.0), beside(Value, UcxMemory), beside(Value, CacheLines)],
    },
    PerfRow {
        name: "write-1M",
        what: "WRITEs of 1 MiB through shared memory",
        unit: "GB/s",
        work: RowWork::EndPair { plan: || throughput(Operation::Write, Wire::Auto), factor: 1.0 },
        peers: MEBIBYTE_PEERS,
        comparisons: MEBIBYTE_GOALS,
    },
    PerfRow {
        name: "read-1M",
        what: "READs of 1 MiB through shared memory, so that the bytes go the other way",
        unit: "GB/s",
        work: RowWork::EndPair { plan: || throughput(Operation::Read, Wire::Auto), factor: 1.0 },
        peers: MEBIBYTE_PEERS,
        comparisons: MEBIBYTE_GOALS,
    },
    PerfRow {
        name: "sizes",
        what: "WRITEs of 64 KiB to 16 MiB over 4 queue pairs through shared memory: the slowest size by the \
               fastest",
        unit: "",
        work: RowWork::MessageSizes {
            plan: || throughput(Operation::Write, Wire::Auto).qp_count(4).depth(16),
            sizes_bytes: &[64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20],
        },
        peers: &[],
        comparisons: &[at_least(alone(Value), 0.5)],
    },
    PerfRow {
        name: "queue-pairs",
        what: "SENDs of 8 bytes through shared memory over 10,000 queue pairs",
        unit: "M/s",
        work: RowWork::EndPair {
            plan: || throughput(Operation::Send, Wire::Auto).size_bytes(8).qp_count(10_000).depth(1),
            factor: 1.0,
        },
        peers: &[],
        comparisons: &[at_least(beside(Value, OneQueuePair), 0.85)],
    },
    PerfRow {
        name: "pairs",
        what: "SENDs of 8 bytes of one pair of processes for every two processors, each with its own device: \
               their round trips by those of one pair and the number of pairs",
        unit: "",
        work: RowWork::Pairs,
        peers: &[],
        comparisons: &[at_least(alone(Value), 0.9)],
    },
    PerfRow {
        name: "udp-write-1M",
        what: "WRITEs of 1 MiB by UDP",
        unit: "GB/s",
        work: RowWork::EndPair { plan: || throughput(Operation::Write, Wire::Udp), factor: 1.0 },
        peers: &[],
        comparisons: &[at_least(beside(Value, PlainUdp), 0.85)],
    },
    PerfRow {
        name: "udp-read-1M",
        what: "READs of 1 MiB by UDP",
        unit: "GB/s",
        work: RowWork::EndPair { plan: || throughput(Operation::Read, Wire::Udp), factor: 1.0 },
        peers: &[],
        comparisons: &[at_least(beside(Value, PlainUdp), 0.85)],
    },
    PerfRow {
        name: "udp-latency",
        what: "SEND of 8 bytes by UDP, half the time until the answer",
        unit: "us",
        work: RowWork::EndPair { plan: || latency(Operation::Send, Wire::Udp), factor: 1.0 },
        peers: &[],
        comparisons: &[at_most(beside(Value, PlainUdp), 1.12), at_most(beside(P99, YardstickP99), 1.3)],
    },
    PerfRow {
        name: "ucx-latency",
        what: "ucx_perftest -t tag_lat of 8 bytes over rc_v on pumice, through shared memory",
        unit: "us",
        work: RowWork::Ucx { test: TAG_LATENCY, messages: 20_000 },
        peers: &[ucx_memory(TAG_LATENCY, 100_000)],
        comparisons: &[at_most(alone(Value), 0.7), beside(Value, UcxMemory)],
    },
    PerfRow {
        name: "ucx-1M",
        what: "ucx_perftest -t tag_bw of 1 MiB over rc_v on pumice, through shared memory",
        unit: "GB/s",
        work: RowWork::Ucx { test: TAG_BANDWIDTH, messages: 1_000 },
        peers: &[ucx_memory(TAG_BANDWIDTH, 2_000)],
        comparisons: &[at_least(beside(Value, UcxMemory), 0.7)],
    },
    PerfRow {
        name: "check",
        what: "ib_send_lat of 8 bytes under pumice run --check, typical time",
        unit: "us",
        work: RowWork::Under(Instrument::Check),
        peers: &[],
        comparisons: &[at_most(beside(Value, Without), 1.5)],
    },
    PerfRow {
        name: "trace",
        what: "ib_send_lat of 8 bytes under pumice run --trace, typical time",
        unit: "us",
        work: RowWork::Under(Instrument::Trace),
        peers: &[],
        comparisons: &[at_most(beside(Value, Without), 1.3)],
    },
    PerfRow {
        name: "sleeping",
        what: "SEND of 8 bytes through shared memory between ends that sleep, half the time until the answer",
        unit: "us",
        work: RowWork::EndPair { plan: || latency(Operation::Send, Wire::Auto).events(true), factor: 1.0 },
        peers: &[],
        comparisons: &[at_most(beside(Value, Futex), 1.0), beside(P99, YardstickP99)],
    },
    PerfRow {
        name: "udp-sleeping",
        what: "SEND of 8 bytes by UDP between ends that sleep, half the time until the answer",
        unit: "us",
        work: RowWork::EndPair { plan: || latency(Operation::Send, Wire::Udp).events(true), factor: 1.0 },
        peers: &[],
        comparisons: &[at_most(beside(Value, PlainUdp), 1.0), beside(P99, YardstickP99)],
    },
    PerfRow {
        name: "connections",
        what: "connections by rdma_cm, one after the other, each with queue pairs of its own: time until one \
               is established",
        unit: "ms",
        work: RowWork::Connections,
        peers: &[],
        comparisons: &[at_least(alone(PerSecond), 2000.0), beside(Value, Tcp), at_most(alone(P99), 5.0)],
    },
];

/// Returns the parser of row names.
pub(super) fn row_names() -> PossibleValuesParser {
    PossibleValuesParser::new(ROWS.iter().map(|row| row.name))
}
