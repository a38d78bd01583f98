//! Rules about completions at work: asked about each work request that has been carried out, they say how it
//! ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use fnv::FnvHashMap;
use pumice_transport::host::Ended;
use pumice_transport::types::WcStatus;

use super::key::{CompletionClass, CompletionFate, CompletionKey, WorkSide};
use super::rule::{CompletionFault, CompletionRule};
use super::status::can_end;
use crate::armed::{About, Armed, OF_A_REPORT, Origin, Roster, Rules, Tries};
use crate::plan::{FaultPlan, Rule, What};
use crate::trigger::{Occurrence, Trigger};
use crate::waits::{Gate, Triggers};

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
pub struct Verdict {
    #[doc(hidden)]
    pub status: Option<WcStatus>,
    #[doc(hidden)]
    pub vendor_err: u32,
    #[doc(hidden)]
    pub delay_ns: u64,
    /// It comes when all of these are open.
    pub until: Vec<Gate>,
}

/// What a rule of this process's is about.
pub(crate) enum Aim {
    Completions {
        rule: Box<CompletionRule>,
        /// What it makes completions wait for.
        until: Option<Gate>,
    },
    Recorded(HashMap<CompletionKey, CompletionFate>),
}

/// What is known of one work queue.
#[derive(Default)]
pub(crate) struct WorkQueue {
    connection: u32,
    /// Work requests that were carried out.
    done: u64,
    /// What rules have counted.
    counts: BTreeMap<usize, Tries>,
}

/// The rules of a plan about completions at work.
pub struct CompletionFaults {
    seed: u64,
    tag: String,
    rules: Rules<Aim>,
    triggers: Arc<Triggers>,
    queues: FnvHashMap<(u32, WorkSide), WorkQueue>,
    /// Requests were carried out before a rule was there: what is seen first of a work queue says where it
    /// stands.
    is_late: bool,
}

/// Is told of each rule that applies.
pub(crate) type Witness<'a> = &'a mut dyn FnMut(&CompletionFired<'_>);

impl CompletionFaults {
    /// The part of a plan that concerns completions of a process of this tag.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) -> CompletionFaults {
        let until = |trigger: &_| triggers.gate(trigger);
        CompletionFaults {
            seed: plan.seed(),
            tag: tag.to_owned(),
            rules: Rules::of_plan(plan, triggers, |rule| Aim::new(rule, tag, &until)),
            triggers: Arc::clone(triggers),
            queues: FnvHashMap::default(),
            is_late: false,
        }
    }

    /// Takes a rule while the program runs, if it concerns this process: true.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: Origin<'_>) -> bool {
        let until = |trigger: &_| self.triggers.gate_for(trigger, origin.line.is_some());
        let Some(aim) = Aim::new(rule, &self.tag, &until) else { return false };
        self.rules.push(rule, aim, origin, &self.triggers);
        true
    }

    /// Requests were carried out that were not asked about: where work queues stand has to be found out anew.
    pub fn begin_late(&mut self) {
        self.queues.clear();
        self.is_late = true;
    }

    /// The rules, for what is done to rules of every kind.
    pub fn roster(&mut self) -> &mut dyn Roster {
        &mut self.rules
    }

    /// Whether requests that are carried out have to be told of: there are rules, or rules that wait for
    /// them.
    pub fn is_active(&self) -> bool {
        !self.rules.is_empty() || self.triggers.count_work()
    }

    /// The names of the rules.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// A queue pair was destroyed.
    pub fn forget(&mut self, ordinal: u32) {
        for side in WorkSide::ALL {
            self.queues.remove(&(ordinal, *side));
        }
    }

    /// How a work request of the queue pair with this ordinal ends.
    pub fn decide(&mut self, qp: u32, ended: &Ended, witness: Witness<'_>) -> Verdict {
        let class = CompletionClass::of(ended.opcode);
        let queue = self.queues.entry((qp, class.side())).or_default();
        if queue.connection != ended.connection {
            *queue = WorkQueue { connection: ended.connection, ..WorkQueue::default() };
        }
        if self.is_late && queue.done == 0 {
            queue.done = ended.before;
        }
        let key = CompletionKey { qp, connection: ended.connection, class, message: queue.done };
        queue.done = queue.done.wrapping_add(1);
        let mut verdict = Verdict::default();
        // Whether there is a completion that can be late follows from whether the request fails.
        for ends in [true, false] {
            let case = Case { key: &key, ended, reports: ended.reports || verdict.status.is_some(), ends };
            for armed in self.rules.awake() {
                let count = queue.counts.entry(armed.id).or_default();
                let Some(fate) = ask(armed, &case, count, self.seed, &self.tag) else { continue };
                armed.apply();
                if verdict.status.is_none() {
                    (verdict.status, verdict.vendor_err) = (fate.status, fate.vendor_err);
                }
                verdict.delay_ns = verdict.delay_ns.saturating_add(fate.delay_ns);
                verdict.until.extend(match &armed.aim {
                    Aim::Completions { until, .. } => until.clone(),
                    Aim::Recorded(_) => fate.until.as_ref().and_then(|until| self.triggers.gate(until)),
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
pub(crate) struct Case<'a> {
    key: &'a CompletionKey,
    ended: &'a Ended,
    /// It makes a completion.
    reports: bool,
    /// Rules that end it are asked; else those about its completion.
    ends: bool,
}

impl Aim {
    pub(crate) fn new(rule: &Rule, tag: &str, gate: &dyn Fn(&Trigger) -> Option<Gate>) -> Option<Aim> {
        match &rule.what {
            What::Completion(rule) if rule.selector.is_of(tag) => {
                let until = match &rule.fault {
                    CompletionFault::Late { until, .. } => until.as_ref().and_then(gate),
                    CompletionFault::End { .. } => None,
                };
                Some(Aim::Completions { rule: rule.clone(), until })
            }
            What::Recorded(recording) if recording.completions.iter().any(|one| one.tag == tag) => {
                let own = recording.completions.iter().filter(|one| one.tag == tag);
                Some(Aim::Recorded(own.map(|one| (one.key, one.fate.clone())).collect()))
            }
            _ => None,
        }
    }
}

impl About for Aim {
    fn kind(&self) -> &'static str {
        match self {
            Aim::Completions { rule, .. } if matches!(rule.fault, CompletionFault::Late { .. }) => "late",
            Aim::Completions { .. } => "complete",
            Aim::Recorded(_) => OF_A_REPORT,
        }
    }
}

/// Whether a rule applies to a completion, and how.
pub(crate) fn ask(
    armed: &Armed<Aim>,
    case: &Case<'_>,
    count: &mut Tries,
    seed: u64,
    tag: &str,
) -> Option<CompletionFate> {
    let rule = match &armed.aim {
        Aim::Recorded(completions) => {
            let fate = completions.get(case.key)?;
            return (fate.status.is_some() == case.ends).then(|| fate.clone());
        }
        Aim::Completions { rule, .. } => rule,
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
