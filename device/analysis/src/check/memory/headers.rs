//! The check for datagrams whose header (GRH), the first 40 bytes, the program takes for the payload.
//!
//! When the program has polled a datagram, two words of its receive buffer are watched: the first one of the
//! header, whose first bytes mean nothing for an IPv4 packet, and the first one of the payload. A program
//! that reads the former and not the latter before it posts the buffer again or ends has read at the wrong
//! offset.

use pumice_platform::call_stack::Stack;
use pumice_transport::types::{RecvRequest, WcOpcode, WcStatus, WorkCompletion};

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::HEADER_READ_AS_PAYLOAD;
use super::state::{Memory, WatchedDatagram, WatchedHeaders, word_of};

/// Length of the header, in bytes.
const GRH_BYTES: u64 = 40;
/// Number of bytes of the header before the addresses.
const BEFORE_ADDRESSES: u64 = 8;
/// Maximum number of datagrams of a queue pair that are watched, one after the other.
const MAX_WATCHED: u32 = 8;
/// Maximum number of receives of a queue pair that are remembered.
const MAX_RECEIVES: usize = 256;
/// Maximum number of queue pairs whose datagrams are watched.
const MAX_QUEUE_PAIRS: usize = 64;

impl Memory {
    /// Handles a receive that was posted to a queue pair: a watched datagram in its buffer is over.
    pub(super) fn datagram_awaited(
        &mut self,
        context: &mut CheckContext,
        qp: u32,
        request: &RecvRequest<'_>,
    ) {
        if context.callbacks.watchpoints.is_none() || context.qps.get(&qp).is_none_or(|qp| qp.service != "UD")
        {
            return;
        }
        let parts = self.parts_of(context, request.sges);
        let buffer = parts.as_ref().and_then(|parts| parts.first()).map(|part| part.span);
        if let Some(buffer) = buffer {
            self.datagram_is_over(context, |watched| watched.buffer.overlaps(buffer));
        }
        let known = &mut self.headers.queue_pairs;
        if known.len() >= MAX_QUEUE_PAIRS && known.get(&qp).is_none() {
            return;
        }
        let receives = &mut known.or_default(qp).receives;
        if receives.len() >= MAX_RECEIVES {
            receives.pop_front();
        }
        receives.push_back((request.wr_id, buffer));
    }

    /// Handles a completion that the program polls. If it is that of a datagram, its words are watched from
    /// now on.
    pub(super) fn datagram_polled(&mut self, context: &CheckContext, completion: &WorkCompletion) {
        let Some(receiver) = self.headers.queue_pairs.get_mut(&completion.qp_num) else { return };
        if !completion.opcode.is_recv() {
            return;
        }
        let position = receiver.receives.iter().position(|(wr_id, _)| *wr_id == completion.wr_id);
        let Some((_, buffer)) = position.and_then(|position| receiver.receives.remove(position)) else {
            return;
        };
        let is_well = completion.status == WcStatus::Success && completion.opcode == WcOpcode::Recv;
        let is_due = !receiver.is_known && receiver.watched < MAX_WATCHED && self.headers.watched.is_none();
        let (Some(buffer), Some(watchpoints)) =
            (buffer.filter(|_| is_well && is_due), context.callbacks.watchpoints)
        else {
            return;
        };
        let end = buffer.end.min(buffer.start.saturating_add(completion.byte_len.into()));
        let payload = word_of(buffer.start.saturating_add(GRH_BYTES), end);
        let header = word_of(buffer.start, buffer.start.saturating_add(BEFORE_ADDRESSES));
        let (Some(header), Some(payload)) = (header, payload) else { return };
        let Some(header) = (watchpoints.begin)(&[header]) else { return };
        let Some(payload) = (watchpoints.begin)(&[payload]) else { return (watchpoints.end)(header) };
        receiver.watched += 1;
        let (qp, header, payload) = (completion.qp_num, Some(header), Some(payload));
        self.headers.watched = Some(WatchedDatagram { qp, buffer, header, payload, read: Stack::default() });
    }

    /// Reports whether a datagram is watched.
    #[inline]
    pub(super) fn watches_datagram(&self) -> bool {
        self.headers.watched.is_some()
    }

    /// Handles an access of the program to a watched word, if `watch` is one of the watched datagram.
    pub(super) fn datagram_read(&mut self, context: &mut CheckContext, watch: u64, addresses: &[u64]) {
        let Some(watched) = &mut self.headers.watched else { return };
        if watched.header.take_if(|header| *header == watch).is_some() {
            watched.read = context.stack_of(addresses);
        } else if watched.payload.take_if(|payload| *payload == watch).is_some() {
            let qp = watched.qp;
            if let Some(receiver) = self.headers.queue_pairs.get_mut(&qp) {
                receiver.is_known = true;
            }
        }
    }

    /// Ends the watch of the watched datagram if `is_it` holds for it, and reports it if only its header was
    /// read.
    fn datagram_is_over(&mut self, context: &mut CheckContext, is_it: impl Fn(&WatchedDatagram) -> bool) {
        if self.headers.watched.as_ref().is_some_and(is_it)
            && let Some(WatchedDatagram { qp, header, payload, read, .. }) = self.headers.watched.take()
        {
            if let Some(watchpoints) = context.callbacks.watchpoints {
                header.into_iter().chain(payload).for_each(watchpoints.end);
            }
            if header.is_none() && payload.is_some() {
                self.report_header_read(context, qp, read);
            }
        }
    }

    fn report_header_read(&mut self, context: &mut CheckContext, qp: u32, stack: Stack) {
        if let Some(receiver) = self.headers.queue_pairs.get_mut(&qp) {
            receiver.is_known = true;
        }
        let Some(qp) = context.qps.get(&qp) else { return };
        let numbers = format!(
            "the program read the first bytes of a datagram that came to {}, here, and none behind them: its \
             payload begins at byte 40 of the receive",
            qp.name
        );
        let related = vec![related(format!("{} was made here", qp.name), &qp.calls.made)];
        let object = qp.name.clone();
        context.found(&HEADER_READ_AS_PAYLOAD, FindingParts { object, numbers, stack, related });
    }

    /// Handles the destruction of a queue pair.
    pub(super) fn forget_datagrams(&mut self, context: &mut CheckContext, qp: u32) {
        if self.headers.queue_pairs.get(&qp).is_some() {
            self.datagram_is_over(context, |watched| watched.qp == qp);
            self.headers.queue_pairs.remove(&qp);
        }
    }

    /// Handles the end of the process.
    pub(super) fn end_datagrams(&mut self, context: &mut CheckContext) {
        self.datagram_is_over(context, |_| true);
    }

    /// Forgets everything in a forked child: the watches belong to its parent.
    pub(super) fn datagrams_forked(&mut self) {
        self.headers = WatchedHeaders::default();
    }
}
