//! Memory: buffers that change, overlap or go while posted requests use them, and keys of regions that are
//! gone.
//!
//! What a posted request uses is remembered as ranges of process addresses; contents as checksums, of all
//! bytes up to [`payload::MAX_BYTES`], beyond of blocks. Nothing is found of what is not remembered.

mod changes;
mod early_uses;
#[cfg(test)]
mod early_uses_tests;
mod freed;
mod hear;
mod hints;
mod index;
mod overlaps;
mod payload;
mod posts;
mod regions;
mod requests;
mod role;
mod span;
mod state;
#[cfg(test)]
mod tests;
mod watched;

use pumice_events::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{Cause, WorkCompletion};

use super::context::Context;
use super::told::{Check, Effect, Hint};
pub(super) use state::Memory;

impl Check for Memory {
    fn means_given(&mut self, context: &Context) {
        self.reader.read = context.means.read;
        self.reader.read_at_once = context.means.read_at_once;
    }

    fn hears(&mut self, context: &mut Context, event: &Event<'_>) {
        self.hear_of_memory(context, event);
    }

    #[inline]
    fn hears_of_message(&mut self, context: &mut Context, qp: &QpContext, event: &QpEvent<'_>) {
        self.tell_early_uses(context);
        self.hear_of_buffers(context, qp, event);
        self.peer_may_have_told(context, qp.qpn.value(), event);
        self.end_watches(context);
        self.tell_bounds(context);
    }

    #[inline]
    fn polled(&mut self, context: &mut Context, _: u32, completion: &WorkCompletion) {
        self.tell_early_uses(context);
        self.completion_polled(context, completion);
        self.peer_has_told(context, completion);
        self.end_watches(context);
        self.tell_bounds(context);
    }

    fn forked(&mut self, context: &mut Context) {
        self.memory_forked(context);
    }

    fn hint(&self, context: &Context, cause: &Cause) -> Option<Hint> {
        self.hint_of(context, cause)
    }

    fn user_of(&self, address: u64, bytes: u64) -> Option<u64> {
        self.user_under_way(address, bytes)
    }

    fn settles(&mut self, context: &mut Context, _is_over: bool, _effects: &mut Vec<Effect>) {
        self.tell_early_uses(context);
    }

    fn memory_freed(&mut self, context: &mut Context, request: u64, call: &str) {
        self.is_freed(context, request, call);
        self.end_watches(context);
    }
}
