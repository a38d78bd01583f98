//! Rules about events of completion channels at work.

use std::hash::Hasher as _;
use std::sync::Arc;

use fnv::FnvHasher;

use super::rule::{CompletionEventFate, CompletionEventKey, CompletionEventRule};
use crate::faults::plan::{FaultPlan, Rule, What, When};
use crate::faults::trigger::Occurrence;
use crate::faults::waits::{Gate, Triggers};
use crate::ground::random::Random;

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
enum Aim {
    Events(CompletionEventRule),
    Recorded(Vec<(CompletionEventKey, CompletionEventFate)>),
}

/// A rule that concerns this process.
#[derive(Debug)]
struct Armed {
    name: String,
    after: Option<Gate>,
    when: When,
    aim: Aim,
}

/// The rules of a plan about events of completion channels at work.
#[derive(Debug)]
pub(crate) struct CompletionEventFaults {
    seed: u64,
    tag: String,
    rules: Vec<Armed>,
    triggers: Arc<Triggers>,
}

/// What the rules have counted of one completion queue: its events, and for each rule those that it was about
/// and those that it applied to.
#[derive(Debug, Default)]
pub(crate) struct CompletionEventCounts {
    events: u64,
    rules: Vec<(u64, u64)>,
}

impl CompletionEventFaults {
    /// The part of a plan that concerns a process of this tag; `None` if none does.
    pub(crate) fn new(
        plan: &FaultPlan,
        tag: &str,
        triggers: &Arc<Triggers>,
    ) -> Option<CompletionEventFaults> {
        let armed = |rule| Armed::new(rule, tag, triggers);
        let rules: Vec<Armed> = plan.rules().iter().filter_map(armed).collect();
        let (seed, tag, triggers) = (plan.seed(), tag.to_owned(), Arc::clone(triggers));
        (!rules.is_empty()).then_some(CompletionEventFaults { seed, tag, rules, triggers })
    }

    /// The names of the rules.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.rules.iter().map(|armed| armed.name.clone())
    }

    /// What happens to the next event of the completion queue with this ordinal, by all rules together.
    pub(crate) fn decide(
        &self,
        cq: u32,
        counts: &mut CompletionEventCounts,
        witness: &mut dyn FnMut(&CompletionEventFired<'_>),
    ) -> CompletionEventFate {
        counts.events = counts.events.saturating_add(1);
        counts.rules.resize(self.rules.len(), (0, 0));
        let key = CompletionEventKey { cq, nth: counts.events };
        let mut all = CompletionEventFate::default();
        for (armed, count) in self.rules.iter().zip(&mut counts.rules) {
            let Some(fate) = armed.ask(key, count, self.seed, &self.tag) else { continue };
            all.delay_ns = all.delay_ns.saturating_add(fate.delay_ns);
            all.more = all.more.max(fate.more);
            all.within_ns = all.within_ns.max(fate.within_ns);
            self.triggers.note(Occurrence::Rule(&armed.name));
            witness(&CompletionEventFired { rule: &armed.name, tag: &self.tag, key, fate });
        }
        all
    }
}

impl Armed {
    fn new(rule: &Rule, tag: &str, triggers: &Arc<Triggers>) -> Option<Armed> {
        let aim = match &rule.what {
            What::CompletionEvent(rule) => rule.selector.is_of(tag).then(|| Aim::Events((**rule).clone()))?,
            What::Recorded(recording) if recording.completion_events.iter().any(|one| one.tag == tag) => {
                let own = recording.completion_events.iter().filter(|one| one.tag == tag);
                Aim::Recorded(own.map(|one| (one.key, one.fate)).collect())
            }
            _ => return None,
        };
        let after = rule.after.as_ref().and_then(|trigger| triggers.gate(trigger));
        Some(Armed { name: rule.name.clone(), after, when: rule.when, aim })
    }

    /// Whether the rule applies to an event, and how.
    fn ask(
        &self,
        key: CompletionEventKey,
        count: &mut (u64, u64),
        seed: u64,
        tag: &str,
    ) -> Option<CompletionEventFate> {
        let rule = match &self.aim {
            Aim::Recorded(events) => {
                return events.iter().find(|(known, _)| *known == key).map(|(_, fate)| *fate);
            }
            Aim::Events(rule) => rule,
        };
        let is_about = rule.selector.cq.is_none_or(|span| span.has(key.cq.into()));
        if !is_about || !self.after.as_ref().is_none_or(Gate::is_open) {
            return None;
        }
        let (matched, applied) = count;
        *matched = matched.saturating_add(1);
        let when = &self.when;
        let applies = when.steps.is_none_or(|steps| steps.has(*matched))
            && when.chance_ppm.is_none_or(|ppm| draw(key, seed, &self.name, tag).chance(ppm))
            && when.times.is_none_or(|times| *applied < times);
        *applied = applied.saturating_add(u64::from(applies));
        applies.then_some(rule.fate)
    }
}

/// What a rule draws for an event: a function of the seed, the rule's name, the process and the event.
fn draw(key: CompletionEventKey, seed: u64, rule: &str, tag: &str) -> Random {
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
