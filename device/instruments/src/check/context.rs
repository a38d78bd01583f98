//! What is known of the program, which all checks share, and how a finding is made of it.

use std::collections::BTreeMap;
use std::fmt;

use pumice_ground::call_stack::{Stack, Stacks};
use pumice_ground::number_map::NumberMap;

use super::holder::own_call;
use super::kind::{Family, FindingKind};
use super::means::Means;
use super::objects::Objects;
use super::of_device::OfDevice;
use super::queues::{Cq, Qp, Srq};
use super::recorded::{Findings, Recorded, Related};

/// Puts the return addresses of the program's frames into a list, innermost first.
pub type Capture = fn(&mut Vec<u64>);

/// What all checks share. The checker keeps it; checks read it, ask it where the program is, and tell it what
/// they found.
pub(super) struct Context {
    pub(super) capture: Capture,
    stacks: Stacks,
    /// Return addresses of the stack that is being captured; its memory is used again.
    addresses: Vec<u64>,
    /// The stack that was captured last, if that was in a call of the program's.
    pub(super) latest: Option<(u64, Stack)>,
    /// Calls of the program that have begun.
    pub(super) calls: u64,
    pub(super) findings: Findings,
    /// Looks for slow ways too.
    pub(super) looks_for_slow: bool,
    pub(super) means: Means,
    pub(super) objects: Objects,
    /// What the checker is told is about this device.
    pub(super) own: OfDevice,
    /// By handle, as [`OfDevice::handle`] makes it.
    pub(super) cqs: NumberMap<u32, Cq>,
    /// Their handles by the addresses of the program's pointers.
    pub(super) cq_handles: NumberMap<u64, u32>,
    /// Descriptors of completion channels, by the addresses of the program's pointers.
    pub(super) channels: BTreeMap<u64, i32>,
    /// By number.
    pub(super) qps: NumberMap<u32, Qp>,
    /// By handle, as for completion queues.
    pub(super) srqs: BTreeMap<u32, Srq>,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("findings", &self.findings).finish_non_exhaustive()
    }
}

/// What a check found, before it is an entry.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) object: String,
    pub(super) numbers: String,
    pub(super) stack: Stack,
    pub(super) related: Vec<Related>,
}

impl Context {
    /// Knows of nothing yet. `looks_for_slow`: slow ways are findings too.
    pub(super) fn new(capture: Capture, looks_for_slow: bool) -> Context {
        Context {
            capture,
            stacks: Stacks::default(),
            addresses: Vec::new(),
            latest: None,
            calls: 0,
            findings: Findings::default(),
            looks_for_slow,
            means: Means::default(),
            objects: Objects::default(),
            own: OfDevice::default(),
            cqs: NumberMap::default(),
            cq_handles: NumberMap::default(),
            channels: BTreeMap::new(),
            qps: NumberMap::default(),
            srqs: BTreeMap::new(),
        }
    }

    /// Where the calling thread is. That takes some 10 µs, once in a call.
    pub(super) fn here(&mut self) -> Stack {
        let call = own_call();
        if let Some((of, stack)) = &self.latest
            && call == Some(*of)
        {
            return stack.clone();
        }
        self.addresses.clear();
        (self.capture)(&mut self.addresses);
        let stack = self.stacks.keep(&self.addresses);
        self.latest = call.map(|call| (call, stack.clone()));
        stack
    }

    /// The stack with these return addresses, innermost first.
    pub(super) fn stack_of(&mut self, addresses: &[u64]) -> Stack {
        self.stacks.keep(addresses)
    }

    /// Something of this kind was found.
    pub(super) fn found(&mut self, kind: &'static FindingKind, found: Found) {
        if kind.family == Family::Slow && !self.looks_for_slow {
            return;
        }
        let Found { object, numbers, stack, related } = found;
        let is_other = |one: &Related| !one.place.is_unknown() && one.place != stack;
        let related = related.into_iter().filter(is_other).collect();
        self.findings.add(Recorded { kind, place: stack, object, numbers, related, count: 1 });
    }

    /// Whether something was found that names one of these objects, other than by a failure alone.
    pub(super) fn is_found_of(&self, names: &[String]) -> bool {
        let tells = |one: &&Recorded| !matches!(one.kind.family, Family::Slow | Family::Failed);
        self.findings
            .all()
            .iter()
            .filter(tells)
            .any(|one| names.iter().any(|name| one.object.contains(name) || one.numbers.contains(name)))
    }

    /// Whether something was found there, other than a failure alone.
    pub(super) fn is_found_at(&self, place: &Stack) -> bool {
        let tells = |one: &&Recorded| !matches!(one.kind.family, Family::Slow | Family::Failed);
        self.findings.all().iter().filter(tells).any(|one| one.place == *place)
    }

    /// It was found once more, with a stack that need not be told apart.
    pub(super) fn found_again(&mut self, kind: &'static FindingKind, object: &str) {
        self.findings.again(kind, object);
    }

    /// A queue pair was reset or destroyed: its requests and its completions vanish.
    pub(super) fn forget_requests(&mut self, qp: &mut Qp) {
        for (handle, expected, unpolled) in [
            (qp.send_cq, &mut qp.signaled, &mut qp.sends_unpolled),
            (qp.recv_cq, &mut qp.receives, &mut qp.receives_unpolled),
        ] {
            if let Some(cq) = self.cqs.get_mut(&handle) {
                cq.expected = cq.expected.saturating_sub(*expected);
                cq.unpolled = cq.unpolled.saturating_sub(*unpolled);
                cq.stir();
            }
            (*expected, *unpolled) = (0, 0);
        }
        qp.sends = 0;
    }

    /// A request was posted that will complete on this queue.
    pub(super) fn expect(&mut self, handle: u32) {
        if let Some(cq) = self.cqs.get_mut(&handle) {
            cq.expected = cq.expected.saturating_add(1);
        }
    }

    /// Whether the peer of a queue pair is another one of this process.
    pub(super) fn is_connected_to_own(&self, number: u32) -> bool {
        let own = self.qps.get(&number).filter(|qp| qp.peer_is_here);
        own.and_then(|qp| qp.destination).is_some_and(|other| self.qps.contains_key(&other))
    }

    /// This process is a child: what there is belongs to the parent, who tells of what was found.
    pub(super) fn forked(&mut self) {
        self.objects.forked();
        self.cqs.clear();
        self.cq_handles.clear();
        self.qps.clear();
        self.srqs.clear();
        self.findings = Findings::default();
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

/// As in "2 completions wait".
pub(super) fn waiting(count: u64) -> String {
    format!("{} {}", counted(count, "completion"), if count == 1 { "waits" } else { "wait" })
}
