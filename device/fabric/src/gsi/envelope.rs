//! The packet around a MAD: a UD SEND from queue pair 1 to queue pair 1.

use pumice_transport::cm::MadRoute;
use pumice_transport::host::Counter;
use pumice_transport::mad::{CmMessage, GSI_Q_KEY, MAD_BYTES, Mad};
use pumice_transport::path::Flow;
use pumice_transport::types::Gid;
use pumice_transport::wire::{Bth, Deth, Headers, ICRC_BYTES, Opcode, Operation, Packet, Psn, Qpn, Service};

use pumice_model::port::batch::ReceivedBatch;

/// Length of the packet, BTH to ICRC, in bytes.
pub const PACKET_BYTES: usize = Bth::LEN + Deth::LEN + MAD_BYTES + ICRC_BYTES;

/// A MAD that arrived, unchanged: to be handled here or forwarded.
pub struct InboundMad {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    packet: [u8; PACKET_BYTES],
}

#[cfg(test)]
impl InboundMad {
    /// Returns an envelope of zeros, for tests that do not read its contents.
    pub(super) fn blank() -> InboundMad {
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let flow = Flow { source: address, destination: address, source_port: 0, destination_port: 0 };
        InboundMad { flow, traffic_class: 0, hop_limit: 0, packet: [0; PACKET_BYTES] }
    }

    /// Returns an envelope with this message.
    pub(super) fn with(message: &CmMessage) -> InboundMad {
        let mut inbound = InboundMad::blank();
        let mad = inbound.packet.get_mut(Bth::LEN + Deth::LEN..PACKET_BYTES - ICRC_BYTES).unwrap();
        mad.copy_from_slice(&message.emit(1));
        inbound
    }
}

impl InboundMad {
    /// Returns the MAD.
    pub fn mad(&self) -> &[u8] {
        self.packet.get(Bth::LEN + Deth::LEN..PACKET_BYTES - ICRC_BYTES).unwrap_or(&[])
    }

    /// Returns the message of connection management in it.
    pub fn message(&self) -> Option<CmMessage> {
        CmMessage::parse(&Mad::parse(self.mad()).ok()?).ok()
    }

    /// Reports whether it is about no connection of this host: it asks for one, or is no message.
    pub fn names_no_connection(&self) -> bool {
        self.message().is_none_or(|message| message.recipient().is_none())
    }

    /// Returns the route for answers.
    pub fn route(&self) -> MadRoute {
        MadRoute {
            local: Gid::from(self.flow.destination),
            remote: Gid::from(self.flow.source),
            traffic_class: self.traffic_class & !3,
            // The sender's hop limit is not known; what has come this far returns with the default.
            hop_limit: 0,
            flow_label: 0,
        }
    }

    /// Returns the packet as it arrived.
    pub fn received(&self) -> ReceivedBatch<'_> {
        ReceivedBatch {
            flow: self.flow,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            segment_bytes: PACKET_BYTES,
            bytes: &self.packet,
            has_icrc: true,
        }
    }
}

/// Checks a packet for queue pair 1: only another queue pair 1 may send it, as a MAD with the right Q_Key.
/// Its ICRC was checked.
///
/// # Errors
/// Fails with the counter of the refusal.
pub fn inbound(received: &ReceivedBatch<'_>, packet: &Packet<'_>) -> Result<InboundMad, Counter> {
    let info = packet.info();
    if !info.service.is_datagram() || packet.operation() != Operation::SendOnly {
        return Err(Counter::RxWrongService);
    }
    // The default partition, as full or limited member.
    if packet.bth().pkey & 0x7fff != 0x7fff {
        return Err(Counter::RxBadPkey);
    }
    let deth = packet.deth().ok_or(Counter::RxWrongService)?;
    if deth.qkey != GSI_Q_KEY {
        return Err(Counter::RxBadQkey);
    }
    let bytes = packet.bytes().try_into().map_err(|_| Counter::RxBadLength)?;
    if packet.payload().len() != MAD_BYTES {
        return Err(Counter::RxBadLength);
    }
    let ReceivedBatch { flow, traffic_class, hop_limit, .. } = *received;
    Ok(InboundMad { flow, traffic_class, hop_limit, packet: bytes })
}

/// Writes the packet around a MAD, without the ICRC.
pub(crate) fn emit(mad: &[u8; MAD_BYTES], psn: u32, out: &mut [u8]) {
    let opcode = Opcode::new(Service::Ud, Operation::SendOnly);
    let mut headers = Headers::new(Bth::new(opcode, Qpn::GSI, Psn::new(psn)));
    headers.deth = Some(Deth { qkey: GSI_Q_KEY, source: Qpn::GSI });
    headers.emit_packet(mad, out);
}
