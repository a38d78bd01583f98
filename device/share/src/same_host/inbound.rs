//! A ring that another process sends through.

use pumice_ports::Received;

use super::paths::{BatchPath, MAX_PATHS};
use crate::member_index::MemberIndex;
use crate::ring::{Broken, Consumer, MAX_BATCH_BYTES, RingMemory, SlotKind};
use crate::system::RingPages;

/// Room for a batch that was copied out of a ring.
pub(crate) type BatchBuffer = [u8; MAX_BATCH_BYTES as usize];

/// The consumer of a ring, and what the producer has said about paths.
#[derive(Debug)]
pub(crate) struct Inbound<M = RingPages> {
    /// The process that invited this one.
    pub(super) from: MemberIndex,
    /// Which of that process's rings it is.
    pub(super) number: u64,
    consumer: Consumer<M>,
    ways: Box<[Option<Way>]>,
    /// Nothing was taken yet: batches that went by UDP before come first.
    pub(super) is_fresh: bool,
    /// There is a newer ring from this member index: this one goes when it is empty.
    pub(super) is_superseded: bool,
}

/// A path that the producer has said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    path: BatchPath,
    /// Who takes the batches has found that this path leads to it.
    pub(super) leads_here: bool,
}

/// A batch, and the path that it took.
pub(crate) type Taken<'a, 'b> = (Received<'b>, &'a mut Way);

impl<M: RingMemory> Inbound<M> {
    pub(crate) fn new(from: MemberIndex, number: u64, consumer: Consumer<M>) -> Inbound<M> {
        let ways = vec![None; MAX_PATHS].into_boxed_slice();
        Inbound { from, number, consumer, ways, is_fresh: true, is_superseded: false }
    }

    /// Whether there is something to take.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.consumer.has_more()
    }

    /// Takes the next batch. `None`: there is none.
    ///
    /// # Errors
    /// The producer wrote what no producer writes.
    #[inline]
    pub(crate) fn take<'a, 'b>(
        &'a mut self,
        buffer: &'b mut BatchBuffer,
    ) -> Result<Option<Taken<'a, 'b>>, Broken> {
        // A producer describes a path before a batch that takes it: one slot each.
        let mut descriptions = 0..MAX_PATHS;
        let slot = loop {
            let Some(slot) = self.consumer.take(buffer)? else { return Ok(None) };
            if slot.kind != SlotKind::Path {
                break slot;
            }
            descriptions.next().ok_or(Broken)?;
            let way = self.ways.get_mut(usize::from(slot.path)).ok_or(Broken)?;
            let bytes = buffer.get(..slot.length_bytes as usize).ok_or(Broken)?;
            let path = BatchPath::decode(bytes).ok_or(Broken)?;
            *way = Some(Way { path, leads_here: false });
        };
        let way = self.ways.get_mut(usize::from(slot.path)).and_then(Option::as_mut).ok_or(Broken)?;
        let BatchPath { flow, traffic_class, hop_limit } = way.path;
        let bytes = buffer.get(..slot.length_bytes as usize).ok_or(Broken)?;
        let received = Received {
            flow,
            traffic_class,
            hop_limit,
            segment_bytes: slot.segment_bytes as usize,
            bytes,
            has_icrc: slot.kind == SlotKind::Sealed,
        };
        Ok(Some((received, way)))
    }

    /// This process is about to sleep. False: there is something to take.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.consumer.prepare_sleep()
    }
}
