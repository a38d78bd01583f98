//! The check for messages that another one has replaced in the same buffer before the program polled their
//! completion.
//!
//! A program may post one buffer in many receives if it ignores the data. So a finding is reported only when
//! the program reads the buffer: a word of it is watched from the poll of the first completion until the
//! buffer is posted again.

use pumice_transport::types::Sge;

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::BUFFERS_OVERLAP;
use super::polled_data::{ReplacedMessage, word_of};
use super::span::ByteSpan;
use super::state::Memory;

impl Memory {
    /// Handles the poll of the completion of a message that another one has replaced in these ranges: watches
    /// a word of them.
    pub(super) fn replaced_was_polled(
        &mut self,
        context: &CheckContext,
        spans: &[ByteSpan],
        found: FindingParts,
    ) {
        let (Some(span), Some(watchpoints)) = (spans.first().copied(), context.callbacks.watchpoints) else {
            return;
        };
        if self.replaced.is_some() {
            return;
        }
        if let Some(watch) = word_of(span.start, span.end).and_then(|word| (watchpoints.begin)(&[word])) {
            self.replaced = Some(ReplacedMessage { watch, span, found });
        }
    }

    /// Handles an access of the program to a watched word. Returns true, and reports the finding, if `watch`
    /// is that of a replaced message.
    pub(super) fn replaced_was_read(
        &mut self,
        context: &mut CheckContext,
        watch: u64,
        addresses: &[u64],
    ) -> bool {
        let Some(ReplacedMessage { mut found, .. }) =
            self.replaced.take_if(|replaced| replaced.watch == watch)
        else {
            return false;
        };
        let read = context.stack_of(addresses);
        found.related.push(related("the program looked at it here", &read));
        context.found(&BUFFERS_OVERLAP, found);
        true
    }

    /// Handles a receive with these buffers that is posted: the watch of a replaced message in them ends.
    pub(super) fn replaced_is_over(&mut self, context: &CheckContext, sges: &[Sge]) {
        if self.replaced.is_none() {
            return;
        }
        let parts = self.parts_of(context, sges).unwrap_or_default();
        let is_it =
            |replaced: &mut ReplacedMessage| parts.iter().any(|part| part.span.overlaps(replaced.span));
        if let Some(replaced) = self.replaced.take_if(is_it)
            && let Some(watchpoints) = context.callbacks.watchpoints
        {
            (watchpoints.end)(replaced.watch);
        }
    }
}
