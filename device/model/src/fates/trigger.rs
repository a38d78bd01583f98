//! Triggers that a rule waits for before it begins, partitions, and patterns in texts.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_platform::ordinal::Ordinal;
use pumice_transport::types::AsyncEventType;

use self::matches as matches_tag;

/// Reports whether a text matches a pattern, in which `*` stands for any characters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(end)
}

/// The partitions that a plan has begun: shared by the code that decides and the port, which refuses packets
/// from the other side.
#[derive(Debug, Clone, Default)]
pub struct Partitions(Arc<PartitionList>);

#[derive(Debug, Default)]
struct PartitionList {
    /// True if there is a partition, perhaps one that is over.
    any: AtomicBool,
    /// Number of partitions that began or were ended early.
    changes: AtomicU64,
    list: Mutex<Vec<Partition>>,
}

/// A separation of the device, or of some of its addresses, from peers for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The separated peers; empty: all.
    pub peers: Vec<IpAddr>,
    /// The device's own addresses that are cut off; empty: all.
    pub own: Vec<IpAddr>,
    /// The number of the port that is cut off from all peers.
    pub port_num: Option<u8>,
    /// End of the partition, in ns of the device's clock; `u64::MAX` if it never ends.
    pub until_ns: u64,
}

impl Partition {
    /// Reports whether the partition separates this address of the device from this peer while it holds.
    pub fn parts(&self, own: IpAddr, peer: IpAddr) -> bool {
        let is_of = |list: &[IpAddr], address| list.is_empty() || list.contains(&address);
        is_of(&self.peers, peer) && is_of(&self.own, own)
    }
}

/// Most partitions at a time; further ones are not added.
pub const MAX_PARTITIONS: usize = 1024;

impl Partitions {
    /// Begins a partition from these peers; empty: from all.
    pub fn begin(&self, peers: &[IpAddr], until_ns: u64) {
        self.add(Partition { peers: peers.to_vec(), own: Vec::new(), port_num: None, until_ns });
    }

    /// Cuts off a port of the device, which has these addresses; without addresses all are cut off.
    pub fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        self.add(Partition { peers: Vec::new(), own, port_num: Some(port_num), until_ns });
    }

    #[doc(hidden)]
    pub fn add(&self, partition: Partition) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX_PARTITIONS {
            list.push(partition);
        }
        self.0.any.store(true, Ordering::Release);
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Ends what [`Partitions::cut_off`] began.
    pub fn rejoin(&self, port_num: u8) {
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| partition.port_num != Some(port_num));
        self.0.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of partitions that began or were ended early.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// Returns the partitions that hold now.
    pub fn holding(&self, now_ns: u64) -> Vec<Partition> {
        let list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter(|partition| now_ns < partition.until_ns).cloned().collect()
    }

    /// Reports whether there may be a partition.
    #[inline]
    pub fn any(&self) -> bool {
        self.0.any.load(Ordering::Acquire)
    }

    /// Reports whether a partition separates this address of the device from this peer.
    pub fn part(&self, own: IpAddr, peer: IpAddr, now_ns: u64) -> bool {
        if !self.any() {
            return false;
        }
        let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|partition| now_ns < partition.until_ns);
        if list.is_empty() {
            self.0.any.store(false, Ordering::Release);
        }
        list.iter().any(|partition| partition.parts(own, peer))
    }
}

/// An occurrence in a process after which a rule begins.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Trigger {
    /// The rule of this name has applied.
    Rule(String),
    /// The given number of work requests has been executed, whether they make a completion or not.
    Completions {
        /// Number of work requests, at least 1.
        count: u64,
        /// Ordinal of the queue pair that executes them; `None`: all together.
        qp: Option<u32>,
    },
    /// Executed work requests have moved the given number of bytes.
    Bytes {
        /// Number of bytes, at least 1.
        count: u64,
        /// Ordinal of the queue pair that moves them; `None`: all together.
        qp: Option<u32>,
    },
    /// The given number of calls of libibverbs or librdmacm has returned.
    Calls {
        /// The name of the calls; `*` stands for any characters.
        call: String,
        /// Number of calls, at least 1.
        count: u64,
    },
    /// The program has got this asynchronous event.
    Event(AsyncEventType),
    /// The given time has passed since the device was opened: not at the same point in every run.
    Time {
        /// The time, in ns.
        ns: u64,
    },
}

/// Returns the name of an asynchronous event in plans.
pub const fn event_word(event: AsyncEventType) -> &'static str {
    match event {
        AsyncEventType::CqErr => "cq-error",
        AsyncEventType::QpFatal => "qp-fatal",
        AsyncEventType::QpReqErr => "qp-request-error",
        AsyncEventType::QpAccessErr => "qp-access-error",
        AsyncEventType::CommEst => "communication-established",
        AsyncEventType::SqDrained => "sq-drained",
        AsyncEventType::DeviceFatal => "device-fatal",
        AsyncEventType::PortActive => "port-active",
        AsyncEventType::PortErr => "port-error",
        AsyncEventType::PkeyChange => "pkey-change",
        AsyncEventType::SrqErr => "srq-error",
        AsyncEventType::SrqLimitReached => "srq-limit",
        AsyncEventType::QpLastWqeReached => "last-wqe-reached",
        AsyncEventType::GidChange => "gid-change",
        AsyncEventType::LidChange => "lid-change",
        AsyncEventType::PathMig => "path-mig",
        AsyncEventType::PathMigErr => "path-mig-error",
    }
}

/// An occurrence that rules may wait for.
#[derive(Debug, Clone, Copy)]
pub enum Occurrence<'a> {
    /// A rule applied.
    Rule(&'a str),
    /// A work request of the queue pair with this ordinal was executed.
    #[doc(hidden)]
    WorkRequest { qp: u32, length_bytes: u32 },
    /// A call has returned.
    Call(&'a str),
    /// The program got an asynchronous event.
    Event(AsyncEventType),
}

impl Trigger {
    /// Returns how many units of the awaited occurrence have to happen: events, requests, bytes or calls.
    pub const fn amount(&self) -> u64 {
        match self {
            Trigger::Rule(_) | Trigger::Event(_) => 1,
            Trigger::Completions { count, .. } | Trigger::Bytes { count, .. } => *count,
            Trigger::Calls { count, .. } => *count,
            Trigger::Time { .. } => 0,
        }
    }

    /// Returns how many of these units an occurrence contributes.
    pub fn amount_of(&self, occurrence: Occurrence<'_>) -> u64 {
        let is_on = |wanted: Option<u32>, qp: u32| {
            wanted.is_none_or(|wanted| Ordinal(qp).matches_selector(Ordinal(wanted)))
        };
        match (self, occurrence) {
            (Trigger::Rule(name), Occurrence::Rule(rule)) => u64::from(name == rule),
            (Trigger::Completions { qp: wanted, .. }, Occurrence::WorkRequest { qp, .. }) => {
                u64::from(is_on(*wanted, qp))
            }
            (Trigger::Bytes { qp: wanted, .. }, Occurrence::WorkRequest { qp, length_bytes }) => {
                if is_on(*wanted, qp) { length_bytes.into() } else { 0 }
            }
            (Trigger::Calls { call, .. }, Occurrence::Call(made)) => u64::from(matches_tag(call, made)),
            (Trigger::Event(wanted), Occurrence::Event(event)) => u64::from(*wanted == event),
            (_, _) => 0,
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |f: &mut fmt::Formatter<'_>, what: &str, count: u64, qp: Option<u32>| match qp {
            Some(qp) => write!(f, "{what} {count} qp={}", Ordinal(qp)),
            None => write!(f, "{what} {count}"),
        };
        match self {
            Trigger::Rule(name) => write!(f, "rule {name}"),
            Trigger::Completions { count, qp } => counted(f, "completions", *count, *qp),
            Trigger::Bytes { count, qp } => counted(f, "bytes", *count, *qp),
            Trigger::Calls { call, count } => write!(f, "call {call} {count}"),
            Trigger::Event(event) => write!(f, "event {}", event_word(*event)),
            Trigger::Time { ns } => write!(f, "time {ns}ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_ends_and_parts_its_peers_only() {
        let [own, one, other] = [9, 1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let partitions = Partitions::default();
        assert!(!partitions.any() && !partitions.part(own, one, 0));
        partitions.begin(&[one], 50);
        assert!(partitions.part(own, one, 49) && !partitions.part(own, other, 49));
        partitions.cut_off(1, Vec::new(), u64::MAX);
        assert!(partitions.part(own, one, 50) && partitions.part(own, other, 50));
        partitions.rejoin(1);
        assert!(!partitions.part(own, other, 50));
        assert_eq!((partitions.changes(), partitions.holding(51).len()), (3, 0));
        let brief = Partitions::default();
        brief.begin(&[one], 50);
        assert!(!brief.part(own, one, 50) && !brief.any());
    }

    #[test]
    fn a_port_is_cut_off_and_the_other_one_is_not() {
        let [first, second, peer] = [1, 2, 9].map(|last| IpAddr::from([10, 0, 0, last]));
        let partitions = Partitions::default();
        partitions.cut_off(2, vec![second], u64::MAX);
        assert!(partitions.part(second, peer, 0) && !partitions.part(first, peer, 0));
        partitions.rejoin(1);
        assert!(partitions.part(second, peer, 0), "that was the other port");
        partitions.rejoin(2);
        assert!(!partitions.part(second, peer, 0));
    }
}
