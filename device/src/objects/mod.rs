//! The objects of the verbs, one file each: what an application makes, posts to, polls and waits at.

pub mod address_handle;
pub(crate) mod armed_queues;
pub mod async_event;
pub mod completion_channel;
pub mod completion_queue;
pub mod event_account;
pub(crate) mod event_queue;
mod held_completions;
pub(crate) mod paced_events;
pub mod polled_sends;
pub mod recv_queue;
pub mod srq;
