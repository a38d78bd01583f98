//! Ordering: requests that rely on an order that the specification does not promise.
//!
//! The program knows that a request is over if it polled its completion, or that of a later request of the
//! same queue pair. A message of a peer may tell of anything, so what was posted before it is no longer
//! compared with what is posted after it.

#[cfg(test)]
mod notified_in_tests;
mod relaxed;
mod remote;
#[cfg(test)]
mod tests;

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::host::QpContext;
use pumice_transport::types::{Peer, QpState, RemoteRange, SendRequest, StoreEvidence, WorkCompletion};
use pumice_transport::wire::OperationClass;

use super::context::CheckContext;
use super::notified::Check;
use super::orders::{MAX_STACKS, Notices, OrderedQp, PeerProcess, RequestOrdering};

impl Check for RequestOrdering {
    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        self.handle_order_event(context, event);
    }

    #[inline]
    fn on_message_event(&mut self, _: &mut CheckContext, qp: &QpContext, event: &QpEvent<'_>) {
        if let QpEvent::PacketReceived { is_answer: false, opcode, .. } = event
            && !self.arrived.is_empty()
            && opcode
                .info()
                .is_some_and(|info| matches!(info.class, OperationClass::Read | OperationClass::Flush))
        {
            self.note_evidence(qp.qpn.value(), StoreEvidence::Answer);
        }
    }

    fn request_posted(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        message: u64,
        bytes: u32,
        request: &SendRequest<'_>,
    ) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.fence(message, request);
        let peer = qp.peer;
        self.check_source(context, number, request);
        let is_shared = self.peers.get(&peer).is_some_and(|count| *count > 1);
        self.check_target(context, number, bytes, request);
        if is_shared {
            self.check_notice(context, number, message, request);
        }
        self.check_spinning(context, number);
        self.record_target(context, number, message, bytes, is_shared, request);
        self.record_destination(context, number, message, request);
    }

    fn completed(&mut self, _: &mut CheckContext, number: u32, completion: &WorkCompletion, released: u32) {
        if let (false, Some(qp)) = (completion.opcode.is_recv(), self.qps.get_mut(&number)) {
            qp.completed(released);
        }
    }

    fn polled(&mut self, context: &mut CheckContext, _: u32, completion: &WorkCompletion) {
        if completion.opcode.is_recv() {
            self.notified = self.notified.wrapping_add(1);
            self.check_message(context, completion.qp_num);
            return self.note_peer_progress();
        }
        let Some(qp) = self.qps.get_mut(&completion.qp_num) else { return };
        qp.polled();
        while let Some(id) = qp.remote.over(qp.known) {
            self.remote.remove(id);
        }
        while let Some(id) = qp.local.over(qp.known) {
            self.landings.remove(id);
        }
        if context.is_connected_to_own(completion.qp_num) {
            // The peer is this program, so it knows that its memory was written.
            self.notified = self.notified.wrapping_add(1);
        }
    }

    fn state_changed(&mut self, _: &mut CheckContext, number: u32, to: QpState, peer: Option<Peer>) {
        match (to, peer) {
            (QpState::Rtr, Some(peer)) => {
                self.end(number);
                let peer = PeerProcess { address: peer.address, process: peer.qpn.process() };
                *self.peers.entry(peer).or_default() += 1;
                self.qps.insert(number, OrderedQp::new(peer));
            }
            (QpState::Reset, _) => self.end(number),
            (QpState::Err, _) => {
                if let Some(qp) = self.qps.get_mut(&number) {
                    qp.incoming = None;
                }
            }
            _ => {}
        }
    }

    fn qp_destroyed(&mut self, _: &mut CheckContext, number: u32) {
        self.end(number);
        self.out_of_order.remove(&number);
    }

    fn begins_at(&mut self, number: u32, next: u64) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.begins_at(next);
        }
    }

    fn remote_access(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        class: OperationClass,
        range: &RemoteRange,
        ends: bool,
    ) {
        self.note_arrival(context, number, class, range.rkey);
        self.access_begins(context, number, class, range, ends);
    }

    fn remote_write_ended(&mut self, context: &mut CheckContext, number: u32, has_imm: bool) {
        self.write_ends(context, number, has_imm);
    }
}

impl RequestOrdering {
    /// Returns the call site that posted the newest request of a queue pair, for the first ones.
    fn stack_of_post(&mut self, context: &mut CheckContext, number: u32) -> Stack {
        let Some(qp) = self.qps.get_mut(&number) else { return Stack::default() };
        if qp.stacks >= MAX_STACKS {
            return Stack::default();
        }
        qp.stacks += 1;
        context.here()
    }

    /// Notes that a peer may have told that what was posted before has arrived.
    fn note_peer_progress(&mut self) {
        self.remote.clear();
        self.notices.values_mut().for_each(Notices::note_peer_progress);
    }

    /// Forgets the requests of a queue pair.
    fn end(&mut self, number: u32) {
        let Some(mut qp) = self.qps.remove(&number) else { return };
        while let Some(id) = qp.remote.over(u64::MAX) {
            self.remote.remove(id);
        }
        while let Some(id) = qp.local.over(u64::MAX) {
            self.landings.remove(id);
        }
        if let Some(count) = self.peers.get_mut(&qp.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.peers.remove(&qp.peer);
                self.notices.remove(&qp.peer);
                self.arrived.remove(&qp.peer);
            }
        }
    }
}
