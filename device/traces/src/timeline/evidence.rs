//! What a process's trace says that may be the cause of something, and is no message and no packet.

use crate::format::FaultWhat;

/// Things of each kind that are kept at most.
const MOST: usize = 1 << 18;

/// What may be the cause of something.
#[derive(Debug, Default)]
pub struct Evidence {
    /// What rules of a fault plan did, in order.
    pub faults: Vec<FaultFact>,
    /// Calls that were refused, in order.
    pub refusals: Vec<Refusal>,
    /// From when to when the process had no processor.
    pub stalls_ns: Vec<(u64, u64)>,
    /// The link of the device, in the words of `PUMICE_LINK`, and its switches; empty: none.
    pub network: (String, String),
}

/// Something that a rule of a fault plan did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultFact {
    /// When.
    pub at_ns: u64,
    /// Name of the rule.
    pub rule: String,
    /// What it did.
    pub what: FaultWhat,
    /// Ordinal of the queue pair, if it is about one.
    pub qp: Option<u32>,
    /// As in the record.
    pub side: u8,
    /// As in the record.
    pub message: u64,
    /// As in the record.
    pub subject: String,
    /// As in the record.
    pub ordinal: u64,
    /// As in the record.
    pub delay_ns: u64,
    /// As in the record.
    pub lasts_ns: u64,
}

impl FaultFact {
    /// Until when it has an effect of its own, if it lasts; else when it happened.
    pub const fn until_ns(&self) -> u64 {
        let lasts_ns = match (self.lasts_ns, self.what) {
            (0, FaultWhat::Incident | FaultWhat::Partition) => u64::MAX,
            (lasts_ns, _) if lasts_ns > self.delay_ns => lasts_ns,
            _ => self.delay_ns,
        };
        self.at_ns.saturating_add(lasts_ns)
    }
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub at_ns: u64,
    /// Its name.
    pub call: String,
    /// The errno that it ended with.
    pub errno: i32,
    /// Why, in words.
    pub why: String,
}

impl Evidence {
    /// Keeps what a rule did.
    pub(super) fn fault(&mut self, fact: FaultFact) {
        if self.faults.len() < MOST {
            self.faults.push(fact);
        }
    }

    /// Keeps a call that was refused.
    pub(super) fn refused(&mut self, refusal: Refusal) {
        if self.refusals.len() < MOST {
            self.refusals.push(refusal);
        }
    }

    /// Keeps that the process had no processor before this time.
    pub(super) fn stalled(&mut self, at_ns: u64, late_ns: u64) {
        if self.stalls_ns.len() < MOST {
            self.stalls_ns.push((at_ns.saturating_sub(late_ns), at_ns));
        }
    }

    /// Makes all times later.
    pub(super) fn shift(&mut self, later: impl Fn(&mut u64)) {
        self.faults.iter_mut().for_each(|fact| later(&mut fact.at_ns));
        self.refusals.iter_mut().for_each(|refusal| later(&mut refusal.at_ns));
        for (from_ns, to_ns) in &mut self.stalls_ns {
            later(from_ns);
            later(to_ns);
        }
    }
}
