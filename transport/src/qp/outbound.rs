//! Outgoing packets: requests, responses and CNPs of all services are written here.

use alloc::sync::Arc;

use super::settings::QpSettings;
use crate::event::{OutgoingPacket, PacketIdentity, QpEvent};
use crate::host::{Host, Transmit};
use crate::path::Path;
use crate::types::Fate;
use crate::wire::{Aeth, Bth, Extensions, HeaderSet, ICRC_BYTES, Opcode, OperationClass, Syndrome};

/// Remaining work after a transmit call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// No packet is to be sent until the next event.
    Idle,
    /// The sink had no room: call again.
    Blocked,
}

/// Result of writing a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmitOutcome {
    /// The packet is in the sink.
    Packet,
    /// The sink has no room for the packet.
    NoRoom,
}

/// A packet that was just written, or will be.
pub(crate) struct WrittenPacket<'a> {
    pub(crate) identity: PacketIdentity,
    pub(crate) bth: &'a Bth,
    /// The AETH of an answer.
    pub(crate) aeth: Option<Aeth>,
    pub(crate) payload_bytes: usize,
    /// Number of PSNs that it takes.
    pub(crate) psn_count: u32,
    pub(crate) path: &'a Path,
}

impl<'a> WrittenPacket<'a> {
    #[inline]
    fn length_bytes(&self) -> u32 {
        packet_bytes(self.bth.opcode, self.payload_bytes) as u32
    }

    /// Returns the description of the packet by which the host decides its fate.
    pub(crate) fn departure(&self, settings: &QpSettings) -> OutgoingPacket<'a> {
        let opcode = self.bth.opcode;
        let acknowledges = opcode.info().is_some_and(|info| info.class == OperationClass::Acknowledge);
        let aeth = self.aeth.filter(|_| acknowledges);
        OutgoingPacket {
            identity: self.identity,
            connection: settings.connection,
            qp_type: settings.qp_type,
            opcode,
            syndrome: aeth.map(|aeth| Syndrome::from_byte(aeth.syndrome)),
            psn_count: self.psn_count,
            length_bytes: self.length_bytes(),
            payload_bytes: self.payload_bytes as u32,
            path: self.path,
            destination: self.bth.destination,
        }
    }

    /// Reports the packet, which is in the sink.
    #[inline]
    pub(crate) fn emit<H: Host>(&self, settings: &QpSettings, host: &mut H) {
        let Bth { opcode, psn, destination, .. } = *self.bth;
        let (identity, path, length_bytes) = (self.identity, self.path, self.length_bytes());
        let event = QpEvent::PacketSent { identity, opcode, psn, length_bytes, destination, path };
        host.emit_uncounted(&settings.context, &event);
    }
}

/// Returns the headers after the BTH of a packet with this opcode, and the length of all its headers in
/// bytes.
#[inline]
fn headers_of(opcode: Opcode) -> (HeaderSet, usize) {
    opcode.info().map_or((HeaderSet::empty(), Bth::LEN), |info| (info.headers, info.header_bytes))
}

/// Returns the length in bytes of a packet from the BTH to the ICRC.
#[inline]
pub(crate) fn packet_bytes(opcode: Opcode, payload_bytes: usize) -> usize {
    headers_of(opcode).1 + payload_bytes.next_multiple_of(4) + ICRC_BYTES
}

/// Reports a packet that is in the sink, and applies the fate that the host decides, which it returns.
#[inline]
pub(crate) fn emit_sent<H: Host, T: Transmit>(
    settings: &QpSettings,
    written: &WrittenPacket<'_>,
    host: &mut H,
    sink: &mut T,
) -> Fate {
    written.emit(settings, host);
    if !host.decides() {
        return Fate::default();
    }
    decide(settings, written, host, sink)
}

/// Applies the fate that the host decides to the packet that is in the sink.
#[cold]
#[inline(never)]
fn decide<H: Host, T: Transmit>(
    settings: &QpSettings,
    written: &WrittenPacket<'_>,
    host: &mut H,
    sink: &mut T,
) -> Fate {
    let fate = host.fate(&settings.context, &written.departure(settings));
    apply_fate(fate.of_packet(), sink);
    fate
}

/// Applies a fate to the packet that is in the sink.
pub(crate) fn apply_fate<T: Transmit>(fate: Fate, sink: &mut T) {
    if !fate.is_ordinary() {
        sink.apply_fate(fate);
    }
}

/// Writes one packet into the sink: headers, payload, pad. The pad count follows from the payload. `extend`
/// writes the headers that the opcode has after the BTH, and is not called if it has none; `fill` writes the
/// bytes of the payload unless there are none.
///
/// # Errors
/// Fails if `fill` failed: the packet is abandoned.
#[inline]
pub(crate) fn emit<T: Transmit, E>(
    path: &Arc<Path>,
    bth: &mut Bth,
    payload_bytes: usize,
    sink: &mut T,
    extend: impl FnOnce(&mut Extensions<'_>),
    fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
) -> Result<EmitOutcome, E> {
    let pad_bytes = payload_bytes.wrapping_neg() & 3;
    bth.pad_count = pad_bytes as u8;
    let (headers, header_bytes) = headers_of(bth.opcode);
    let payload_end = header_bytes + payload_bytes;
    let length_bytes = payload_end + pad_bytes + ICRC_BYTES;
    let Some(packet) = sink.begin(path, bth.destination, length_bytes) else {
        return Ok(EmitOutcome::NoRoom);
    };
    bth.emit(packet);
    if !headers.is_empty()
        && let Some(out) = packet.get_mut(Bth::LEN..header_bytes)
    {
        let mut extensions = Extensions::new(headers, out);
        extend(&mut extensions);
        debug_assert!(extensions.is_complete(), "{} has more headers than were put", bth.opcode);
    }
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
    Ok(EmitOutcome::Packet)
}
