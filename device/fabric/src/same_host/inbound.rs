//! The receiving end of a ring that another process sends through.

use pumice_model::port::batch::ReceivedBatch;

use super::paths::{BatchPath, MAX_PATHS};
use crate::members::member_index::MemberIndex;
use crate::ring::{Broken, Consumer, INLINE_BYTES, MAX_BATCH_BYTES, NotShort, RingMemory, SlotKind};
use crate::system::RingPages;

/// Room for a batch that was copied out of a ring.
pub(crate) type BatchBuffer = [u8; MAX_BATCH_BYTES as usize];

/// The consumer of a ring, and the paths that the producer has described.
#[derive(Debug)]
pub(crate) struct InboundRing<M = RingPages> {
    /// Process that invited this one.
    pub(super) from: MemberIndex,
    /// Number of the ring among those of that process.
    pub(super) number: u64,
    consumer: Consumer<M>,
    ring_paths: Box<[Option<RingPath>]>,
    /// No batch was taken yet; batches that went by UDP before come first.
    pub(super) is_fresh: bool,
    /// A newer ring from this member index exists: this one is removed when it is empty.
    pub(super) is_superseded: bool,
}

/// A path that the producer has described.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingPath {
    path: BatchPath,
    /// The receiver of the batches has found that this path leads to it.
    pub(super) reaches_this_process: bool,
}

/// A batch, and the path that it took.
pub(crate) type TakenBatch<'a, 'b> = (ReceivedBatch<'b>, &'a mut RingPath);

impl<M: RingMemory> InboundRing<M> {
    pub(crate) fn new(from: MemberIndex, number: u64, consumer: Consumer<M>) -> InboundRing<M> {
        let ring_paths = vec![None; MAX_PATHS].into_boxed_slice();
        InboundRing { from, number, consumer, ring_paths, is_fresh: true, is_superseded: false }
    }

    /// Reports whether there is something to take.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.consumer.has_more()
    }

    /// Takes the next batch. Returns `None` if the ring is empty.
    ///
    /// # Errors
    /// Fails if the producer wrote something invalid.
    #[inline]
    pub(crate) fn take<'a, 'b>(
        &'a mut self,
        buffer: &'b mut BatchBuffer,
    ) -> Result<Option<TakenBatch<'a, 'b>>, Broken> {
        // A producer describes a path before a batch that takes it, in one slot each.
        let mut descriptions = 0..MAX_PATHS;
        let slot = loop {
            let Some(slot) = self.consumer.take(buffer)? else { return Ok(None) };
            if slot.kind != SlotKind::Path {
                break slot;
            }
            descriptions.next().ok_or(Broken)?;
            let ring_path = self.ring_paths.get_mut(usize::from(slot.path)).ok_or(Broken)?;
            let bytes = buffer.get(..slot.length_bytes as usize).ok_or(Broken)?;
            let path = BatchPath::decode(bytes).ok_or(Broken)?;
            *ring_path = Some(RingPath { path, reaches_this_process: false });
        };
        let ring_path =
            self.ring_paths.get_mut(usize::from(slot.path)).and_then(Option::as_mut).ok_or(Broken)?;
        let BatchPath { flow, traffic_class, hop_limit } = ring_path.path;
        let bytes = buffer.get(..slot.length_bytes as usize).ok_or(Broken)?;
        let received = ReceivedBatch {
            flow,
            traffic_class,
            hop_limit,
            segment_bytes: slot.segment_bytes as usize,
            bytes,
            has_icrc: slot.kind == SlotKind::Sealed,
        };
        Ok(Some((received, ring_path)))
    }

    /// Takes the next batch, if it is a short one without ICRC whose path is known to lead to this process,
    /// and `accepts` it. Returns `Ok(None)` if the ring is empty.
    ///
    /// # Errors
    /// The batch is another one, and is still in the ring.
    #[inline]
    pub(super) fn take_short<'b>(
        &mut self,
        buffer: &'b mut BatchBuffer,
        accepts: impl FnOnce(&ReceivedBatch<'b>) -> bool,
    ) -> Result<Option<ReceivedBatch<'b>>, NotShort> {
        let short = buffer.first_chunk_mut::<INLINE_BYTES>().ok_or(NotShort)?;
        let Some(slot) = self.consumer.peek_short(short)? else { return Ok(None) };
        let ring_path = self.ring_paths.get(usize::from(slot.path)).and_then(Option::as_ref);
        let RingPath { path, .. } = ring_path.filter(|path| path.reaches_this_process).ok_or(NotShort)?;
        let received = ReceivedBatch {
            flow: path.flow,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            segment_bytes: slot.segment_bytes as usize,
            bytes: short.get(..slot.length_bytes as usize).ok_or(NotShort)?,
            has_icrc: false,
        };
        if !accepts(&received) {
            return Err(NotShort);
        }
        self.consumer.take_peeked();
        Ok(Some(received))
    }

    /// Prepares for this process to sleep. Returns false if there is something to take.
    pub(super) fn prepare_sleep(&self) -> bool {
        self.consumer.prepare_sleep()
    }
}
