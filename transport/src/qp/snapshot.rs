//! The state of an XRC target as a value, with which several processes in turn act as the same target.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::attributes::QpAttributes;
use super::inbound::PartialMessage;
use super::peer_port::PeerPort;
use super::response::{Replay, ReplayKind};
use super::{QueuePair, ReceivingSide};
use crate::host::Host;
use crate::path::Path;
use crate::types::{QpState, WcStatus};
use crate::wire::Psn;

/// The state of an XRC target, except responses that have not left and the receive request of a message in
/// progress: those stay in the process that executed the requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetSnapshot {
    /// State.
    pub state: QpState,
    /// Number of resets: messages from before a reset are not continued.
    pub epoch: u32,
    /// Attributes as `modify_qp` set them.
    pub attributes: QpAttributes,
    /// P_Key of its packets.
    pub pkey: u16,
    /// Path of responses, once connected.
    pub path: Option<Path>,
    /// State of the responder.
    pub responder: ResponderSnapshot,
}

/// Progress of a responder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponderSnapshot {
    /// PSN that is expected next, 24 bits.
    pub expected_psn: u32,
    /// Number of messages completed, 24 bits.
    pub msn: u32,
    /// True if a sequence or RNR NAK was sent and not resolved.
    pub nak_outstanding: bool,
    /// True if the first packet has arrived.
    pub communication_established: bool,
    /// Message of which some packets have arrived.
    pub message: MessageSnapshot,
    /// XRC SRQ that the message names.
    pub message_srqn: Option<u32>,
    /// Executed READs and atomics, oldest first.
    pub replays: Vec<ReplaySnapshot>,
}

/// A message of which some packets have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MessageSnapshot {
    /// No message is in progress.
    #[default]
    None,
    /// A SEND.
    Send {
        /// Number of bytes received.
        offset: u64,
        /// True if the queue pair that exports or imports the snapshot holds the receive request.
        here: bool,
    },
    /// An RDMA WRITE.
    Write {
        /// Key of the memory.
        rkey: u32,
        /// Address of the next byte.
        address: u64,
        /// Number of bytes to come, at most `total_bytes`.
        remaining_bytes: u64,
        /// Length of the message in bytes.
        total_bytes: u32,
    },
}

/// An executed request whose answer may be asked for again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaySnapshot {
    /// A READ, which is executed again.
    Read {
        /// First PSN of the answer, 24 bits.
        first_psn: u32,
        /// PSNs of the answer.
        count: u32,
        /// Key of the memory.
        rkey: u32,
        /// Address of the memory.
        address: u64,
        /// Length of the memory in bytes.
        length_bytes: u32,
    },
    /// An atomic, which is answered with its first original value.
    Atomic {
        /// PSN of the request, 24 bits.
        psn: u32,
        /// Value before the operation.
        original: u64,
    },
    /// A FLUSH or ATOMIC WRITE.
    Empty {
        /// PSN of the request, 24 bits.
        psn: u32,
    },
}

impl From<Replay> for ReplaySnapshot {
    fn from(replay: Replay) -> ReplaySnapshot {
        let first_psn = replay.first_psn.value();
        match replay.kind {
            ReplayKind::Read { rkey, address, length_bytes } => {
                ReplaySnapshot::Read { first_psn, count: replay.count, rkey, address, length_bytes }
            }
            ReplayKind::Atomic { original } => ReplaySnapshot::Atomic { psn: first_psn, original },
            ReplayKind::Empty => ReplaySnapshot::Empty { psn: first_psn },
        }
    }
}

impl From<ReplaySnapshot> for Replay {
    fn from(snapshot: ReplaySnapshot) -> Replay {
        // The number of the request is not in the snapshot: only fault plans use it.
        let message = 0;
        match snapshot {
            ReplaySnapshot::Read { first_psn, count, rkey, address, length_bytes } => Replay {
                first_psn: Psn::new(first_psn),
                count,
                message,
                kind: ReplayKind::Read { rkey, address, length_bytes },
            },
            ReplaySnapshot::Atomic { psn, original } => {
                Replay { first_psn: Psn::new(psn), count: 1, message, kind: ReplayKind::Atomic { original } }
            }
            ReplaySnapshot::Empty { psn } => {
                Replay { first_psn: Psn::new(psn), count: 1, message, kind: ReplayKind::Empty }
            }
        }
    }
}

impl QueuePair {
    /// Exports the state of an XRC target. For another kind of queue pair it exports only state and
    /// attributes.
    pub fn export_target(&self, into: &mut TargetSnapshot) {
        into.state = self.state;
        into.epoch = self.settings.connection;
        into.attributes.clone_from(&self.attributes);
        into.pkey = self.settings.pkey;
        into.path = self.settings.path.as_deref().cloned();
        let ReceivingSide::Reliable(responder) = &self.receiver else { return };
        let to = &mut into.responder;
        to.expected_psn = responder.expected.value();
        to.msn = responder.msn;
        to.nak_outstanding = responder.nak_outstanding;
        to.communication_established = responder.communication_established;
        to.message = match responder.inbound.message {
            PartialMessage::None => MessageSnapshot::None,
            PartialMessage::Send { offset } => MessageSnapshot::Send { offset, here: true },
            PartialMessage::Elsewhere { offset } => MessageSnapshot::Send { offset, here: false },
            PartialMessage::Write { rkey, address, remaining, total } => {
                MessageSnapshot::Write { rkey, address, remaining_bytes: remaining, total_bytes: total }
            }
        };
        to.message_srqn = responder.message_srqn.filter(|_| to.message != MessageSnapshot::None);
        to.replays.clear();
        to.replays.extend(responder.responses.replays.iter().map(|&replay| ReplaySnapshot::from(replay)));
    }

    /// Moves to ERR without events, because the target failed here and that was reported already; other
    /// processes are to be notified.
    pub fn enter_error_quietly(&mut self) {
        self.state = QpState::Err;
        if let ReceivingSide::Reliable(responder) = &mut self.receiver {
            responder.inbound.message = PartialMessage::None;
            responder.inbound.holds_recv = false;
        }
    }

    /// Flushes the receive request of a message in progress, because the target is being destroyed.
    pub fn flush_message<H: Host>(&mut self, host: &mut H) {
        self.complete_held_recv(WcStatus::WrFlushErr, host);
    }

    /// Imports the state of a target, perhaps exported by another process, which may be malicious: any value
    /// is safe. A receive request of a message that is not in progress any more is flushed if the target
    /// failed, and dropped if it was reset. No events are raised: the process that changed the state has
    /// raised them.
    ///
    /// A queue pair that initiates as well keeps its own state and attributes, which no other process
    /// changes: it only imports the state of what was received for it, and fails if the target failed.
    pub fn import_target<H: Host>(&mut self, snapshot: &TargetSnapshot, host: &mut H) {
        if self.settings.qp_type.is_both_halves() {
            return self.import_receiving_half(snapshot, host);
        }
        let reborn = self.settings.connection != snapshot.epoch;
        self.settings.connection = snapshot.epoch;
        self.attributes.clone_from(&snapshot.attributes);
        self.attributes.cap = self.capacity;
        self.settings.pkey = snapshot.pkey;
        self.settings.rq_psn = Psn::new(snapshot.attributes.rq_psn);
        if self.settings.path.as_deref() != snapshot.path.as_ref() {
            self.settings.path = snapshot.path.clone().map(Arc::new);
            self.notifier.forget_path();
            self.peer_port = PeerPort::default();
        }
        self.apply(None);
        self.import_responder(snapshot, reborn, host);
        self.state = snapshot.state;
    }

    fn import_receiving_half<H: Host>(&mut self, snapshot: &TargetSnapshot, host: &mut H) {
        if self.settings.connection != snapshot.epoch || matches!(self.state, QpState::Reset | QpState::Err) {
            return;
        }
        self.import_responder(snapshot, false, host);
        if snapshot.state == QpState::Err {
            self.state = QpState::Err;
            self.draining = false;
            self.requester.flush(&self.settings, host);
        }
    }

    fn import_responder<H: Host>(&mut self, snapshot: &TargetSnapshot, reborn: bool, host: &mut H) {
        let failed = snapshot.state == QpState::Err;
        let from = &snapshot.responder;
        let ReceivingSide::Reliable(responder) = &mut self.receiver else { return };
        let held = responder.inbound.holds_recv;
        let held_offset = match responder.inbound.message {
            PartialMessage::Send { offset } => offset,
            _ => 0,
        };
        let continues = held && !reborn && !failed;
        let next = match from.message {
            MessageSnapshot::Send { here: true, .. } if continues => {
                PartialMessage::Send { offset: held_offset }
            }
            MessageSnapshot::Send { offset, .. } => PartialMessage::Elsewhere { offset },
            MessageSnapshot::Write { rkey, address, remaining_bytes, total_bytes } => {
                PartialMessage::Write { rkey, address, remaining: remaining_bytes, total: total_bytes }
            }
            MessageSnapshot::None => PartialMessage::None,
        };
        if held && failed && !reborn && self.state != QpState::Err {
            responder.inbound.fail(&self.settings, WcStatus::WrFlushErr, host);
        }
        responder.inbound.message = if failed { PartialMessage::None } else { next };
        responder.inbound.holds_recv = matches!(responder.inbound.message, PartialMessage::Send { .. });
        responder.message_srqn = from.message_srqn;
        responder.expected = Psn::new(from.expected_psn);
        responder.msn = from.msn & 0xff_ffff;
        responder.nak_outstanding = from.nak_outstanding;
        responder.communication_established = from.communication_established;
        responder.responses.replays.clear();
        responder.responses.replays.extend(from.replays.iter().map(|&replay| Replay::from(replay)));
        if reborn || snapshot.state == QpState::Reset {
            responder.responses.drop_all();
        } else if failed {
            responder.responses.drop_data();
        }
    }
}
