//! A ring of batches in memory that two processes share: one writes, the other reads, no thread waits for a
//! lock, and a full ring refuses.
//!
//! The memory has three parts ([`Geometry`]):
//!
//! * **A header**: what the consumer has taken (slots and bytes of data, both since the beginning), and a
//!   word by which a consumer that is about to sleep asks to be woken. Each has a cache line of its own.
//! * **Slots** of a cache line each. The first word of a slot says in which lap round the ring it was
//!   written; the producer writes it last, so that a consumer which sees the lap sees the rest. 48 bytes of
//!   a batch fit in the slot itself: every request, response and acknowledgement of 8 bytes of payload.
//! * **Data**: bytes of longer batches, one batch behind the other, round and round. A batch that meets the
//!   end goes on at the beginning.
//!
//! How two processes come to share a ring is not known here; see [`same_host`](super::same_host).
//!
//! **Invariant**: each side keeps what it knows in its own memory and copies what the other side wrote before
//! it checks it. What cannot be true is [`Broken`], and the ring is used no more: no loop, no index and no
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

pub(super) use consumer::Consumer;
pub(super) use geometry::{Geometry, LINE_WORDS};
pub(super) use memory::RingMemory;
pub(super) use producer::{Producer, Pushed};
pub(super) use slot::{INLINE_BYTES, MAX_BATCH_BYTES, Slot, SlotKind};

/// The other side wrote what cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;
