//! A slow way: memory that is registered again and again.

use std::collections::BTreeMap;

use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found};
use crate::check::kind::REGISTERING_IN_LOOP;
use crate::check::objects::REGION;
use crate::check::told::Check;

/// Registrations at one call site before that is told.
const MANY: u32 = 100;
/// Call sites of registrations that are counted.
const MAX_CALL_SITES: usize = 1024;

/// The program registers memory in a loop.
#[derive(Debug, Default)]
pub(super) struct SlowRegistrations {
    /// By call site.
    counts: BTreeMap<u64, u32>,
}

impl Check for SlowRegistrations {
    fn object_made(&mut self, context: &mut Context, kind: &'static str, _: &'static str, made: &Stack) {
        let Some(first) = made.addresses().first().filter(|_| kind == REGION && context.looks_for_slow)
        else {
            return;
        };
        if self.counts.len() >= MAX_CALL_SITES && !self.counts.contains_key(first) {
            return;
        }
        let count = self.counts.entry(*first).or_default();
        *count = count.saturating_add(1);
        if *count == MANY {
            let numbers = format!("memory was registered {MANY} times here");
            let (object, stack) = (REGION.to_owned(), made.clone());
            context.found(&REGISTERING_IN_LOOP, Found { object, numbers, stack, related: Vec::new() });
        }
    }
}
