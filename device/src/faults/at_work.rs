//! The parts of a plan at work in a device.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::calls::CallFaults;
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionFaults;
use super::decide::Faults;
use super::plan::FaultPlan;
use super::waits::Triggers;
use crate::ground::clock::Clock;

/// What a plan does to a process of one tag.
#[derive(Default)]
pub(crate) struct PlanAtWork {
    pub(crate) packets: Option<Box<Faults>>,
    pub(crate) completions: Option<Box<CompletionFaults>>,
    pub(crate) completion_events: Option<Arc<CompletionEventFaults>>,
    /// If the device is asked about calls.
    pub(crate) calls: Option<CallFaults>,
}

impl PlanAtWork {
    pub(crate) fn new(plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>, clock: &Clock) -> PlanAtWork {
        let completion_events = CompletionEventFaults::new(plan, tag, triggers).map(Arc::new);
        // Events that are put off wait where completions do.
        let is_needed = completion_events.is_some();
        PlanAtWork {
            packets: Some(Box::new(Faults::new(plan, tag, triggers, clock.clone()))),
            completions: CompletionFaults::new(plan, tag, triggers, is_needed).map(Box::new),
            completion_events,
            calls: None,
        }
    }

    /// The device is asked about calls, too.
    pub(crate) fn of_calls(&mut self, plan: &FaultPlan, tag: &str, triggers: &Arc<Triggers>) {
        self.calls = CallFaults::new(plan, tag, triggers);
    }

    /// From now on fates of packets have notes, for captures.
    pub(crate) fn keep_notes(&mut self) {
        if let Some(packets) = &mut self.packets {
            packets.keep_notes();
        }
    }

    /// The names of its rules.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let packets = self.packets.iter().flat_map(|faults| faults.names());
        let completions = self.completions.iter().flat_map(|faults| faults.names());
        let completion_events = self.completion_events.iter().flat_map(|faults| faults.names());
        let names: BTreeSet<String> = packets.chain(completions).chain(completion_events).collect();
        let calls = self.calls.iter().flat_map(CallFaults::names).map(str::to_owned);
        names.into_iter().chain(calls).collect()
    }
}
