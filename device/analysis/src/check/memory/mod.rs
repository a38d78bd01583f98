//! Memory: buffers that change, overlap or end while posted requests use them, and keys of regions that are
//! gone.
//!
//! The memory of a posted request is remembered as ranges of process addresses; contents as checksums, of all
//! bytes up to [`payload::MAX_BYTES`], beyond that of blocks. Memory that is not remembered is not checked.

mod changes;
#[cfg(test)]
mod crossed_keys_tests;
#[cfg(test)]
mod early_uses_tests;
mod events;
mod headers;
mod hints;
mod overlaps;
mod payload;
mod regions;
mod requests;
mod state;
#[cfg(test)]
mod tests;

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{Cause, WorkCompletion};

use super::context::CheckContext;
use super::notified::{Check, ExplainedFailure, Hint};
pub(super) use state::Memory;

impl Check for Memory {
    fn callbacks_set(&mut self, context: &CheckContext) {
        self.reader.read = context.callbacks.read;
        self.reader.read_at_once = context.callbacks.read_at_once;
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        self.handle_memory_event(context, event);
    }

    #[inline]
    fn on_message_event(&mut self, context: &mut CheckContext, qp: &QpContext, event: &QpEvent<'_>) {
        self.report_early_uses(context);
        self.handle_buffer_event(context, qp, event);
        self.on_peer_message(context, qp.qpn.value(), event);
        self.end_watches(context);
        self.report_bounds(context);
    }

    #[inline]
    fn polled(&mut self, context: &mut CheckContext, _: u32, completion: &WorkCompletion) {
        self.report_early_uses(context);
        self.completion_polled(context, completion);
        self.datagram_polled(context, completion);
        self.on_peer_message_polled(context, completion);
        self.end_watches(context);
        self.report_bounds(context);
    }

    fn forked(&mut self, context: &mut CheckContext) {
        self.memory_forked(context);
    }

    fn hint(&self, context: &CheckContext, cause: &Cause) -> Option<Hint> {
        self.hint_of(context, cause)
    }

    fn user_of(&self, address: u64, bytes: u64) -> Option<u64> {
        self.outstanding_user(address, bytes)
    }

    fn settles(&mut self, context: &mut CheckContext, _is_over: bool, _effects: &mut Vec<ExplainedFailure>) {
        self.report_early_uses(context);
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, qp: u32) {
        self.report_early_uses(context);
        self.forget_datagrams(context, qp);
    }

    fn ends(&mut self, context: &mut CheckContext) {
        self.report_early_uses(context);
        self.end_datagrams(context);
    }

    fn memory_freed(&mut self, context: &mut CheckContext, request: u64, call: &str) {
        self.is_freed(context, request, call);
        self.end_watches(context);
    }
}
