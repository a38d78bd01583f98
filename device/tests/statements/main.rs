//! What software devices get wrong about the verbs API, as numbered statements: 28 to 48, on whole devices in
//! virtual time. Those about packets are tested on one queue pair in `transport/tests/ladder`.
#![allow(unreachable_pub)]

#[path = "../kit/mod.rs"]
mod kit;

mod datagrams;
mod events;
mod queues;
mod shared;
mod states;
