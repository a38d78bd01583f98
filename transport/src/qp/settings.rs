//! Values of a connection that `modify_qp` sets: requester and responder read them, and change none.

use alloc::sync::Arc;

use super::adaptive_timeout::AdaptiveTimeout;
use super::dcqcn::Congestion;
use crate::host::QpContext;
use crate::path::Path;
use crate::types::{Access, QpCapacity, QpType};
use crate::wire::{Bth, Opcode, Operation, Psn, Qpn, Service};

/// Parameters with which a queue pair is made.
#[derive(Debug, Clone)]
pub struct QpConfig {
    /// Numbers of the device's objects that it is attached to.
    pub context: QpContext,
    /// Transport service.
    pub qp_type: QpType,
    /// Queue sizes, as granted.
    pub capacity: QpCapacity,
    /// True if all send requests make completions.
    pub signal_all: bool,
    /// True if receives come from an SRQ.
    pub has_srq: bool,
    /// Longest datagram payload in bytes (UD): the port's active MTU.
    pub port_mtu_bytes: usize,
    /// Congestion control.
    pub congestion: Congestion,
    /// Timeouts of the requester; `None` for those of the attribute `timeout`.
    pub adaptive_timeout: Option<AdaptiveTimeout>,
}

/// Attributes of a queue pair in the form in which packets are made and checked.
#[derive(Debug, Clone)]
pub(crate) struct QpSettings {
    pub(crate) context: QpContext,
    pub(crate) qp_type: QpType,
    /// True if all send requests make completions, as if all were signaled.
    pub(crate) signal_all: bool,
    /// True if receives come from an SRQ: LAST_WQE_REACHED applies and the SRQ is not flushed.
    pub(crate) has_srq: bool,
    /// Ordinal of the connection: the number of resets before it.
    pub(crate) connection: u32,
    /// PSN of the peer's first request.
    pub(crate) rq_psn: Psn,
    pub(crate) path: Option<Arc<Path>>,
    pub(crate) destination: Qpn,
    pub(crate) mtu_bytes: usize,
    pub(crate) pkey: u16,
    /// Migration state in the packets: without an alternate path a queue pair is in state MIGRATED, as on
    /// NICs.
    pub(crate) is_migrated: bool,
    pub(crate) qkey: u32,
    pub(crate) access: Access,
    /// Exponent of the transport timer, 0…31; 0 never expires.
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    /// Retries after RNR NAKs; 7 is for ever.
    pub(crate) rnr_retry: u8,
    //= linux:rxe_resp.c#rxe_receiver
    //| The responder sends the attribute min_rnr_timer in its RNR NAKs.
    pub(crate) min_rnr_timer: u8,
    /// READs and atomics that this side may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding here.
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) congestion: Congestion,
    /// Timeouts of the requester; `None` for those of `timeout`.
    pub(crate) adaptive_timeout: Option<AdaptiveTimeout>,
    /// True if data that does not fit its signatures stops the send queue.
    pub(crate) stops_at_bad_signature: bool,
}

impl QpSettings {
    /// Returns the transport service in the three opcode bits of this queue pair's packets.
    #[inline]
    pub(crate) fn service(&self) -> Service {
        self.qp_type.service()
    }

    /// Returns the largest number of outstanding READs and atomics. 0 is taken for 1, as on adapters whose
    /// depth is an exponent (mlx4, mlx5): a request that waited for a slot would wait for ever, without an
    /// error.
    #[inline]
    pub(crate) fn read_depth(&self) -> usize {
        usize::from(self.max_rd_atomic.max(1))
    }

    /// Reports whether packets of requests carry an SRQ number: XRC.
    pub(crate) fn is_xrc(&self) -> bool {
        self.qp_type.is_xrc()
    }

    /// Reports whether the queue pair is connected to itself, as for a loopback; otherwise a program has
    /// taken its own number for the peer's.
    pub(crate) fn is_self_connected(&self) -> bool {
        let path = self.path.as_deref().filter(|_| self.destination == self.context.qpn);
        path.is_some_and(|path| path.flow.source == path.flow.destination)
    }

    /// Creates a BTH to the connected peer.
    #[inline]
    pub(crate) fn bth(&self, operation: Operation, psn: Psn) -> Bth {
        Bth {
            opcode: Opcode::new(self.service(), operation),
            solicited: false,
            migrated: self.is_migrated,
            pad_count: 0,
            version: 0,
            pkey: self.pkey,
            fecn: false,
            becn: false,
            destination: self.destination,
            ack_request: false,
            psn,
        }
    }
}
