//! Calls, completions and events that a rule of the fault plan fails or slows.

use std::collections::BTreeSet;

use pumice_model::event::Event;

use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::FAILURE_INJECTED;
use crate::check::notified::Check;
use crate::check::per_queue::QueueName;
use pumice_model::event::fault_words::fault_in_words;

/// Number of rules that are reported; further ones are in the fault report only.
const MAX_RULES: usize = 256;

/// The record of rules that applied to something else than a packet: the consequences are no mistake of the
/// program, of its peer or of the network. Each rule is reported when it applies first, and counted from then
/// on.
#[derive(Debug, Default)]
pub(super) struct Planned {
    rules: BTreeSet<String>,
}

impl Check for Planned {
    fn forget(&mut self, of: Option<QueueName>) {
        if of.is_none() {
            self.rules.clear();
        }
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        let rule = match event {
            Event::CallFaultApplied { fault } => fault.rule,
            Event::CompletionFaultApplied { fault, .. } => fault.rule,
            Event::CompletionEventFaultApplied { fault } => fault.rule,
            _ => return,
        };
        let object = format!("rule \"{rule}\" of the fault plan");
        if self.rules.contains(rule) {
            return context.found_again(&FAILURE_INJECTED, &object);
        }
        let Some(words) = fault_in_words(event).filter(|_| self.rules.len() < MAX_RULES) else { return };
        self.rules.insert(rule.to_owned());
        let numbers = words.replacen(&format!("fault \"{rule}\""), &object, 1);
        let stack = context.here();
        context.found(&FAILURE_INJECTED, FindingParts { object, numbers, stack, related: Vec::new() });
    }
}
