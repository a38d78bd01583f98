//! A slow way: memory that is registered again and again.

use std::collections::BTreeMap;

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::REGISTERING_IN_LOOP;
use crate::check::notified::Check;
use crate::check::objects::REGION;

/// Number of registrations at one call site before they are reported.
const MANY: u32 = 100;
/// Number of call sites whose registrations are counted.
const MAX_CALL_SITES: usize = 1024;

/// The check for programs that register memory in a loop.
#[derive(Debug, Default)]
pub(super) struct SlowRegistrations {
    /// Number of registrations by call site.
    counts: BTreeMap<u64, u32>,
}

impl Check for SlowRegistrations {
    fn object_made(&mut self, context: &mut CheckContext, kind: &'static str, _: &'static str, made: &Stack) {
        let Some(first) = made.addresses().first().filter(|_| kind == REGION && context.checks_performance)
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
            context.found(&REGISTERING_IN_LOOP, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }
}
