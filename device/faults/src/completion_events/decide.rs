//! Rules about events of completion channels at work.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fnv::FnvHasher;
use pumice_ground::random::Random;

use super::rule::{CompletionEventFate, CompletionEventKey, CompletionEventRule};
use crate::armed::{About, Armed, OF_A_REPORT, Origin, Roster, Rules, Tries};
use crate::plan::{FaultPlan, Rule, What};
use crate::trigger::Occurrence;
use crate::waits::Triggers;

/// A rule applied to an event of a completion channel.
#[derive(Debug, Clone, Copy)]
pub struct CompletionEventFired<'a> {
    /// The name of the rule.
    pub rule: &'a str,
    /// The tag of this process.
    pub tag: &'a str,
    /// The event.
    pub key: CompletionEventKey,
    /// What happens to it by this rule.
    pub fate: CompletionEventFate,
}

/// What a rule of this process's is about.
#[derive(Debug)]
pub(crate) enum Aim {
    Events(CompletionEventRule),
    Recorded(Vec<(CompletionEventKey, CompletionEventFate)>),
}

/// The rules of a plan about events of completion channels at work.
#[derive(Debug)]
pub struct CompletionEventFaults {
    seed: u64,
    tag: String,
    rules: Mutex<Rules<Aim>>,
    triggers: Arc<Triggers>,
}

/// What the rules have counted of one completion queue.
pub type CompletionEventCounts = BTreeMap<usize, Tries>;

impl CompletionEventFaults {
    /// The part of a plan that concerns a process of this tag.
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) -> CompletionEventFaults {
        let rules = Mutex::new(Rules::of_plan(plan, triggers, |rule| Aim::new(rule, tag)));
        let (seed, tag, triggers) = (plan.seed(), tag.to_owned(), Arc::clone(triggers));
        CompletionEventFaults { seed, tag, rules, triggers }
    }

    #[doc(hidden)]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Rules<Aim>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a rule while the program runs, if it concerns this process: true.
    pub(crate) fn arm(&self, rule: &Rule, origin: Origin<'_>) -> bool {
        let Some(aim) = Aim::new(rule, &self.tag) else { return false };
        self.lock().push(rule, aim, origin, &self.triggers);
        true
    }

    /// The rules, for what is done to rules of every kind.
    pub fn with_roster(&self, look: &mut dyn FnMut(&mut dyn Roster)) {
        look(&mut *self.lock());
    }

    /// Whether there are rules: without them there is nothing to ask.
    pub fn is_active(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The names of the rules.
    pub fn names(&self) -> Vec<String> {
        self.lock().names().map(str::to_owned).collect()
    }

    /// What happens to an event of a completion queue, by all rules together.
    pub fn decide(
        &self,
        key: CompletionEventKey,
        counts: &mut CompletionEventCounts,
        witness: &mut dyn FnMut(&CompletionEventFired<'_>),
    ) -> CompletionEventFate {
        let mut all = CompletionEventFate::default();
        for armed in self.lock().awake() {
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

impl Aim {
    pub(crate) fn new(rule: &Rule, tag: &str) -> Option<Aim> {
        match &rule.what {
            What::CompletionEvent(rule) => rule.selector.is_of(tag).then(|| Aim::Events((**rule).clone())),
            What::Recorded(recording) if recording.completion_events.iter().any(|one| one.tag == tag) => {
                let own = recording.completion_events.iter().filter(|one| one.tag == tag);
                Some(Aim::Recorded(own.map(|one| (one.key, one.fate)).collect()))
            }
            _ => None,
        }
    }
}

impl About for Aim {
    fn kind(&self) -> &'static str {
        match self {
            Aim::Events(rule) if rule.fate.more > 0 => "merge-events",
            Aim::Events(_) => "late-event",
            Aim::Recorded(_) => OF_A_REPORT,
        }
    }
}

/// Whether a rule applies to an event, and how.
pub(crate) fn ask(
    armed: &Armed<Aim>,
    key: CompletionEventKey,
    count: &mut Tries,
    seed: u64,
    tag: &str,
) -> Option<CompletionEventFate> {
    let rule = match &armed.aim {
        Aim::Recorded(events) => {
            return events.iter().find(|(known, _)| *known == key).map(|(_, fate)| *fate);
        }
        Aim::Events(rule) => rule,
    };
    let is_about = rule.selector.cq.is_none_or(|span| span.has(key.cq));
    if !is_about || !armed.has_begun() {
        return None;
    }
    armed.tries(count, || draw(key, seed, &armed.name, tag)).then_some(rule.fate)
}

/// What a rule draws for an event: a function of the seed, the rule's name, the process and the event.
pub(crate) fn draw(key: CompletionEventKey, seed: u64, rule: &str, tag: &str) -> Random {
    let mut hasher = FnvHasher::default();
    for text in [rule, tag, "completion event"] {
        hasher.write(text.as_bytes());
        // It is in no UTF-8 text: it separates.
        hasher.write(&[0xff]);
    }
    for number in [key.cq.into(), key.nth, seed] {
        hasher.write(&number.to_le_bytes());
    }
    Random::new(hasher.finish())
}
