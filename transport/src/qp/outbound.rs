//! Packets on their way out: requests, responses and CNPs of all services are written here.

use crate::event::{PacketIdentity, QpEvent};
use crate::host::{Host, QpContext, Transmit};
use crate::path::Path;
use crate::wire::{Bth, Headers, ICRC_BYTES};

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

/// Tells of a packet that is in the sink.
#[cold]
pub(crate) fn emit_sent<H: Host>(
    qp: &QpContext,
    identity: PacketIdentity,
    headers: &Headers,
    payload_bytes: usize,
    host: &mut H,
) {
    let Bth { opcode, psn, .. } = headers.bth;
    let length_bytes = (headers.len() + payload_bytes.next_multiple_of(4) + ICRC_BYTES) as u32;
    host.emit(qp, QpEvent::PacketSent { identity, opcode, psn, length_bytes });
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
    headers.emit(packet);
    if payload_bytes > 0
        && let Some(payload) = packet.get_mut(header_bytes..payload_end)
        && let Err(error) = fill(payload)
    {
        sink.abandon();
        return Err(error);
    }
    if let Some(pad) = packet.get_mut(payload_end..payload_end + pad_bytes) {
        pad.fill(0);
    }
    sink.seal();
    Ok(Emitted::Packet)
}
