//! The short way through a queue pair, for packets about which nothing has to be decided.
//!
//! **Invariant**: a lane does what the general way does, or it does nothing that the general way would not do
//! again with the same effect. So a caller that is told `None` or false takes the general way, and neither
//! packets nor state show which way was taken. `tests/pair/lanes.rs` runs random programs both ways and
//! compares all of it after each step.
//!
//! The caller makes sure that the host listens to no packets and accesses, decides no fates, judges and
//! counts no completions, and defers no stores.

use alloc::sync::Arc;

use super::lane::{ACKNOWLEDGE_BYTES, LaneBatch, LanePacket, LaneSend};
use super::{Arrival, QueuePair, ReceivingSide, congestion};
use crate::event::Topic;
use crate::host::Host;
use crate::path::Path;
use crate::types::{QpState, QpType};
use crate::wire::{Bth, Operation, Qpn, Syndrome};

impl QueuePair {
    /// Reports whether the queue pair is in a state in which messages may take the short way: connected and
    /// working, without a path to migrate to, without signatures that could stop it.
    #[inline]
    fn admits_lane(&self) -> bool {
        self.state == QpState::Rts
            && self.settings.qp_type == QpType::Rc
            && self.settings.is_migrated
            && !self.settings.stops_at_bad_signature
    }

    /// Returns the path and the destination of messages of a queue pair that can use
    /// [`QueuePair::send_by_lane`].
    #[inline]
    pub fn lane(&self) -> Option<(&Arc<Path>, Qpn)> {
        let path = self.settings.path.as_ref().filter(|_| self.admits_lane())?;
        Some((path, self.settings.destination))
    }

    /// Writes the newest posted request, if it is the only one that has not left, into `room`, and behind it
    /// the acknowledgement that waits, if there is one and nothing else. The effect is that of
    /// [`QueuePair::transmit_requests`] and [`QueuePair::transmit_responses`] with a sink that takes both.
    /// Returns `None` if nothing has changed, except for the bytes in `room`.
    #[inline]
    pub fn send_by_lane<H: Host>(&mut self, now_ns: u64, host: &mut H, room: &mut [u8]) -> Option<LaneBatch> {
        if self.state != QpState::Rts || self.notifier.is_pending() {
            return None;
        }
        let request = self.requester.lane_request(&self.settings)?;
        let batch = self.lane_batch(request.length_bytes)?;
        let packet = self.split_batch(batch, room)?;
        self.requester.send_lane_request(&self.settings, &request, now_ns, host, packet)?;
        self.answers_left();
        Some(batch)
    }

    /// Posts a request, and writes its packet into `room`, if no request waits before it and none has to be
    /// decided about; behind it the acknowledgement that waits, if there is one and nothing else. The effect
    /// is that of [`QueuePair::post_send`] and [`QueuePair::send_by_lane`]. Returns `None` if nothing has
    /// changed, except for the bytes in `room`.
    #[inline]
    pub fn post_by_lane<H: Host>(
        &mut self,
        now_ns: u64,
        send: &LaneSend<'_>,
        host: &mut H,
        room: &mut [u8],
    ) -> Option<LaneBatch> {
        if !self.admits_lane() || self.notifier.is_pending() || host.listens(Topic::Posts) {
            return None;
        }
        let request = self.requester.lane_post(&self.settings, &self.capacity, send)?;
        let batch = self.lane_batch(request.length_bytes)?;
        let packet = self.split_batch(batch, room)?;
        self.requester.post_lane_request(&self.settings, (&request, send), now_ns, host, packet)?;
        self.answers_left();
        Some(batch)
    }

    /// Returns the batch of a request of this length and the acknowledgement that waits. Returns `None` if
    /// other responses wait, or if the acknowledgement cannot follow the request.
    #[inline]
    fn lane_batch(&self, request_bytes: usize) -> Option<LaneBatch> {
        let ReceivingSide::Reliable(responder) = &self.receiver else { return None };
        if responder.responses.len() == 0 {
            return Some(LaneBatch { request_bytes, acknowledge_bytes: 0 });
        }
        responder.responses.only_acknowledgement()?;
        // A batch has packets of one length, of which the last may be shorter.
        (request_bytes >= ACKNOWLEDGE_BYTES)
            .then_some(LaneBatch { request_bytes, acknowledge_bytes: ACKNOWLEDGE_BYTES })
    }

    /// Writes the acknowledgement of a batch into `room`, and returns the room for the request.
    #[inline]
    fn split_batch<'a>(&self, batch: LaneBatch, room: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (packet, rest) = room.split_at_mut_checked(batch.request_bytes)?;
        if batch.acknowledge_bytes > 0 {
            let ReceivingSide::Reliable(responder) = &self.receiver else { return None };
            let (psn, aeth) = responder.responses.only_acknowledgement()?;
            let (head, rest) = rest.get_mut(..ACKNOWLEDGE_BYTES)?.split_at_mut_checked(Bth::LEN)?;
            self.settings.bth(Operation::Acknowledge, psn).emit(head);
            aeth.emit(rest);
        }
        Some(packet)
    }

    /// Removes the acknowledgement that has left.
    #[inline]
    fn answers_left(&mut self) {
        if let ReceivingSide::Reliable(responder) = &mut self.receiver {
            responder.responses.drop_all();
        }
    }

    /// Handles a packet without ICRC, or whose ICRC is correct, and whose destination is this queue pair, as
    /// [`QueuePair::handle_packet`] does. Returns false if that has still to be called.
    #[inline]
    pub fn receive_by_lane<H: Host>(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        bytes: &[u8],
        host: &mut H,
    ) -> bool {
        let Some(bth) = Bth::parse(bytes) else { return false };
        let pkey = self.settings.pkey;
        // A partition of which both are full members.
        let is_plain = bth.version == 0 && bth.pkey == pkey && pkey > 0x8000;
        if !is_plain || !self.admits_lane() || !self.is_from_peer(arrival) {
            return false;
        }
        match LanePacket::parse(&bth, bytes) {
            Some(LanePacket::Request(request)) if request.payload.len() <= self.settings.mtu_bytes => {
                let ReceivingSide::Reliable(responder) = &mut self.receiver else { return false };
                responder.accept_by_lane(&self.settings, &request, host)
            }
            Some(LanePacket::Acknowledge(psn, aeth)) => {
                matches!(Syndrome::from_byte(aeth.syndrome), Syndrome::Ack { .. })
                    && self.requester.acknowledge_by_lane(&self.settings, psn, now_ns, host)
            }
            _ => false,
        }
    }

    /// Reports whether a packet comes from the known port of the peer, and without a congestion mark.
    #[inline]
    fn is_from_peer(&self, arrival: &Arrival<'_>) -> bool {
        let Some(path) = &self.settings.path else { return false };
        let (flow, own) = (arrival.flow, &path.flow);
        self.peer_port.is(flow.source_port)
            && !congestion::is_marked(arrival.traffic_class)
            && flow.source == own.destination
            && flow.destination == own.source
    }
}
