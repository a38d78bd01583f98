//! Queue pair 1's turn in the engine: MADs in, MADs out, timers, and the consumer's calls.

use std::mem;
use std::sync::Arc;

use pumice_transport::cm::{Cm, Event, MadOut};
use pumice_transport::host::{Counter, Transmit};
use pumice_transport::mad::{CmMessage, CommId, Mad};
use pumice_transport::path::Path;
use pumice_transport::types::AddressVector;
use pumice_transport::wire::Qpn;

use super::envelope::{self, Inbound, PACKET_BYTES};
use super::{CmChannel, Gsi};
use crate::address_handle;
use crate::gid_table::GidTable;
use crate::port::Port;

/// The last slot of a process.
const LAST_SLOT: u8 = 254;

impl Gsi {
    /// Handles the MADs that were received: those of this process, and those that nobody owns.
    pub(crate) fn read_mail(&mut self, now_ns: u64, port: &mut dyn Port) {
        for inbound in mem::take(&mut self.inbox) {
            if !self.hand_on(&inbound, port) {
                // What it does not understand it has answered; there is nobody else to tell.
                let _ = self.cm.handle_mad(&inbound.route(), inbound.mad(), now_ns);
            }
        }
        self.deliver(now_ns);
    }

    /// Whether a MAD was another process's, and is on its way there.
    fn hand_on(&self, inbound: &Inbound, port: &mut dyn Port) -> bool {
        if port.services().is_none() {
            return false;
        }
        let Some(message) = Mad::parse(inbound.mad()).ok().and_then(|mad| CmMessage::parse(&mad).ok()) else {
            return false;
        };
        let route = inbound.route();
        if self.cm.recognises(&route, &message) {
            return false;
        }
        let own = self.process_slot;
        let candidates: Vec<u8> = if let Some(id) = message.recipient() {
            vec![id.slot()]
        } else if let Some(service_id) = message.service() {
            if self.cm.serves(service_id, route.local) {
                return false;
            }
            port.services().map(|directory| directory.find(service_id, route.local)).unwrap_or_default()
        } else {
            // A REJ by somebody who was never told an id of ours: any process's, upwards, so that it ends.
            (own.saturating_add(1)..=LAST_SLOT).collect()
        };
        let received = inbound.received();
        candidates.into_iter().any(|slot| slot != own && port.forward(slot, &received))
    }

    /// Timers that are due.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        if self.cm.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            // One call sends so much and no more; what stays due comes in the next round.
            self.cm.handle_timeout(now_ns);
            self.deliver(now_ns);
        }
    }

    /// Sends what waits. False: the port has no more room.
    pub(crate) fn send_mail(&mut self, gids: &GidTable, sink: &mut dyn MailSink) -> bool {
        while let Some(out) = self.held_back.take().or_else(|| self.cm.poll_transmit()) {
            let Some(path) = path(&out, gids) else {
                sink.count(Counter::TxDropped);
                continue;
            };
            let Some(packet) = sink.begin(&path, Qpn::GSI, PACKET_BYTES) else {
                self.held_back = Some(out);
                return false;
            };
            envelope::emit(&out.mad, self.next_psn, packet);
            sink.seal();
            self.next_psn = self.next_psn.wrapping_add(1);
        }
        true
    }

    /// A call of the consumer's to the connection manager; its events are delivered.
    pub(crate) fn call<T>(&mut self, now_ns: u64, call: impl FnOnce(&mut Cm) -> T) -> T {
        let result = call(&mut self.cm);
        self.deliver(now_ns);
        result
    }

    /// A connection was begun: its events go to this channel.
    pub(crate) fn attach(&mut self, id: CommId, channel: &Arc<CmChannel>) {
        self.channels.insert(id, Arc::clone(channel));
    }

    /// Moves a connection, and its events that wait, to another channel. False: there is none.
    pub(crate) fn migrate(&mut self, id: CommId, channel: &Arc<CmChannel>) -> bool {
        let Some(old) = self.channels.insert(id, Arc::clone(channel)) else {
            self.channels.remove(&id);
            return false;
        };
        if !Arc::ptr_eq(&old, channel) {
            for event in old.take_of(id) {
                channel.push(event);
            }
        }
        true
    }

    /// The next event of a channel. Taking a request makes room in its listener's backlog.
    pub(crate) fn take_event(&mut self, channel: &CmChannel) -> Option<Event> {
        let event = channel.take()?;
        if let Event::ConnectRequest { id, .. } | Event::SidrRequest { id, .. } = &event {
            self.cm.take_request(*id);
        }
        Some(event)
    }

    /// A connection was destroyed: no event of it comes any more.
    pub(crate) fn detach(&mut self, id: CommId) {
        if let Some(channel) = self.channels.remove(&id) {
            channel.take_of(id);
        }
    }

    /// Requests that went with their listener.
    pub(super) fn forget_destroyed(&mut self) {
        let gone: Vec<CommId> =
            self.channels.keys().copied().filter(|id| self.cm.state(*id).is_none()).collect();
        for id in gone {
            self.detach(id);
        }
    }

    /// The adapter is being closed: peers are told.
    pub(crate) fn close(&mut self, now_ns: u64, port: &mut dyn Port) {
        self.unbind_all(now_ns, port);
        let all: Vec<CommId> = self.cm.ids().collect();
        for id in all {
            let _ = self.cm.destroy(id, now_ns);
            self.detach(id);
        }
    }
}

/// Where MADs are sent: the train builder, which also counts.
pub(crate) trait MailSink: Transmit {
    fn count(&mut self, counter: Counter);
}

/// The path of a MAD; `None` when its source is no address of the adapter any more.
fn path(out: &MadOut, gids: &GidTable) -> Option<Path> {
    let route = &out.route;
    let vector = AddressVector {
        is_global: true,
        dgid: route.remote,
        sgid_index: gids.index_of(route.local)?,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        port_num: 1,
        ..AddressVector::default()
    };
    address_handle::resolve(&vector, gids).ok()
}
