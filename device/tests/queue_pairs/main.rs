//! Queue pairs of real devices: every transition, every status, every size.
#![allow(unreachable_pub)]

#[path = "../kit/mod.rs"]
mod kit;

mod capacities;
mod source_ports;
mod statuses;
mod transitions;
