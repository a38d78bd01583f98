//! Findings where the device stores to memory that another posted request uses: only actual damage is found,
//! because programs that do not read the contents, or use a buffer for a request and its answer, are right.

use pumice_transport::types::WorkCompletion;
use smallvec::SmallVec;

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::{BUFFERS_OVERLAP, FindingKind, WRITE_INTO_POSTED};
use super::payload::BufferContents;
use super::requests::PostedRequest;
use super::role::BufferRole;
use super::span::ByteSpan;
use super::state::{LandedData, Memory};

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

impl Memory {
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
