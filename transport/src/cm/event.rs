//! Events and MADs that a [`Cm`](super::Cm) produces.

use alloc::boxed::Box;

use super::{ListenerId, MadRoute};
use crate::mad::{CommId, Drep, Dreq, MAD_BYTES, PrivateData, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

/// A MAD to send from queue pair 1 to queue pair 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadOut {
    /// Addresses and packet marks of the MAD.
    pub route: MadRoute,
    /// All 256 bytes of the MAD.
    pub mad: [u8; MAD_BYTES],
}

/// Message that the peer never answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnansweredMessage {
    /// The REQ: the peer is not there.
    Req,
    /// The REP: the peer has gone.
    Rep,
    /// The SIDR_REQ, the question for a datagram queue pair.
    SidrReq,
}

/// An event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CmEvent {
    /// A peer wants to connect; answer with `accept` or `reject`. The id is new.
    ConnectRequest {
        /// Listener that the request is for.
        listener: ListenerId,
        /// Communication id of this side of the new connection.
        id: CommId,
        /// Route between the two ends.
        route: MadRoute,
        /// Contents of the REQ.
        request: Box<Req>,
    },
    /// The peer accepts: bring the queue pair to RTS and call `send_rtu`, or call `reject`.
    ConnectResponse {
        /// Communication id of the connection.
        id: CommId,
        /// Contents of the REP.
        reply: Box<Rep>,
    },
    /// Passive side: the peer is ready, and the connection is established.
    Established {
        /// Communication id of the connection.
        id: CommId,
        /// Private data of the RTU; empty if data arrived first.
        private_data: Box<PrivateData<{ Rtu::PRIVATE_DATA_BYTES }>>,
    },
    /// The peer refuses, or gives up. The connection is over.
    Rejected {
        /// Communication id of the connection.
        id: CommId,
        /// Contents of the REJ.
        rejection: Box<Rej>,
    },
    /// The peer does not answer. The connection is over.
    Unreachable {
        /// Communication id of the connection.
        id: CommId,
        /// Message that was not answered.
        unanswered: UnansweredMessage,
    },
    /// The peer asks for time with an MRA.
    MraReceived {
        /// Communication id of the connection.
        id: CommId,
        /// Time that the peer asks for, as a time code.
        service_timeout: u8,
    },
    /// The peer disconnects: bring the queue pair to ERR and call `disconnect`.
    DisconnectRequest {
        /// Communication id of the connection.
        id: CommId,
        /// Private data of the DREQ.
        private_data: Box<PrivateData<{ Dreq::PRIVATE_DATA_BYTES }>>,
    },
    /// The disconnection that this side began is complete; timewait begins.
    Disconnected {
        /// Communication id of the connection.
        id: CommId,
        /// Private data of the DREP; `None` if the peer did not answer, or disconnected at the same time.
        private_data: Option<Box<PrivateData<{ Drep::PRIVATE_DATA_BYTES }>>>,
        /// True if the peer sent any answer; false if the DREQ was repeated until its retries were spent.
        answered: bool,
    },
    /// Timewait is over: no message of the connection is under way, and its queue pair number can be used
    /// again.
    TimewaitExit {
        /// Communication id of the connection.
        id: CommId,
    },
    /// A peer asks for a datagram queue pair; answer with `sidr_reply`. The id is new.
    SidrRequest {
        /// Listener that the question is for.
        listener: ListenerId,
        /// Communication id of the question.
        id: CommId,
        /// Route between the two ends.
        route: MadRoute,
        /// Contents of the SIDR_REQ.
        request: Box<SidrReq>,
    },
    /// The peer's answer to `resolve`, with a queue pair or a refusal.
    SidrResolved {
        /// Communication id of the question.
        id: CommId,
        /// Contents of the SIDR_REP.
        reply: Box<SidrRep>,
    },
}

impl CmEvent {
    /// Returns the communication id of the connection.
    pub const fn id(&self) -> CommId {
        match self {
            CmEvent::ConnectRequest { id, .. }
            | CmEvent::ConnectResponse { id, .. }
            | CmEvent::Established { id, .. }
            | CmEvent::Rejected { id, .. }
            | CmEvent::Unreachable { id, .. }
            | CmEvent::MraReceived { id, .. }
            | CmEvent::DisconnectRequest { id, .. }
            | CmEvent::Disconnected { id, .. }
            | CmEvent::TimewaitExit { id }
            | CmEvent::SidrRequest { id, .. }
            | CmEvent::SidrResolved { id, .. } => *id,
        }
    }
}
