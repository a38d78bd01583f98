//! The table of quantities: their names, what they are, and in which unit.

use std::fmt;

/// What a quantity is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantityKind {
    /// A number.
    Count,
    /// Bytes: `64`, `4KiB`, `1.5MB`, `1GB`.
    Bytes,
    /// A time: `50us`, `1.5ms`.
    Time,
    /// Bits in a second: `10Gbit`.
    Rate,
}

/// Units and what they are in the base unit: ns, bytes, bits in a second.
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
    /// The units that a value may have.
    pub const fn units(self) -> Units {
        match self {
            QuantityKind::Count => COUNTS,
            QuantityKind::Bytes => SIZES,
            QuantityKind::Time => TIMES,
            QuantityKind::Rate => RATES,
        }
    }

    /// How a value is written, for those who wrote another one.
    pub const fn example(self) -> &'static str {
        match self {
            QuantityKind::Count => "a number, as 0 or 12",
            QuantityKind::Bytes => "bytes, as 64, 4KiB or 1GB",
            QuantityKind::Time => "a time, as 500ns, 50us, 1.5ms or 2s",
            QuantityKind::Rate => "a rate, as 100Mbit or 10Gbit",
        }
    }

    /// A value in words.
    pub fn shown(self, value: f64) -> String {
        match self {
            QuantityKind::Count => format!("{value:.0}"),
            QuantityKind::Bytes => scaled(value, &[("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9)]),
            QuantityKind::Time => scaled(value, TIMES),
            QuantityKind::Rate => scaled(value, RATES),
        }
    }
}

/// A value in the largest unit of which it has one.
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
        /// What can be required.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each has a row with its words")]
        pub enum Quantity {
            $($name,)*
            /// How long operations took, from the post until the program had their completions.
            Latency(Statistic, Operation),
        }

        /// All plain quantities, for people.
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
    /// Which one.
    pub quantity: Quantity,
    /// Its name.
    pub name: &'static str,
    /// Other names for it, such as the singular.
    pub aliases: &'static [&'static str],
    /// What it is counted in.
    pub kind: QuantityKind,
    /// What it is.
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

/// What of the times of operations is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Statistic {
    /// The least.
    Min,
    /// The mean.
    Mean,
    /// The largest.
    Max,
    /// The one below which so many of 1000 are.
    Permille(u16),
}

/// Which operations are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// All.
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

/// The words for statistics.
pub(super) const STATISTICS: [(&str, Statistic); 7] = [
    ("min", Statistic::Min),
    ("mean", Statistic::Mean),
    ("max", Statistic::Max),
    ("p50", Statistic::Permille(500)),
    ("p90", Statistic::Permille(900)),
    ("p99", Statistic::Permille(990)),
    ("p99.9", Statistic::Permille(999)),
];
/// The words for operations.
pub(super) const OPERATIONS: [(&str, Operation); 5] = [
    ("message", Operation::Message),
    ("send", Operation::Send),
    ("write", Operation::Write),
    ("read", Operation::Read),
    ("atomic", Operation::Atomic),
];

impl Quantity {
    /// What it is counted in.
    pub fn kind(self) -> QuantityKind {
        self.info().map_or(QuantityKind::Time, |info| info.kind)
    }

    fn info(self) -> Option<&'static QuantityInfo> {
        QUANTITIES.iter().find(|info| info.quantity == self)
    }

    /// What there must be some of, if it is to be measured.
    pub(super) fn of_what(self) -> String {
        match self {
            Quantity::Latency(_, operation) => {
                let known = OPERATIONS.iter().find(|(_, one)| *one == operation);
                format!("{} that completed with success", known.map_or("message", |(word, _)| word))
            }
            _ => "packet of a queue pair".to_owned(),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Quantity::Latency(statistic, operation) => {
                let statistic = STATISTICS.iter().find(|(_, one)| one == statistic);
                let operation = OPERATIONS.iter().find(|(_, one)| one == operation);
                let words = (statistic.map_or("", |(word, _)| word), operation.map_or("", |(word, _)| word));
                write!(f, "{}({})", words.0, words.1)
            }
            plain => f.write_str(plain.info().map_or("", |info| info.name)),
        }
    }
}
