//! Queue pair 1's turns in the engine: MADs in, MADs out, timers.

use std::mem;
use std::net::IpAddr;
use std::sync::Arc;

use pumice_faults::Arbiter;
use pumice_model::addresses::{Ports, address_handle};
use pumice_model::event::{Event, Topics};
use pumice_model::fates::fired::RejData;
use pumice_model::port::Port;
use pumice_transport::cm::{Cm, MadOut};
use pumice_transport::host::{Counter, Transmit};
use pumice_transport::mad::{
    CmMessage, CommId, MAD_BYTES, Mad, MadHeader, PrivateData, Rej, RejectReason, Rejected, Req,
};
use pumice_transport::path::Path;
use pumice_transport::types::{AddressVector, Gid};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::agent::Gsi;
use super::detained::forward;
use super::early::EarlyRequests;
use super::envelope::{self, InboundMad, PACKET_BYTES};
use pumice_model::port::group::ForwardOutcome;

impl Gsi {
    /// Handles the MADs that were received: those of this process, and those that no process owns.
    pub fn read_mads(&mut self, now_ns: u64, port: &mut dyn Port) {
        for inbound in self.in_order() {
            self.read(inbound, EarlyRequests::patience_ends_ns(now_ns), now_ns, port);
        }
        self.deliver_and_watch(now_ns, port);
    }

    /// Takes the MADs that were received, those of connections first. A request comes by another way, and may
    /// have overtaken them.
    pub fn in_order(&mut self) -> Vec<InboundMad> {
        let mut inbox = mem::take(&mut self.inbox);
        inbox.sort_by_key(InboundMad::names_no_connection);
        inbox
    }

    /// Delivers events to the consumers, and watches the peers of connections that this began.
    fn deliver_and_watch(&mut self, now_ns: u64, port: &mut dyn Port) {
        self.deliver(now_ns);
        for id in mem::take(&mut self.fresh) {
            self.watch(id, now_ns, port);
        }
    }

    /// Watches the process of an established connection's peer from now on, if it is on this host.
    pub fn watch(&mut self, id: CommId, now_ns: u64, port: &mut dyn Port) {
        self.peers.watch(id, &self.cm, now_ns, port);
    }

    /// Handles a MAD. A request may wait for its listener until `until_ns`.
    fn read(&mut self, inbound: InboundMad, until_ns: u64, now_ns: u64, port: &mut dyn Port) {
        let others = self.others(&inbound, port);
        if let Some(process) = others.iter().find(|process| self.outbound.detained.is_waiting(**process)) {
            return self.outbound.detained.hold(*process, inbound, now_ns);
        }
        match forward(&others, &inbound, port) {
            (ForwardOutcome::Done, _) => {}
            (ForwardOutcome::Full, process) => self.outbound.detained.hold(process, inbound, now_ns),
            // The request is for another device: no process has bound it.
            (ForwardOutcome::NoProcess, _) if self.is_of_another(&inbound) => {}
            (ForwardOutcome::NoProcess, _) => {
                let refused = if self.is_early(&inbound) {
                    self.early.hold(inbound, until_ns, now_ns)
                } else {
                    Some(inbound)
                };
                if let Some(inbound) = refused {
                    if let Some(message) = self.decode_for_subscribers(inbound.mad()) {
                        self.subscribers.emit(&Event::CmReceived { message: &message });
                    }
                    // The connection manager has answered what it does not understand.
                    let _ = self.cm.handle_mad(&inbound.route(), inbound.mad(), now_ns);
                }
            }
        }
    }

    /// Reports whether it is a request to an address that is not the device's.
    fn is_of_another(&self, inbound: &InboundMad) -> bool {
        let message = inbound.message();
        let requested = message.and_then(|message| Cm::requested_address(&inbound.route(), &message));
        requested.is_some_and(|local| !self.is_own(local))
    }

    /// Reports whether it is a new request, and this process does not listen for it.
    fn is_early(&self, inbound: &InboundMad) -> bool {
        let message = inbound.message();
        let route = inbound.route();
        message.is_some_and(|message| {
            let requested = message.service().zip(Cm::requested_address(&route, &message));
            requested.is_some_and(|(service_id, local)| !self.cm.serves(service_id, local))
                && !self.cm.recognises(&route, &message)
        })
    }

    /// Forwards the MADs that other processes had no room for.
    pub fn forward_detained(&mut self, now_ns: u64, port: &mut dyn Port) {
        self.outbound.detained.forward(now_ns, port);
    }

    /// Returns other processes that a MAD may be for.
    fn others(&self, inbound: &InboundMad, port: &mut dyn Port) -> Vec<ProcessIndex> {
        let Some(directory) = port.group().and_then(|group| group.services()) else { return Vec::new() };
        let Some(message) = inbound.message() else { return Vec::new() };
        let (route, own) = (inbound.route(), self.process);
        if self.cm.recognises(&route, &message) {
            return Vec::new();
        }
        let mut processes = if let Some(id) = message.recipient() {
            vec![id.process()]
        } else if let Some((service_id, local)) =
            message.service().zip(Cm::requested_address(&route, &message))
        {
            if self.is_own(local) && self.cm.serves(service_id, local) {
                return Vec::new();
            }
            directory.find(service_id, local)
        } else {
            // A REJ by a peer that never got an id of this side may be for any process: forwarding goes
            // upwards, so that it ends.
            ProcessIndex::all().filter(|process| *process > own).collect()
        };
        processes.retain(|process| *process != own);
        processes
    }

    /// Handles timers that are due.
    pub fn expire(&mut self, now_ns: u64, port: &mut dyn Port) {
        if self.peers.look(now_ns, &mut self.cm, port) {
            self.deliver(now_ns);
        }
        let early = self.early.due(now_ns);
        let looks = !early.is_empty();
        for (until_ns, inbound) in early {
            self.read(inbound, until_ns, now_ns, port);
        }
        let due = self.cm.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns);
        if due {
            // One call sends a bounded number of messages; what stays due comes in the next round.
            self.cm.handle_timeout(now_ns);
        }
        if looks || due {
            self.deliver_and_watch(now_ns, port);
        }
    }

    /// Returns the message in a MAD, if a subscriber listens to messages.
    fn decode_for_subscribers(&self, mad: &[u8]) -> Option<CmMessage> {
        let listens = self.subscribers.listen(Topics::CM);
        listens.then(|| message_of(mad)).flatten()
    }

    /// Sends the MADs that wait, with the fates that the arbiter decides. Returns false if the port has no
    /// more room.
    pub fn send_mads(
        &mut self,
        ports: &Ports,
        mut arbiter: Option<&mut dyn Arbiter>,
        sink: &mut dyn MadSink,
    ) -> bool {
        while let Some(out) = self.outbound.held_back.take().or_else(|| self.cm.poll_transmit()) {
            let Some(path) = path(&out, ports).map(Arc::new) else {
                sink.count(Counter::TxDropped);
                continue;
            };
            // A batch goes to one process, which the communication id names.
            let destination = Qpn::of(recipient(&out.mad), Qpn::GSI.index());
            let Some(packet) = sink.begin(&path, destination, PACKET_BYTES) else {
                self.outbound.held_back = Some(out);
                return false;
            };
            envelope::emit(&out.mad, self.outbound.next_psn, packet);
            sink.seal();
            if let Some(message) = self.decode_for_subscribers(&out.mad) {
                self.subscribers.emit(&Event::CmSent { message: &message });
            }
            if let Some(arbiter) = &mut arbiter {
                self.apply_fate(&out, (path.flow.source, path.flow.destination), *arbiter, sink);
            }
            self.outbound.next_psn = self.outbound.next_psn.wrapping_add(1);
        }
        true
    }
}

impl Gsi {
    /// Applies the fate that the arbiter decides to the MAD that was sealed last.
    fn apply_fate(
        &mut self,
        out: &MadOut,
        ends: (IpAddr, IpAddr),
        arbiter: &mut dyn Arbiter,
        sink: &mut dyn MadSink,
    ) {
        let Some(message) = message_of(&out.mad) else { return };
        let size = (PACKET_BYTES as u32, MAD_BYTES as u32);
        let subscribers = &self.subscribers;
        let fate = arbiter.message(ends, &message, size, &mut |fault| {
            subscribers.emit(&Event::FaultApplied { fault, qpn: None });
        });
        if !fate.is_ordinary() {
            sink.apply_fate(fate.of_packet());
        }
        if let (Some(reason), CmMessage::Req(req)) = (fate.rejected, &message) {
            let private_data_of_rejection = arbiter.rejection();
            self.reject_in_peers_name(
                out,
                req,
                (RejectReason(reason), private_data_of_rejection),
                arbiter.clock().now_ns(),
            );
        }
        if fate.unanswered {
            self.leave_unanswered(&message, arbiter.clock().now_ns());
        }
    }

    /// Answers a request for a connection by a REJ as if from its peer.
    #[cold]
    fn reject_in_peers_name(
        &mut self,
        out: &MadOut,
        req: &Req,
        (reason, private_data): (RejectReason, RejData),
        now_ns: u64,
    ) {
        let rej = Rej {
            local_id: CommId::NONE,
            remote_id: req.local_id,
            rejected: Rejected::Req,
            info_length: 0,
            reason,
            info: PrivateData::default(),
            private_data,
        };
        let message = CmMessage::Rej(rej);
        let transaction = MadHeader::parse(&out.mad).map_or(0, |header| header.transaction);
        self.subscribers.emit(&Event::CmReceived { message: &message });
        // If the REJ changes nothing, the request is lost, and comes again.
        let _ = self.cm.handle_mad(&out.route, &message.emit(transaction), now_ns);
        self.deliver(now_ns);
    }

    /// Ends the wait of a connection-management request for its answer, and notifies its sender now.
    #[cold]
    fn leave_unanswered(&mut self, message: &CmMessage, now_ns: u64) {
        let id = match message {
            CmMessage::Req(req) => req.local_id,
            CmMessage::SidrReq(req) => req.request_id,
            _ => return,
        };
        self.cm.abandon(id, now_ns);
        self.deliver(now_ns);
    }

    /// Ends the established connection with this queue pair of this address. Returns false if there is none.
    #[cold]
    pub fn disconnect_from(&mut self, address: IpAddr, peer: Qpn, now_ns: u64) -> bool {
        let is_it = |id: &CommId| {
            let parameters = self.cm.qp_parameters(*id);
            parameters.is_some_and(|qp| qp.dest_qpn == peer && qp.remote == Gid::from(address))
        };
        let Some(id) = self.cm.established().find(is_it) else { return false };
        let done = self.cm.disconnect(id, &[], now_ns).is_ok();
        self.deliver(now_ns);
        done
    }
}

/// Returns the message of connection management in a MAD.
fn message_of(mad: &[u8]) -> Option<CmMessage> {
    CmMessage::parse(&Mad::parse(mad).ok()?).ok()
}

/// The destination of MADs: the batch builder, which also counts.
pub trait MadSink: Transmit {
    #[doc(hidden)]
    fn count(&mut self, counter: Counter);
}

/// Returns the process that an outgoing MAD is for; 0 if the MAD names none.
fn recipient(mad: &[u8; MAD_BYTES]) -> ProcessIndex {
    let message = message_of(mad);
    message.and_then(|message| message.recipient()).map_or(ProcessIndex::NONE, CommId::process)
}

/// Returns the path of a MAD; `None` when its source is no address of the adapter any more.
fn path(out: &MadOut, ports: &Ports) -> Option<Path> {
    let route = &out.route;
    let (port_num, sgid_index) = ports.find(route.local)?;
    let vector = AddressVector {
        is_global: true,
        dgid: route.remote,
        sgid_index,
        hop_limit: route.hop_limit,
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        port_num,
        ..AddressVector::default()
    };
    address_handle::resolve(&vector, ports).ok()
}
