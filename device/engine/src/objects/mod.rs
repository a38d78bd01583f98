//! The objects of the verbs, one file each: what an application makes, posts to, polls and waits at.

pub mod armed_queues;
pub mod completion_channel;
pub mod completion_counter;
pub mod completion_queue;
pub(crate) mod direct_delivery;
pub mod freed_send_slots;
mod held_completions;
pub mod paced_events;
pub mod recv_queue;
pub mod srq;
pub mod tag_list;
