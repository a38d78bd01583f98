//! What happens to the device when a call has returned.

use super::action::Fault;
use super::calls::{CallFate, CallFired, CallKey};
use super::decide::{Aim, Armed, Faults};
use super::incident::Incident;
use super::trigger::Occurrence;

impl Faults {
    /// Whether a rule waits for calls that return.
    pub(crate) fn attends_calls(&self) -> bool {
        self.rules.iter().any(|armed| armed.is_of_calls || matches!(armed.aim, Aim::AtCalls(_)))
    }

    /// A call has returned; `witness` is told of each rule that applies. Whether one did.
    pub(crate) fn called(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> bool {
        let mut any = false;
        for armed in self.rules.iter().filter(|armed| !armed.is_paused) {
            let Some(incident) = armed.at_call(key) else { continue };
            armed.tally.met.update(|met| met.saturating_add(1));
            armed.tally.applied.update(|applied| applied.saturating_add(1));
            self.incidents.happen_now(incident);
            self.triggers.note(Occurrence::Rule(&armed.name));
            let fate = CallFate { incident: Some(incident), ..CallFate::default() };
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key: *key, fate });
            any = true;
        }
        any
    }
}

impl Armed {
    /// What happens by this rule after this call.
    fn at_call(&self, key: &CallKey<'_>) -> Option<Incident> {
        match &self.aim {
            Aim::AtCalls(calls) => calls.get(&(key.call.to_owned(), key.ordinal)).copied(),
            Aim::Packets(rule) if self.is_of_calls && self.tally.applied.get() == 0 => match rule.fault {
                Fault::Happen(incident) if self.has_begun() => Some(incident),
                _ => None,
            },
            _ => None,
        }
    }
}
