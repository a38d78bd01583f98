//! Incidents of the device after a call has returned, or at a given time.

use super::armed::ArmedRule;
use super::decide::{Faults, PacketAim};
use super::timed::TimedIncident;
use pumice_model::fates::fired::CallFired;
use pumice_model::fates::identity::{CallFate, CallKey, TIME};
use pumice_model::fates::incident::Incident;
use pumice_model::fates::trigger::Occurrence;

impl Faults {
    /// Makes the incidents due that rules bind to this call, which has returned; `witness` is called with
    /// each rule that applies. Returns whether one did.
    pub fn called(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> bool {
        let mut any = false;
        for armed in self.rules.active() {
            let Some(incident) = at_call(armed, key) else { continue };
            armed.count_match();
            armed.apply();
            self.incidents.happen_now(incident);
            self.triggers.note(Occurrence::Rule(&armed.name));
            let fate = CallFate { incident: Some(incident), ..CallFate::default() };
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key: *key, fate });
            any = true;
        }
        any
    }

    /// Returns when the next timed incident is due, in ns.
    pub fn next_timed_ns(&self) -> Option<u64> {
        self.timed.next_ns()
    }

    /// Makes the incidents due whose time has come; `witness` is called with each rule that applies. A rule
    /// that is paused or was cleared does nothing.
    pub fn advance_to_time(&mut self, now_ns: u64, witness: &mut dyn FnMut(&CallFired<'_>)) {
        for TimedIncident { after_ns, incident, id, .. } in self.timed.take(now_ns) {
            let Some(armed) = self.rules.active().find(|armed| armed.id == id) else { continue };
            armed.count_match();
            armed.apply();
            self.incidents.happen_now(incident);
            self.triggers.note(Occurrence::Rule(&armed.name));
            let fate = CallFate { incident: Some(incident), ..CallFate::default() };
            let key = CallKey { call: TIME, ordinal: after_ns, qp: None, to: None };
            witness(&CallFired { rule: &armed.name, tag: &self.tag, key, fate });
        }
    }
}

/// Returns the incident that a rule brings after this call, if it does.
pub(crate) fn at_call(armed: &ArmedRule<PacketAim>, key: &CallKey<'_>) -> Option<Incident> {
    match &armed.subject {
        PacketAim::AtCalls(calls) => calls.get(&(key.call.to_owned(), key.ordinal)).copied(),
        PacketAim::AfterCall(incident) if armed.applied() == 0 && armed.has_begun() => Some(*incident),
        _ => None,
    }
}
