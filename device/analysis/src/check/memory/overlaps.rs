//! Posted requests, and findings where the device stores to memory that another one uses.
//!
//! Findings where the device stores to memory that another posted request uses: only actual damage is found,
//! because programs that do not read the contents, or use a buffer for a request and its answer, are right.

use pumice_transport::types::{RecvRequest, Sge, WorkCompletion};
use pumice_transport::wire::Psn;
use smallvec::SmallVec;

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::{BUFFERS_OVERLAP, FindingKind, WRITE_INTO_POSTED};
use super::payload::{BufferContents, BufferReader, ByteSpan};
use super::regions::BufferRole;
use super::requests::{BufferPart, BufferParts, PostedRequest, QueueId};
use super::state::{LandedData, Memory};

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

    /// Handles bytes that came into the buffers of a request, which is complete. `is_message` says that they
    /// are of a SEND.
    pub(super) fn stored(
        &mut self,
        context: &mut CheckContext,
        posted: &PostedRequest,
        bytes: u64,
        is_message: bool,
    ) {
        let spans = first_of(posted.spans(), bytes);
        if is_message && posted.written.is_some_and(|written| spans.iter().any(|one| one.overlaps(written))) {
            self.report_written_over(context, posted);
        }
        if !posted.is_shared {
            return;
        }
        for span in &spans {
            self.check_unsent(context, *span, &BUFFERS_OVERLAP, posted);
        }
        if !posted.overlaps_another {
            return;
        }
        self.check_landed(context, posted, &spans);
        let contents = self.contents_under(posted, &spans);
        if self.landed.len() >= MAX_LANDED {
            self.landed.pop_front();
        }
        if posted.is_signaled {
            let PostedRequest { queue, role, wr_id, ref stack, .. } = *posted;
            let stack = stack.clone();
            self.landed.push_back(LandedData { queue, role, wr_id, spans, contents, stack, replaced: None });
        }
    }

    /// Returns the index of the latest completion that the program has not polled and whose data lies in
    /// these ranges.
    fn landed_in(&mut self, spans: &[ByteSpan]) -> Option<usize> {
        let is_there =
            |one: &LandedData| one.spans.iter().any(|own| spans.iter().any(|span| own.overlaps(*span)));
        self.landed.iter().rposition(is_there)
    }

    /// Handles a message that begins to come into the buffers of a request: their current contents are lost.
    pub(super) fn read_before_message(&mut self, posted: &PostedRequest) {
        let spans: SmallVec<[ByteSpan; 2]> = posted.spans().collect();
        let Some(index) = self.landed_in(&spans) else { return };
        let Some(spans) = self.landed.get(index).map(|landed| landed.spans.clone()) else { return };
        let contents = self.contents_under(posted, &spans);
        if let Some(landed) = self.landed.get_mut(index) {
            landed.contents = contents;
        }
    }

    /// Reads ranges at the moment at which the device stores to the buffers of a request. If they are within
    /// those, no system call is needed.
    fn contents_under(&mut self, posted: &PostedRequest, spans: &[ByteSpan]) -> BufferContents {
        let is_within =
            |span: &ByteSpan| posted.spans().any(|own| own.start <= span.start && span.end <= own.end);
        match posted.is_read_plainly && spans.iter().all(is_within) {
            true => self.reader.contents_of_mapped(spans.iter().copied()),
            false => self.reader.contents(spans.iter().copied()),
        }
    }

    /// Checks whether the data that came now replaced data that the program could not have read.
    fn check_landed(&mut self, context: &mut CheckContext, posted: &PostedRequest, spans: &[ByteSpan]) {
        let Some(index) = self.landed_in(spans) else { return };
        let Some(landed) = self.landed.get(index) else { return };
        let (before, its_spans) = (landed.contents, landed.spans.clone());
        let now = self.contents_under(posted, &its_spans);
        if !matches!((before, now), (BufferContents::Sum(_), BufferContents::Sum(_))) || now == before {
            return;
        }
        // The program may never read data that comes into a buffer that it has posted in several receives.
        let is_one_buffer = |landed: &LandedData| {
            let starts = |spans: &[ByteSpan]| spans.first().map(|span| span.start);
            (landed.role, posted.role) == (BufferRole::Receive, BufferRole::Receive)
                && starts(&landed.spans) == starts(spans)
        };
        let Some(landed) = self.landed.remove(index) else { return };
        let (object, other) = (self.owner_of(context, posted.queue), self.owner_of(context, landed.queue));
        let numbers = format!(
            "what came for {} of {object}, {:#x}, posted here, replaced what had come for {} of {other}, \
             {:#x}, whose completion was not polled yet",
            posted.role.name(),
            posted.wr_id,
            landed.role.name(),
            landed.wr_id
        );
        let related = vec![related("the other one was posted here", &landed.stack)];
        let found = FindingParts { object, numbers, stack: posted.stack.clone(), related };
        if is_one_buffer(&landed) {
            self.landed.insert(index, LandedData { replaced: Some(found), ..landed });
        } else {
            context.found(&BUFFERS_OVERLAP, found);
        }
    }

    /// Handles data that the device has stored to a range: it may change payload that has not left yet. `by`
    /// is the request whose data it is.
    fn check_unsent(
        &mut self,
        context: &mut CheckContext,
        span: ByteSpan,
        kind: &'static FindingKind,
        by: &PostedRequest,
    ) {
        for send in self.unsent_changed(span) {
            let (object, other) = (self.owner_of(context, by.queue), self.owner_of(context, send.queue));
            let numbers = format!(
                "what came for {} of {object}, {:#x}, posted here, changed the payload of request {:#x} of \
                 {other}, which had not left yet",
                by.role.name(),
                by.wr_id,
                send.wr_id
            );
            let related = vec![related("the send request was posted here", &send.stack)];
            context.found(kind, FindingParts { object, numbers, stack: by.stack.clone(), related });
        }
    }

    /// Handles a WRITE or an atomic by which the peer of a queue pair has stored to a range.
    pub(super) fn check_stored(&mut self, context: &mut CheckContext, qp: u32, span: ByteSpan) {
        for send in self.unsent_changed(span) {
            let object = self.owner_of(context, send.queue);
            let by = context.qps.get(&qp).map(|qp| qp.name.clone()).unwrap_or_default();
            let numbers = format!(
                "a WRITE or an atomic of the peer of {by} changed the payload of request {:#x} of {object}, \
                 posted here, which had not left yet",
                send.wr_id
            );
            let stack = send.stack.clone();
            context.found(&WRITE_INTO_POSTED, FindingParts { object, numbers, stack, related: Vec::new() });
        }
    }

    /// Returns the send requests with payload in a range that has changed and has not left. They are not
    /// reported again.
    fn unsent_changed(&mut self, span: ByteSpan) -> Vec<PostedRequest> {
        let mut changed = Vec::new();
        for identity in self.requests.sending(span) {
            let Some(send) = self.requests.at(identity) else { continue };
            if send.at_departure.is_some()
                || send.is_unpolled
                || !matches!(send.at_post, BufferContents::Sum(_))
            {
                continue;
            }
            let now = self.reader.contents(send.spans());
            if !matches!(now, BufferContents::Sum(_)) || now == send.at_post {
                continue;
            }
            changed.push(send.clone());
            if let Some(send) = self.requests.at_mut(identity) {
                send.at_post = BufferContents::Unknown;
            }
        }
        changed
    }

    fn report_written_over(&mut self, context: &mut CheckContext, posted: &PostedRequest) {
        let object = self.owner_of(context, posted.queue);
        let numbers = format!(
            "a WRITE or an atomic of a peer came into the buffer of receive {:#x} of {object}, posted here, \
             and then a message replaced it",
            posted.wr_id
        );
        let stack = posted.stack.clone();
        context.found(&WRITE_INTO_POSTED, FindingParts { object, numbers, stack, related: Vec::new() });
    }

    /// Handles a completion that the program polls.
    pub(super) fn landed_was_polled(&mut self, context: &CheckContext, completion: &WorkCompletion) {
        let is_receive = completion.opcode.is_recv();
        let is_it = |one: &LandedData| {
            one.wr_id == completion.wr_id
                && one.queue_pair().is_none_or(|qp| qp == completion.qp_num)
                && (one.role == BufferRole::Receive) == is_receive
        };
        let index = self.landed.iter().position(is_it);
        if let Some(landed) = index.and_then(|index| self.landed.remove(index))
            && let Some(found) = landed.replaced
        {
            self.replaced_was_polled(context, &landed.spans, found);
        }
    }
}

/// Number of completions that are remembered until the program polls them.
const MAX_LANDED: usize = 64;

/// Returns the first bytes of ranges.
fn first_of(spans: impl Iterator<Item = ByteSpan>, mut bytes: u64) -> SmallVec<[ByteSpan; 2]> {
    let mut first = SmallVec::new();
    for span in spans {
        let now = bytes.min(span.bytes());
        if now > 0 {
            first.push(ByteSpan::new(span.start, now));
        }
        bytes -= now;
    }
    first
}
