//! Rules about completions at work: asked about each work request that has been carried out, they say how it
//! ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fnv::FnvHashMap;
use pumice_transport::host::Ended;
use pumice_transport::types::WcStatus;

use super::key::{CompletionClass, CompletionFate, CompletionKey, WorkSide};
use super::rule::{CompletionFault, CompletionRule};
use super::status::can_end;
use crate::faults::plan::{FaultPlan, Rule, What, When};
use crate::faults::trigger::Occurrence;
use crate::faults::waits::{Gate, Triggers};

/// A rule applied to a completion.
#[derive(Debug, Clone, Copy)]
pub struct CompletionFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The completion.
    pub key: &'a CompletionKey,
    /// What happens to it by this rule.
    pub fate: &'a CompletionFate,
}

/// What happens to a completion by all rules together.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) status: Option<WcStatus>,
    pub(crate) vendor_err: u32,
    pub(crate) delay_ns: u64,
    /// It comes when all of these are open.
    pub(crate) until: Vec<Gate>,
}

/// What a rule of this process's is about.
enum Aim {
    Completions(Box<CompletionRule>),
    Recorded(HashMap<CompletionKey, CompletionFate>),
}

/// A rule that concerns this process.
struct Armed {
    name: String,
    after: Option<Gate>,
    when: When,
    aim: Aim,
}

/// What is known of one work queue.
#[derive(Default)]
struct WorkQueue {
    connection: u32,
    /// Work requests that were carried out.
    done: u64,
    /// What rules have counted: those that they were about, and those that they applied to.
    counts: BTreeMap<usize, (u64, u64)>,
}

/// The rules of a plan about completions at work.
pub(crate) struct CompletionFaults {
    seed: u64,
    tag: String,
    rules: Vec<Armed>,
    triggers: Arc<Triggers>,
    queues: FnvHashMap<(u32, WorkSide), WorkQueue>,
}

/// Is told of each rule that applies.
type Witness<'a> = &'a mut dyn FnMut(&CompletionFired<'_>);

impl CompletionFaults {
    /// The part of a plan that concerns completions of a process of this tag; `None` if none
    /// does, no rule waits for any, and it is not needed otherwise.
    pub(crate) fn new(
        plan: &FaultPlan,
        tag: &str,
        triggers: &Arc<Triggers>,
        is_needed: bool,
    ) -> Option<CompletionFaults> {
        let armed = |rule| Armed::new(rule, tag, triggers);
        let rules: Vec<Armed> = plan.rules().iter().filter_map(armed).collect();
        (!rules.is_empty() || triggers.count_work() || is_needed).then(|| CompletionFaults {
            seed: plan.seed(),
            tag: tag.to_owned(),
            rules,
            triggers: Arc::clone(triggers),
            queues: FnvHashMap::default(),
        })
    }

    /// The names of the rules.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        self.rules.iter().map(|armed| armed.name.clone()).collect()
    }

    /// A queue pair was destroyed.
    pub(crate) fn forget(&mut self, ordinal: u32) {
        for side in WorkSide::ALL {
            self.queues.remove(&(ordinal, *side));
        }
    }

    /// How a work request of the queue pair with this ordinal ends.
    pub(crate) fn decide(&mut self, qp: u32, ended: &Ended, witness: Witness<'_>) -> Verdict {
        let class = CompletionClass::of(ended.opcode);
        let queue = self.queues.entry((qp, class.side())).or_default();
        if queue.connection != ended.connection {
            *queue = WorkQueue { connection: ended.connection, ..WorkQueue::default() };
        }
        let key = CompletionKey { qp, connection: ended.connection, class, message: queue.done };
        queue.done = queue.done.wrapping_add(1);
        let mut verdict = Verdict::default();
        // Whether there is a completion that can be late follows from whether the request fails.
        for ends in [true, false] {
            let case = Case { key: &key, ended, reports: ended.reports || verdict.status.is_some(), ends };
            for (index, armed) in self.rules.iter().enumerate() {
                let count = queue.counts.entry(index).or_default();
                let Some(fate) = armed.ask(&case, count, self.seed, &self.tag) else { continue };
                if verdict.status.is_none() {
                    (verdict.status, verdict.vendor_err) = (fate.status, fate.vendor_err);
                }
                verdict.delay_ns = verdict.delay_ns.saturating_add(fate.delay_ns);
                verdict.until.extend(fate.until.as_ref().and_then(|until| self.triggers.gate(until)));
                self.triggers.note(Occurrence::Rule(&armed.name));
                witness(&CompletionFired { rule: &armed.name, tag: &self.tag, key: &key, fate: &fate });
            }
        }
        self.triggers.note(Occurrence::WorkRequest { qp, length_bytes: ended.length_bytes });
        verdict
    }
}

/// A work request about which the rules are asked.
struct Case<'a> {
    key: &'a CompletionKey,
    ended: &'a Ended,
    /// It makes a completion.
    reports: bool,
    /// Rules that end it are asked; else those about its completion.
    ends: bool,
}

impl Armed {
    fn new(rule: &Rule, tag: &str, triggers: &Arc<Triggers>) -> Option<Armed> {
        let aim = match &rule.what {
            What::Completion(rule) => rule.selector.is_of(tag).then(|| Aim::Completions(rule.clone()))?,
            What::Recorded(recording) if recording.completions.iter().any(|one| one.tag == tag) => {
                let own = recording.completions.iter().filter(|one| one.tag == tag);
                Aim::Recorded(own.map(|one| (one.key, one.fate.clone())).collect())
            }
            _ => return None,
        };
        let after = rule.after.as_ref().and_then(|trigger| triggers.gate(trigger));
        Some(Armed { name: rule.name.clone(), after, when: rule.when, aim })
    }

    /// Whether the rule applies to a completion, and how.
    fn ask(&self, case: &Case<'_>, count: &mut (u64, u64), seed: u64, tag: &str) -> Option<CompletionFate> {
        let rule = match &self.aim {
            Aim::Recorded(completions) => {
                let fate = completions.get(case.key)?;
                return (fate.status.is_some() == case.ends).then(|| fate.clone());
            }
            Aim::Completions(rule) => rule,
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
        let has_begun = self.after.as_ref().is_none_or(Gate::is_open);
        if !has_begun || !rule.selector.matches(case.key) {
            return None;
        }
        let (matched, applied) = count;
        *matched = matched.saturating_add(1);
        let when = &self.when;
        let applies = when.steps.is_none_or(|steps| steps.has(*matched))
            && when.chance_ppm.is_none_or(|ppm| case.key.draw(seed, &self.name, tag).chance(ppm))
            && when.times.is_none_or(|times| *applied < times);
        *applied = applied.saturating_add(u64::from(applies));
        applies.then_some(fate)
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
