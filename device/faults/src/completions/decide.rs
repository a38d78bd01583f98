//! The rules about completions in one process: asked about each executed work request, they decide how it
//! ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fnv::FnvHashMap;
use pumice_transport::host::Ended;
use pumice_transport::types::WcStatus;

use super::{CompletionFault, CompletionRule};
use crate::armed::{ArmedRule, FROM_REPORT, RuleControl, RuleOrigin, RuleSubject, RuleTally, Rules};
use crate::plan::{FaultPlan, Rule, What};
use crate::waits::{TriggerGate, Triggers};
use pumice_model::fates::completion::{CompletionClass, CompletionFate, CompletionKey, WorkSide, can_end};
use pumice_model::fates::fired::CompletionFired;
use pumice_model::fates::trigger::{Occurrence, Trigger};

/// The decision of all rules together about a completion.
#[derive(Debug, Default)]
pub struct CompletionVerdict {
    #[doc(hidden)]
    pub status: Option<WcStatus>,
    #[doc(hidden)]
    pub vendor_err: u32,
    #[doc(hidden)]
    pub delay_ns: u64,
    /// The triggers that all have to happen before the completion comes.
    pub until: Vec<TriggerGate>,
}

/// The completions that a rule of this process is about.
pub(crate) enum CompletionAim {
    Completions {
        rule: Box<CompletionRule>,
        /// The trigger that a delayed completion waits for.
        until: Option<TriggerGate>,
    },
    Recorded(HashMap<CompletionKey, CompletionFate>),
}

/// The progress of one work queue.
#[derive(Default)]
pub(crate) struct WorkQueueProgress {
    connection: u32,
    /// Number of work requests that were executed.
    done: u64,
    /// The counts of the rules, by the number of the rule.
    counts: BTreeMap<usize, RuleTally>,
}

/// The rules of a plan about completions, in one process.
pub struct CompletionFaults {
    seed: u64,
    tag: String,
    rules: Rules<CompletionAim>,
    triggers: Arc<Triggers>,
    queues: FnvHashMap<(u32, WorkSide), WorkQueueProgress>,
    /// True if work requests were executed before a rule existed: the first request seen of a work queue then
    /// shows the queue's progress.
    began_midway: bool,
}

/// A closure that is called with each rule that applies.
pub(crate) type Witness<'a> = &'a mut dyn FnMut(&CompletionFired<'_>);

impl CompletionFaults {
    /// Returns the rules of a plan about completions that concern a process with this tag.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) -> CompletionFaults {
        let until = |trigger: &_| triggers.gate(trigger);
        CompletionFaults {
            seed: plan.seed(),
            tag: tag.to_owned(),
            rules: Rules::of_plan(plan, triggers, |rule| CompletionAim::new(rule, tag, &until)),
            triggers: Arc::clone(triggers),
            queues: FnvHashMap::default(),
            began_midway: false,
        }
    }

    /// Adds a rule while the program runs, if it concerns this process. Returns whether it does.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: RuleOrigin<'_>) -> bool {
        let until = |trigger: &_| self.triggers.gate_for(trigger, origin.line.is_some());
        let Some(subject) = CompletionAim::new(rule, &self.tag, &until) else { return false };
        self.rules.push(rule, subject, origin, &self.triggers);
        true
    }

    /// Forgets the progress of all work queues, because requests were executed that no rule was asked about.
    pub fn begin_midway(&mut self) {
        self.queues.clear();
        self.began_midway = true;
    }

    /// Returns the rules, for operations that are the same for every kind.
    pub fn roster(&mut self) -> &mut dyn RuleControl {
        &mut self.rules
    }

    /// Reports whether executed requests have to be reported here: there are rules, or rules that wait for
    /// requests.
    pub fn is_active(&self) -> bool {
        !self.rules.is_empty() || self.triggers.count_work()
    }

    /// Returns the names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// Forgets a queue pair that was destroyed.
    pub fn forget(&mut self, ordinal: u32) {
        for side in WorkSide::ALL {
            self.queues.remove(&(ordinal, *side));
        }
    }

    /// Decides how a work request of the queue pair with this ordinal ends.
    pub fn decide(&mut self, qp: u32, ended: &Ended, witness: Witness<'_>) -> CompletionVerdict {
        let class = CompletionClass::of(ended.opcode);
        let queue = self.queues.entry((qp, class.side())).or_default();
        if queue.connection != ended.connection {
            *queue = WorkQueueProgress { connection: ended.connection, ..WorkQueueProgress::default() };
        }
        if self.began_midway && queue.done == 0 {
            queue.done = ended.before;
        }
        let key = CompletionKey { qp, connection: ended.connection, class, message: queue.done };
        queue.done = queue.done.wrapping_add(1);
        let mut verdict = CompletionVerdict::default();
        // The first pass decides whether the request fails, and with that whether it has a completion that
        // can be late.
        for ends in [true, false] {
            let case =
                CompletionCase { key: &key, ended, reports: ended.reports || verdict.status.is_some(), ends };
            for armed in self.rules.active() {
                let count = queue.counts.entry(armed.id).or_default();
                let Some(fate) = ask(armed, &case, count, self.seed, &self.tag) else { continue };
                armed.apply();
                if verdict.status.is_none() {
                    (verdict.status, verdict.vendor_err) = (fate.status, fate.vendor_err);
                }
                verdict.delay_ns = verdict.delay_ns.saturating_add(fate.delay_ns);
                verdict.until.extend(match &armed.subject {
                    CompletionAim::Completions { until, .. } => until.clone(),
                    CompletionAim::Recorded(_) => {
                        fate.until.as_ref().and_then(|until| self.triggers.gate(until))
                    }
                });
                self.triggers.note(Occurrence::Rule(&armed.name));
                witness(&CompletionFired { rule: &armed.name, tag: &self.tag, key: &key, fate: &fate });
            }
        }
        self.triggers.note(Occurrence::WorkRequest { qp, length_bytes: ended.length_bytes });
        verdict
    }
}

/// A work request about which the rules are asked.
pub(crate) struct CompletionCase<'a> {
    key: &'a CompletionKey,
    ended: &'a Ended,
    /// True if the request makes a completion.
    reports: bool,
    /// True to ask the rules that end the request; else those that delay its completion.
    ends: bool,
}

impl CompletionAim {
    pub(crate) fn new(
        rule: &Rule,
        tag: &str,
        gate: &dyn Fn(&Trigger) -> Option<TriggerGate>,
    ) -> Option<CompletionAim> {
        match &rule.what {
            What::Completion(rule) if rule.selector.is_of(tag) => {
                let until = match &rule.fault {
                    CompletionFault::Late { until, .. } => until.as_ref().and_then(gate),
                    CompletionFault::End { .. } => None,
                };
                Some(CompletionAim::Completions { rule: rule.clone(), until })
            }
            What::Recorded(recording) if recording.completions.iter().any(|one| one.tag == tag) => {
                let own = recording.completions.iter().filter(|one| one.tag == tag);
                Some(CompletionAim::Recorded(own.map(|one| (one.key, one.fate.clone())).collect()))
            }
            _ => None,
        }
    }
}

impl RuleSubject for CompletionAim {
    fn kind(&self) -> &'static str {
        match self {
            CompletionAim::Completions { rule, .. } if matches!(rule.fault, CompletionFault::Late { .. }) => {
                "late"
            }
            CompletionAim::Completions { .. } => "complete",
            CompletionAim::Recorded(_) => FROM_REPORT,
        }
    }
}

/// Decides whether a rule applies to a completion, and what it does.
pub(crate) fn ask(
    armed: &ArmedRule<CompletionAim>,
    case: &CompletionCase<'_>,
    count: &mut RuleTally,
    seed: u64,
    tag: &str,
) -> Option<CompletionFate> {
    let rule = match &armed.subject {
        CompletionAim::Recorded(completions) => {
            let fate = completions.get(case.key)?;
            return (fate.status.is_some() == case.ends).then(|| fate.clone());
        }
        CompletionAim::Completions { rule, .. } => rule,
    };
    let fate = match &rule.fault {
        CompletionFault::End { status, vendor_err } => {
            let can_be = can_end(*status, case.key.class, case.ended.qp_type);
            if !case.ends || !can_be {
                return None;
            }
            CompletionFate { status: Some(*status), vendor_err: *vendor_err, ..CompletionFate::default() }
        }
        CompletionFault::Late { delay_ns, until } => {
            if case.ends || !case.reports {
                return None;
            }
            CompletionFate { delay_ns: *delay_ns, until: until.clone(), ..CompletionFate::default() }
        }
    };
    if !armed.has_begun() || !rule.selector.matches(case.key) {
        return None;
    }
    armed.tries(count, || case.key.draw(seed, &armed.name, tag)).then_some(fate)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
