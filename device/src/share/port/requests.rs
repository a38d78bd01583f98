//! Requests that this process sends to services on its own host.
//!
//! A request names a service and not a process: it goes to the process that listens, or else to the one that
//! serves what names no process. If that is stopped, the request would lie in its socket until the sender's
//! timer ends, seconds later. So a stopped one is gone around at once, and a request whose receiver has still
//! not looked after [`PATIENCE_NS`], for whatever reason, is handed to a process that runs. It may then
//! arrive twice, which the connection manager knows.

use std::collections::VecDeque;
use std::net::IpAddr;

use pumice_transport::mad::{ServiceId, attribute};
use pumice_transport::path::Path;
use pumice_transport::types::Gid;

use super::SharedPort;
use super::counters::count;
use crate::port::{GsoBatch, Received};
use crate::share::membership::Server;
use crate::share::relay::Sent;
use crate::share::system;

/// How long the receiver of a request has to look at its socket.
const PATIENCE_NS: u64 = 50_000_000;
/// Requests that are looked after at a time. Others are left to their timers.
const MAX_WAITING: usize = 64;
/// Where in a packet for queue pair 1 the attribute and the service id are.
const ATTRIBUTE_OFFSET: usize = 20 + 16;
const SERVICE_OFFSET: usize = 20 + 24 + 8;
/// The end of the number of queue pair 1 in a packet, from the slot on.
const GSI: [u8; 3] = [0, 0, 1];

/// Requests whose receivers may not have looked yet, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Requests {
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    sent_ns: u64,
    path: Path,
    packet: Vec<u8>,
}

impl Requests {
    /// When the oldest should have been looked at.
    #[inline]
    pub(super) fn due_ns(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.sent_ns.saturating_add(PATIENCE_NS))
    }
}

/// The service that a packet asks for, if it is a request to queue pair 1.
fn service(packet: &[u8]) -> Option<ServiceId> {
    let slot = super::SLOT_OFFSET;
    let attribute = packet.get(ATTRIBUTE_OFFSET..)?.first_chunk::<2>()?;
    let is_request = packet.get(slot..slot + GSI.len()) == Some(&GSI)
        && matches!(u16::from_be_bytes(*attribute), attribute::REQ | attribute::SIDR_REQ);
    let id = packet.get(SERVICE_OFFSET..)?.first_chunk::<8>()?;
    is_request.then_some(ServiceId(u64::from_be_bytes(*id)))
}

impl SharedPort {
    /// Whether the first packet is for queue pair 1 of no process in particular.
    #[inline]
    pub(super) fn is_for_all(bytes: &[u8]) -> bool {
        bytes.get(super::SLOT_OFFSET..super::SLOT_OFFSET + GSI.len()) == Some(&GSI)
    }

    /// Looks after the requests of a batch that is about to be sent. True: they went another way, and the
    /// batch is not to be sent.
    pub(super) fn request(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> bool {
        let destination = batch.path.flow.destination;
        let on_this_host = self.backlog.as_ref().is_some_and(|backlog| backlog.is_local(destination));
        if !on_this_host {
            return false;
        }
        let around = batch
            .segments()
            .find_map(service)
            .and_then(|service| self.way_around(now_ns, service, destination));
        if around.is_some_and(|slot| self.hand_to(slot, batch.path, batch.bytes, batch.segment_bytes)) {
            return true;
        }
        for packet in batch.segments().filter(|packet| service(packet).is_some()) {
            if self.requests.waiting.len() < MAX_WAITING {
                let (path, packet) = (batch.path.clone(), packet.to_vec());
                self.requests.waiting.push_back(Waiting { sent_ns: now_ns, path, packet });
            }
        }
        false
    }

    /// The process that gets a request if the one that it would come to is stopped.
    fn way_around(&mut self, now_ns: u64, service: ServiceId, destination: IpAddr) -> Option<u8> {
        if !self.services.find(service, Gid::from(destination), &self.membership).is_empty() {
            return None;
        }
        let Server { slot, is_usual } = self.membership.server(destination, &[])?;
        if is_usual {
            return None;
        }
        if slot == self.slot {
            // The group is this socket's own, so it can be steered around.
            self.last_mend_ns = None;
            self.mend(now_ns);
            return None;
        }
        Some(slot)
    }

    /// Hands requests to a process, which also steers anew. False: it is not possible.
    fn hand_to(&mut self, slot: u8, path: &Path, bytes: &[u8], segment_bytes: usize) -> bool {
        let (flow, traffic_class, hop_limit) = (path.flow, path.traffic_class, path.hop_limit);
        let received = Received { flow, traffic_class, hop_limit, segment_bytes, bytes };
        let registry = self.membership.registry();
        let sent = self.relay.send_batch(registry, slot, &received) == Sent::Done;
        self.relay.send_look(registry, slot);
        if sent {
            count(&self.counters.rerouted);
        }
        sent
    }

    /// Hands on the requests that should have been looked at by now.
    pub(super) fn look_after_requests(&mut self, now_ns: u64) {
        while self.requests.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            let Some(waiting) = self.requests.waiting.pop_front() else { return };
            let destination = waiting.path.flow.destination;
            let Some(service) = service(&waiting.packet) else { continue };
            let sent_ns = self.looks.shared_ns(now_ns, waiting.sent_ns, system::monotonic_ns);
            if let Some(slot) = self.substitute(service, destination, sent_ns) {
                let length = waiting.packet.len();
                self.hand_to(slot, &waiting.path, &waiting.packet, length);
            }
        }
    }

    /// The slot that should get a request which was sent at `sent_ns`, if its receiver has not looked since.
    /// If the receiver is the listener, that is its own slot: the request then takes another way to it.
    fn substitute(&mut self, service: ServiceId, destination: IpAddr, sent_ns: u64) -> Option<u8> {
        let backlog = self.backlog.as_ref()?;
        let has_looked =
            |slot| backlog.last_look_ns(destination, slot).is_none_or(|looked_ns| looked_ns >= sent_ns);
        let listeners = self.services.find(service, Gid::from(destination), &self.membership);
        if let Some(&slot) = listeners.first() {
            return (!has_looked(slot) && self.membership.reads_now(slot)).then_some(slot);
        }
        let usual = self.membership.server(destination, &[])?.slot;
        if usual == self.slot || has_looked(usual) {
            return None;
        }
        self.membership.server(destination, &[usual, self.slot]).map(|server| server.slot)
    }
}
