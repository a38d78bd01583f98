//! A rule of any kind at work in a process, and the rules of one kind together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_ground::random::Random;

use super::live::{LiveRule, MAX_RULES};
use super::plan::{FaultPlan, Rule, When};
use super::waits::{Gate, Triggers};

/// What rules of a kind are about.
pub(crate) trait About {
    /// The kind of a rule, as plans name it.
    fn kind(&self) -> &'static str;
}

/// The kind of a rule that a report says.
pub(crate) const OF_A_REPORT: &str = "what a report says";

/// A rule that concerns this process.
#[derive(Debug)]
pub(super) struct Armed<A> {
    pub(super) name: String,
    after: Option<Gate>,
    pub(super) when: When,
    pub(super) aim: A,
    /// What it counts by; no other rule of this process has or had it.
    pub id: usize,
    /// Its line, if it was added while the program ran.
    line: Option<String>,
    /// It rests.
    is_paused: bool,
    tally: Tally,
}

/// How often a rule was met, and applied.
#[derive(Debug, Default)]
struct Tally {
    met: AtomicU64,
    applied: AtomicU64,
}

/// What a rule has counted in one place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tries {
    /// So many that it is about.
    pub(super) matched: u64,
    /// So many to which it applied.
    pub(super) applied: u64,
}

/// How a rule comes to a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) id: usize,
    /// Its line, if the program runs already. Such a rule waits for what happens from now on.
    pub(super) line: Option<&'a str>,
}

impl<A> Armed<A> {
    fn new(rule: &Rule, aim: A, origin: Origin<'_>, triggers: &Arc<Triggers>) -> Armed<A> {
        Armed {
            name: rule.name.clone(),
            after: rule.after.as_ref().and_then(|trigger| triggers.gate_for(trigger, origin.line.is_some())),
            when: rule.when,
            aim,
            id: origin.id,
            line: origin.line.map(str::to_owned),
            is_paused: false,
            tally: Tally::default(),
        }
    }

    /// Whether what it waits for has happened.
    pub(super) fn has_begun(&self) -> bool {
        self.after.as_ref().is_none_or(Gate::is_open)
    }

    /// How much of the time is left that it waits for, in ns.
    pub(crate) fn time_left_ns(&self) -> u64 {
        self.after.as_ref().map_or(0, Gate::time_left_ns)
    }

    /// How often it has applied in the process.
    pub(super) fn applied(&self) -> u64 {
        self.tally.applied.load(Ordering::Relaxed)
    }

    /// It was asked about something that it is about.
    pub(super) fn meet(&self) {
        self.tally.met.fetch_add(1, Ordering::Relaxed);
    }

    /// It was not, after all.
    pub(super) fn unmeet(&self) {
        let one_less = |met: u64| Some(met.saturating_sub(1));
        // It is never refused.
        let _ = self.tally.met.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    /// It applied.
    pub(super) fn apply(&self) {
        self.tally.applied.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it applies to something that it is about, by what it has counted there. `draw` gives what it
    /// draws for this.
    pub(super) fn tries(&self, count: &mut Tries, draw: impl FnOnce() -> Random) -> bool {
        self.meet();
        count.matched = count.matched.saturating_add(1);
        let When { steps, chance_ppm, times, .. } = self.when;
        let applies = steps.is_none_or(|steps| steps.has(count.matched))
            && chance_ppm.is_none_or(|ppm| draw().chance(ppm))
            && times.is_none_or(|times| count.applied < times);
        count.applied = count.applied.saturating_add(u64::from(applies));
        applies
    }
}

/// Names of forgotten rules that are kept.
pub(crate) const MAX_FORGOTTEN: usize = MAX_RULES;

/// The rules of one kind that concern this process.
#[derive(Debug)]
pub(super) struct Rules<A> {
    list: Vec<Armed<A>>,
    /// The names of those that were forgotten before they applied.
    forgotten: Vec<String>,
}

impl<A> Rules<A> {
    /// Those of a plan; `aim` says what a rule is about, if it is of this kind and concerns the process.
    pub(super) fn of_plan(
        plan: &FaultPlan,
        triggers: &Arc<Triggers>,
        aim: impl Fn(&Rule) -> Option<A>,
    ) -> Rules<A> {
        let all = plan.rules().iter().enumerate();
        let armed = |(id, rule)| Some(Armed::new(rule, aim(rule)?, Origin { id, line: None }, triggers));
        Rules { list: all.filter_map(armed).collect(), forgotten: Vec::new() }
    }

    /// Also this one.
    pub(crate) fn push(&mut self, rule: &Rule, aim: A, origin: Origin<'_>, triggers: &Arc<Triggers>) {
        self.list.push(Armed::new(rule, aim, origin, triggers));
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All, those that rest too.
    pub(super) fn all(&self) -> impl Iterator<Item = &Armed<A>> {
        self.list.iter()
    }

    /// Those that do not rest.
    pub(crate) fn awake(&self) -> impl Iterator<Item = &Armed<A>> {
        self.list.iter().filter(|armed| !armed.is_paused)
    }

    /// Those that do not rest, to count something.
    pub(super) fn awake_mut(&mut self) -> impl Iterator<Item = &mut Armed<A>> {
        self.list.iter_mut().filter(|armed| !armed.is_paused)
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|armed| armed.name.as_str())
    }

    /// The names of those that never applied, first those that were forgotten. A name that a rule has which
    /// did is not among them.
    pub(super) fn unfired(&self) -> impl Iterator<Item = &str> {
        let is_there = |name: &&str| !self.list.iter().any(|armed| armed.name == *name);
        let forgotten = self.forgotten.iter().map(String::as_str).filter(is_there);
        let unused = self.list.iter().filter(|armed| armed.applied() == 0);
        forgotten.chain(unused.map(|armed| armed.name.as_str()))
    }

    /// The names of those that were there when the program began.
    pub(super) fn first_names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter(|armed| armed.line.is_none()).map(|armed| armed.name.as_str())
    }
}

/// A rule that was found, with its index among all of the process.
pub(crate) type Found<T> = (usize, T);

/// Rules of one kind, for what is done to rules of every kind. `None` as a name stands for all.
pub trait Roster {
    /// Lets rules rest, or go on; the names of those that changed.
    fn rest(&mut self, name: Option<&str>, is_paused: bool) -> Vec<Found<String>>;
    /// Forgets rules; the names of those that are gone.
    fn clear(&mut self, name: Option<&str>) -> Vec<Found<String>>;
    /// What there is.
    fn list(&self) -> Vec<Found<LiveRule>>;
}

impl<A: About> Roster for Rules<A> {
    fn rest(&mut self, name: Option<&str>, is_paused: bool) -> Vec<Found<String>> {
        let mut changed = Vec::new();
        for armed in self.list.iter_mut().filter(|armed| name.is_none_or(|name| armed.name == name)) {
            if std::mem::replace(&mut armed.is_paused, is_paused) != is_paused {
                changed.push((armed.id, armed.name.clone()));
            }
        }
        changed
    }

    fn clear(&mut self, name: Option<&str>) -> Vec<Found<String>> {
        let gone = self.list.extract_if(.., |armed| name.is_none_or(|name| armed.name == name));
        let gone: Vec<Armed<A>> = gone.collect();
        for armed in &gone {
            // The name may have been that of another rule before.
            self.forgotten.retain(|forgotten| *forgotten != armed.name);
            if armed.applied() == 0 && self.forgotten.len() < MAX_FORGOTTEN {
                self.forgotten.push(armed.name.clone());
            }
        }
        gone.into_iter().map(|armed| (armed.id, armed.name)).collect()
    }

    fn list(&self) -> Vec<Found<LiveRule>> {
        let described = |armed: &Armed<A>| LiveRule {
            name: armed.name.clone(),
            does: armed.line.clone().unwrap_or_else(|| armed.aim.kind().to_owned()),
            live: armed.line.is_some(),
            paused: armed.is_paused,
            met: armed.tally.met.load(Ordering::Relaxed),
            applied: armed.applied(),
        };
        self.list.iter().map(|armed| (armed.id, described(armed))).collect()
    }
}
