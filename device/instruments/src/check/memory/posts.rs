//! Requests that are posted: which memory they use, and which others use it.

use pumice_transport::types::{RecvRequest, Sge};
use pumice_transport::wire::Psn;

use super::super::context::Context;
use super::payload::{Contents, Reader};
use super::requests::{Part, Parts, Posted, QueueId};
use super::role::Role;
use super::span::Span;
use super::state::Memory;

/// A request that is being posted, as [`Posted`] has it.
pub(super) struct Post<'a> {
    pub(super) queue: QueueId,
    pub(super) number: u64,
    pub(super) wr_id: u64,
    pub(super) role: Role,
    pub(super) sges: &'a [Sge],
    pub(super) end_psn: Psn,
    pub(super) is_signaled: bool,
    /// The device copies all of it at this moment, or will only store to it.
    pub(super) is_copied_at_once: bool,
}

/// What the buffers of a request hold.
pub(super) fn contents_of(reader: &mut Reader, posted: &Posted) -> Contents {
    match posted.is_read_plainly {
        true => reader.contents_of_mapped(posted.spans()),
        false => reader.contents(posted.spans()),
    }
}

impl Memory {
    pub(super) fn receive_posted_to(
        &mut self,
        context: &mut Context,
        queue: QueueId,
        request: &RecvRequest<'_>,
    ) {
        let number = self.requests.next_number(queue);
        self.post(
            context,
            &Post {
                queue,
                number,
                wr_id: request.wr_id,
                role: Role::Receive,
                sges: request.sges,
                end_psn: Psn::new(0),
                is_signaled: true,
                is_copied_at_once: true,
            },
        );
    }

    /// Payload was copied from these buffers, whose keys do not count: the program has prepared it there, and
    /// may have posted a receive of the answer before.
    pub(super) fn prepared_in_buffers(&mut self, sges: &[Sge]) {
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            for identity in self.requests.overlapping(Span::new(sge.address, sge.length.into())) {
                if let Some(posted) = self.requests.at_mut(identity)
                    && posted.role == Role::Receive
                {
                    posted.is_shared = true;
                }
            }
        }
    }

    /// The buffers of a request, if all of them are in regions that are known.
    fn parts_of(&self, context: &Context, sges: &[Sge]) -> Option<Parts> {
        let mut parts = Parts::new();
        for sge in sges.iter().filter(|sge| sge.length > 0) {
            let key = context.own.key(sge.lkey);
            let span = self.regions.locate(key, sge.address, sge.length.into())?;
            parts.push(Part { key, span });
        }
        Some(parts)
    }

    pub(super) fn post(&mut self, context: &mut Context, post: &Post<'_>) {
        let Post { queue, number, wr_id, role, sges, end_psn, is_signaled, is_copied_at_once } = *post;
        let parts = self.parts_of(context, sges).filter(|parts| !parts.is_empty());
        let Some(parts) = parts else { return self.requests.pass(queue, number) };
        let is_read_plainly =
            is_copied_at_once && parts.iter().all(|part| self.regions.stays_mapped(part.key));
        let stack = context.here();
        // It is told of payload.
        let own_stack = context.means.own_stack.filter(|_| role == Role::Payload);
        let (low, high) = own_stack.map(|own| own()).unwrap_or_default();
        let is_on_stack = parts.iter().all(|part| low <= part.span.start && part.span.end <= high);
        let mut posted = Posted {
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
            at_post: Contents::Unknown,
            at_departure: None,
            is_shared: false,
            meets_another: false,
            written: None,
            is_freed: false,
            is_settled: false,
            is_unpolled: false,
        };
        self.share(&mut posted);
        if role == Role::Receive && !posted.is_shared {
            self.poison(context, &posted);
        }
        if role == Role::Payload || (role == Role::Receive && !posted.is_shared) {
            posted.at_post = contents_of(&mut self.reader, &posted);
        }
        self.requests.add(posted);
        if role == Role::Answer {
            self.watch_answer(context, queue, number);
        }
    }

    /// Marks a new request if the device stores something in its buffers that other requests use as well, or
    /// the other way round; and the others.
    fn share(&mut self, posted: &mut Posted) {
        posted.is_shared =
            !self.arriving.is_empty() && self.arriving.values().any(|span| posted.overlaps(*span));
        if let [Part { span, .. }] = posted.parts.as_slice()
            && let Some(alike) = self.requests.newest_alike(posted.role, *span)
        {
            // It has met all others already, and they it.
            if posted.role != Role::Payload {
                (alike.is_shared, alike.meets_another) = (true, true);
            }
            posted.is_shared |= alike.is_shared;
            posted.meets_another = alike.meets_another;
            return;
        }
        for part in 0..posted.parts.len() {
            let Some(Part { span, .. }) = posted.parts.get(part).copied() else { break };
            for identity in self.requests.overlapping(span) {
                let Some(other) = self.requests.at_mut(identity) else { continue };
                if posted.role != Role::Payload || other.role != Role::Payload {
                    (other.is_shared, posted.is_shared) = (true, true);
                }
                if posted.role != Role::Payload && other.role != Role::Payload {
                    (other.meets_another, posted.meets_another) = (true, true);
                }
            }
        }
    }
}
