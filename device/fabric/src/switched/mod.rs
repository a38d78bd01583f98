//! Switches between the processes of a host, in real time and without a process of their own.
//!
//! All processes that name one [`Topology`](pumice_model::network::topology::Topology) share a few words for
//! each port of its switches ([`SwitchWords`]): until when the port is busy, and its counters. The process
//! that sends a packet takes it through the switches: [`SwitchedPort`] holds the packet, and joins the queue
//! of each port at the time at which the packet comes there, by advancing that port's word. So the packets of
//! all processes have one order at each port, and leave it one after the other at its rate. Only the last
//! step, the arrival, goes through the medium.

mod port;
mod ports;
#[cfg(test)]
mod tests;
mod transit;
mod words;

pub use port::{SwitchedPort, Switching};
pub use words::{PORT_WORDS, SwitchWords};
