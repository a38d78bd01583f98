//! What a connection was told by `modify_qp`: read by requester and responder, changed by neither.

use alloc::sync::Arc;

use super::dcqcn::Congestion;
use crate::host::QpContext;
use crate::path::Path;
use crate::types::{Access, QpCapacity, QpType};
use crate::wire::{Bth, Opcode, Operation, Psn, Qpn, Service};

/// What a queue pair is made with.
#[derive(Debug, Clone)]
pub struct QpConfig {
    /// The device's names for what it is attached to.
    pub context: QpContext,
    /// Transport service.
    pub qp_type: QpType,
    /// Queue sizes, as granted.
    pub capacity: QpCapacity,
    /// All send requests make completions.
    pub signal_all: bool,
    /// Receives come from an SRQ.
    pub has_srq: bool,
    /// Longest datagram payload in bytes (UD): the port's active MTU.
    pub port_mtu_bytes: usize,
    /// What it does about congestion.
    pub congestion: Congestion,
}

/// Attributes of a queue pair in the form in which packets are made and checked.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) context: QpContext,
    pub(crate) qp_type: QpType,
    /// Completions for all send requests, as if all were signaled.
    pub(crate) signal_all: bool,
    /// Receives come from an SRQ: LAST_WQE_REACHED applies and the SRQ is not flushed.
    pub(crate) has_srq: bool,
    /// The ordinal of the connection: how often the queue pair was reset before.
    pub(crate) connection: u32,
    /// PSN of the peer's first request.
    pub(crate) rq_psn: Psn,
    pub(crate) path: Option<Arc<Path>>,
    pub(crate) destination: Qpn,
    pub(crate) mtu_bytes: usize,
    pub(crate) pkey: u16,
    /// What its packets say about path migration: without an alternate path a queue pair is in state
    /// MIGRATED, as NICs show it.
    pub(crate) is_migrated: bool,
    pub(crate) qkey: u32,
    pub(crate) access: Access,
    /// Exponent of the transport timer, 0…31; 0 never expires.
    pub(crate) timeout: u8,
    pub(crate) retry_count: u8,
    /// 7 is for ever.
    pub(crate) rnr_retry: u8,
    //= linux:rxe_resp.c#rxe_receiver
    //| The responder sends the attribute min_rnr_timer in its RNR NAKs.
    pub(crate) min_rnr_timer: u8,
    /// READs and atomics this side may have outstanding.
    pub(crate) max_rd_atomic: u8,
    /// READs and atomics the peer may have outstanding here.
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) congestion: Congestion,
    /// Data that does not fit its signatures stops the send queue.
    pub(crate) stops_at_bad_signature: bool,
}

impl Settings {
    /// The three opcode bits of this queue pair's packets.
    #[inline]
    pub(crate) fn service(&self) -> Service {
        self.qp_type.service()
    }

    /// READs and atomics that are under way at once, at most. 0 is taken for 1, as adapters do whose depth is
    /// an exponent (mlx4, mlx5): a request that waited for a place would wait for ever, in silence.
    #[inline]
    pub(crate) fn read_depth(&self) -> usize {
        usize::from(self.max_rd_atomic.max(1))
    }

    /// XRC packets of requests carry the SRQ number.
    pub(crate) fn is_xrc(&self) -> bool {
        self.qp_type.is_xrc()
    }

    /// It is connected to itself, which the device may be for a loopback; else a program has taken its own
    /// number for the peer's.
    pub(crate) fn is_own_peer(&self) -> bool {
        let path = self.path.as_deref().filter(|_| self.destination == self.context.qpn);
        path.is_some_and(|path| path.flow.source == path.flow.destination)
    }

    /// A BTH to the connected peer.
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
