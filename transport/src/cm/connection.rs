//! One connection: its state and what has to be remembered of it.

use alloc::boxed::Box;

use super::pace::Pace;
use super::{ListenerId, MadRoute, QpParameters};
use crate::mad::{CommId, MAD_BYTES, ServiceId};
use crate::wire::Qpn;

/// Where a connection is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Over: only `destroy` is left.
    Idle,
    /// Active: the request is under way.
    ReqSent,
    /// Active: the peer asked for time.
    MraReqReceived,
    /// Passive: the consumer is asked.
    ReqReceived,
    /// Passive: as before, and the peer was asked for time.
    MraReqSent,
    /// Passive: the reply is under way.
    RepSent,
    /// Passive: the peer asked for time.
    MraRepReceived,
    /// Active: the consumer is asked.
    RepReceived,
    /// Active: as before, and the peer was asked for time.
    MraRepSent,
    /// Connected.
    Established,
    /// We disconnect.
    DreqSent,
    /// The peer disconnects.
    DreqReceived,
    /// Disconnected; late messages are still answered.
    Timewait,
    /// A question for a datagram queue pair is under way.
    SidrReqSent,
    /// A peer asks for a datagram queue pair.
    SidrReqReceived,
}

/// A connection of a table.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: State,
    /// Whether its consumer still wants to hear of it.
    pub(super) consumer: bool,
    /// The listener whose backlog it counts against.
    pub(super) waiting_at: Option<ListenerId>,
    pub(super) route: MadRoute,
    /// Of the conversation: repeated in answers.
    pub(super) transaction: u64,
    pub(super) service_id: ServiceId,
    pub(super) remote_id: CommId,
    pub(super) remote_ca_guid: u64,
    pub(super) local_qpn: Qpn,
    /// How long to wait for an answer before the message is repeated, and how often it is.
    pub(super) response_timeout_ns: u64,
    pub(super) max_retries: u8,
    /// Of the message under way: the current interval, and repetitions left.
    pub(super) interval_ns: u64,
    pub(super) retries_left: u8,
    /// What may have to be said again: the message under way, or the last one.
    pub(super) said: Option<SaidMad>,
    /// Whether the message under way has left.
    pub(super) pace: Pace,
    pub(super) qp: QpParameters,
    /// When the peer was last asked whether it still has the connection.
    pub(super) asked_ns: Option<u64>,
    /// Owned by the table: when its timer fires.
    pub(super) deadline_ns: Option<u64>,
}

impl Connection {
    /// How the other end is named: address, node GUID, communication id.
    pub(super) fn remote_end(&self) -> RemoteEnd {
        RemoteEnd { address: self.route.remote.0, ca_guid: self.remote_ca_guid, number: self.remote_id.0 }
    }

    /// How the other end's queue pair is named.
    pub(super) fn remote_queue_pair(&self) -> RemoteEnd {
        RemoteEnd {
            address: self.route.remote.0,
            ca_guid: self.remote_ca_guid,
            number: self.qp.dest_qpn.value(),
        }
    }
}

/// Name of something at a peer: a communication id, a queue pair number, a request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RemoteEnd {
    pub(super) address: [u8; 16],
    pub(super) ca_guid: u64,
    pub(super) number: u32,
}

/// A MAD kept for repetition, without the zeros at its end: most of a MAD is room for private data.
#[derive(Debug, Clone)]
pub(super) struct SaidMad(Box<[u8]>);

impl SaidMad {
    pub(super) fn new(mad: &[u8; MAD_BYTES]) -> SaidMad {
        let used = mad.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        SaidMad(mad.get(..used).unwrap_or(mad).into())
    }

    pub(super) fn mad(&self) -> [u8; MAD_BYTES] {
        let mut mad = [0; MAD_BYTES];
        mad.iter_mut().zip(&self.0).for_each(|(out, byte)| *out = *byte);
        mad
    }
}
