//! What a queue pair does, step by step, for a user who asks for all steps (`--log debug`). An event borrows
//! what it tells of. The host decides whether events are made at all ([`crate::host::Host::is_traced`]).

use core::fmt;

use crate::host::Counter;
use crate::types::{QpState, RecvRequest, SendOpcode, WcStatus, WorkCompletion};
use crate::wire::{Opcode, Psn};

/// A step of a queue pair.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum TraceEvent<'a> {
    /// Its state changed.
    State {
        /// Before.
        from: QpState,
        /// After.
        to: QpState,
    },
    /// A send request was posted.
    SendPosted {
        /// Of the request.
        wr_id: u64,
        /// Its operation.
        opcode: SendOpcode,
        /// Its length.
        length_bytes: u32,
        /// PSN of its first packet.
        psn: Psn,
        /// PSNs that it takes.
        packet_count: u32,
    },
    /// A receive request was posted.
    RecvPosted {
        /// The request.
        request: &'a RecvRequest<'a>,
    },
    /// A request completed.
    Completed {
        /// Its completion.
        completion: &'a WorkCompletion,
        /// Handle of the completion queue.
        cq: u32,
    },
    /// A packet was dropped.
    Dropped {
        /// The counter that has it, by the name that `pumice stat` prints.
        counter: Counter,
        /// What it was.
        opcode: Opcode,
        /// Its PSN.
        psn: Psn,
    },
    /// Everything from a PSN on is sent again.
    SentAgain {
        /// The first one.
        psn: Psn,
        /// PSNs that were under way.
        packet_count: u32,
    },
    /// The acknowledgement timer expired.
    TimedOut {
        /// The oldest PSN without an answer.
        psn: Psn,
        /// Retries that are left.
        retries_left: u8,
    },
    /// The peer has no receive request posted: nothing is sent for a while.
    ReceiverNotReady {
        /// PSN that it refused.
        psn: Psn,
        /// Retries that are left; 7 means for ever.
        retries_left: u8,
    },
}

impl fmt::Display for TraceEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceEvent::State { from, to } => write!(f, "state {} to {}", from.name(), to.name()),
            TraceEvent::SendPosted { wr_id, opcode, length_bytes, psn, packet_count } => write!(
                f,
                "post {}  wr_id {wr_id:#x}  psn {}  {packet_count} packets  {length_bytes} B",
                opcode.name(),
                psn.value()
            ),
            TraceEvent::RecvPosted { request } => {
                let bytes: u64 = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
                write!(f, "post RECV  wr_id {:#x}  {bytes} B", request.wr_id)
            }
            TraceEvent::Completed { completion, cq } => {
                let WorkCompletion { wr_id, status, opcode, byte_len, .. } = completion;
                let direction = if opcode.is_recv() { "RECV" } else { "SEND" };
                write!(f, "complete {direction}  wr_id {wr_id:#x}  {}  cq {cq}", status.name())?;
                if *status == WcStatus::Success { write!(f, "  {byte_len} B") } else { Ok(()) }
            }
            TraceEvent::Dropped { counter, opcode, psn } => {
                write!(f, "drop {opcode}  psn {}  {counter:?}", psn.value())
            }
            TraceEvent::SentAgain { psn, packet_count } => {
                write!(f, "send again  psn {}  {packet_count} packets", psn.value())
            }
            TraceEvent::TimedOut { psn, retries_left } => {
                write!(f, "timer expired  psn {}  {retries_left} retries left", psn.value())
            }
            TraceEvent::ReceiverNotReady { psn, retries_left } => {
                write!(f, "receiver not ready  psn {}  {retries_left} retries left", psn.value())
            }
        }
    }
}
