//! The packet around a MAD: a UD SEND from queue pair 1 to queue pair 1.

use pumice_transport::cm::MadRoute;
use pumice_transport::host::Counter;
use pumice_transport::mad::{CmMessage, GSI_Q_KEY, MAD_BYTES, Mad};
use pumice_transport::path::Flow;
use pumice_transport::types::Gid;
use pumice_transport::wire::{Bth, Deth, Headers, ICRC_BYTES, Opcode, Operation, Packet, Psn, Qpn, Service};

use crate::Received;

/// Bytes of the packet, BTH to ICRC.
pub const PACKET_BYTES: usize = Bth::LEN + Deth::LEN + MAD_BYTES + ICRC_BYTES;

/// A MAD that arrived, as it came: to be handled here or forwarded.
pub struct Inbound {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    packet: [u8; PACKET_BYTES],
}

#[cfg(test)]
impl Inbound {
    /// An envelope of zeros, for tests that do not read its contents.
    pub(super) fn blank() -> Inbound {
        let address = std::net::IpAddr::from([127, 0, 0, 1]);
        let flow = Flow { source: address, destination: address, source_port: 0, destination_port: 0 };
        Inbound { flow, traffic_class: 0, hop_limit: 0, packet: [0; PACKET_BYTES] }
    }

    /// One with this message.
    pub(super) fn with(message: &CmMessage) -> Inbound {
        let mut inbound = Inbound::blank();
        let mad = inbound.packet.get_mut(Bth::LEN + Deth::LEN..PACKET_BYTES - ICRC_BYTES).unwrap();
        mad.copy_from_slice(&message.emit(1));
        inbound
    }
}

impl Inbound {
    /// The MAD.
    pub fn mad(&self) -> &[u8] {
        self.packet.get(Bth::LEN + Deth::LEN..PACKET_BYTES - ICRC_BYTES).unwrap_or(&[])
    }

    /// The message of connection management in it.
    pub fn message(&self) -> Option<CmMessage> {
        CmMessage::parse(&Mad::parse(self.mad()).ok()?).ok()
    }

    /// Whether it is about no connection that this host has: it asks for one, or is no message.
    pub fn names_no_connection(&self) -> bool {
        self.message().is_none_or(|message| message.recipient().is_none())
    }

    /// The way back.
    pub fn route(&self) -> MadRoute {
        MadRoute {
            local: Gid::from(self.flow.destination),
            remote: Gid::from(self.flow.source),
            traffic_class: self.traffic_class & !3,
            // The sender's is not known; what has come this far comes back by the default.
            hop_limit: 0,
            flow_label: 0,
        }
    }

    /// As it came.
    pub fn received(&self) -> Received<'_> {
        Received {
            flow: self.flow,
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
            segment_bytes: PACKET_BYTES,
            bytes: &self.packet,
            has_icrc: true,
        }
    }
}

/// A packet for queue pair 1, if it is what only another queue pair 1 may send: a MAD with the right
/// Q_Key. Its ICRC was checked.
///
/// # Errors
/// What to count.
pub fn inbound(received: &Received<'_>, packet: &Packet<'_>) -> Result<Inbound, Counter> {
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
    let Received { flow, traffic_class, hop_limit, .. } = *received;
    Ok(Inbound { flow, traffic_class, hop_limit, packet: bytes })
}

/// Writes the packet around a MAD, without the ICRC.
pub(crate) fn emit(mad: &[u8; MAD_BYTES], psn: u32, out: &mut [u8]) {
    let opcode = Opcode::new(Service::Ud, Operation::SendOnly);
    let mut headers = Headers::new(Bth::new(opcode, Qpn::GSI, Psn::new(psn)));
    headers.deth = Some(Deth { qkey: GSI_Q_KEY, source: Qpn::GSI });
    headers.emit_packet(mad, out);
}
