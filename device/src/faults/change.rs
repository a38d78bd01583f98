//! A plan at work that changes while the program runs.

use super::action::Fault;
use super::decide::{Aim, Armed, Faults};
use super::live::{LiveAnswer, LiveChange, LiveOrder, LiveRule, MAX_RULES};
use super::plan::What;
use super::text::rule_of_line;

/// What the process has done so far, to say when something changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Packets sent.
    pub(crate) packets: u64,
    /// Queue pairs made.
    pub(crate) queue_pairs: u32,
}

impl Faults {
    /// Does what it is asked, if it can; `witness` is told of each rule that changes.
    pub(crate) fn obey(
        &mut self,
        order: &LiveOrder,
        moment: Moment,
        witness: &mut dyn FnMut(&LiveChange<'_>),
    ) -> LiveAnswer {
        let done = match order {
            LiveOrder::List => Ok(("", Vec::new())),
            LiveOrder::Add { line } => self.add(line).map(|name| ("added", vec![name])),
            LiveOrder::Pause { rule } => self.rest(rule.as_deref(), true).map(|names| ("paused", names)),
            LiveOrder::Resume { rule } => self.rest(rule.as_deref(), false).map(|names| ("resumed", names)),
            LiveOrder::Clear { rule } => self.clear(rule.as_deref()).map(|names| ("cleared", names)),
        };
        let (refused, what, changed) = match done {
            Ok((what, changed)) => (None, what, changed),
            Err(why) => (Some(why), "", Vec::new()),
        };
        for name in &changed {
            let line = if let LiveOrder::Add { line } = order { Some(line.as_str()) } else { None };
            witness(&LiveChange {
                tag: &self.tag,
                seed: self.seed,
                what,
                rule: name,
                line,
                after_packets: moment.packets,
                after_queue_pairs: moment.queue_pairs,
            });
        }
        let rules = self.rules.iter().map(described).collect();
        LiveAnswer { tag: self.tag.clone(), seed: self.seed, refused, changed, rules, left_out: 0 }
    }

    /// Takes the rule that a line says; its name.
    fn add(&mut self, line: &str) -> Result<String, String> {
        if self.rules.len() >= MAX_RULES {
            return Err(format!("it has {MAX_RULES} rules already: clear some first"));
        }
        let is_taken = |name: &str| self.rules.iter().any(|armed| armed.name == name);
        let rule = rule_of_line(line, is_taken)?;
        if !matches!(rule.what, What::Packet(_)) {
            return Err("only rules about packets are taken while a program runs: start it with \
                        pumice run --fault"
                .to_owned());
        }
        if rule.after.is_some() {
            return Err(
                "a rule that waits is not taken while a program runs: leave out after, and add it when \
                        its time has come"
                    .to_owned(),
            );
        }
        if !self.arm(&rule, Some(line)) {
            return Err(format!("the rule is about processes with another tag: this one has {}", self.tag));
        }
        Ok(rule.name)
    }

    /// Lets a rule, or all, rest or go on; the names of those that changed.
    fn rest(&mut self, name: Option<&str>, is_paused: bool) -> Result<Vec<String>, String> {
        self.known(name)?;
        let mut changed = Vec::new();
        for armed in self.rules.iter_mut().filter(|armed| name.is_none_or(|name| armed.name == name)) {
            if armed.is_paused != is_paused {
                armed.is_paused = is_paused;
                changed.push(armed.name.clone());
            }
        }
        Ok(changed)
    }

    /// Forgets a rule, or all; the names of those that are gone.
    fn clear(&mut self, name: Option<&str>) -> Result<Vec<String>, String> {
        self.known(name)?;
        let gone = self.rules.extract_if(.., |armed| name.is_none_or(|name| armed.name == name));
        Ok(gone.map(|armed| armed.name).collect())
    }

    /// A rule that is named must be there.
    fn known(&self, name: Option<&str>) -> Result<(), String> {
        let Some(name) = name.filter(|name| !self.rules.iter().any(|armed| armed.name == *name)) else {
            return Ok(());
        };
        let all: Vec<&str> = self.rules.iter().map(|armed| armed.name.as_str()).collect();
        let there =
            if all.is_empty() { "it has no rules".to_owned() } else { format!("it has {}", all.join(", ")) };
        Err(format!("there is no rule \"{name}\": {there}"))
    }
}

fn described(armed: &Armed) -> LiveRule {
    LiveRule {
        name: armed.name.clone(),
        does: armed.line.clone().unwrap_or_else(|| kind(&armed.aim).to_owned()),
        live: armed.line.is_some(),
        paused: armed.is_paused,
        met: armed.tally.met.get(),
        applied: armed.tally.applied.get(),
    }
}

fn kind(aim: &Aim) -> &'static str {
    let Aim::Packets(rule) = aim else { return "what a report says" };
    match rule.fault {
        Fault::Drop => "drop",
        Fault::Duplicate { .. } => "duplicate",
        Fault::Delay(_) => "delay",
        Fault::Reorder { .. } => "reorder",
        Fault::Corrupt { .. } => "corrupt",
        Fault::Truncate { .. } => "truncate",
        Fault::Mark => "mark",
        Fault::Note => "note",
        Fault::Refuse { .. } | Fault::Notify => "answer",
        Fault::Happen(_) => "event",
        Fault::Reject { .. } => "reject",
        Fault::Partition { .. } => "partition",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::plan::FaultPlan;
    use crate::faults::waits::Triggers;
    use crate::ground::clock::Clock;

    const NOW: Moment = Moment { packets: 7, queue_pairs: 2 };

    fn names(answer: &LiveAnswer) -> Vec<&str> {
        answer.rules.iter().map(|rule| rule.name.as_str()).collect()
    }

    #[test]
    fn rules_come_rest_and_go() {
        let (plan, clock) = (FaultPlan::seeded(3), Clock::monotonic());
        let mut faults = Faults::new(&plan, "server", &Triggers::new(&plan, &clock), clock);
        assert!(!faults.is_active());
        let mut told = Vec::new();
        let mut ask = |faults: &mut Faults, order: LiveOrder| {
            faults.obey(&order, NOW, &mut |change| {
                told.push(format!(
                    "{} {} {:?} {}",
                    change.what, change.rule, change.line, change.after_packets
                ));
            })
        };
        let add = |line: &str| LiveOrder::Add { line: line.to_owned() };
        assert_eq!(names(&ask(&mut faults, add("drop chance=2%"))), ["drop"]);
        let answer = ask(&mut faults, add("drop chance=3%"));
        assert_eq!(
            (names(&answer), answer.changed.as_slice()),
            (vec!["drop", "drop-2"], &["drop-2".to_owned()][..])
        );
        assert!(faults.is_active() && answer.rules[1].live && answer.rules[1].does == "drop chance=3%");
        for wrong in [
            "drop name=drop",
            "drop tag=client",
            "dorp",
            "",
            "fail call=ibv_reg_mr",
            "drop after=\"bytes 1\"",
            "late time=1s",
        ] {
            let answer = ask(&mut faults, add(wrong));
            assert!(answer.refused.is_some() && answer.rules.len() == 2, "{wrong}: {answer:?}");
        }
        let one = Some("drop-2".to_owned());
        assert!(ask(&mut faults, LiveOrder::Pause { rule: one.clone() }).rules[1].paused);
        assert!(ask(&mut faults, LiveOrder::Pause { rule: one.clone() }).changed.is_empty());
        assert_eq!(ask(&mut faults, LiveOrder::Resume { rule: None }).changed, ["drop-2"]);
        let answer = ask(&mut faults, LiveOrder::Clear { rule: Some("loss".to_owned()) });
        assert_eq!(answer.refused.unwrap(), "there is no rule \"loss\": it has drop, drop-2");
        assert_eq!(names(&ask(&mut faults, LiveOrder::Clear { rule: one })), ["drop"]);
        assert_eq!(ask(&mut faults, LiveOrder::Clear { rule: None }).changed, ["drop"]);
        assert!(!faults.is_active());
        assert_eq!(told[0], "added drop Some(\"drop chance=2%\") 7");
        assert_eq!(told.len(), 6);
    }
}
