//! A ring of batches in memory that two processes share: one writes, the other reads, no thread waits for a
//! lock, and a push into a full ring is refused.
//!
//! The memory has three parts ([`Geometry`]):
//!
//! * **A header**: what the consumer has taken (slots and bytes of data, both since the beginning), and the
//!   waiter flag by which a consumer that is about to sleep asks to be woken. Each has a cache line of its
//!   own.
//! * **Slots** of two cache lines each. The first word of a slot says in which lap round the ring it was
//!   written; the producer writes it last, so that a consumer which sees the lap sees the rest. 112 bytes of
//!   a batch fit in the slot itself: every request of 8 bytes of payload with an acknowledgement behind it.
//! * **Data**: bytes of longer batches, one batch behind the other, round and round. A batch that meets the
//!   end continues at the beginning.
//!
//! The module [`same_host`](super::same_host) decides how two processes come to share a ring.
//!
//! **Invariant**: each side keeps its state in its own memory and copies what the other side wrote before it
//! checks it. An invalid value is [`Broken`], and the ring is not used any more: no loop, no index and no
//! length depends on the other side's good behaviour.
//!
//! **Invariant**: a side may stop at any instruction. What it wrote then is either a whole slot or none.

mod consumer;
mod geometry;
mod memory;
mod producer;
#[cfg(any(test, kani))]
mod proofs;
mod slot;
#[cfg(test)]
mod tests;

pub(crate) use consumer::{Consumer, NotShort};
pub(crate) use geometry::{Geometry, SLOT_WORDS};
pub(crate) use memory::RingMemory;
pub(crate) use producer::{Producer, RingPushOutcome};
pub(crate) use slot::{INLINE_BYTES, MAX_BATCH_BYTES, Slot, SlotKind};

/// The error that the other side of a ring wrote an invalid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;
