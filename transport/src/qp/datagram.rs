//! UD (and GSI): one packet per message, addressed per request.

use core::net::IpAddr;

use super::Arrival;
use super::requester::{Progress, Requester, SendFailure, fault_of};
use super::settings::Settings;
use super::unreliable::BufferFailure;
use crate::event::QpEvent;
use crate::host::{Counter, Host, RecvWqe, Transmit};
use crate::types::{Cause, Detail, SendFlags, SendOpcode, WcFlags, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{Deth, Headers, ImmDt, Operation, Packet, grh};

/// Bytes in front of every datagram's payload in the receive buffer.
pub const GRH_BYTES: usize = 40;

/// With this bit in a request's Q_Key, the sending queue pair's own Q_Key is used.
const OWN_QKEY: u32 = 0x8000_0000;

impl Requester {
    /// Sends datagrams until the queue is empty or the sink is full.
    ///
    /// # Errors
    /// The request at the head of the send queue failed locally.
    pub(crate) fn transmit_datagrams<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        host: &mut H,
        sink: &mut T,
    ) -> Result<Progress, SendFailure> {
        loop {
            let Some(wqe) = self.queue.entry(self.queue.head()) else { return Ok(Progress::Idle) };
            let fail = |status| SendFailure { status, local: true };
            let Some(destination) = wqe.ud() else {
                return Err(fail(wqe.fault().unwrap_or(WcStatus::LocQpOpErr)));
            };
            let bytes = wqe.length_bytes as usize;
            if bytes > settings.mtu_bytes {
                return Err(fail(WcStatus::LocLenErr));
            }
            let with_imm = wqe.opcode == SendOpcode::SendWithImm;
            let operation = if with_imm { Operation::SendOnlyImm } else { Operation::SendOnly };
            let mut bth = settings.bth(operation, wqe.first_psn);
            bth.destination = destination.qpn;
            bth.solicited = wqe.flags.contains(SendFlags::SOLICITED);
            bth.pad_count = (bytes.wrapping_neg() & 3) as u8;
            let own = destination.qkey & OWN_QKEY != 0;
            let mut headers = Headers::new(bth);
            headers.deth = Some(Deth {
                qkey: if own { settings.qkey } else { destination.qkey },
                source: settings.context.qpn,
            });
            headers.imm = with_imm.then_some(ImmDt(wqe.imm_data));
            let header_bytes = headers.len();
            let pad = usize::from(headers.bth.pad_count);
            let length = header_bytes + bytes + pad + 4;
            let Some(packet) = sink.begin(&destination.path, destination.qpn, length) else {
                return Ok(Progress::Blocked);
            };
            headers.emit(packet);
            if let Some(body) = packet.get_mut(header_bytes..header_bytes + bytes) {
                let gathered = if wqe.is_inline() {
                    if let Some(data) = wqe.inline_data().get(..body.len()) {
                        body.copy_from_slice(data);
                    }
                    Ok(())
                } else {
                    host.gather(settings.context.pd, wqe.sges(), 0, body)
                };
                if let Err(error) = gathered {
                    sink.abandon();
                    self.fault = Some(fault_of(settings.context.pd, wqe.sges(), error, false, host));
                    return Err(fail(WcStatus::LocProtErr));
                }
            }
            if let Some(padding) = packet.get_mut(header_bytes + bytes..header_bytes + bytes + pad) {
                padding.fill(0);
            }
            sink.seal();
            self.acked = wqe.end_psn();
            self.started = self.queue.head() + 1;
            self.cursor = self.started;
            self.complete_head(settings, WcStatus::Success, host);
        }
    }
}

/// A datagram for this queue pair.
///
/// # Errors
/// The receive buffer in use cannot hold it: it has been taken into `recv`, not completed.
pub(crate) fn handle_datagram<H: Host>(
    settings: &Settings,
    arrival: &Arrival<'_>,
    packet: &Packet<'_>,
    recv: &mut RecvWqe,
    host: &mut H,
) -> Result<(), BufferFailure> {
    let (opcode, psn) = (packet.bth().opcode, packet.bth().psn);
    let dropped = |reason| QpEvent::Dropped { reason, opcode, psn };
    let Some(deth) = packet.deth() else {
        host.emit(&settings.context, dropped(Counter::RxWrongService));
        return Ok(());
    };
    if deth.qkey != settings.qkey {
        host.emit(&settings.context, dropped(Counter::RxBadQkey));
        let (source, given, expected) = (deth.source, deth.qkey, settings.qkey);
        host.log(&settings.context, Cause::WrongQkey { source, given, expected });
        return Ok(());
    }
    if host.take_recv(&settings.context, None, recv).is_err() {
        host.emit(&settings.context, dropped(Counter::RxNoReceive));
        let reason = "no receive request is posted";
        host.log(&settings.context, Cause::MessageDropped { psn, reason, detail: Detail::None });
        return Ok(());
    }
    let payload = packet.payload();
    let total = GRH_BYTES + payload.len();
    if total as u64 > recv.length_bytes {
        let detail = Detail::Room {
            wr_id: recv.wr_id,
            room_bytes: recv.length_bytes,
            arrived_bytes: payload.len() as u64,
            more: false,
            grh_bytes: GRH_BYTES as u64,
        };
        return Err(BufferFailure { status: WcStatus::LocLenErr, detail });
    }
    let grh = grh(
        arrival.flow.source,
        arrival.flow.destination,
        arrival.traffic_class,
        arrival.hop_limit,
        0,
        packet.bytes().len(),
    );
    host.scatter(recv.pd, &recv.sges, 0, &grh)
        .and_then(|()| host.scatter(recv.pd, &recv.sges, GRH_BYTES as u64, payload))
        .map_err(|error| BufferFailure::of_memory(recv, error, host))?;
    let mut completion = WorkCompletion {
        wr_id: recv.wr_id,
        status: WcStatus::Success,
        opcode: WcOpcode::Recv,
        byte_len: total as u32,
        qp_num: settings.context.qpn.value(),
        src_qp: deth.source.value(),
        flags: WcFlags::GRH,
        sl: packet_type(arrival.flow.destination),
        ..WorkCompletion::default()
    };
    if let Some(imm) = packet.imm() {
        completion.flags |= WcFlags::WITH_IMM;
        completion.imm_data = imm.0;
    }
    host.complete_recv(&settings.context, recv.cq, completion, packet.bth().solicited);
    Ok(())
}

/// What the service level of a datagram's completion says: RoCEv2 tells of each datagram whether it came over
/// IPv4 or IPv6, verbs have no field for it, and adapters tell it here (bit 3: in UDP; below, 1: IPv6, 2: IPv4).
/// UCX finds the destination address in the GRH area by it, and drops IPv4 datagrams that say 0.
const fn packet_type(destination: IpAddr) -> u8 {
    match destination {
        IpAddr::V4(_) => 0b1010,
        IpAddr::V6(_) => 0b1001,
    }
}
