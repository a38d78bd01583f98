//! A slow way: short payload that is read from memory.

use super::many::MANY;
use crate::check::context::{Context, Found};
use crate::check::kept::{Kept, Of};
use crate::check::kind::SHORT_WITHOUT_INLINE;
use crate::check::told::Check;

/// Bytes of a request that any adapter takes inline.
const SHORT_BYTES: u32 = 64;

/// The program sends short payload, and not inline.
#[derive(Debug, Default)]
pub(super) struct SlowPayload {
    counts: Kept<u32>,
}

impl Check for SlowPayload {
    fn forget(&mut self, of: Option<Of>) {
        self.counts.forget(of);
    }

    fn posted_from_memory(&mut self, context: &mut Context, number: u32, bytes: u32) {
        if !context.looks_for_slow || !(1..=SHORT_BYTES).contains(&bytes) {
            return;
        }
        let Some(qp) = context.qps.get(&number) else { return };
        let count = self.counts.of(Of::Qp(number));
        *count = count.saturating_add(1);
        if *count == MANY {
            let object = qp.name.clone();
            let numbers = format!("{MANY} requests of {object} had {SHORT_BYTES} bytes or fewer, not inline");
            let stack = context.here();
            context.found(&SHORT_WITHOUT_INLINE, Found { object, numbers, stack, related: Vec::new() });
        }
    }
}
