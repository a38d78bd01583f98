//! The rules of a plan in one process, with what they have counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_platform::clock::Random;

use super::plan::{FaultPlan, Rule, RuleConditions};
use super::waits::{TriggerGate, Triggers};
use pumice_model::fates::live::{MAX_RULES, RuleStatus};

/// The kind of a rule.
pub(crate) trait RuleSubject {
    /// Returns the name of the rule's kind in plans.
    fn kind(&self) -> &'static str;
}

/// The kind of a rule that was read from a report.
pub(crate) const FROM_REPORT: &str = "what a report says";

/// A rule that concerns this process.
#[derive(Debug)]
pub(super) struct ArmedRule<A> {
    pub(super) name: String,
    after: Option<TriggerGate>,
    pub(super) when: RuleConditions,
    pub(super) subject: A,
    /// The number of the rule, by which its counts are found; unique in this process for all time.
    pub id: usize,
    /// The line of the rule, if it was added while the program ran.
    line: Option<String>,
    /// True if the rule is paused.
    is_paused: bool,
    tally: RuleCounters,
}

/// The number of times that a rule was asked, and that it applied.
#[derive(Debug, Default)]
struct RuleCounters {
    met: AtomicU64,
    applied: AtomicU64,
}

/// The counts of a rule along one stream of packets, calls or completions.
#[derive(Debug, Clone, Copy, Default)]
pub struct RuleTally {
    /// Number of things that matched the rule.
    pub(super) matched: u64,
    /// Number of times that the rule applied.
    pub(super) applied: u64,
}

/// The origin of a rule in a process: its number, and its line if it was added while the program ran.
#[derive(Debug, Clone, Copy)]
pub(super) struct RuleOrigin<'a> {
    pub(super) id: usize,
    /// The line of a rule that is added while the program runs. Such a rule counts only what happens from now
    /// on.
    pub(super) line: Option<&'a str>,
}

impl<A> ArmedRule<A> {
    fn new(rule: &Rule, subject: A, origin: RuleOrigin<'_>, triggers: &Arc<Triggers>) -> ArmedRule<A> {
        ArmedRule {
            name: rule.name.clone(),
            after: rule.after.as_ref().and_then(|trigger| triggers.gate_for(trigger, origin.line.is_some())),
            when: rule.when,
            subject,
            id: origin.id,
            line: origin.line.map(str::to_owned),
            is_paused: false,
            tally: RuleCounters::default(),
        }
    }

    /// Reports whether the trigger that the rule waits for has happened.
    pub(super) fn has_begun(&self) -> bool {
        self.after.as_ref().is_none_or(TriggerGate::is_open)
    }

    /// Returns how much of the time that the rule waits for is left, in ns.
    pub(crate) fn time_left_ns(&self) -> u64 {
        self.after.as_ref().map_or(0, TriggerGate::time_left_ns)
    }

    /// Returns how often the rule has applied in the process.
    pub(super) fn applied(&self) -> u64 {
        self.tally.applied.load(Ordering::Relaxed)
    }

    /// Counts something that the rule is about.
    pub(super) fn count_match(&self) {
        self.tally.met.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one [`ArmedRule::count_match`].
    pub(super) fn uncount_match(&self) {
        let one_less = |met: u64| Some(met.saturating_sub(1));
        // The closure always returns `Some`, so the update is never refused.
        let _ = self.tally.met.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    /// Counts that the rule applied.
    pub(super) fn apply(&self) {
        self.tally.applied.fetch_add(1, Ordering::Relaxed);
    }

    /// Decides whether the rule applies to something that it is about, and counts it in `count`. `draw`
    /// returns the random numbers for this decision.
    pub(super) fn tries(&self, count: &mut RuleTally, draw: impl FnOnce() -> Random) -> bool {
        self.count_match();
        count.matched = count.matched.saturating_add(1);
        let RuleConditions { steps, chance_ppm, times, .. } = self.when;
        let applies = steps.is_none_or(|steps| steps.has(count.matched))
            && chance_ppm.is_none_or(|ppm| draw().chance(ppm))
            && times.is_none_or(|times| count.applied < times);
        count.applied = count.applied.saturating_add(u64::from(applies));
        applies
    }
}

/// Most names of cleared rules that are remembered.
pub(crate) const MAX_CLEARED_NAMES: usize = MAX_RULES;

/// The rules of one kind that concern this process.
#[derive(Debug)]
pub(super) struct Rules<A> {
    list: Vec<ArmedRule<A>>,
    /// The names of the rules that were cleared before they ever applied.
    forgotten: Vec<String>,
}

impl<A> Rules<A> {
    /// Returns the rules of a plan for which `subject` returns what they are about: those of this kind that
    /// concern the process.
    pub(super) fn of_plan(
        plan: &FaultPlan,
        triggers: &Arc<Triggers>,
        subject: impl Fn(&Rule) -> Option<A>,
    ) -> Rules<A> {
        let all = plan.rules().iter().enumerate();
        let armed =
            |(id, rule)| Some(ArmedRule::new(rule, subject(rule)?, RuleOrigin { id, line: None }, triggers));
        Rules { list: all.filter_map(armed).collect(), forgotten: Vec::new() }
    }

    /// Adds a rule.
    pub(crate) fn push(&mut self, rule: &Rule, subject: A, origin: RuleOrigin<'_>, triggers: &Arc<Triggers>) {
        self.list.push(ArmedRule::new(rule, subject, origin, triggers));
    }

    /// Reports whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns all rules, including paused ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &ArmedRule<A>> {
        self.list.iter()
    }

    /// Returns the rules that are not paused.
    pub(crate) fn active(&self) -> impl Iterator<Item = &ArmedRule<A>> {
        self.list.iter().filter(|armed| !armed.is_paused)
    }

    /// Returns the rules that are not paused, mutably, so that they can count.
    pub(super) fn active_mut(&mut self) -> impl Iterator<Item = &mut ArmedRule<A>> {
        self.list.iter_mut().filter(|armed| !armed.is_paused)
    }

    /// Returns the names of the rules.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|armed| armed.name.as_str())
    }

    /// Returns the names of rules that never applied, those of cleared rules first. A cleared name is left
    /// out if a rule has it again.
    pub(super) fn unfired(&self) -> impl Iterator<Item = &str> {
        let is_there = |name: &&str| !self.list.iter().any(|armed| armed.name == *name);
        let forgotten = self.forgotten.iter().map(String::as_str).filter(is_there);
        let unused = self.list.iter().filter(|armed| armed.applied() == 0);
        forgotten.chain(unused.map(|armed| armed.name.as_str()))
    }

    /// Returns the names of the rules that existed when the program began.
    pub(super) fn first_names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter(|armed| armed.line.is_none()).map(|armed| armed.name.as_str())
    }
}

/// A result about a rule, with the rule's index among all rules of the process.
pub(crate) type Indexed<T> = (usize, T);

/// The operations on rules that are the same for rules of every kind. `None` as a name means all rules.
pub trait RuleControl {
    /// Pauses or resumes rules. Returns the names of those that changed.
    fn rest(&mut self, name: Option<&str>, is_paused: bool) -> Vec<Indexed<String>>;
    /// Clears rules. Returns the names of those that were removed.
    fn clear(&mut self, name: Option<&str>) -> Vec<Indexed<String>>;
    /// Returns a description of every rule.
    fn list(&self) -> Vec<Indexed<RuleStatus>>;
}

impl<A: RuleSubject> RuleControl for Rules<A> {
    fn rest(&mut self, name: Option<&str>, is_paused: bool) -> Vec<Indexed<String>> {
        let mut changed = Vec::new();
        for armed in self.list.iter_mut().filter(|armed| name.is_none_or(|name| armed.name == name)) {
            if std::mem::replace(&mut armed.is_paused, is_paused) != is_paused {
                changed.push((armed.id, armed.name.clone()));
            }
        }
        changed
    }

    fn clear(&mut self, name: Option<&str>) -> Vec<Indexed<String>> {
        let removed = self.list.extract_if(.., |armed| name.is_none_or(|name| armed.name == name));
        let removed: Vec<ArmedRule<A>> = removed.collect();
        for armed in &removed {
            // A rule that was cleared before may have had the same name.
            self.forgotten.retain(|forgotten| *forgotten != armed.name);
            if armed.applied() == 0 && self.forgotten.len() < MAX_CLEARED_NAMES {
                self.forgotten.push(armed.name.clone());
            }
        }
        removed.into_iter().map(|armed| (armed.id, armed.name)).collect()
    }

    fn list(&self) -> Vec<Indexed<RuleStatus>> {
        let described = |armed: &ArmedRule<A>| RuleStatus {
            name: armed.name.clone(),
            does: armed.line.clone().unwrap_or_else(|| armed.subject.kind().to_owned()),
            live: armed.line.is_some(),
            paused: armed.is_paused,
            met: armed.tally.met.load(Ordering::Relaxed),
            applied: armed.applied(),
        };
        self.list.iter().map(|armed| (armed.id, described(armed))).collect()
    }
}
