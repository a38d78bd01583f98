//! The rules about events of completion channels in one process.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fnv::FnvHasher;
use pumice_model::fates::fired::{CompletionEventFate, CompletionEventFired, CompletionEventKey};
use pumice_platform::clock::Random;

use super::CompletionEventRule;
use crate::armed::{ArmedRule, FROM_REPORT, RuleControl, RuleOrigin, RuleSubject, RuleTally, Rules};
use crate::plan::{FaultPlan, Rule, What};
use crate::waits::Triggers;
use pumice_model::fates::trigger::Occurrence;

/// The events that a rule of this process is about.
#[derive(Debug)]
pub(crate) enum CompletionEventAim {
    Events(CompletionEventRule),
    Recorded(Vec<(CompletionEventKey, CompletionEventFate)>),
}

/// The rules of a plan about events of completion channels, in one process.
#[derive(Debug)]
pub struct CompletionEventFaults {
    seed: u64,
    tag: String,
    rules: Mutex<Rules<CompletionEventAim>>,
    triggers: Arc<Triggers>,
}

/// The counts of the rules for one completion queue, by the number of the rule.
pub type CompletionEventCounts = BTreeMap<usize, RuleTally>;

impl CompletionEventFaults {
    /// Returns the rules of a plan that concern a process with this tag.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) -> CompletionEventFaults {
        let rules = Mutex::new(Rules::of_plan(plan, triggers, |rule| CompletionEventAim::new(rule, tag)));
        let (seed, tag, triggers) = (plan.seed(), tag.to_owned(), Arc::clone(triggers));
        CompletionEventFaults { seed, tag, rules, triggers }
    }

    #[doc(hidden)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rules<CompletionEventAim>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule while the program runs, if it concerns this process. Returns whether it does.
    pub(crate) fn arm(&self, rule: &Rule, origin: RuleOrigin<'_>) -> bool {
        let Some(subject) = CompletionEventAim::new(rule, &self.tag) else { return false };
        self.lock().push(rule, subject, origin, &self.triggers);
        true
    }

    /// Calls `look` with the rules, for operations that are the same for every kind.
    pub fn with_roster(&self, look: &mut dyn FnMut(&mut dyn RuleControl)) {
        look(&mut *self.lock());
    }

    /// Reports whether there are rules: without them no event has to be asked about.
    pub fn is_active(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Returns the names of the rules.
    pub fn names(&self) -> Vec<String> {
        self.lock().names().map(str::to_owned).collect()
    }

    /// Decides what happens to an event of a completion queue, by all rules together.
    pub fn decide(
        &self,
        key: CompletionEventKey,
        counts: &mut CompletionEventCounts,
        witness: &mut dyn FnMut(&CompletionEventFired<'_>),
    ) -> CompletionEventFate {
        let mut all = CompletionEventFate::default();
        for armed in self.lock().active() {
            let count = counts.entry(armed.id).or_default();
            let Some(fate) = ask(armed, key, count, self.seed, &self.tag) else { continue };
            armed.apply();
            all.delay_ns = all.delay_ns.saturating_add(fate.delay_ns);
            all.more = all.more.max(fate.more);
            all.within_ns = all.within_ns.max(fate.within_ns);
            self.triggers.note(Occurrence::Rule(&armed.name));
            witness(&CompletionEventFired { rule: &armed.name, tag: &self.tag, key, fate });
        }
        all
    }
}

impl CompletionEventAim {
    pub(crate) fn new(rule: &Rule, tag: &str) -> Option<CompletionEventAim> {
        match &rule.what {
            What::CompletionEvent(rule) => {
                rule.selector.is_of(tag).then(|| CompletionEventAim::Events((**rule).clone()))
            }
            What::Recorded(recording) if recording.completion_events.iter().any(|one| one.tag == tag) => {
                let own = recording.completion_events.iter().filter(|one| one.tag == tag);
                Some(CompletionEventAim::Recorded(own.map(|one| (one.key, one.fate)).collect()))
            }
            _ => None,
        }
    }
}

impl RuleSubject for CompletionEventAim {
    fn kind(&self) -> &'static str {
        match self {
            CompletionEventAim::Events(rule) if rule.fate.more > 0 => "merge-events",
            CompletionEventAim::Events(_) => "late-event",
            CompletionEventAim::Recorded(_) => FROM_REPORT,
        }
    }
}

/// Decides whether a rule applies to an event, and what it does.
pub(crate) fn ask(
    armed: &ArmedRule<CompletionEventAim>,
    key: CompletionEventKey,
    count: &mut RuleTally,
    seed: u64,
    tag: &str,
) -> Option<CompletionEventFate> {
    let rule = match &armed.subject {
        CompletionEventAim::Recorded(events) => {
            return events.iter().find(|(known, _)| *known == key).map(|(_, fate)| *fate);
        }
        CompletionEventAim::Events(rule) => rule,
    };
    let is_about = rule.selector.cq.is_none_or(|span| span.has(key.cq));
    if !is_about || !armed.has_begun() {
        return None;
    }
    armed.tries(count, || draw(key, seed, &armed.name, tag)).then_some(rule.fate)
}

/// Returns the random numbers of a rule for an event: a function of the seed, the rule's name, the process
/// and the event.
pub(crate) fn draw(key: CompletionEventKey, seed: u64, rule: &str, tag: &str) -> Random {
    let mut hasher = FnvHasher::default();
    for text in [rule, tag, "completion event"] {
        hasher.write(text.as_bytes());
        // The byte 0xff is in no UTF-8 text, so it separates.
        hasher.write(&[0xff]);
    }
    for number in [key.cq.into(), key.nth, seed] {
        hasher.write(&number.to_le_bytes());
    }
    Random::new(hasher.finish())
}
