//! What is known of the program, and how a finding is made of it.

use std::collections::BTreeMap;
use std::fmt;

use super::kind::{Family, FindingKind};
use super::memory::Memory;
use super::objects::Objects;
use super::of_device::OfDevice;
use super::orders::Ordering;
use super::queues::{Async, Cq, Posts, Qp, Srq, Threads};
use super::recorded::{Findings, Recorded, Related};
use super::stack::{Stack, Stacks};

/// Puts the return addresses of the program's frames into a list, innermost first.
pub type Capture = fn(&mut Vec<u64>);

/// Looks at what a program does with verbs, and knows what is wrong with it.
///
/// It is told of calls by those who take them, and of events by [`super::CheckSubscriber`]. It calls nothing
/// but [`Capture`].
pub struct Checker {
    capture: Capture,
    stacks: Stacks,
    /// Return addresses of the stack that is being captured; its memory is used again.
    addresses: Vec<u64>,
    findings: Findings,
    pub(super) objects: Objects,
    /// What it is told is about this device.
    pub(super) own: OfDevice,
    /// By handle, as [`OfDevice::handle`] makes it.
    pub(super) cqs: BTreeMap<u32, Cq>,
    /// Their handles by the addresses of the program's pointers.
    pub(super) cq_handles: BTreeMap<u64, u32>,
    /// Descriptors of completion channels, by the addresses of the program's pointers.
    pub(super) channels: BTreeMap<u64, i32>,
    /// By number.
    pub(super) qps: BTreeMap<u32, Qp>,
    /// By handle, as for completion queues.
    pub(super) srqs: BTreeMap<u32, Srq>,
    /// Looks for slow ways too.
    pub(super) looks_for_slow: bool,
    /// The program has asked for safe forks, or asked whether they are.
    pub(super) knows_forks: bool,
    /// The program has asked for attributes that the connection manager chooses.
    pub(super) asks_for_attributes: bool,
    pub(super) posts: Posts,
    pub(super) ordering: Ordering,
    /// Registrations by call site, for those who look for slow ways.
    pub(super) registrations: BTreeMap<u64, u32>,
    /// What posted requests use.
    pub(super) memory: Memory,
    /// Asynchronous events.
    pub(super) asynchronous: Async,
    /// Objects that one thread at a time may use.
    pub(super) threads: Threads,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("findings", &self.findings).finish_non_exhaustive()
    }
}

/// What a check found, before it is an entry.
pub(super) struct Found {
    pub(super) object: String,
    pub(super) numbers: String,
    pub(super) stack: Stack,
    pub(super) related: Vec<Related>,
}

impl Checker {
    /// Knows of nothing yet. `looks_for_slow`: slow ways are findings too.
    pub fn new(capture: Capture, looks_for_slow: bool) -> Checker {
        Checker {
            capture,
            stacks: Stacks::default(),
            addresses: Vec::new(),
            findings: Findings::default(),
            objects: Objects::default(),
            own: OfDevice::default(),
            cqs: BTreeMap::new(),
            cq_handles: BTreeMap::new(),
            channels: BTreeMap::new(),
            qps: BTreeMap::new(),
            srqs: BTreeMap::new(),
            looks_for_slow,
            knows_forks: false,
            asks_for_attributes: false,
            posts: Posts::default(),
            ordering: Ordering::default(),
            registrations: BTreeMap::new(),
            memory: Memory::default(),
            asynchronous: Async::default(),
            threads: Threads::default(),
        }
    }

    /// What it is told from now on is about this device.
    pub fn on(&mut self, device: OfDevice) -> &mut Checker {
        self.own = device;
        self
    }

    /// What was found.
    pub fn findings(&mut self) -> &mut Findings {
        &mut self.findings
    }

    /// Where the calling thread is.
    pub(super) fn here(&mut self) -> Stack {
        self.addresses.clear();
        (self.capture)(&mut self.addresses);
        self.stacks.keep(&self.addresses)
    }

    /// The stack with these return addresses, innermost first.
    pub(super) fn stack_of(&mut self, addresses: &[u64]) -> Stack {
        self.stacks.keep(addresses)
    }

    pub(super) fn found(&mut self, kind: &'static FindingKind, found: Found) {
        if kind.family == Family::Slow && !self.looks_for_slow {
            return;
        }
        let Found { object, numbers, stack, related } = found;
        let is_other = |one: &Related| !one.place.is_unknown() && one.place != stack;
        let related = related.into_iter().filter(is_other).collect();
        self.findings.add(Recorded { kind, place: stack, object, numbers, related, count: 1 });
    }

    /// It was found once more, with a stack that need not be told apart.
    pub(super) fn found_again(&mut self, kind: &'static FindingKind, object: &str) {
        self.findings.again(kind, object);
    }
}

/// Another stack of a finding.
pub(super) fn related(what: impl Into<String>, stack: &Stack) -> Related {
    Related { what: what.into(), place: stack.clone() }
}

/// As in "1 packet" and "2 packets".
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
