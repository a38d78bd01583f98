//! The parts of a fault plan that act on one device, and incidents of the device after a call or at a given
//! time.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_model::fates::fired::CallFired;
use pumice_model::fates::incident::Incident;
use pumice_model::fates::trigger::Occurrence;
use pumice_model::fates::{CallFate, CallKey, TIME};
use pumice_platform::clock::Clock;

use super::armed::ArmedRule;
use super::calls::CallRules;
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionFaults;
use super::decide::{Faults, PacketAim};
use super::incident::TimedIncident;
use super::plan::FaultPlan;
use super::waits::Triggers;

/// The part of a plan that acts on a process with one tag. A part exists also without rules, for rules that
/// are added while the program runs.
pub struct ActivePlan {
    pub(crate) packets: Box<Faults>,
    pub(crate) completions: Box<CompletionFaults>,
    pub(crate) completion_events: Arc<CompletionEventFaults>,
    /// The holder of the rules about calls, if the process asks about calls.
    pub calls: Option<Arc<dyn CallRules>>,
}

impl ActivePlan {
    #[doc(hidden)]
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>, clock: &Clock) -> ActivePlan {
        ActivePlan {
            packets: Box::new(Faults::new(plan, tag, triggers, clock.clone())),
            completions: Box::new(CompletionFaults::new(plan, tag, triggers)),
            completion_events: Arc::new(CompletionEventFaults::new(plan, tag, triggers)),
            calls: None,
        }
    }

    /// Binds the plan to the device of this name, so that rules about other devices are refused later as
    /// well.
    pub fn on(mut self, device: &str) -> ActivePlan {
        device.clone_into(&mut self.packets.device);
        self
    }

    /// Starts to note the fates of packets for captures.
    pub fn store_notes(&mut self) {
        self.packets.store_notes();
    }

    /// Returns the names of the rules, except those about calls.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.packets.names().chain(self.completions.names()).map(str::to_owned);
        names.chain(self.completion_events.names()).collect()
    }
}

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
fn at_call(armed: &ArmedRule<PacketAim>, key: &CallKey<'_>) -> Option<Incident> {
    match &armed.subject {
        PacketAim::AtCalls(calls) => calls.get(&(key.call.to_owned(), key.ordinal)).copied(),
        PacketAim::AfterCall(incident) if armed.applied() == 0 && armed.has_begun() => Some(*incident),
        _ => None,
    }
}
