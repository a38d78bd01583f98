//! Calls, completions and events that a rule of the fault plan fails or slows.

use std::collections::BTreeSet;

use pumice_events::Event;

use crate::check::context::{Context, Found};
use crate::check::kept::Of;
use crate::check::kind::FAILURE_INJECTED;
use crate::check::told::Check;
use crate::listeners::fault_in_words;

/// Rules that are told; further ones are in the fault report only.
const MAX_RULES: usize = 256;

/// A rule applied to something else than a packet: what comes of it is no mistake of the program, of its peer
/// or of the network. Each rule is told when it applies first, and counted from then on.
#[derive(Debug, Default)]
pub(super) struct Planned {
    rules: BTreeSet<String>,
}

impl Check for Planned {
    fn forget(&mut self, of: Option<Of>) {
        if of.is_none() {
            self.rules.clear();
        }
    }

    fn hears(&mut self, context: &mut Context, event: &Event<'_>) {
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
        context.found(&FAILURE_INJECTED, Found { object, numbers, stack, related: Vec::new() });
    }
}
