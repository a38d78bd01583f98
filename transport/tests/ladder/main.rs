//! Ladder tests: one queue pair, a fake host, literal packets in and out. No socket, no clock, no
//! thread; every rung says what goes in and what must come out.
//!
//! A test named `statement_NN_…` proves statement NN of the list of behaviours that software
//! implementations get wrong.

mod atomic;
mod congestion;
mod duplicates;
mod fence;
mod flush_error;
mod frames;
mod hostile;
mod kit;
mod nak;
mod packets_sent;
mod ports;
mod read;
mod requester_window;
mod responder_order;
mod retry;
mod rnr;
mod sentences;
mod snapshot;
mod sqd;
mod uc;
mod ud;
mod xrc;

/// What every rung needs.
#[allow(unused_imports, reason = "a vocabulary is complete before every word is used")]
mod prelude {
    pub(crate) use crate::kit::host::*;
    pub(crate) use crate::kit::literal::*;
    pub(crate) use crate::kit::rung::*;
    pub(crate) use crate::kit::{CONTEXT, LOCAL, PEER, RECV_CQ, XRCD, op, path_to_peer, pattern};
    pub(crate) use pumice_transport::event::{PacketIdentity, PacketSide};
    pub(crate) use pumice_transport::host::{Counter, PeerProgress};
    pub(crate) use pumice_transport::qp::{
        AdaptiveTimeout, AttributeMask, Congestion, DcqcnParameters, NotificationParameters, PostError,
        QpAttributes, Urgency,
    };
    pub(crate) use pumice_transport::types::{
        Access, AsyncEventType, AtomicOperation, Cause, FlushRange, KeyConfiguration, Mtu, QpState, QpType,
        RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, UdDestination, WcFlags, WcOpcode, WcStatus,
        WindowBind,
    };
}
