//! Ordering: requests that rely on an order that the specification does not promise.
//!
//! What the program knows to be over: a request of which it polled the completion, or that of a later request
//! of the same queue pair. A message of a peer may tell of anything, so what was posted before it is no
//! longer compared with what is posted after it.

mod incoming;
mod local;
mod notices;
mod remote;
mod spinning;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod told_in_tests;
mod words;

use pumice_ground::call_stack::Stack;
use pumice_transport::types::{Peer, QpState, RemoteRange, SendRequest, WorkCompletion};
use pumice_transport::wire::OperationClass;

use super::context::Context;
use super::orders::{MAX_STACKS, Notices, OrderedQp, Ordering, PeerProcess};
use super::told::Check;

impl Check for Ordering {
    fn request_posted(
        &mut self,
        context: &mut Context,
        number: u32,
        message: u64,
        bytes: u32,
        request: &SendRequest<'_>,
    ) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.fence(message, request);
        let peer = qp.peer;
        self.look_at_source(context, number, request);
        let is_shared = self.peers.get(&peer).is_some_and(|count| *count > 1);
        self.look_at_target(context, number, bytes, request);
        if is_shared {
            self.look_at_notice(context, number, message, request);
        }
        self.look_at_spinning(context, number);
        self.keep_target(context, number, message, bytes, is_shared, request);
        self.keep_destination(context, number, message, request);
    }

    fn completed(&mut self, _: &mut Context, number: u32, completion: &WorkCompletion, released: u32) {
        if let (false, Some(qp)) = (completion.opcode.is_recv(), self.qps.get_mut(&number)) {
            qp.completed(released);
        }
    }

    fn polled(&mut self, context: &mut Context, _: u32, completion: &WorkCompletion) {
        if completion.opcode.is_recv() {
            self.told = self.told.wrapping_add(1);
            return self.heard();
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
            self.told = self.told.wrapping_add(1);
        }
    }

    fn state_changed(&mut self, _: &mut Context, number: u32, to: QpState, peer: Option<Peer>) {
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

    fn qp_destroyed(&mut self, _: &mut Context, number: u32) {
        self.end(number);
    }

    fn begins_at(&mut self, number: u32, next: u64) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.begins_at(next);
        }
    }

    fn remote_access(
        &mut self,
        _: &mut Context,
        number: u32,
        class: OperationClass,
        range: &RemoteRange,
        ends: bool,
    ) {
        self.access_begins(number, class, range, ends);
    }

    fn remote_write_ended(&mut self, context: &mut Context, number: u32, has_imm: bool) {
        self.write_ends(context, number, has_imm);
    }
}

impl Ordering {
    /// Where the newest request of a queue pair was posted, for the first ones.
    fn stack_of_post(&mut self, context: &mut Context, number: u32) -> Stack {
        let Some(qp) = self.qps.get_mut(&number) else { return Stack::default() };
        if qp.stacks >= MAX_STACKS {
            return Stack::default();
        }
        qp.stacks += 1;
        context.here()
    }

    /// A peer may have told that what was posted before has arrived.
    fn heard(&mut self) {
        self.remote.clear();
        self.notices.values_mut().for_each(Notices::heard);
    }

    /// The requests of a queue pair vanish.
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
            }
        }
    }
}
