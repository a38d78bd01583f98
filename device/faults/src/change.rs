//! A plan at work that changes while the program runs.

use super::armed::{Found, Origin, Roster};
use super::calls::CallRules;
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionFaults;
use super::decide::Faults;
use super::live::{LiveAnswer, LiveChange, LiveOrder, LiveRule, MAX_RULES};
use super::plan::{Rule, What};
use super::text::rule_of_line;
use super::trigger::Trigger;

/// What the process has done so far, to say when something changed.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Packets sent.
    pub packets: u64,
    /// Queue pairs made.
    pub queue_pairs: u32,
}

/// The parts of a plan at work, which change together.
pub struct Parts<'a> {
    #[doc(hidden)]
    pub packets: &'a mut Faults,
    #[doc(hidden)]
    pub completions: Option<&'a mut CompletionFaults>,
    #[doc(hidden)]
    pub completion_events: Option<&'a CompletionEventFaults>,
    #[doc(hidden)]
    pub calls: Option<&'a dyn CallRules>,
}

/// A rule that came, rested, went on or went.
pub struct Changed {
    name: String,
    is_of_calls: bool,
}

/// Is told of each rule that changes.
pub(crate) type ChangeWitness<'a> = &'a mut dyn FnMut(&LiveChange<'_>);

impl Parts<'_> {
    /// Does what it is asked, if it can.
    pub fn obey(&mut self, order: &LiveOrder, moment: Moment, witness: ChangeWitness<'_>) -> LiveAnswer {
        let (what, line) = match order {
            LiveOrder::List => ("", None),
            LiveOrder::Add { line } => ("added", Some(line.as_str())),
            LiveOrder::Pause { .. } => ("paused", None),
            LiveOrder::Resume { .. } => ("resumed", None),
            LiveOrder::Clear { .. } => ("cleared", None),
        };
        let done = match order {
            LiveOrder::List => Ok(Vec::new()),
            LiveOrder::Add { line } => self.add(line).map(|changed| vec![changed]),
            LiveOrder::Pause { rule } => self.every(rule.as_deref(), |all, name| all.rest(name, true)),
            LiveOrder::Resume { rule } => self.every(rule.as_deref(), |all, name| all.rest(name, false)),
            LiveOrder::Clear { rule } => self.every(rule.as_deref(), |all, name| all.clear(name)),
        };
        let (refused, changed) = match done {
            Ok(changed) => (None, changed),
            Err(why) => (Some(why), Vec::new()),
        };
        let Faults { tag, seed, .. } = &*self.packets;
        let (tag, seed) = (tag.clone(), *seed);
        for Changed { name, is_of_calls } in &changed {
            witness(&LiveChange {
                tag: &tag,
                seed,
                what,
                rule: name,
                is_of_calls: *is_of_calls,
                line,
                after_packets: moment.packets,
                after_queue_pairs: moment.queue_pairs,
            });
        }
        let changed = changed.into_iter().map(|one| one.name).collect();
        let rules = self.list().into_iter().map(|(_, rule)| rule).collect();
        let device = self.packets.device.clone();
        LiveAnswer { tag, device, seed, refused, changed, rules, left_out: 0 }
    }

    /// The rules of each kind; true with those about calls.
    pub fn each(&mut self, look: &mut dyn FnMut(&mut dyn Roster, bool)) {
        look(self.packets.roster(), false);
        if let Some(completions) = &mut self.completions {
            look(completions.roster(), false);
        }
        if let Some(events) = self.completion_events {
            events.with_roster(&mut |roster| look(roster, false));
        }
        if let Some(calls) = self.calls {
            calls.change(&mut |calls| look(calls.roster(), true));
        }
    }

    /// All rules, in the order in which they came.
    pub fn list(&mut self) -> Vec<Found<LiveRule>> {
        let mut all = Vec::new();
        self.each(&mut |roster, _| all.extend(roster.list()));
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Takes the rule that a line says.
    pub fn add(&mut self, line: &str) -> Result<Changed, String> {
        let there = self.list();
        if there.len() >= MAX_RULES {
            return Err(format!("it has {MAX_RULES} rules already: clear some first"));
        }
        let is_taken = |name: &str| there.iter().any(|(_, rule)| rule.name == name);
        let rule = rule_of_line(line, is_taken)?;
        let device = &self.packets.device;
        if !rule.is_of(device) {
            return Err(format!("the rule is about another device: this one is {device}"));
        }
        for trigger in rule.triggers() {
            match trigger {
                Trigger::Rule(name) if !is_taken(name) => {
                    return Err(format!(
                        "it waits for rule \"{name}\", which is not there: {}",
                        named(&there)
                    ));
                }
                _ => {}
            }
        }
        let origin = Origin { id: self.packets.next_id(), line: Some(line) };
        if !self.arm(&rule, origin)? {
            return Err(format!(
                "the rule is about processes with another tag: this one has {}",
                self.packets.tag
            ));
        }
        self.packets.triggers.admit(&rule);
        Ok(Changed { name: rule.name, is_of_calls: matches!(rule.what, What::Call(_)) })
    }

    /// Takes a rule, if it concerns the process: true.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: Origin<'_>) -> Result<bool, String> {
        const ELSEWHERE: &str = "this process has no place for rules of this kind: give it to another one";
        match &rule.what {
            What::Packet(_) | What::Recorded(_) => Ok(self.packets.arm(rule, origin)),
            What::Completion(_) => Ok(self.completions.as_deref_mut().ok_or(ELSEWHERE)?.arm(rule, origin)),
            What::CompletionEvent(_) => Ok(self.completion_events.ok_or(ELSEWHERE)?.arm(rule, origin)),
            What::Call(_) => {
                let mut is_taken = false;
                let calls = self.calls.ok_or(ELSEWHERE)?;
                calls.change(&mut |calls| is_taken = calls.arm(rule, origin));
                Ok(is_taken)
            }
        }
    }

    /// Does something with a rule, or all; those that changed, in the order in which they came.
    pub fn every(
        &mut self,
        name: Option<&str>,
        act: impl Fn(&mut dyn Roster, Option<&str>) -> Vec<Found<String>>,
    ) -> Result<Vec<Changed>, String> {
        let there = self.list();
        if let Some(name) = name.filter(|name| !there.iter().any(|(_, rule)| rule.name == *name)) {
            return Err(format!("there is no rule \"{name}\": {}", named(&there)));
        }
        let mut changed = Vec::new();
        self.each(&mut |roster, is_of_calls| {
            let found = act(roster, name).into_iter();
            changed.extend(found.map(|(id, name)| (id, Changed { name, is_of_calls })));
        });
        changed.sort_by_key(|(id, _)| *id);
        Ok(changed.into_iter().map(|(_, one)| one).collect())
    }
}

/// Which rules there are, in words.
pub(crate) fn named(there: &[Found<LiveRule>]) -> String {
    let all: Vec<&str> = there.iter().map(|(_, rule)| rule.name.as_str()).collect();
    if all.is_empty() { "it has no rules".to_owned() } else { format!("it has {}", all.join(", ")) }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
