//! Writing of one packet of a service that numbers its messages.

use alloc::sync::Arc;

use crate::event::{PacketIdentity, PacketSide, Topic};
use crate::host::{Host, Transmit};
use crate::path::{Flow, Path};
use crate::qp::outbound::{self, EmitOutcome, WrittenPacket};
use crate::qp::settings::QpSettings;
use crate::wire::{Deth, Extensions, Operation, Psn, Qpn};

/// Paths of numbered messages. They leave from the RoCE port, regardless of the port of their address
/// handles, and are accepted from no other port: it is that of the socket that receives, so that no other
/// user of the peer's host can send from it.
#[derive(Debug, Default)]
pub(crate) struct RocePaths {
    /// Path of the address handle that was used last, and the path derived from it.
    newest: Option<(Arc<Path>, Arc<Path>)>,
}

impl RocePaths {
    /// Returns the path of messages through an address handle with this path.
    pub(crate) fn of(&mut self, handle: &Arc<Path>) -> Arc<Path> {
        if let Some((_, ours)) = self.newest.as_ref().filter(|(theirs, _)| Arc::ptr_eq(theirs, handle)) {
            return Arc::clone(ours);
        }
        let mut path = Path::clone(handle);
        path.flow.source_port = path.flow.destination_port;
        let path = Arc::new(path);
        self.newest = Some((Arc::clone(handle), Arc::clone(&path)));
        path
    }
}

/// Returns the path of an answer to a packet that came by this flow.
pub(crate) fn return_path(incoming: &Flow) -> Arc<Path> {
    let Flow { source: destination, destination: source, destination_port, .. } = *incoming;
    let flow = Flow { source, destination, source_port: destination_port, destination_port };
    Arc::new(Path { flow, traffic_class: 0, hop_limit: u8::MAX, flow_label: 0 })
}

/// Destination of a packet, and its identity for fault plans.
pub(crate) struct PacketDestination<'a> {
    pub(crate) path: &'a Arc<Path>,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: u32,
    pub(crate) side: PacketSide,
    pub(crate) message: u64,
    pub(crate) transmission: u32,
}

/// Writes one packet into the sink: the header, and `data_bytes` that `fill` writes behind it.
///
/// # Errors
/// Fails if `fill` fails, with its error.
pub(crate) fn send_packet<H: Host, T: Transmit, E>(
    settings: &QpSettings,
    to: &PacketDestination<'_>,
    (header, data_bytes): (&[u8], usize),
    next_psn: &mut Psn,
    host: &mut H,
    sink: &mut T,
    fill: impl FnOnce(&mut [u8], &mut H) -> Result<(), E>,
) -> Result<EmitOutcome, E> {
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
    if emitted == EmitOutcome::NoRoom {
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
        let written =
            WrittenPacket { identity, bth: &bth, aeth: None, payload_bytes, psn_count: 1, path: to.path };
        outbound::emit_sent(settings, &written, host, sink);
    }
    Ok(emitted)
}
