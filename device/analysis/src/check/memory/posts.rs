//! Posted requests: which memory they use, and which others use it.

use pumice_transport::types::{RecvRequest, Sge};
use pumice_transport::wire::Psn;

use super::super::context::CheckContext;
use super::payload::{BufferContents, BufferReader};
use super::requests::{BufferPart, BufferParts, PostedRequest, QueueId};
use super::role::BufferRole;
use super::span::ByteSpan;
use super::state::Memory;

/// A request that is being posted, with what [`PostedRequest`] needs of it.
pub(super) struct NewRequest<'a> {
    pub(super) queue: QueueId,
    pub(super) number: u64,
    pub(super) wr_id: u64,
    pub(super) role: BufferRole,
    pub(super) sges: &'a [Sge],
    pub(super) end_psn: Psn,
    pub(super) is_signaled: bool,
    /// The device copies all of it at this moment, or will only store to it.
    pub(super) is_copied_at_once: bool,
}

/// Returns the contents of a request's buffers.
pub(super) fn contents_of(reader: &mut BufferReader, posted: &PostedRequest) -> BufferContents {
    match posted.is_read_plainly {
        true => reader.contents_of_mapped(posted.spans()),
        false => reader.contents(posted.spans()),
    }
}

impl Memory {
    pub(super) fn receive_posted_to(
        &mut self,
        context: &mut CheckContext,
        queue: QueueId,
        request: &RecvRequest<'_>,
    ) {
        let number = self.requests.next_number(queue);
        self.post(
            context,
            &NewRequest {
                queue,
                number,
                wr_id: request.wr_id,
                role: BufferRole::Receive,
                sges: request.sges,
                end_psn: Psn::new(0),
                is_signaled: true,
                is_copied_at_once: true,
            },
        );
    }

    /// Handles payload that was copied from these buffers, whose keys do not count: the program has prepared
    /// it there, and may have posted a receive of the answer before.
    pub(super) fn prepared_in_buffers(&mut self, sges: &[Sge]) {
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            for identity in self.requests.overlapping(ByteSpan::new(sge.address, sge.length.into())) {
                if let Some(posted) = self.requests.at_mut(identity)
                    && posted.role == BufferRole::Receive
                {
                    posted.is_shared = true;
                }
            }
        }
    }

    /// Returns the buffers of a request, if all of them are in regions that are known.
    pub(super) fn parts_of(&self, context: &CheckContext, sges: &[Sge]) -> Option<BufferParts> {
        let mut parts = BufferParts::new();
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let key = context.own.key(sge.lkey);
            let span = self.regions.locate(key, sge.address, sge.length.into())?;
            parts.push(BufferPart { key, span });
        }
        Some(parts)
    }

    pub(super) fn post(&mut self, context: &mut CheckContext, post: &NewRequest<'_>) {
        let NewRequest { queue, number, wr_id, role, sges, end_psn, is_signaled, is_copied_at_once } = *post;
        let parts = self.parts_of(context, sges).filter(|parts| !parts.is_empty());
        let Some(parts) = parts else {
            self.buffers_name(context, queue, wr_id, sges);
            return self.requests.pass(queue, number);
        };
        let is_read_plainly =
            is_copied_at_once && parts.iter().all(|part| self.regions.stays_mapped(part.key));
        let stack = context.here();
        // The stack is reported for payload only.
        let own_stack = context.callbacks.own_stack.filter(|_| role == BufferRole::Payload);
        let (low, high) = own_stack.map(|own| own()).unwrap_or_default();
        let is_on_stack = parts.iter().all(|part| low <= part.span.start && part.span.end <= high);
        let mut posted = PostedRequest {
            queue,
            number,
            wr_id,
            role,
            parts,
            stack,
            end_psn,
            is_read_plainly,
            is_signaled,
            is_on_stack,
            at_post: BufferContents::Unknown,
            at_departure: None,
            is_shared: false,
            overlaps_another: false,
            written: None,
            is_freed: false,
            is_settled: false,
            is_unpolled: false,
        };
        self.share(&mut posted);
        if role == BufferRole::Receive && !posted.is_shared {
            self.poison(context, &posted);
        }
        if role == BufferRole::Payload || (role == BufferRole::Receive && !posted.is_shared) {
            posted.at_post = contents_of(&mut self.reader, &posted);
        }
        self.requests.add(posted);
        if role == BufferRole::Answer {
            self.watch_answer(context, queue, number);
        }
    }

    /// Marks a new request, and those that it meets, if the device stores something in its buffers that other
    /// requests use as well, or the other way round.
    fn share(&mut self, posted: &mut PostedRequest) {
        posted.is_shared =
            !self.arriving.is_empty() && self.arriving.values().any(|span| posted.overlaps(*span));
        if let [BufferPart { span, .. }] = posted.parts.as_slice()
            && let Some(alike) = self.requests.newest_alike(posted.role, *span)
        {
            // The request was compared with all others already, and they with it.
            if posted.role != BufferRole::Payload {
                (alike.is_shared, alike.overlaps_another) = (true, true);
            }
            posted.is_shared |= alike.is_shared;
            posted.overlaps_another = alike.overlaps_another;
            return;
        }
        for part in 0..posted.parts.len() {
            let Some(BufferPart { span, .. }) = posted.parts.get(part).copied() else { break };
            for identity in self.requests.overlapping(span) {
                let Some(other) = self.requests.at_mut(identity) else { continue };
                if posted.role != BufferRole::Payload || other.role != BufferRole::Payload {
                    (other.is_shared, posted.is_shared) = (true, true);
                }
                if posted.role != BufferRole::Payload && other.role != BufferRole::Payload {
                    (other.overlaps_another, posted.overlaps_another) = (true, true);
                }
            }
        }
    }
}
