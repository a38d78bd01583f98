//! Rings between processes that share the UDP port of a network namespace: they exchange batches through
//! shared memory, with one ring for each direction, made by the process that sends.
//!
//! **How two processes come to a ring** ([`message`]): the sender makes the memory and invites the receiver,
//! by a datagram of the relay that carries the memory's descriptor. The receiver maps it and accepts, and its
//! answer carries the descriptor of its bell ([`EventFd`]), which the sender rings when the receiver sleeps.
//! Until the answer comes, and for ever if the answer is no, batches go by UDP.
//!
//! **Order**: batches that went by UDP before are in the receiver's socket buffer when the first one is in
//! the ring. So the receiver empties its socket before it takes from a new ring.
//!
//! **Restart**: a process index may come to belong to another process. Each process writes a number of its
//! own where all see it (`incarnation`); a sender compares it for each batch, and does not use a ring to a
//! process that has gone.
//!
//! A killed process leaves nothing behind: the memory has no name, and is freed with the last process that
//! has it.

mod inbound;
mod message;
mod outbound;
mod paths;
mod table;

pub(crate) use inbound::InboundRing;
pub(crate) use message::is_message;
pub(crate) use outbound::{PutOutcome, RingRoom};
pub(crate) use table::{NoRings, OutgoingMessage, RingReceive, SameHost};
