//! What happens to the device when a call has returned, or when a time has come.

use super::armed::Armed;
use super::calls::{CallFate, CallFired, CallKey, TIME};
use super::decide::{Aim, Faults};
use super::incident::Incident;
use super::timed::Due;
use super::trigger::Occurrence;

impl Faults {
    /// A call has returned; `witness` is told of each rule that applies. Whether one did.
    pub fn called(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> bool {
        let mut any = false;
        for armed in self.rules.awake() {
            let Some(incident) = at_call(armed, key) else { continue };
            armed.meet();
            armed.apply();
            self.incidents.happen_now(incident);
            self.triggers.note(Occurrence::Rule(&armed.name));
            let fate = CallFate { incident: Some(incident), ..CallFate::default() };
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key: *key, fate });
            any = true;
        }
        any
    }

    /// When something happens to the device at a time.
    pub fn next_timed_ns(&self) -> Option<u64> {
        self.timed.next_ns()
    }

    /// A time has come; `witness` is told of each rule that applies. A rule that rests, or is gone, does
    /// nothing.
    pub fn time_came(&mut self, now_ns: u64, witness: &mut dyn FnMut(&CallFired<'_>)) {
        for Due { after_ns, incident, id, .. } in self.timed.take(now_ns) {
            let Some(armed) = self.rules.awake().find(|armed| armed.id == id) else { continue };
            armed.meet();
            armed.apply();
            self.incidents.happen_now(incident);
            self.triggers.note(Occurrence::Rule(&armed.name));
            let fate = CallFate { incident: Some(incident), ..CallFate::default() };
            let key = CallKey { call: TIME, ordinal: after_ns, qp: None };
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key, fate });
        }
    }
}

/// What happens by a rule after this call.
pub(crate) fn at_call(armed: &Armed<Aim>, key: &CallKey<'_>) -> Option<Incident> {
    match &armed.aim {
        Aim::AtCalls(calls) => calls.get(&(key.call.to_owned(), key.ordinal)).copied(),
        Aim::AfterCall(incident) if armed.applied() == 0 && armed.has_begun() => Some(*incident),
        _ => None,
    }
}
