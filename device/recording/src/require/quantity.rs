//! The table of quantities: their names, meanings and units.

use std::fmt;

/// The kind of unit in which a quantity is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityKind {
    /// A number.
    Count,
    /// Bytes: `64`, `4KiB`, `1.5MB`, `1GB`.
    Bytes,
    /// A time: `50us`, `1.5ms`.
    Time,
    /// Bits per second: `10Gbit`.
    Rate,
}

/// Units with their size in the base unit: ns, bytes, bits per second.
type Units = &'static [(&'static str, f64)];

const COUNTS: Units = &[("", 1.0)];
const SIZES: Units = &[
    ("", 1.0),
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];
const TIMES: Units = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATES: Units = &[("bit", 1.0), ("Kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9), ("Tbit", 1e12)];

impl QuantityKind {
    /// Returns the units that a value may have.
    pub const fn units(self) -> Units {
        match self {
            QuantityKind::Count => COUNTS,
            QuantityKind::Bytes => SIZES,
            QuantityKind::Time => TIMES,
            QuantityKind::Rate => RATES,
        }
    }

    /// Returns an example of a value, for an error message about a wrong one.
    pub const fn example(self) -> &'static str {
        match self {
            QuantityKind::Count => "a number, as 0 or 12",
            QuantityKind::Bytes => "bytes, as 64, 4KiB or 1GB",
            QuantityKind::Time => "a time, as 500ns, 50us, 1.5ms or 2s",
            QuantityKind::Rate => "a rate, as 100Mbit or 10Gbit",
        }
    }

    /// Returns a value in words.
    pub fn shown(self, value: f64) -> String {
        match self {
            QuantityKind::Count => format!("{value:.0}"),
            QuantityKind::Bytes => scaled(value, &[("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)]),
            QuantityKind::Time => scaled(value, TIMES),
            QuantityKind::Rate => scaled(value, RATES),
        }
    }
}

/// Returns a value in the largest unit of which it has at least one.
fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let fits = units.iter().rev().find(|(_, unit)| value >= *unit).or(units.first());
    match fits {
        Some((name, unit)) if value % unit == 0.0 => format!("{:.0} {name}", value / unit),
        Some((name, unit)) => format!("{:.2} {name}", value / unit),
        None => value.to_string(),
    }
}

/// Makes the table of plain quantities.
macro_rules! quantities {
    ($($name:ident { $word:literal, [$($alias:literal),*], $kind:ident, $meaning:literal })*) => {
        /// A quantity that can be required.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each has a row with its words")]
        pub enum Quantity {
            $($name,)*
            /// Latency of operations: from the post until the program had polled their completions.
            Latency(Statistic, MeasuredOperation),
            /// Latency as benchmarks print it: from the post until the other end has the message; of READs
            /// and atomics until the program has what it asked for.
            Delivery(Statistic, MeasuredOperation),
        }

        /// All plain quantities, for documentation and messages.
        pub const QUANTITIES: &[QuantityInfo] = &[
            $(QuantityInfo {
                quantity: Quantity::$name,
                name: $word,
                aliases: &[$($alias),*],
                kind: QuantityKind::$kind,
                meaning: $meaning,
            },)*
        ];
    };
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct QuantityInfo {
    /// The quantity.
    pub quantity: Quantity,
    /// Name of the quantity.
    pub name: &'static str,
    /// Other names for it, such as the singular.
    pub aliases: &'static [&'static str],
    /// Kind of its unit.
    pub kind: QuantityKind,
    /// Meaning of the quantity.
    pub meaning: &'static str,
}

quantities! {
    RdmaBytes { "rdma.bytes", ["bytes"], Bytes, "payload that packets of queue pairs carried, sent and \
        received; what was sent again counts once. A program that uses TCP has 0" }
    RdmaSent { "rdma.sent", [], Bytes, "the part of it that was sent" }
    RdmaReceived { "rdma.received", [], Bytes, "the part of it that was received" }
    RdmaPackets { "rdma.packets", ["packets"], Count, "packets of queue pairs, sent and received" }
    RdmaRate { "rdma.rate", ["rate"], Rate, "bits of that payload in a second, from the first packet to the \
        last one" }
    Messages { "messages", ["message"], Count, "send requests that completed with success, unsignaled ones \
        included, and messages received" }
    Failures { "failures", ["failure", "errors", "error"], Count, "send and receive requests that completed \
        with an error, without those that were flushed" }
    Flushed { "flushed", [], Count, "send and receive requests that were flushed" }
    Unfinished { "unfinished", [], Count, "send requests that had not ended when the trace ended" }
    Retransmissions { "retransmissions", ["retransmission", "retransmits", "retries", "retry"], Count,
        "packets that were sent again" }
    Timeouts { "timeouts", ["timeout"], Count, "acknowledgement timers that expired" }
    Rnr { "rnr", ["rnr.naks"], Count, "RNR NAKs, sent and received: a message came, and no receive request \
        was posted" }
    Drops { "drops", ["drop", "dropped", "losses", "loss"], Count, "packets that were dropped on arrival, \
        and those that a fault plan lost" }
    Duplicates { "duplicates", ["duplicate"], Count, "requests that came again" }
    Congestion { "congestion", ["cnp", "cnps", "ecn"], Count, "congestion notifications that came, and \
        packets that came marked" }
    Refusals { "refusals", ["refusal", "refused.calls"], Count, "calls of verbs that were refused" }
    Faults { "faults", ["fault"], Count, "things that rules of a fault plan did" }
    Stalls { "stalls", ["stall"], Count, "times of 20 ms and more in which a process had no processor" }
    QueuePairs { "queue.pairs", ["queue.pair", "qps", "connections", "connection"], Count, "queue pairs that \
        carried packets" }
    Peers { "peers", [], Count, "addresses that packets went to or came from" }
    Processes { "processes", ["process"], Count, "openings of a device that the traces have" }
    Duration { "duration", ["time"], Time, "from the first record to the last one" }
}

/// A statistic over the times of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// The minimum.
    Min,
    /// The mean.
    Mean,
    /// The maximum.
    Max,
    /// The quantile in permille: the time that this many of 1000 operations do not exceed.
    Permille(u16),
}

/// A class of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MeasuredOperation {
    /// All operations.
    Message,
    /// SEND, also with immediate data.
    Send,
    /// RDMA WRITE, also with immediate data.
    Write,
    /// RDMA READ.
    Read,
    /// Atomics.
    Atomic,
}

/// The names of statistics.
pub(super) const STATISTICS: [(&str, Statistic); 7] = [
    ("min", Statistic::Min),
    ("mean", Statistic::Mean),
    ("max", Statistic::Max),
    ("p50", Statistic::Permille(500)),
    ("p90", Statistic::Permille(900)),
    ("p99", Statistic::Permille(990)),
    ("p99.9", Statistic::Permille(999)),
];
/// The words before an operation whose delivery is meant.
pub(super) const DELIVERY: &str = "latency of ";
/// The names of operations.
pub(super) const OPERATIONS: [(&str, MeasuredOperation); 5] = [
    ("message", MeasuredOperation::Message),
    ("send", MeasuredOperation::Send),
    ("write", MeasuredOperation::Write),
    ("read", MeasuredOperation::Read),
    ("atomic", MeasuredOperation::Atomic),
];

impl Quantity {
    /// Returns the kind of unit in which the quantity is counted.
    pub fn kind(self) -> QuantityKind {
        self.info().map_or(QuantityKind::Time, |info| info.kind)
    }

    fn info(self) -> Option<&'static QuantityInfo> {
        QUANTITIES.iter().find(|info| info.quantity == self)
    }

    /// Names what a run has to contain so that the quantity can be measured.
    pub(super) fn needed_records(self) -> String {
        match self {
            Quantity::Latency(_, operation) => {
                let known = OPERATIONS.iter().find(|(_, one)| *one == operation);
                format!("{} that completed with success", known.map_or("message", |(word, _)| word))
            }
            Quantity::Delivery(_, operation) => {
                let known = OPERATIONS.iter().find(|(_, one)| *one == operation);
                format!("{} of which both ends are known", known.map_or("message", |(word, _)| word))
            }
            _ => "packet of a queue pair".to_owned(),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Latency(statistic, operation) | Quantity::Delivery(statistic, operation) => {
                let statistic = STATISTICS.iter().find(|(_, one)| one == statistic);
                let operation = OPERATIONS.iter().find(|(_, one)| one == operation);
                let words = (statistic.map_or("", |(word, _)| word), operation.map_or("", |(word, _)| word));
                let of = if matches!(self, Quantity::Delivery(..)) { DELIVERY } else { "" };
                write!(f, "{}({of}{})", words.0, words.1)
            }
            plain => f.write_str(plain.info().map_or("", |info| info.name)),
        }
    }
}
