//! Packets on their way out: requests, responses and CNPs of all services are written here.

use super::settings::Settings;
use crate::event::{Departure, PacketIdentity, QpEvent};
use crate::host::{Host, Transmit};
use crate::path::Path;
use crate::types::Fate;
use crate::wire::{Bth, Headers, ICRC_BYTES, OperationClass, Syndrome};

/// What is left to do after a transmit call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing to send until something happens.
    Idle,
    /// The sink had no room: call again.
    Blocked,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Emitted {
    /// It is in the sink.
    Packet,
    /// The sink has no room for it.
    NoRoom,
}

/// A packet that was just written, or will be.
pub(crate) struct Written<'a> {
    pub(crate) identity: PacketIdentity,
    pub(crate) headers: &'a Headers,
    pub(crate) payload_bytes: usize,
    /// PSNs that it takes.
    pub(crate) psn_count: u32,
    pub(crate) path: &'a Path,
}

impl<'a> Written<'a> {
    fn length_bytes(&self) -> u32 {
        packet_bytes(self.headers, self.payload_bytes) as u32
    }

    /// What the host is told of it when it decides what happens to it.
    pub(crate) fn departure(&self, settings: &Settings) -> Departure<'a> {
        let opcode = self.headers.bth.opcode;
        let acknowledges = opcode.info().is_some_and(|info| info.class == OperationClass::Acknowledge);
        let aeth = self.headers.aeth.filter(|_| acknowledges);
        Departure {
            identity: self.identity,
            connection: settings.connection,
            qp_type: settings.qp_type,
            opcode,
            syndrome: aeth.map(|aeth| Syndrome::from_byte(aeth.syndrome)),
            psn_count: self.psn_count,
            length_bytes: self.length_bytes(),
            payload_bytes: self.payload_bytes as u32,
            path: self.path,
            destination: self.headers.bth.destination,
        }
    }

    /// Tells of the packet, which is in the sink.
    pub(crate) fn emit<H: Host>(&self, settings: &Settings, host: &mut H) {
        let Bth { opcode, psn, destination, .. } = self.headers.bth;
        let (identity, path, length_bytes) = (self.identity, self.path, self.length_bytes());
        let event = QpEvent::PacketSent { identity, opcode, psn, length_bytes, destination, path };
        host.emit(&settings.context, event);
    }
}

/// Bytes of a packet from the BTH to the ICRC.
pub(crate) fn packet_bytes(headers: &Headers, payload_bytes: usize) -> usize {
    headers.len() + payload_bytes.next_multiple_of(4) + ICRC_BYTES
}

/// Tells of a packet that is in the sink, and does to it what the host decides, which it returns.
#[cold]
pub(crate) fn emit_sent<H: Host, T: Transmit>(
    settings: &Settings,
    written: &Written<'_>,
    host: &mut H,
    sink: &mut T,
) -> Fate {
    written.emit(settings, host);
    let fate = host.fate(&settings.context, &written.departure(settings));
    harm(fate.of_packet(), sink);
    fate
}

/// Does to the packet that is in the sink what was decided.
pub(crate) fn harm<T: Transmit>(fate: Fate, sink: &mut T) {
    if !fate.is_ordinary() {
        sink.harm(fate);
    }
}

/// Writes one packet into the sink: headers, payload, pad. The pad count follows from the payload; `fill`
/// gets the bytes of the payload unless there are none.
///
/// # Errors
/// `fill` failed: the packet is abandoned.
#[inline]
pub(crate) fn emit<T: Transmit, E>(
    path: &Path,
    headers: &mut Headers,
    payload_bytes: usize,
    sink: &mut T,
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<Emitted, E> {
    let pad_bytes = payload_bytes.wrapping_neg() & 3;
    headers.bth.pad_count = pad_bytes as u8;
    let header_bytes = headers.len();
    let payload_end = header_bytes + payload_bytes;
    let length_bytes = payload_end + pad_bytes + ICRC_BYTES;
    let Some(packet) = sink.begin(path, headers.bth.destination, length_bytes) else {
        return Ok(Emitted::NoRoom);
    };
    headers.emit_all(header_bytes, packet);
    if payload_bytes > 0
        && let Some(payload) = packet.get_mut(header_bytes..payload_end)
        && let Err(error) = fill(payload)
    {
        sink.abandon();
        return Err(error);
    }
    // Most packets have no pad, and a call that sets no bytes costs as much as one that sets three.
    if pad_bytes > 0
        && let Some(pad) = packet.get_mut(payload_end..payload_end + pad_bytes)
    {
        pad.fill(0);
    }
    sink.seal();
    Ok(Emitted::Packet)
}
