//! The state of the memory that a program gives to its device.

use std::collections::VecDeque;

use pumice_platform::call_stack::Stack;
use pumice_platform::number_map::NumberMap;
use pumice_transport::types::RemoteRange;
use smallvec::SmallVec;

use super::super::context::FindingParts;
use super::payload::{BufferContents, BufferReader};
use super::polled_data::{ReplacedMessage, WatchedHeaders};
use super::regions::Regions;
use super::requests::{PostedRequests, QueueId};
use super::role::BufferRole;
use super::span::ByteSpan;
use super::watched::EarlyUses;

/// The memory of a program, as far as its device uses it.
#[derive(Debug, Default)]
pub(in crate::check) struct Memory {
    pub(super) reader: BufferReader,
    /// Bounds that were last notified.
    pub(super) bounds: (u64, u64),
    pub(super) regions: Regions,
    pub(super) requests: PostedRequests,
    /// Memory that the latest request of a peer names, by the number of the queue pair that serves it.
    pub(super) named: NumberMap<u32, RemoteRange>,
    /// Destinations of peers' WRITEs whose packets are arriving, by the numbers of the queue pairs.
    pub(super) arriving: NumberMap<u32, ByteSpan>,
    /// Receives of shared queues whose messages arrive, by the numbers of the queue pairs.
    pub(super) taken: NumberMap<u32, u64>,
    /// Requests whose buffers overlap, and whose completions wait to be polled; oldest first.
    pub(super) landed: VecDeque<LandedData>,
    /// Results of READs and atomics that the program may not use yet.
    pub(super) early_uses: EarlyUses,
    /// A message that another one has replaced, and that the program may read.
    pub(super) replaced: Option<ReplacedMessage>,
    /// Datagrams whose header the program may take for the payload.
    pub(super) headers: WatchedHeaders,
}

/// Data that came into buffers that another request uses, too.
#[derive(Debug)]
pub(super) struct LandedData {
    pub(super) queue: QueueId,
    pub(super) role: BufferRole,
    pub(super) wr_id: u64,
    pub(super) spans: SmallVec<[ByteSpan; 2]>,
    pub(super) contents: BufferContents,
    pub(super) stack: Stack,
    /// The finding to report if the program reads the buffer after another message has come into it.
    pub(super) replaced: Option<FindingParts>,
}

impl LandedData {
    /// Returns the number of its queue pair, if it has one of its own.
    pub(super) const fn queue_pair(&self) -> Option<u32> {
        match self.queue {
            QueueId::Sends(qp) | QueueId::Receives(qp) => Some(qp),
            QueueId::Shared(_) => None,
        }
    }
}
