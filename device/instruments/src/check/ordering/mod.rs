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
mod words;

use pumice_transport::types::{Peer, QpState, SendRequest, WorkCompletion};

use super::checker::Checker;
use super::orders::{MAX_STACKS, Notices, OrderedQp, PeerProcess};
use super::stack::Stack;

impl Checker {
    /// A send request was posted, the `message`-th of its queue pair.
    pub(super) fn order_of_post(
        &mut self,
        number: u32,
        message: u64,
        length_bytes: u32,
        request: &SendRequest<'_>,
    ) {
        let Some(qp) = self.ordering.qps.get_mut(&number) else { return };
        qp.fence(message, request);
        let peer = qp.peer;
        self.look_at_source(number, request);
        let is_shared = self.ordering.peers.get(&peer).is_some_and(|count| *count > 1);
        self.look_at_target(number, length_bytes, request);
        if is_shared {
            self.look_at_notice(number, message, request);
        }
        self.look_at_spinning(number);
        self.keep_target(number, message, length_bytes, is_shared, request);
        self.keep_destination(number, message, request);
    }

    /// Where the newest request of a queue pair was posted, for the first ones.
    fn stack_of_post(&mut self, number: u32) -> Stack {
        let Some(qp) = self.ordering.qps.get_mut(&number) else { return Stack::default() };
        if qp.stacks >= MAX_STACKS {
            return Stack::default();
        }
        qp.stacks += 1;
        self.here()
    }

    pub(super) fn order_of_completion(&mut self, number: u32, completion: &WorkCompletion, released: u32) {
        if let (false, Some(qp)) = (completion.opcode.is_recv(), self.ordering.qps.get_mut(&number)) {
            qp.completed(released);
        }
    }

    pub(super) fn order_of_poll(&mut self, completion: &WorkCompletion) {
        if completion.opcode.is_recv() {
            self.ordering.told = self.ordering.told.wrapping_add(1);
            return self.heard();
        }
        let own = self.is_connected_to_own(completion.qp_num);
        let ordering = &mut self.ordering;
        let Some(qp) = ordering.qps.get_mut(&completion.qp_num) else { return };
        qp.polled();
        while let Some(id) = qp.remote.over(qp.known) {
            ordering.remote.remove(id);
        }
        while let Some(id) = qp.local.over(qp.known) {
            ordering.landings.remove(id);
        }
        if own {
            // The peer is this program, so it knows that its memory was written.
            ordering.told = ordering.told.wrapping_add(1);
        }
    }

    /// A peer may have told that what was posted before has arrived.
    fn heard(&mut self) {
        self.ordering.remote.clear();
        self.ordering.notices.values_mut().for_each(Notices::heard);
    }

    pub(super) fn order_of_state(&mut self, number: u32, to: QpState, peer: Option<Peer>) {
        match (to, peer) {
            (QpState::Rtr, Some(peer)) => {
                self.order_of_end(number);
                let peer = PeerProcess { address: peer.address, process: peer.qpn.process() };
                *self.ordering.peers.entry(peer).or_default() += 1;
                self.ordering.qps.insert(number, OrderedQp::new(peer));
            }
            (QpState::Reset, _) => self.order_of_end(number),
            (QpState::Err, _) => {
                if let Some(qp) = self.ordering.qps.get_mut(&number) {
                    qp.incoming = None;
                }
            }
            _ => {}
        }
    }

    /// The requests of a queue pair vanish.
    pub(super) fn order_of_end(&mut self, number: u32) {
        let ordering = &mut self.ordering;
        let Some(mut qp) = ordering.qps.remove(&number) else { return };
        while let Some(id) = qp.remote.over(u64::MAX) {
            ordering.remote.remove(id);
        }
        while let Some(id) = qp.local.over(u64::MAX) {
            ordering.landings.remove(id);
        }
        if let Some(count) = ordering.peers.get_mut(&qp.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                ordering.peers.remove(&qp.peer);
                ordering.notices.remove(&qp.peer);
            }
        }
    }

    /// Whether the peer of a queue pair is another one of this process.
    fn is_connected_to_own(&self, number: u32) -> bool {
        let own = self.qps.get(&number).filter(|qp| qp.peer_is_here);
        own.and_then(|qp| qp.destination).is_some_and(|other| self.qps.contains_key(&other))
    }

    /// How messages call a queue pair.
    fn name_of(&self, number: u32) -> String {
        self.qps.get(&number).map_or_else(|| format!("queue pair number {number:#x}"), |qp| qp.name.clone())
    }
}
