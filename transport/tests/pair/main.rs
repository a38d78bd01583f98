//! Pair tests: two queue pairs back to back over a link in virtual time that loses, doubles and
//! reorders packets by a seed; and one queue pair under arbitrary packets.

mod arbitrary;
#[path = "../ladder/kit/mod.rs"]
mod kit;
mod lanes;
mod link;
mod node;
mod reliable;
mod unreliable;
mod workload;
