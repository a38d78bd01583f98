//! What is known of the memory that a program gives to its device.

use std::collections::VecDeque;

use pumice_ground::call_stack::Stack;
use pumice_ground::number_map::NumberMap;
use pumice_transport::types::RemoteRange;
use smallvec::SmallVec;

use super::payload::{Contents, Reader};
use super::regions::Regions;
use super::requests::{QueueId, Requests};
use super::role::Role;
use super::span::Span;
use super::watched::EarlyUses;

/// The memory of a program, as far as its device has to do with it.
#[derive(Debug, Default)]
pub(in crate::check) struct Memory {
    pub(super) reader: Reader,
    /// As they were told last.
    pub(super) bounds: (u64, u64),
    pub(super) regions: Regions,
    pub(super) requests: Requests,
    /// What the latest request of a peer names, by the number of the queue pair that serves it.
    pub(super) named: NumberMap<u32, RemoteRange>,
    /// Where WRITEs of peers go of which packets arrive, by the numbers of the queue pairs.
    pub(super) arriving: NumberMap<u32, Span>,
    /// Receives of shared queues whose messages arrive, by the numbers of the queue pairs.
    pub(super) taken: NumberMap<u32, u64>,
    /// Requests whose buffers overlap, and whose completions wait to be polled; oldest first.
    pub(super) landed: VecDeque<Landed>,
    /// Results of READs and atomics that the program may not use yet.
    pub(super) early_uses: EarlyUses,
}

/// What came into buffers that another request uses, too.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) queue: QueueId,
    pub(super) role: Role,
    pub(super) wr_id: u64,
    pub(super) spans: SmallVec<[Span; 2]>,
    pub(super) contents: Contents,
    pub(super) stack: Stack,
}

impl Landed {
    /// The number of its queue pair, if it has one of its own.
    pub(super) const fn queue_pair(&self) -> Option<u32> {
        match self.queue {
            QueueId::Sends(qp) | QueueId::Receives(qp) => Some(qp),
            QueueId::Shared(_) => None,
        }
    }
}
