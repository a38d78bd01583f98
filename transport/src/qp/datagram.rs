//! The receiving side of UD (and GSI): one packet per message.

use core::net::IpAddr;

use super::Arrival;
use super::inbound::{BufferFailure, Inbound, InboundFault};
use super::settings::QpSettings;
use crate::event::QpEvent;
use crate::host::{Counter, Host};
use crate::path::Flow;
use crate::types::{Cause, FailureDetail, WcFlags, WcOpcode, WcStatus};
use crate::wire::{Packet, grh};

/// Length in bytes of the area in front of every datagram's payload in the receive buffer.
//= man:ibv_post_recv
//| The first 40 bytes of the receive buffers of a datagram are for the GRH.
pub const GRH_BYTES: usize = 40;

/// Text for a datagram without a receive request that its own queue pair has sent.
const FROM_ITSELF: &str = "no receive request is posted, and this queue pair has sent it itself: is \
    remote_qpn the number of the receiver?";

/// Handles a datagram for this queue pair.
///
/// # Errors
/// Fails if the receive request in use cannot hold the datagram: it has been taken, not completed.
pub(crate) fn handle_datagram<H: Host>(
    settings: &QpSettings,
    arrival: &Arrival<'_>,
    packet: &Packet<'_>,
    inbound: &mut Inbound,
    host: &mut H,
) -> Result<(), BufferFailure> {
    let Some(deth) = packet.deth() else {
        host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxWrongService));
        return Ok(());
    };
    //= statement:41
    //| A datagram with a wrong Q_Key is dropped and counted.
    if deth.qkey != settings.qkey {
        host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxBadQkey));
        let (source, given, expected) = (deth.source, deth.qkey, settings.qkey);
        host.log(&settings.context, Cause::WrongQkey { source, given, expected });
        return Ok(());
    }
    if let Err(fault) = inbound.take_recv(settings, packet, host) {
        //= linux:rxe_resp.c#check_resource
        //| A datagram without a receive request is dropped.
        host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxNoReceive));
        let psn = packet.bth().psn;
        let is_own = deth.source == settings.context.qpn && arrival.flow.source == arrival.flow.destination;
        let reason = if is_own { FROM_ITSELF } else { fault.reason() };
        host.log(&settings.context, Cause::MessageDropped { psn, reason, detail: FailureDetail::None });
        return Ok(());
    }
    if let Err(fault) = store(arrival, packet, inbound, host) {
        return not_stored(settings, packet, &fault, inbound, host);
    }
    //= statement:40
    //| A datagram counts 40 bytes more than its message has.
    let total_bytes = (GRH_BYTES + packet.payload().len()) as u32;
    let mut completion = inbound.completion(settings, packet, WcOpcode::Recv, total_bytes);
    //= linux:rxe_resp.c#do_complete
    //| The completion of a datagram names the queue pair that sent it.
    completion.src_qp = deth.source.value();
    //= man:ibv_poll_cq
    //| The flag GRH says that the GRH stands before the payload.
    completion.flags |= WcFlags::GRH;
    completion.sl = packet_type(arrival.flow.destination);
    if let Some(failure) = inbound.judge(settings, &completion, host).err().and_then(|it| it.buffer_failure())
    {
        return Err(failure);
    }
    inbound.complete(settings, packet, completion, host);
    inbound.messages += 1;
    Ok(())
}

/// Handles a datagram that could not be stored in the receive request in use. A datagram that is too long for
/// it is dropped, and the request waits for the next one (a fault of class D: silent, no effect on the
/// receive queue); so does rdma_rxe. A request of a shared receive queue cannot go back: it completes, and
/// the queue pair continues (class E).
///
/// # Errors
/// Fails if the request names memory that cannot be used.
#[cold]
fn not_stored<H: Host>(
    settings: &QpSettings,
    packet: &Packet<'_>,
    fault: &InboundFault,
    inbound: &mut Inbound,
    host: &mut H,
) -> Result<(), BufferFailure> {
    let InboundFault::TooLong(detail) = *fault else {
        return fault.buffer_failure().map_or(Ok(()), Err);
    };
    host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxMessageDropped));
    let (psn, reason) = (packet.bth().psn, fault.reason());
    host.log(&settings.context, Cause::MessageDropped { psn, reason, detail });
    if settings.has_srq {
        inbound.fail(settings, WcStatus::LocLenErr, host);
    }
    Ok(())
}

/// Stores the GRH area and the payload in the receive request in use.
fn store<H: Host>(
    arrival: &Arrival<'_>,
    packet: &Packet<'_>,
    inbound: &Inbound,
    host: &mut H,
) -> Result<(), InboundFault> {
    let payload = packet.payload();
    if (GRH_BYTES + payload.len()) as u64 > inbound.room_bytes() {
        return Err(InboundFault::TooLong(inbound.room(payload.len() as u64, packet, GRH_BYTES as u64)));
    }
    let Flow { source, destination, .. } = *arrival.flow;
    let length_bytes = packet.bytes().len();
    let grh = grh(source, destination, arrival.traffic_class, arrival.hop_limit, 0, length_bytes);
    //= linux:rxe_resp.c#build_rdma_network_hdr
    //| The IP header of the datagram is stored before its payload.
    inbound.scatter(0, &grh, host)?;
    inbound.scatter(GRH_BYTES as u64, payload, host)
}

/// Returns the service level of a datagram's completion: RoCEv2 knows of each datagram whether it came over
/// IPv4 or IPv6, verbs have no field for it, and adapters put it here (bit 3: in UDP; below, 1: IPv6, 2:
/// IPv4). UCX uses it to find the destination address in the GRH area, and drops IPv4 datagrams with 0.
const fn packet_type(destination: IpAddr) -> u8 {
    match destination {
        IpAddr::V4(_) => 0b1010,
        IpAddr::V6(_) => 0b1001,
    }
}
