//! The notification point: answers congestion marks (ECN "CE") with CNPs.

use alloc::sync::Arc;
use core::convert::Infallible;

use super::outbound::{self, EmitOutcome, Progress};
use super::settings::QpSettings;
use crate::event::{PacketIdentity, PacketSide, QpEvent, Topic};
use crate::host::{Host, Transmit};
use crate::path::Path;
use crate::wire::{CnpReserved, Extensions, Operation, Psn};

/// The value of the ECN field for "congestion experienced".
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// CNPs owed to the peer of a connected queue pair.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    pending: bool,
    last_ns: Option<u64>,
    path: Option<Arc<Path>>,
}

/// Reports whether a packet has the mark of congestion.
#[inline]
pub(crate) const fn is_marked(traffic_class: u8) -> bool {
    traffic_class & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED
}

impl Notifier {
    /// Reads the ECN mark of a packet that arrived; returns true if it was marked.
    #[inline]
    pub(crate) fn observe(&mut self, settings: &QpSettings, traffic_class: u8, now_ns: u64) -> bool {
        if !is_marked(traffic_class) {
            return false;
        }
        let interval_ns = u64::from(settings.congestion.notification.min_time_between_cnps) * 1_000;
        let due = self.last_ns.is_none_or(|last| now_ns.saturating_sub(last) >= interval_ns);
        if due {
            self.pending = true;
            self.last_ns = Some(now_ns);
        }
        true
    }

    /// Drops the cached path of CNPs, because the queue pair's path changed.
    pub(crate) fn forget_path(&mut self) {
        self.path = None;
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Sends the CNP that is owed.
    pub(crate) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        if !self.pending {
            return Progress::Idle;
        }
        let (Some(path), true) = (settings.path.as_deref(), settings.qp_type.is_connected()) else {
            self.pending = false;
            return Progress::Idle;
        };
        // A CNP is not marked itself: its ECN field is 0.
        let traffic_class = settings.congestion.notification.cnp_dscp << 2;
        let path = self.path.get_or_insert_with(|| Arc::new(Path { traffic_class, ..path.clone() }));
        let mut bth = settings.bth(Operation::Cnp, Psn::new(0));
        bth.opcode = crate::wire::Opcode::from_byte(Operation::Cnp as u8);
        bth.becn = true;
        let extend = |extensions: &mut Extensions<'_>| extensions.put(|| CnpReserved);
        let emitted = outbound::emit(path, &mut bth, 0, sink, extend, |_| Ok::<(), Infallible>(()));
        if emitted == Ok(EmitOutcome::NoRoom) {
            return Progress::Blocked;
        }
        host.emit(&settings.context, QpEvent::CnpSent);
        if host.listens(Topic::Packets) {
            let identity = PacketIdentity {
                side: PacketSide::Notification,
                message: 0,
                relative_psn: 0,
                transmission: 1,
            };
            let written = outbound::WrittenPacket {
                identity,
                bth: &bth,
                aeth: None,
                payload_bytes: 0,
                psn_count: 0,
                path,
            };
            let _ = outbound::emit_sent(settings, &written, host, sink);
        }
        self.pending = false;
        Progress::Idle
    }
}
