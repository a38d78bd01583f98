//! What a [`Cm`](super::Cm) tells.

use alloc::boxed::Box;

use super::{ListenerId, MadRoute};
use crate::mad::{CommId, Drep, Dreq, MAD_BYTES, PrivateData, Rej, Rep, Req, Rtu, SidrRep, SidrReq};

/// A MAD to send from queue pair 1 to queue pair 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadOut {
    /// From where to where.
    pub route: MadRoute,
    /// All 256 bytes.
    pub mad: [u8; MAD_BYTES],
}

/// What was never answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnansweredMessage {
    /// The request: the peer is not there.
    Req,
    /// The reply: the peer has gone.
    Rep,
    /// The question for a datagram queue pair.
    SidrReq,
}

/// Something happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A peer wants to connect: `accept` or `reject`. The id is new.
    ConnectRequest {
        /// Whom they asked.
        listener: ListenerId,
        /// Our end of the connection to be.
        id: CommId,
        /// Where they are.
        route: MadRoute,
        /// What they said.
        request: Box<Req>,
    },
    /// The peer accepts: bring the queue pair to RTS and call `send_rtu`, or `reject`.
    ConnectResponse {
        /// Which connection.
        id: CommId,
        /// What it said.
        reply: Box<Rep>,
    },
    /// Passive side: the peer is ready.
    Established {
        /// Which connection.
        id: CommId,
        /// Of the RTU; empty if data came first.
        private_data: Box<PrivateData<{ Rtu::PRIVATE_DATA_BYTES }>>,
    },
    /// The peer refuses, or gives up. The connection is over.
    Rejected {
        /// Which connection.
        id: CommId,
        /// What it said.
        rejection: Box<Rej>,
    },
    /// The peer does not answer. The connection is over.
    Unreachable {
        /// Which connection.
        id: CommId,
        /// What was not answered.
        unanswered: UnansweredMessage,
    },
    /// The peer asks for time.
    MraReceived {
        /// Which connection.
        id: CommId,
        /// How much, as a time code.
        service_timeout: u8,
    },
    /// The peer disconnects: bring the queue pair to ERR and call `disconnect`.
    DisconnectRequest {
        /// Which connection.
        id: CommId,
        /// Of the DREQ.
        private_data: Box<PrivateData<{ Dreq::PRIVATE_DATA_BYTES }>>,
    },
    /// Our disconnection is complete; timewait begins.
    Disconnected {
        /// Which connection.
        id: CommId,
        /// Of the DREP; `None` if the peer did not answer, or disconnected at the same time.
        private_data: Option<Box<PrivateData<{ Drep::PRIVATE_DATA_BYTES }>>>,
        /// Whether the peer has said anything to it; else the DREQ was repeated until its retries were spent.
        answered: bool,
    },
    /// Nothing of the connection is under way any more: its queue pair number can be used again.
    TimewaitExit {
        /// Which connection.
        id: CommId,
    },
    /// A peer asks for a datagram queue pair: `sidr_reply`. The id is new.
    SidrRequest {
        /// Whom they asked.
        listener: ListenerId,
        /// Of the question.
        id: CommId,
        /// Where they are.
        route: MadRoute,
        /// What they said.
        request: Box<SidrReq>,
    },
    /// The answer to `resolve`, good or bad.
    SidrResolved {
        /// Of the question.
        id: CommId,
        /// What it is.
        reply: Box<SidrRep>,
    },
}

impl Event {
    /// The connection.
    pub const fn id(&self) -> CommId {
        match self {
            Event::ConnectRequest { id, .. }
            | Event::ConnectResponse { id, .. }
            | Event::Established { id, .. }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id, .. }
            | Event::MraReceived { id, .. }
            | Event::DisconnectRequest { id, .. }
            | Event::Disconnected { id, .. }
            | Event::TimewaitExit { id }
            | Event::SidrRequest { id, .. }
            | Event::SidrResolved { id, .. } => *id,
        }
    }
}
