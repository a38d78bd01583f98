//! From a received train to the queue pairs it is for.

use pumice_transport::host::{Counter, Host, QpContext};
use pumice_transport::qp::{Arrival, QueuePair};
use pumice_transport::types::{Cause, DropReason, Gid};
use pumice_transport::wire::{Packet, PacketError, ProcessIndex, Qpn, Service, Verdict, icrc, peek};

use super::queue_pairs::QueuePairs;
use super::schedule::Ready;
use super::targets::{self, Targets, Unavailable};
use crate::gsi::{self, Gsi};
use crate::port::Received;
use crate::resources::Resources;

/// Hands every packet of a train to its queue pair, or drops and counts it.
pub(crate) fn receive(
    now_ns: u64,
    received: &Received<'_>,
    queue_pairs: &mut QueuePairs,
    resources: &mut Resources,
    touched: &mut Ready,
    targets: &mut Targets,
    management: &mut Gsi,
) {
    let arrival = Arrival {
        flow: &received.flow,
        traffic_class: received.traffic_class,
        hop_limit: received.hop_limit,
    };
    let mut last_index = u32::MAX;
    let mut segments = received.bytes.chunks(received.segment_bytes.max(1)).enumerate();
    let packets = segments.len() as u64;
    while let Some((position, bytes)) = segments.next() {
        let packet = match check(received, position, bytes, resources) {
            Ok(packet) => packet,
            Err(counter) => {
                resources.count(counter, 1);
                continue;
            }
        };
        let destination = packet.bth().destination;
        if destination == Qpn::MULTICAST {
            multicast(now_ns, &arrival, &packet, queue_pairs, resources, touched);
            continue;
        }
        if destination == Qpn::GSI {
            match gsi::inbound(received, &packet) {
                Ok(inbound) => management.accept(inbound),
                Err(counter) => resources.count(counter, 1),
            }
            continue;
        }
        let mut found = queue_pairs.by_number(destination).map(|(index, _)| index);
        if found.is_none() && packet.info().service == Service::Xrc && resources.xrc.shares() {
            found = targets::find(destination, queue_pairs, resources);
        }
        let Some((index, entry)) = found.and_then(|index| Some((index, queue_pairs.at_mut(index)?))) else {
            resources.count(Counter::RxUnknownQpn, 1);
            unknown(&arrival, &packet, queue_pairs, resources);
            continue;
        };
        if let (Some(shared), Some(xrceth)) = (&entry.shared, packet.xrceth()) {
            let owner = ProcessIndex::of_srqn(xrceth.srqn).value();
            if let Some(file) = resources.xrc.shared(shared.domain())
                && owner != file.slot()
                && file.is_open_in(owner)
            {
                // The run of packets for the same SRQ goes with it, whatever is in them.
                targets.forward(owner, received, bytes);
                while let Some((_, next)) =
                    segments.clone().next().filter(|(_, next)| peek::is_for_same_srq(bytes, next))
                {
                    targets.forward(owner, received, next);
                    segments.next();
                }
                continue;
            }
            let rest = &mut segments;
            let outcome = targets::run(entry, resources, |qp, resources| {
                qp.handle_packet(now_ns, &arrival, &packet, resources);
                // One lock for all that follow for the same SRQ.
                while let Some((position, next)) =
                    rest.clone().next().filter(|(_, next)| peek::is_for_same_srq(bytes, next))
                {
                    rest.next();
                    match check(received, position, next, resources) {
                        Ok(packet) => qp.handle_packet(now_ns, &arrival, &packet, resources),
                        Err(counter) => resources.count(counter, 1),
                    }
                }
            });
            match outcome {
                Ok(()) => {}
                Err(Unavailable::Busy) => resources.count(Counter::RxMessageDropped, 1),
                Err(Unavailable::Gone) => {
                    targets.note_gone(destination);
                    resources.count(Counter::RxUnknownQpn, 1);
                }
            }
        } else {
            deliver(now_ns, &arrival, &packet, &mut entry.qp, resources);
            if matches!(packet.info().service, Service::Uc | Service::Ud) {
                resources.note_receives(entry.qp.context());
            }
        }
        if index != last_index {
            touched.push(index);
            last_index = index;
        }
    }
    resources.count(Counter::RxTrains, 1);
    resources.count(Counter::RxPackets, packets);
    resources.count(Counter::RxBytes, received.bytes.len() as u64);
}

/// Says that a request is for a queue pair that is not here.
#[cold]
fn unknown(arrival: &Arrival<'_>, packet: &Packet<'_>, queue_pairs: &QueuePairs, resources: &mut Resources) {
    let (qpn, opcode, psn) = (packet.bth().destination, packet.bth().opcode, packet.bth().psn);
    if !packet.info().is_request {
        return;
    }
    let reason = DropReason::UnknownQpn { destroyed: queue_pairs.was_destroyed(qpn) };
    let context = QpContext { qpn, pd: 0, send_cq: 0, recv_cq: 0, recv_queue: 0, xrcd: 0, ordinal: u32::MAX };
    resources.log(&context, Cause::PacketDropped { source: arrival.flow.source, opcode, psn, reason });
}

/// Hands a packet to its queue pair, with no more trust in the memory of its receives than there is.
fn deliver(
    now_ns: u64,
    arrival: &Arrival<'_>,
    packet: &Packet<'_>,
    qp: &mut QueuePair,
    resources: &mut Resources,
) {
    let wary = qp.qp_type().is_datagram() && !resources.trusts_receives_of(qp.context());
    if wary {
        resources.set_wary(true);
    }
    qp.handle_packet(now_ns, arrival, packet, resources);
    if wary {
        resources.set_wary(false);
    }
}

/// Form and ICRC. The position in the train is the IP ID that its sender's segmentation gave it.
fn check<'a>(
    received: &Received<'_>,
    position: usize,
    bytes: &'a [u8],
    resources: &mut Resources,
) -> Result<Packet<'a>, Counter> {
    let packet = Packet::parse(bytes).map_err(|error| match error {
        PacketError::TooShort => Counter::RxTooShort,
        PacketError::BadVersion => Counter::RxBadVersion,
        PacketError::UnknownOpcode => Counter::RxBadOpcode,
        PacketError::BadPad => Counter::RxBadPad,
        PacketError::BadLength => Counter::RxBadLength,
    })?;
    match icrc::verify(&received.flow, position as u16, bytes) {
        Verdict::Exact => {}
        Verdict::Recovered { .. } => resources.count(Counter::RxIcrcRecovered, 1),
        Verdict::Bad => return Err(Counter::RxBadIcrc),
    }
    Ok(packet)
}

/// One copy for each queue pair attached to the group.
fn multicast(
    now_ns: u64,
    arrival: &Arrival<'_>,
    packet: &Packet<'_>,
    queue_pairs: &mut QueuePairs,
    resources: &mut Resources,
    touched: &mut Ready,
) {
    if packet.info().service != Service::Ud {
        resources.count(Counter::RxWrongService, 1);
        return;
    }
    let group = Gid::from(arrival.flow.destination);
    let members = resources.groups.members(group).to_vec();
    if members.is_empty() {
        resources.count(Counter::RxUnknownGroup, 1);
        return;
    }
    let sender = packet.deth().map(|deth| deth.source);
    let is_ours = resources.gids.iter().any(|(_, entry)| entry.ip == arrival.flow.source);
    for qpn in members {
        if is_ours && sender == Some(qpn) && !resources.groups.hears_itself(qpn) {
            continue;
        }
        if let Some((index, entry)) = queue_pairs.by_number(qpn) {
            deliver(now_ns, arrival, packet, &mut entry.qp, resources);
            touched.push(index);
        }
    }
}
