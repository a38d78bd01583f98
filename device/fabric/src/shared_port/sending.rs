//! Batches that a shared port sends: by its medium, or past the kernel by the relay.

use std::net::IpAddr;

use pumice_model::port::batch;
use pumice_model::port::batch::{GsoBatch, Peer, ReceivedBatch, TransmitError};
use pumice_transport::mad::ServiceId;
use pumice_transport::path::Path;
use pumice_transport::types::Gid;

use super::SharedPort;
use super::counters::{count, note_sent};
use super::looped;
use super::requests::service;
use crate::files::sockets::SendOutcome;
use crate::members::member_index::MemberIndex;
use crate::shared_port::membership::Server;
use crate::system;
use crate::system::medium::Medium;

impl<M: Medium> SharedPort<M> {
    /// Sends a batch by the medium, and adds it to the backlog of its receiver.
    pub(super) fn transmit_by_medium(
        &mut self,
        now_ns: u64,
        batch: &GsoBatch<'_>,
    ) -> Result<(), TransmitError> {
        if !batch.has_icrc {
            // The ring that the batch was made for does not exist any more.
            let bytes = &batch::sealed(&batch.path.flow, batch.segment_bytes, batch.bytes);
            return self.transmit_by_medium(now_ns, &GsoBatch { bytes, has_icrc: true, ..*batch });
        }
        let Some(backlog) = &mut self.backlog else { return self.medium.transmit(now_ns, batch) };
        let peer = batch.peer();
        let charge = backlog.offer(peer, batch.bytes, batch.segment_bytes);
        let sent = self.medium.transmit(now_ns, batch);
        if let (Err(_), Some(charge)) = (&sent, charge) {
            charge.retract();
        }
        sent
    }

    /// Delivers a batch to a group that the kernel had no route for to the group's members on this host.
    ///
    /// # Errors
    /// Fails with `Unreachable` if the batch is not for a group of the loopback interface, and with `Busy` if
    /// a member has no room.
    pub(super) fn loop_group(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        let path = batch.path;
        if !looped::is_looped(&path.flow) {
            return Err(TransmitError::Unreachable);
        }
        let received = ReceivedBatch {
            flow: path.flow,
            traffic_class: path.traffic_class,
            hop_limit: looped::hop_limit(path.hop_limit),
            segment_bytes: if batch.segment_bytes == 0 { batch.bytes.len() } else { batch.segment_bytes },
            bytes: batch.bytes,
            has_icrc: batch.has_icrc,
        };
        let registry = self.membership.registry();
        let members = registry.peek();
        let own = self.membership.own_members();
        let mut first = true;
        for member in members.iter().flat_map(|members| members.iter()) {
            if own.contains(&member.index) {
                continue;
            }
            let sent = self.relays.relay.send_batch(registry, member.index, &received);
            match sent {
                SendOutcome::Full if first && self.identity.looped.waits(now_ns) => {
                    return Err(TransmitError::Busy);
                }
                SendOutcome::Done => self.identity.looped.has_room(),
                SendOutcome::Full | SendOutcome::NoProcess => {}
            }
            note_sent(&self.counting.counters, sent);
            first &= sent == SendOutcome::NoProcess;
        }
        self.identity.looped.push(&received);
        Ok(())
    }

    /// Handles the requests in a batch that is about to be sent. Returns true if they went another way and
    /// the batch must not be sent.
    pub(super) fn request(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> bool {
        let destination = batch.path.flow.destination;
        let on_this_host = self.backlog.as_ref().is_some_and(|backlog| backlog.is_local(destination));
        if !on_this_host {
            return false;
        }
        let around = batch
            .segments()
            .find_map(service)
            .and_then(|service| self.find_alternative(now_ns, service, destination));
        if around.is_some_and(|member| self.hand_to(member, batch.path, batch.bytes, batch.segment_bytes)) {
            return true;
        }
        for packet in batch.segments().filter(|packet| service(packet).is_some()) {
            self.orders.requests.push(now_ns, batch.path, packet);
        }
        false
    }

    /// Returns the process that gets a request if the one that would receive it is stopped.
    fn find_alternative(
        &mut self,
        now_ns: u64,
        service: ServiceId,
        destination: IpAddr,
    ) -> Option<MemberIndex> {
        if !self.services.find(service, Gid::from(destination), &self.membership).is_empty() {
            return None;
        }
        let Server { member, is_usual } = self.membership.server(destination, &[])?;
        if is_usual {
            return None;
        }
        if member == self.membership.index() {
            // The group is that of this socket, so the steering can be changed to avoid that process.
            self.repair.last_repair_ns = None;
            self.repair(now_ns);
            return None;
        }
        Some(member)
    }

    /// Hands requests to a process, and steers anew. Returns false if that is not possible.
    fn hand_to(&mut self, member: MemberIndex, path: &Path, bytes: &[u8], segment_bytes: usize) -> bool {
        let (flow, traffic_class, hop_limit) = (path.flow, path.traffic_class, path.hop_limit);
        let received = ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc: true };
        let registry = self.membership.registry();
        let sent = self.relays.relay.send_batch(registry, member, &received) == SendOutcome::Done;
        self.relays.relay.send_repair_request(registry, member);
        if sent {
            count(&self.counting.counters.rerouted);
        }
        sent
    }

    /// Forwards the requests whose receivers should have polled their sockets by now.
    pub(super) fn resend_requests(&mut self, now_ns: u64) {
        while self.orders.requests.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let Some(waiting) = self.orders.requests.pop() else { return };
            let destination = waiting.path.flow.destination;
            let Some(service) = service(&waiting.packet) else { continue };
            let sent_ns =
                self.polling.idle_poll_times.shared_ns(now_ns, waiting.sent_ns, system::monotonic_ns);
            if let Some(member) = self.substitute(service, destination, sent_ns) {
                let length = waiting.packet.len();
                self.hand_to(member, &waiting.path, &waiting.packet, length);
            }
        }
    }

    /// Returns the process that should get a request which was sent at `sent_ns`, if its receiver has not
    /// polled its socket since. If the receiver is the listener, that is the receiver itself: the request
    /// then takes another way to it.
    fn substitute(&mut self, service: ServiceId, destination: IpAddr, sent_ns: u64) -> Option<MemberIndex> {
        let backlog = self.backlog.as_ref()?;
        let has_polled = |member: MemberIndex| {
            let peer = Peer { address: destination, process: member.process() };
            backlog.peer_last_poll_ns(peer).is_none_or(|polled_ns| polled_ns >= sent_ns)
        };
        let listeners = self.services.find(service, Gid::from(destination), &self.membership);
        if let Some(&member) = listeners.first() {
            return (!has_polled(member) && self.membership.reads_now(member)).then_some(member);
        }
        let (usual, own) = (self.membership.server(destination, &[])?.member, self.membership.index());
        if usual == own || has_polled(usual) {
            return None;
        }
        self.membership.server(destination, &[usual, own]).map(|server| server.member)
    }
}
