//! One packet of a service that numbers its messages is written.

use alloc::sync::Arc;

use crate::event::{PacketIdentity, Side, Topic};
use crate::host::{Host, Transmit};
use crate::path::Path;
use crate::qp::outbound::{self, Emitted, Written};
use crate::qp::settings::Settings;
use crate::wire::{Deth, Extensions, Operation, Psn, Qpn};

/// Where a packet goes, and what fault plans know it by.
pub(crate) struct To<'a> {
    pub(crate) path: &'a Arc<Path>,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: u32,
    pub(crate) side: Side,
    pub(crate) message: u64,
    pub(crate) transmission: u32,
}

/// Writes one packet into the sink: the header, and `data_bytes` that `fill` puts behind it.
///
/// # Errors
/// Those of `fill`.
pub(crate) fn send_packet<H: Host, T: Transmit, E>(
    settings: &Settings,
    to: &To<'_>,
    (header, data_bytes): (&[u8], usize),
    next_psn: &mut Psn,
    host: &mut H,
    sink: &mut T,
    fill: impl FnOnce(&mut [u8], &mut H) -> Result<(), E>,
) -> Result<Emitted, E> {
    let psn = *next_psn;
    let mut bth = settings.bth(Operation::SendOnly, psn);
    bth.destination = to.qpn;
    let deth = Deth { qkey: to.qkey, source: settings.context.qpn };
    let payload_bytes = header.len() + data_bytes;
    let extend = |extensions: &mut Extensions<'_>| extensions.put(|| deth);
    let emitted = outbound::emit(to.path, &mut bth, payload_bytes, sink, extend, |payload| {
        let Some((front, behind)) = payload.split_at_mut_checked(header.len()) else { return Ok(()) };
        front.copy_from_slice(header);
        if behind.is_empty() { Ok(()) } else { fill(behind, host) }
    })?;
    if emitted == Emitted::NoRoom {
        return Ok(emitted);
    }
    *next_psn = psn.next();
    if host.listens(Topic::Packets) {
        let identity = PacketIdentity {
            side: to.side,
            message: to.message,
            relative_psn: psn.value(),
            transmission: to.transmission,
        };
        let written = Written { identity, bth: &bth, aeth: None, payload_bytes, psn_count: 1, path: to.path };
        outbound::emit_sent(settings, &written, host, sink);
    }
    Ok(emitted)
}
