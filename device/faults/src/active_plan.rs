//! The parts of a fault plan that act on one device.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_platform::clock::Clock;

use super::calls::CallRules;
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionFaults;
use super::decide::Faults;
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
