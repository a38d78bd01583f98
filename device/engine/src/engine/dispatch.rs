//! The distribution of received batches to their queue pairs.

use std::iter::Enumerate;
use std::slice::Chunks;

use pumice_fabric::gsi::{self, Gsi};
use pumice_fabric::xrc::{SharedTargets, Unavailable};
use pumice_memory::MappingCheck;
use pumice_model::port::batch::ReceivedBatch;
use pumice_transport::host::{Counter, QpContext};
use pumice_transport::qp::{Arrival, may_arrive_by_lane};
use pumice_transport::types::{Cause, DropReason, Gid, PostError};
use pumice_transport::wire::{IcrcVerdict, Packet, PacketError, ProcessIndex, Qpn, icrc, peek};

use super::cached_deadline::CachedDeadline;
use super::mrc::MrcTable;
use super::queue_pairs::{Entries, QueuePairs};
use super::schedule::Ready;
use crate::resources::{MappingCheckPolicy, Resources};

/// The packets of a batch, each with its position.
type Segments<'a> = Enumerate<Chunks<'a, u8>>;

/// The receivers of packets: queue pairs, shared targets and the connection manager.
pub(crate) struct PacketReceivers<'a> {
    pub(crate) entries: Entries<'a>,
    pub(crate) mrc: &'a mut MrcTable,
    pub(crate) resources: &'a mut Resources,
    pub(crate) targets: &'a mut SharedTargets,
    pub(crate) touched: &'a mut Ready,
    pub(crate) management: &'a mut CachedDeadline<Gsi>,
    /// The policy by which copies check whether memory is mapped.
    pub(crate) checks: MappingCheckPolicy,
}

impl PacketReceivers<'_> {
    /// Passes every packet of a batch to its queue pair, or drops and counts it.
    // As a call of its own it would save and restore the registers of its one caller for each packet.
    #[inline(always)]
    pub(crate) fn receive(&mut self, now_ns: u64, received: &ReceivedBatch<'_>) {
        self.receive_from(now_ns, received, 0);
    }

    /// Passes on the packets of a batch whose first packet has the index `first` in the batch that came.
    #[inline(always)]
    pub(crate) fn receive_from(&mut self, now_ns: u64, received: &ReceivedBatch<'_>, first: usize) {
        let ReceivedBatch { flow, traffic_class, hop_limit, .. } = received;
        let arrival = Arrival { flow, traffic_class: *traffic_class, hop_limit: *hop_limit };
        let mut last_index = u32::MAX;
        let mut segments = received.bytes.chunks(received.segment_bytes.max(1)).enumerate();
        // A message, or one with an acknowledgement, is the usual batch: there is nothing to divide.
        let packets = match received.segment_bytes {
            segment_bytes if received.bytes.len() <= segment_bytes => 1,
            segment_bytes if received.bytes.len() <= 2 * segment_bytes => 2,
            _ => segments.len() as u64,
        };
        self.resources.listeners.batch_time.end();
        let takes_lanes = self.resources.admits_lanes();
        while let Some((position, bytes)) = segments.next() {
            let is_intact =
                takes_lanes && may_arrive_by_lane(bytes) && is_intact(received, first + position, bytes);
            if is_intact && let Some(index) = self.receive_by_lane(now_ns, &arrival, bytes) {
                if index != last_index {
                    self.touched.push(index);
                    last_index = index;
                }
                continue;
            }
            let parsed = Packet::parse(bytes);
            let packet = match &parsed {
                Ok(packet) => packet,
                Err(error) => {
                    let came = (received, first + position, bytes);
                    let PacketReceivers { mrc, resources, checks, touched, .. } = &mut *self;
                    if !mrc.receive(now_ns, came, resources, *checks, touched) {
                        resources.drop_packet(malformed(*error), flow.source, None);
                    }
                    continue;
                }
            };
            if !is_intact && let Err(reason) = check_icrc(received, first + position, bytes, self.resources) {
                self.resources.drop_packet(reason, flow.source, None);
                continue;
            }
            match packet.bth().destination {
                //= linux:rxe_recv.c#rxe_rcv
                //| A packet for the queue pair 0xFFFFFF goes to the members of its group.
                Qpn::MULTICAST => self.deliver_to_group(now_ns, &arrival, packet, bytes.len()),
                Qpn::GSI => self.deliver_to_management(received, packet),
                destination => {
                    let Some(index) = self.find(destination, packet) else {
                        self.drop_unknown(&arrival, packet);
                        continue;
                    };
                    let head = FirstPacket { received, packet, bytes };
                    let delivered = self.deliver(now_ns, &arrival, index, &head, &mut segments);
                    if delivered && index != last_index {
                        self.touched.push(index);
                        last_index = index;
                    }
                }
            }
        }
        self.resources.count(Counter::RxBatches, 1);
        self.resources.count(Counter::RxPackets, packets);
        self.resources.count(Counter::RxBytes, received.bytes.len() as u64);
    }

    /// Reports whether a request is the one that its queue pair waits for; false for queue pairs that
    /// processes share.
    pub(crate) fn expects(&mut self, qpn: Qpn, packet: &Packet<'_>) -> bool {
        let entry = self.entries.queue_pairs.by_number(qpn).map(|(_, entry)| entry);
        entry.is_some_and(|entry| !entry.sharing.is_shared() && entry.qp.expects(packet))
    }

    /// Returns the index of the queue pair with this number. The first packet for a target that another
    /// process created finds the target in its domain.
    #[inline]
    fn find(&mut self, qpn: Qpn, packet: &Packet<'_>) -> Option<u32> {
        let known = self.entries.queue_pairs.by_number(qpn).map(|(index, _)| index);
        if known.is_none() && packet.info().service.names_srq() && self.resources.objects.xrc.shares() {
            return self.targets.find(
                qpn,
                &mut self.entries,
                &mut self.resources.host(MappingCheck::Assumed),
            );
        }
        known
    }

    /// Passes a packet to its queue pair. Returns false if another process gets it.
    // The function is inlined for the same reason as `receive`.
    #[inline(always)]
    fn deliver(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        index: u32,
        first: &FirstPacket<'_, '_>,
        rest: &mut Segments<'_>,
    ) -> bool {
        let Some(entry) = self.entries.queue_pairs.at_mut(index) else { return false };
        if entry.sharing.is_shared()
            && let Some(xrceth) = first.packet.xrceth()
        {
            return self.deliver_run(now_ns, arrival, index, ProcessIndex::of_srqn(xrceth.srqn), first, rest);
        }
        if entry.takes_at != 0 && !self.resources.is_addressed_to_port(entry.takes_at, arrival, first.packet)
        {
            return true;
        }
        entry.traffic.received(first.bytes.len());
        self.resources.handles_packet_of(Some(entry.qp.context()));
        let mut host = self.resources.host(self.checks.of_arrivals(&entry.qp));
        entry.qp.handle_packet(now_ns, arrival, first.packet, &mut host);
        self.resources.handles_packet_of(None);
        if first.packet.info().service.is_sent_once() {
            self.resources.note_receives(entry.qp.context());
        }
        true
    }

    /// Passes on a packet for a queue pair that processes share, and those that follow for the same SRQ, with
    /// any content: the process that owns the SRQ executes them, under one lock. Returns false if that is
    /// another process.
    fn deliver_run(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        index: u32,
        owner: ProcessIndex,
        first: &FirstPacket<'_, '_>,
        rest: &mut Segments<'_>,
    ) -> bool {
        let PacketReceivers { entries, resources, targets, checks, .. } = self;
        let Some(entry) = entries.queue_pairs.at_mut(index) else { return false };
        let FirstPacket { received, packet, bytes } = *first;
        if entry.sharing.is_executed_by(owner) {
            targets.forward(owner, received, bytes);
            while let Some((_, next)) = next_of_run(bytes, rest) {
                targets.forward(owner, received, next);
            }
            return false;
        }
        entry.traffic.received(bytes.len());
        // The effect of the packet is in the shared record when it has been handled.
        resources.drain_stores();
        let mut host = resources.host(checks.of_connections());
        let executed = entry.with(&mut host, |qp, host| {
            qp.handle_packet(now_ns, arrival, packet, host);
            while let Some((position, next)) = next_of_run(bytes, rest) {
                match check(received, position, next, host) {
                    Ok(packet) => qp.handle_packet(now_ns, arrival, &packet, host),
                    Err(reason) => host.drop_packet(reason, arrival.flow.source, None),
                }
            }
        });
        match executed {
            Ok(()) => {}
            Err(Unavailable::Busy) => {
                resources.drop_packet(Counter::RxMessageDropped, arrival.flow.source, Some(packet));
            }
            Err(Unavailable::Removed) => {
                targets.note_ended(packet.bth().destination);
                resources.drop_packet(Counter::RxUnknownQpn, arrival.flow.source, Some(packet));
            }
        }
        true
    }

    /// Passes on a packet for queue pair 1, which waits until the port is free.
    fn deliver_to_management(&mut self, received: &ReceivedBatch<'_>, packet: &Packet<'_>) {
        match gsi::inbound(received, packet) {
            Ok(inbound) => self.management.accept(inbound),
            Err(reason) => self.resources.drop_packet(reason, received.flow.source, Some(packet)),
        }
    }

    /// Passes one copy to each queue pair attached to the group.
    fn deliver_to_group(
        &mut self,
        now_ns: u64,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        arrival_bytes: usize,
    ) {
        let resources = &mut *self.resources;
        if !packet.info().service.is_datagram() {
            resources.drop_packet(Counter::RxWrongService, arrival.flow.source, Some(packet));
            return;
        }
        let group = Gid::from(arrival.flow.destination);
        let members = resources.port.groups.members(group).to_vec();
        if members.is_empty() {
            //= linux:rxe_recv.c#rxe_rcv_mcast_pkt
            //| A packet for a group without members is dropped.
            resources.drop_packet(Counter::RxUnknownGroup, arrival.flow.source, Some(packet));
            return;
        }
        let sender = packet.deth().map(|deth| deth.source);
        let is_ours = resources.port.ports.number_of(arrival.flow.source).is_some();
        //= statement:42
        //| Each queue pair of a group gets one copy of a datagram.
        for qpn in members {
            if is_ours && sender == Some(qpn) && !resources.port.groups.has_loopback(qpn) {
                continue;
            }
            if let Some((index, entry)) = self.entries.queue_pairs.by_number(qpn) {
                entry.traffic.received(arrival_bytes);
                let mut host = resources.host(self.checks.of_arrivals(&entry.qp));
                entry.qp.handle_packet(now_ns, arrival, packet, &mut host);
                self.touched.push(index);
            }
        }
    }

    /// Counts a packet for a queue pair that does not exist here, and logs it if it is a request.
    #[cold]
    fn drop_unknown(&mut self, arrival: &Arrival<'_>, packet: &Packet<'_>) {
        //= statement:8
        //| A packet for an unknown queue pair gets no answer.
        self.resources.drop_packet(Counter::RxUnknownQpn, arrival.flow.source, Some(packet));
        let (qpn, opcode, psn) = (packet.bth().destination, packet.bth().opcode, packet.bth().psn);
        if !packet.info().is_request {
            return;
        }
        let (process, own) = (qpn.process(), self.resources.process());
        let reason = if process.is_of_process() && own.is_of_process() && process != own {
            DropReason::NoProcess
        } else {
            DropReason::UnknownQpn { destroyed: self.entries.queue_pairs.was_destroyed(qpn) }
        };
        let context = QpContext {
            qpn,
            pd: 0,
            send_cq: 0,
            recv_cq: 0,
            recv_queue: 0,
            xrcd: 0,
            ordinal: u32::MAX,
            out_of_order: false,
        };
        let cause = Cause::PacketDropped { source: arrival.flow.source, opcode, psn, reason };
        self.resources.log(&context, cause);
    }
}

impl QueuePairs {
    /// Posts the requests of the device itself that are due, of queue pairs whose shared receive queue
    /// matches tags. A request for which its queue pair has no room stays due.
    #[cold]
    pub(super) fn post_device_requests(&mut self, resources: &mut Resources, touched: &mut Ready) {
        resources.rendezvous.is_due = false;
        let mut from = 0;
        while let Some((next, request)) = resources.device_request(from) {
            from = next;
            let Some((index, entry)) = self.by_number(request.qpn) else { continue };
            let posted = entry.qp.post_send(&request.request(), &mut resources.host(MappingCheck::Assumed));
            match posted {
                Ok(()) => {
                    resources.device_request_posted(&request);
                    touched.push(index);
                }
                Err(PostError::QueueFull { .. }) => continue,
                Err(_) => resources.device_request_refused(entry.qp.context(), &request),
            }
            // The list has become shorter.
            from = 0;
        }
    }
}

/// The first packet of a run: checked, and as it came.
#[derive(Clone, Copy)]
struct FirstPacket<'a, 'p> {
    received: &'a ReceivedBatch<'a>,
    packet: &'a Packet<'p>,
    bytes: &'a [u8],
}

/// Takes the next packet of a batch if it is for the same SRQ of the same queue pair as the first one.
fn next_of_run<'a>(first: &[u8], rest: &mut Segments<'a>) -> Option<(usize, &'a [u8])> {
    let next = rest.clone().next().filter(|(_, next)| peek::is_for_same_srq(first, next))?;
    rest.next();
    Some(next)
}

/// Checks the form and the ICRC of a packet, as [`check_icrc`].
fn check<'a>(
    received: &ReceivedBatch<'_>,
    position: usize,
    bytes: &'a [u8],
    resources: &mut Resources,
) -> Result<Packet<'a>, Counter> {
    let packet = Packet::parse(bytes).map_err(malformed)?;
    check_icrc(received, position, bytes, resources).map(|()| packet)
}

/// Returns the counter of packets with this error in their form.
#[cold]
fn malformed(error: PacketError) -> Counter {
    match error {
        PacketError::TooShort => Counter::RxTooShort,
        PacketError::BadVersion => Counter::RxBadVersion,
        PacketError::UnknownOpcode => Counter::RxBadOpcode,
        PacketError::BadPad => Counter::RxBadPad,
        PacketError::BadLength => Counter::RxBadLength,
    }
}

/// Reports whether the ICRC of a packet is the one that its position in the batch leads to, or the medium has
/// none.
#[inline]
fn is_intact(received: &ReceivedBatch<'_>, position: usize, bytes: &[u8]) -> bool {
    !received.has_icrc || icrc::verify(&received.flow, position as u16, bytes) == IcrcVerdict::Exact
}

/// Checks the ICRC, where the medium has one. The position in the batch is the IP ID that its sender's
/// segmentation gave the packet.
#[inline]
fn check_icrc(
    received: &ReceivedBatch<'_>,
    position: usize,
    bytes: &[u8],
    resources: &mut Resources,
) -> Result<(), Counter> {
    if !received.has_icrc {
        return Ok(());
    }
    match icrc::verify(&received.flow, position as u16, bytes) {
        IcrcVerdict::Exact => {}
        IcrcVerdict::Recovered { .. } => resources.count(Counter::RxIcrcRecovered, 1),
        //= statement:2
        //| A packet with a wrong ICRC is dropped, and no NAK answers it.
        IcrcVerdict::Bad => return Err(Counter::RxBadIcrc),
    }
    Ok(())
}
