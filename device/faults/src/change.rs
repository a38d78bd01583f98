//! Changes of a process's fault plan while the program runs.

use super::armed::{Indexed, RuleControl, RuleOrigin};
use super::calls::CallRules;
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionFaults;
use super::decide::Faults;
use super::plan::{Rule, What};
use super::text::rule_of_line;
use pumice_model::fates::live::{FaultCommand, FaultReply, MAX_RULES, RuleChange, RuleStatus};
use pumice_model::fates::trigger::Trigger;

/// The progress of the process at the moment of a change.
#[derive(Debug, Clone, Copy)]
pub struct ProcessProgress {
    /// Number of packets sent.
    pub packets: u64,
    /// Number of queue pairs created.
    pub queue_pairs: u32,
}

/// The parts of a plan in one process, which change together.
pub struct PlanParts<'a> {
    #[doc(hidden)]
    pub packets: &'a mut Faults,
    #[doc(hidden)]
    pub completions: Option<&'a mut CompletionFaults>,
    #[doc(hidden)]
    pub completion_events: Option<&'a CompletionEventFaults>,
    #[doc(hidden)]
    pub calls: Option<&'a dyn CallRules>,
}

/// A rule that was added, paused, resumed or cleared.
pub struct ChangedRule {
    name: String,
    is_of_calls: bool,
}

/// A closure that is called with each rule that changes.
pub(crate) type ChangeWitness<'a> = &'a mut dyn FnMut(&RuleChange<'_>);

impl PlanParts<'_> {
    /// Carries out an order, and returns the answer to it.
    pub fn apply_command(
        &mut self,
        order: &FaultCommand,
        progress: ProcessProgress,
        witness: ChangeWitness<'_>,
    ) -> FaultReply {
        let (what, line) = match order {
            FaultCommand::List => ("", None),
            FaultCommand::Add { line } => ("added", Some(line.as_str())),
            FaultCommand::Pause { .. } => ("paused", None),
            FaultCommand::Resume { .. } => ("resumed", None),
            FaultCommand::Clear { .. } => ("cleared", None),
        };
        let done = match order {
            FaultCommand::List => Ok(Vec::new()),
            FaultCommand::Add { line } => self.add(line).map(|changed| vec![changed]),
            FaultCommand::Pause { rule } => self.every(rule.as_deref(), |all, name| all.rest(name, true)),
            FaultCommand::Resume { rule } => self.every(rule.as_deref(), |all, name| all.rest(name, false)),
            FaultCommand::Clear { rule } => self.every(rule.as_deref(), |all, name| all.clear(name)),
        };
        let (refused, changed) = match done {
            Ok(changed) => (None, changed),
            Err(why) => (Some(why), Vec::new()),
        };
        let Faults { tag, seed, .. } = &*self.packets;
        let (tag, seed) = (tag.clone(), *seed);
        for ChangedRule { name, is_of_calls } in &changed {
            witness(&RuleChange {
                tag: &tag,
                seed,
                what,
                rule: name,
                is_of_calls: *is_of_calls,
                line,
                after_packets: progress.packets,
                after_queue_pairs: progress.queue_pairs,
            });
        }
        let changed = changed.into_iter().map(|one| one.name).collect();
        let rules = self.list().into_iter().map(|(_, rule)| rule).collect();
        let device = self.packets.device.clone();
        FaultReply { tag, device, seed, refused, changed, rules, left_out: 0 }
    }

    /// Calls `visit` with the rules of each kind; the flag is true for the rules about calls.
    pub fn each(&mut self, visit: &mut dyn FnMut(&mut dyn RuleControl, bool)) {
        visit(self.packets.roster(), false);
        if let Some(completions) = &mut self.completions {
            visit(completions.roster(), false);
        }
        if let Some(events) = self.completion_events {
            events.with_roster(&mut |roster| visit(roster, false));
        }
        if let Some(calls) = self.calls {
            calls.change(&mut |calls| visit(calls.roster(), true));
        }
    }

    /// Returns all rules, in the order in which they were added.
    pub fn list(&mut self) -> Vec<Indexed<RuleStatus>> {
        let mut all = Vec::new();
        self.each(&mut |roster, _| all.extend(roster.list()));
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// Adds the rule that a line describes.
    pub fn add(&mut self, line: &str) -> Result<ChangedRule, String> {
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
        let origin = RuleOrigin { id: self.packets.next_id(), line: Some(line) };
        if !self.arm(&rule, origin)? {
            return Err(format!(
                "the rule is about processes with another tag: this one has {}",
                self.packets.tag
            ));
        }
        self.packets.triggers.admit(&rule);
        Ok(ChangedRule { name: rule.name, is_of_calls: matches!(rule.what, What::Call(_)) })
    }

    /// Adds a rule, if it concerns the process. Returns whether it does.
    pub(crate) fn arm(&mut self, rule: &Rule, origin: RuleOrigin<'_>) -> Result<bool, String> {
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

    /// Applies `act` to the rule of this name, or to all rules. Returns those that changed, in the order in
    /// which they were added.
    pub fn every(
        &mut self,
        name: Option<&str>,
        act: impl Fn(&mut dyn RuleControl, Option<&str>) -> Vec<Indexed<String>>,
    ) -> Result<Vec<ChangedRule>, String> {
        let there = self.list();
        if let Some(name) = name.filter(|name| !there.iter().any(|(_, rule)| rule.name == *name)) {
            return Err(format!("there is no rule \"{name}\": {}", named(&there)));
        }
        let mut changed = Vec::new();
        self.each(&mut |roster, is_of_calls| {
            let found = act(roster, name).into_iter();
            changed.extend(found.map(|(id, name)| (id, ChangedRule { name, is_of_calls })));
        });
        changed.sort_by_key(|(id, _)| *id);
        Ok(changed.into_iter().map(|(_, one)| one).collect())
    }
}

/// Returns a sentence that names the existing rules.
pub(crate) fn named(there: &[Indexed<RuleStatus>]) -> String {
    let all: Vec<&str> = there.iter().map(|(_, rule)| rule.name.as_str()).collect();
    if all.is_empty() { "it has no rules".to_owned() } else { format!("it has {}", all.join(", ")) }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
