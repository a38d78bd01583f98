//! The parts of a plan at work in a device.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_ground::clock::Clock;

use super::calls::CallRules;
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionFaults;
use super::decide::Faults;
use super::plan::FaultPlan;
use super::waits::Triggers;

/// What a plan does to a process of one tag. A part without rules is there for rules that come while the
/// program runs.
pub struct PlanAtWork {
    pub(crate) packets: Box<Faults>,
    pub(crate) completions: Box<CompletionFaults>,
    pub(crate) completion_events: Arc<CompletionEventFaults>,
    /// The gate that holds the rules about calls, if calls are asked about.
    pub calls: Option<Arc<dyn CallRules>>,
}

impl PlanAtWork {
    #[doc(hidden)]
    pub fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>, clock: &Clock) -> PlanAtWork {
        PlanAtWork {
            packets: Box::new(Faults::new(plan, tag, triggers, clock.clone())),
            completions: Box::new(CompletionFaults::new(plan, tag, triggers)),
            completion_events: Arc::new(CompletionEventFaults::new(plan, tag, triggers)),
            calls: None,
        }
    }

    /// It is at work on the device of this name: rules that are about others do not come later either.
    pub fn on(mut self, device: &str) -> PlanAtWork {
        device.clone_into(&mut self.packets.device);
        self
    }

    /// From now on fates of packets have notes, for captures.
    pub fn keep_notes(&mut self) {
        self.packets.keep_notes();
    }

    /// The names of its rules, but for those about calls.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.packets.names().chain(self.completions.names()).map(str::to_owned);
        names.chain(self.completion_events.names()).collect()
    }
}
