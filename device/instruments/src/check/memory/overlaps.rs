//! What is found where the device stores to memory that another posted request uses: only what was harmed in
//! fact, because programs that do not look at the contents, or use a buffer for a request and its answer, are
//! right.

use pumice_transport::types::WorkCompletion;
use smallvec::SmallVec;

use super::super::context::{Context, Found, related};
use super::super::kind::{BUFFERS_OVERLAP, FindingKind, WRITE_INTO_POSTED};
use super::payload::Contents;
use super::requests::Posted;
use super::role::Role;
use super::span::Span;
use super::state::{Landed, Memory};

/// Completions that are remembered until the program polls them.
const MAX_LANDED: usize = 64;

/// The first bytes of ranges.
fn first_of(spans: impl Iterator<Item = Span>, mut bytes: u64) -> SmallVec<[Span; 2]> {
    let mut first = SmallVec::new();
    for span in spans {
        let now = bytes.min(span.bytes());
        if now > 0 {
            first.push(Span::new(span.start, now));
        }
        bytes -= now;
    }
    first
}

impl Memory {
    /// So many bytes came into the buffers of a request, which is complete; `is_message`: of a SEND.
    pub(super) fn stored(&mut self, context: &mut Context, posted: &Posted, bytes: u64, is_message: bool) {
        let spans = first_of(posted.spans(), bytes);
        if is_message && posted.written.is_some_and(|written| spans.iter().any(|one| one.overlaps(written))) {
            self.tell_written_over(context, posted);
        }
        if !posted.is_shared {
            return;
        }
        for span in &spans {
            self.look_at_unsent(context, *span, &BUFFERS_OVERLAP, posted);
        }
        if !posted.meets_another {
            return;
        }
        self.look_at_landed(context, posted, &spans);
        let contents = self.contents_under(posted, &spans);
        if self.landed.len() >= MAX_LANDED {
            self.landed.pop_front();
        }
        if posted.is_signaled {
            let Posted { queue, role, wr_id, ref stack, .. } = *posted;
            let stack = stack.clone();
            self.landed.push_back(Landed { queue, role, wr_id, spans, contents, stack });
        }
    }

    /// The latest completion that the program has not polled and whose data lies in these ranges.
    fn landed_in(&mut self, spans: &[Span]) -> Option<usize> {
        let is_there =
            |one: &Landed| one.spans.iter().any(|own| spans.iter().any(|span| own.overlaps(*span)));
        self.landed.iter().rposition(is_there)
    }

    /// A message begins to come into the buffers of a request: what they hold now is what is lost.
    pub(super) fn look_before_message(&mut self, posted: &Posted) {
        let spans: SmallVec<[Span; 2]> = posted.spans().collect();
        let Some(index) = self.landed_in(&spans) else { return };
        let Some(spans) = self.landed.get(index).map(|landed| landed.spans.clone()) else { return };
        let contents = self.contents_under(posted, &spans);
        if let Some(landed) = self.landed.get_mut(index) {
            landed.contents = contents;
        }
    }

    /// What ranges hold at the moment at which the device stores to the buffers of a request. If they are
    /// within those, no system call is needed.
    fn contents_under(&mut self, posted: &Posted, spans: &[Span]) -> Contents {
        let is_within =
            |span: &Span| posted.spans().any(|own| own.start <= span.start && span.end <= own.end);
        match posted.is_read_plainly && spans.iter().all(is_within) {
            true => self.reader.contents_of_mapped(spans.iter().copied()),
            false => self.reader.contents(spans.iter().copied()),
        }
    }

    /// Whether what came now replaced something that the program could not have looked at.
    fn look_at_landed(&mut self, context: &mut Context, posted: &Posted, spans: &[Span]) {
        let Some(index) = self.landed_in(spans) else { return };
        let Some(landed) = self.landed.get(index) else { return };
        let (before, its_spans) = (landed.contents, landed.spans.clone());
        let now = self.contents_under(posted, &its_spans);
        if !matches!((before, now), (Contents::Sum(_), Contents::Sum(_))) || now == before {
            return;
        }
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
        context.found(&BUFFERS_OVERLAP, Found { object, numbers, stack: posted.stack.clone(), related });
    }

    /// The device has stored to a range: does it change payload that has not left yet? `by`: the request
    /// whose data it is.
    fn look_at_unsent(&mut self, context: &mut Context, span: Span, kind: &'static FindingKind, by: &Posted) {
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
            context.found(kind, Found { object, numbers, stack: by.stack.clone(), related });
        }
    }

    /// The peer of a queue pair has stored to a range by a WRITE or an atomic.
    pub(super) fn look_at_stored(&mut self, context: &mut Context, qp: u32, span: Span) {
        for send in self.unsent_changed(span) {
            let object = self.owner_of(context, send.queue);
            let by = context.qps.get(&qp).map(|qp| qp.name.clone()).unwrap_or_default();
            let numbers = format!(
                "a WRITE or an atomic of the peer of {by} changed the payload of request {:#x} of {object}, \
                 posted here, which had not left yet",
                send.wr_id
            );
            let stack = send.stack.clone();
            context.found(&WRITE_INTO_POSTED, Found { object, numbers, stack, related: Vec::new() });
        }
    }

    /// Send requests with payload in a range that has changed and has not left. They are not told of again.
    fn unsent_changed(&mut self, span: Span) -> Vec<Posted> {
        let mut changed = Vec::new();
        for identity in self.requests.sending(span) {
            let Some(send) = self.requests.at(identity) else { continue };
            if send.at_departure.is_some() || send.is_unpolled || !matches!(send.at_post, Contents::Sum(_)) {
                continue;
            }
            let now = self.reader.contents(send.spans());
            if !matches!(now, Contents::Sum(_)) || now == send.at_post {
                continue;
            }
            changed.push(send.clone());
            if let Some(send) = self.requests.at_mut(identity) {
                send.at_post = Contents::Unknown;
            }
        }
        changed
    }

    fn tell_written_over(&mut self, context: &mut Context, posted: &Posted) {
        let object = self.owner_of(context, posted.queue);
        let numbers = format!(
            "a WRITE or an atomic of a peer came into the buffer of receive {:#x} of {object}, posted here, \
             and then a message replaced it",
            posted.wr_id
        );
        let stack = posted.stack.clone();
        context.found(&WRITE_INTO_POSTED, Found { object, numbers, stack, related: Vec::new() });
    }

    /// The program polls a completion.
    pub(super) fn landed_was_polled(&mut self, completion: &WorkCompletion) {
        let is_receive = completion.opcode.is_recv();
        let is_it = |one: &Landed| {
            one.wr_id == completion.wr_id
                && one.queue_pair().is_none_or(|qp| qp == completion.qp_num)
                && (one.role == Role::Receive) == is_receive
        };
        if let Some(index) = self.landed.iter().position(is_it) {
            self.landed.remove(index);
        }
    }
}
