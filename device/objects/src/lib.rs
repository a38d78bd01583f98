//! The objects of the verbs, one file each: what an application makes, posts to, polls and waits at.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod address_handle;
pub mod armed_queues;
pub mod async_event;
pub mod completion_channel;
pub mod completion_queue;
pub mod event_account;
pub mod event_queue;
mod held_completions;
pub mod memory;
pub mod paced_events;
pub mod polled_sends;
pub mod recv_queue;
pub mod srq;
