//! One connection: its state and the values that later messages need.

use alloc::boxed::Box;

use super::pace::Pace;
use super::{ListenerId, MadRoute, QpParameters};
use crate::mad::{CommId, MAD_BYTES, ServiceId};
use crate::wire::Qpn;

/// State of a connection in the communication manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CmState {
    /// The connection is over: only `destroy` remains.
    Idle,
    /// Active side: a REQ was sent and not answered yet.
    ReqSent,
    /// Active side: the peer answered the REQ with an MRA, which asks for more time.
    MraReqReceived,
    /// Passive side: a REQ arrived, and the consumer has to accept or reject it.
    ReqReceived,
    /// Passive side: as [`CmState::ReqReceived`], and an MRA asked the peer to wait.
    MraReqSent,
    /// Passive side: a REP was sent and not answered yet.
    RepSent,
    /// Passive side: the peer answered the REP with an MRA, which asks for more time.
    MraRepReceived,
    /// Active side: a REP arrived, and the consumer has to confirm or reject it.
    RepReceived,
    /// Active side: as [`CmState::RepReceived`], and an MRA asked the peer to wait.
    MraRepSent,
    /// The connection is established.
    Established,
    /// A DREQ was sent, and the DREP has not arrived.
    DreqSent,
    /// The peer sent a DREQ, and the consumer has to answer it.
    DreqReceived,
    /// The connection is disconnected; late messages are still answered.
    Timewait,
    /// A SIDR_REQ, the question for a datagram queue pair, was sent and not answered yet.
    SidrReqSent,
    /// A SIDR_REQ of a peer arrived, and the consumer has to answer it.
    SidrReqReceived,
}

/// The repetition of the message that the peer has not answered.
#[derive(Debug)]
pub(super) struct Repetition {
    /// Time to wait for an answer before the message is repeated, in nanoseconds, and the number of
    /// repetitions.
    pub(super) response_timeout_ns: u64,
    pub(super) max_retries: u8,
    /// Current repetition interval of the unanswered message, in nanoseconds, and the repetitions left.
    pub(super) interval_ns: u64,
    pub(super) retries_left: u8,
    /// Last message sent, stored so that it can be repeated.
    pub(super) last_sent: Option<SentMad>,
    /// State of the unanswered message in the [`Pacer`](super::pace::Pacer).
    pub(super) pace: Pace,
}

/// A connection in the [`ConnectionTable`](super::table::ConnectionTable) of connections.
#[derive(Debug)]
pub(super) struct CmConnection {
    pub(super) state: CmState,
    /// True while the consumer wants events of this connection.
    pub(super) consumer: bool,
    /// The listener whose backlog counts this connection.
    pub(super) waiting_at: Option<ListenerId>,
    pub(super) route: MadRoute,
    /// Transaction id of the conversation, repeated in answers.
    pub(super) transaction: u64,
    pub(super) service_id: ServiceId,
    pub(super) remote_id: CommId,
    pub(super) remote_ca_guid: u64,
    pub(super) local_qpn: Qpn,
    pub(super) repetition: Repetition,
    pub(super) qp: QpParameters,
    /// Time of the last question to the peer whether it still has the connection.
    pub(super) liveness_asked_ns: Option<u64>,
    /// Time at which the timer fires; maintained by the table.
    pub(super) deadline_ns: Option<u64>,
}

impl CmConnection {
    /// Returns the name of the other end: address, node GUID and communication id.
    pub(super) fn remote_end(&self) -> RemoteEnd {
        RemoteEnd { address: self.route.remote.0, ca_guid: self.remote_ca_guid, number: self.remote_id.0 }
    }

    /// Returns the name of the other end's queue pair: address, node GUID and queue pair number.
    pub(super) fn remote_queue_pair(&self) -> RemoteEnd {
        RemoteEnd {
            address: self.route.remote.0,
            ca_guid: self.remote_ca_guid,
            number: self.qp.dest_qpn.value(),
        }
    }
}

/// Name of an object at a peer: `number` is a communication id, a queue pair number or a request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RemoteEnd {
    pub(super) address: [u8; 16],
    pub(super) ca_guid: u64,
    pub(super) number: u32,
}

/// A MAD stored for repetition without its trailing zeros: most of a MAD is room for private data.
#[derive(Debug, Clone)]
pub(super) struct SentMad(Box<[u8]>);

impl SentMad {
    pub(super) fn new(mad: &[u8; MAD_BYTES]) -> SentMad {
        let used = mad.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        SentMad(mad.get(..used).unwrap_or(mad).into())
    }

    pub(super) fn mad(&self) -> [u8; MAD_BYTES] {
        let mut mad = [0; MAD_BYTES];
        mad.iter_mut().zip(&self.0).for_each(|(out, byte)| *out = *byte);
        mad
    }
}
