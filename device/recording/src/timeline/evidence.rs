//! The events of a process's trace that may be the cause of something, and the limit on what a timeline
//! stores.

use pumice_model::fates::incident::IncidentKind;

use crate::format::TracedFaultAction;

/// Maximum number of packets, messages, receives, moments and ways in a timeline, of all traces together:
/// some 2 GB.
const MAX_ITEMS: u64 = 24 << 20;
/// Maximum number of queue pairs in a timeline.
const MAX_QUEUE_PAIRS: u64 = 1 << 18;

/// The remaining capacity of a timeline.
#[derive(Debug)]
pub(super) struct TimelineBudget {
    items: u64,
    queue_pairs: u64,
    /// Number of records that are not stored.
    pub(super) left_out: u64,
}

impl Default for TimelineBudget {
    fn default() -> TimelineBudget {
        TimelineBudget { items: MAX_ITEMS, queue_pairs: MAX_QUEUE_PAIRS, left_out: 0 }
    }
}

impl TimelineBudget {
    /// Takes room for one more item, and returns whether there was any.
    pub(super) fn take(&mut self) -> bool {
        if self.items == 0 {
            self.left_out += 1;
            return false;
        }
        self.items -= 1;
        true
    }

    /// Takes room for one more queue pair, and returns whether there was any.
    pub(super) fn take_queue_pair(&mut self) -> bool {
        if self.queue_pairs == 0 {
            self.left_out += 1;
            return false;
        }
        self.queue_pairs -= 1;
        true
    }
}

/// Maximum number of events of each kind that are stored.
const MAX_FACTS: usize = 1 << 18;

/// Events of a process that may be causes.
#[derive(Debug, Default)]
pub struct CauseEvidence {
    /// Effects of fault plan rules, in order.
    pub faults: Vec<FaultFact>,
    /// Calls that were refused, in order.
    pub refusals: Vec<RefusedCall>,
    /// Times in which the process had no processor: from, to.
    pub stalls_ns: Vec<(u64, u64)>,
    /// Times at which memory was registered, in order.
    pub registrations_ns: Vec<u64>,
    /// The link of the device, as `PUMICE_LINK` writes it, and its switches; empty if there are none.
    pub network: (String, String),
}

/// An effect of a fault plan rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultFact {
    /// Time of the effect, in ns.
    pub at_ns: u64,
    /// Name of the rule.
    pub rule: String,
    /// Action of the rule.
    pub what: TracedFaultAction,
    /// Ordinal of the queue pair, if the fault is about one.
    pub qp: Option<u32>,
    /// Side, as in `Record::FaultDetail`.
    pub side: u8,
    /// Message, as in `Record::FaultDetail`.
    pub message: u64,
    /// Subject, as in `Record::FaultDetail`.
    pub subject: String,
    /// Ordinal, as in `Record::FaultDetail`.
    pub ordinal: u64,
    /// Delay in ns, as in `Record::FaultDetail`.
    pub delay_ns: u64,
    /// Duration in ns, as in `Record::FaultDetail`.
    pub lasts_ns: u64,
}

impl FaultFact {
    /// Returns the kind of incident that happened to the device, if one did.
    pub fn incident(&self) -> Option<IncidentKind> {
        let word = self.subject.split(' ').next().filter(|_| self.what == TracedFaultAction::Incident)?;
        IncidentKind::of(word)
    }

    /// Returns the end of the effect, if it lasts; otherwise the time at which it happened.
    pub const fn until_ns(&self) -> u64 {
        let lasts_ns = match (self.lasts_ns, self.what) {
            (0, TracedFaultAction::Incident | TracedFaultAction::Partition) => u64::MAX,
            (lasts_ns, _) if lasts_ns > self.delay_ns => lasts_ns,
            _ => self.delay_ns,
        };
        self.at_ns.saturating_add(lasts_ns)
    }
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCall {
    /// Time of the call, in ns.
    pub at_ns: u64,
    /// Name of the call.
    pub call: String,
    /// The errno that the call returned.
    pub errno: i32,
    /// The reason, in words.
    pub why: String,
}

impl CauseEvidence {
    /// Stores an effect of a rule.
    pub(super) fn fault(&mut self, fact: FaultFact) {
        if self.faults.len() < MAX_FACTS {
            self.faults.push(fact);
        }
    }

    /// Stores a call that was refused.
    pub(super) fn refused(&mut self, refusal: RefusedCall) {
        if self.refusals.len() < MAX_FACTS {
            self.refusals.push(refusal);
        }
    }

    /// Stores that the process had no processor before this time.
    pub(super) fn stalled(&mut self, at_ns: u64, late_ns: u64) {
        if self.stalls_ns.len() < MAX_FACTS {
            self.stalls_ns.push((at_ns.saturating_sub(late_ns), at_ns));
        }
    }

    /// Stores that memory was registered.
    pub(super) fn registered(&mut self, at_ns: u64) {
        if self.registrations_ns.len() < MAX_FACTS {
            self.registrations_ns.push(at_ns);
        }
    }

    /// Applies a shift to all times.
    pub(super) fn shift(&mut self, later: impl Fn(&mut u64)) {
        self.faults.iter_mut().for_each(|fact| later(&mut fact.at_ns));
        self.refusals.iter_mut().for_each(|refusal| later(&mut refusal.at_ns));
        self.registrations_ns.iter_mut().for_each(&later);
        for (from_ns, to_ns) in &mut self.stalls_ns {
            later(from_ns);
            later(to_ns);
        }
    }
}
