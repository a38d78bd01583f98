//! Queue pair 1's turn in the engine: MADs in, MADs out, timers, and the consumer's calls.

use std::mem;
use std::sync::Arc;

use pumice_transport::cm::{Cm, Event, ListenerId, MadOut};
use pumice_transport::host::{Counter, Transmit};
use pumice_transport::mad::{CmMessage, CommId, MAD_BYTES, Mad};
use pumice_transport::path::Path;
use pumice_transport::types::AddressVector;
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::early::EarlyRequests;
use super::envelope::{self, Inbound, PACKET_BYTES};
use super::{CmChannel, Detained, Forwarded, Gsi, MAX_DETAINED};
use crate::addresses::gid_table::GidTable;
use crate::objects::address_handle;
use crate::port::Port;

/// How long a MAD waits for a process that does not keep up. Less than its sender waits before it says it
/// again.
const DETAINED_NS: u64 = 1_000_000_000;
/// The last slot of a process.
const LAST_SLOT: u8 = 254;

impl Gsi {
    /// Handles the MADs that were received: those of this process, and those that nobody owns.
    pub(crate) fn read_mail(&mut self, now_ns: u64, port: &mut dyn Port) {
        for inbound in mem::take(&mut self.inbox) {
            self.read(inbound, EarlyRequests::patience_ends_ns(now_ns), now_ns, port);
        }
        self.deliver_and_watch(now_ns, port);
    }

    /// Tells the consumers what happened, and looks after the peers of connections that this began.
    fn deliver_and_watch(&mut self, now_ns: u64, port: &mut dyn Port) {
        self.deliver(now_ns);
        for id in mem::take(&mut self.fresh) {
            self.watch(id, now_ns, port);
        }
    }

    /// `until_ns`: how long a request may wait for its listener.
    fn read(&mut self, inbound: Inbound, until_ns: u64, now_ns: u64, port: &mut dyn Port) {
        let others = self.others(&inbound, port);
        match forward(&others, &inbound, port) {
            (Forwarded::Done, _) => {}
            (Forwarded::Full, process) => {
                if self.detained.len() < MAX_DETAINED {
                    let until_ns = now_ns.saturating_add(DETAINED_NS);
                    self.detained.push_back(Detained { process, until_ns, inbound });
                }
            }
            (Forwarded::Nobody, _) => {
                let refused = if self.is_early(&inbound) {
                    self.early.keep(inbound, until_ns, now_ns)
                } else {
                    Some(inbound)
                };
                if let Some(inbound) = refused {
                    // What it does not understand it has answered; there is nobody else to tell.
                    let _ = self.cm.handle_mad(&inbound.route(), inbound.mad(), now_ns);
                }
            }
        }
    }

    /// Whether it is a new request, and nobody in this process listens for it.
    fn is_early(&self, inbound: &Inbound) -> bool {
        let message = Mad::parse(inbound.mad()).ok().and_then(|mad| CmMessage::parse(&mad).ok());
        let route = inbound.route();
        message.is_some_and(|message| {
            let asked = message.service().zip(Cm::asked_at(&route, &message));
            asked.is_some_and(|(service_id, local)| !self.cm.serves(service_id, local))
                && !self.cm.recognises(&route, &message)
        })
    }

    /// Forwards what other processes had no room for.
    pub(crate) fn forward_detained(&mut self, now_ns: u64, port: &mut dyn Port) {
        let mut full = Vec::new();
        for _ in 0..self.detained.len() {
            let Some(waiting) = self.detained.pop_front() else { return };
            let Detained { process, until_ns, .. } = waiting;
            // A process that does not keep up, or is stopped, keeps nothing from others. What it leaves
            // waiting for too long is as good as lost, like what was for one that has died in the meantime:
            // peers have timers.
            if full.contains(&process) || forward(&[process], &waiting.inbound, port).0 == Forwarded::Full {
                if !full.contains(&process) {
                    full.push(process);
                }
                if now_ns < until_ns {
                    self.detained.push_back(waiting);
                }
            }
        }
    }

    /// Other processes that a MAD may be for.
    fn others(&self, inbound: &Inbound, port: &mut dyn Port) -> Vec<ProcessIndex> {
        let Some(directory) = port.group().and_then(|group| group.services()) else { return Vec::new() };
        let Some(message) = Mad::parse(inbound.mad()).ok().and_then(|mad| CmMessage::parse(&mad).ok()) else {
            return Vec::new();
        };
        let (route, own) = (inbound.route(), ProcessIndex::new(self.process_slot));
        if self.cm.recognises(&route, &message) {
            return Vec::new();
        }
        let mut processes = if let Some(id) = message.recipient() {
            vec![ProcessIndex::new(id.slot())]
        } else if let Some((service_id, local)) = message.service().zip(Cm::asked_at(&route, &message)) {
            if self.cm.serves(service_id, local) {
                return Vec::new();
            }
            directory.find(service_id, local)
        } else {
            // A REJ by somebody who was never told an id of ours: any process's, upwards, so that it ends.
            (own.value().saturating_add(1)..=LAST_SLOT).map(ProcessIndex::new).collect()
        };
        processes.retain(|process| *process != own);
        processes
    }

    /// Timers that are due.
    pub(crate) fn expire(&mut self, now_ns: u64, port: &mut dyn Port) {
        self.look_after_peers(now_ns, port);
        let early = self.early.due(now_ns);
        let looks = !early.is_empty();
        for (until_ns, inbound) in early {
            self.read(inbound, until_ns, now_ns, port);
        }
        let due = self.cm.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns);
        if due {
            // One call sends so much and no more; what stays due comes in the next round.
            self.cm.handle_timeout(now_ns);
        }
        if looks || due {
            self.deliver_and_watch(now_ns, port);
        }
    }

    /// Sends what waits. False: the port has no more room.
    pub(crate) fn send_mail(&mut self, gids: &GidTable, sink: &mut dyn MailSink) -> bool {
        while let Some(out) = self.held_back.take().or_else(|| self.cm.poll_transmit()) {
            let Some(path) = path(&out, gids) else {
                sink.count(Counter::TxDropped);
                continue;
            };
            // A train goes to one process: which one, the communication id says here.
            let destination = Qpn::of(recipient(&out.mad), Qpn::GSI.index());
            let Some(packet) = sink.begin(&path, destination, PACKET_BYTES) else {
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

    /// Moves a listener, and the requests that wait, to another channel. False: there is none.
    pub(crate) fn migrate_listener(&mut self, listener: ListenerId, channel: &Arc<CmChannel>) -> bool {
        let Some(old) = self.listeners.get_mut(&listener).map(|at| mem::replace(at, Arc::clone(channel)))
        else {
            return false;
        };
        if !Arc::ptr_eq(&old, channel) {
            for request in old.take_requests(listener) {
                let id = request.id();
                channel.push(request);
                self.migrate(id, channel);
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

    /// The adapter is being closed: peers are told. Send, and call again while this is true.
    pub(crate) fn close(&mut self, now_ns: u64, port: &mut dyn Port) -> bool {
        self.unbind_all(now_ns, port);
        let waits = self.cm.hurry(now_ns);
        let some: Vec<CommId> = self.cm.ids().take(Cm::TIMEOUTS_PER_CALL).collect();
        for id in &some {
            let _ = self.cm.destroy(*id, now_ns);
            self.detach(*id);
        }
        waits || !some.is_empty()
    }
}

/// Where MADs are sent: the train builder, which also counts.
pub(crate) trait MailSink: Transmit {
    fn count(&mut self, counter: Counter);
}

/// Forwards to the first process that there is.
fn forward(processes: &[ProcessIndex], inbound: &Inbound, port: &mut dyn Port) -> (Forwarded, ProcessIndex) {
    let nobody = (Forwarded::Nobody, ProcessIndex::default());
    let Some(group) = port.group() else { return nobody };
    let received = inbound.received();
    let tried = processes.iter().map(|process| (group.try_forward(*process, &received), *process));
    tried.into_iter().find(|(outcome, _)| *outcome != Forwarded::Nobody).unwrap_or(nobody)
}

/// The process that an outgoing MAD is for; 0 if the MAD names none.
fn recipient(mad: &[u8; MAD_BYTES]) -> ProcessIndex {
    let message = Mad::parse(mad).ok().and_then(|mad| CmMessage::parse(&mad).ok());
    ProcessIndex::new(message.and_then(|message| message.recipient()).map_or(0, CommId::slot))
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
