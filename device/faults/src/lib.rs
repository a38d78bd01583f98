//! What goes wrong on purpose: one vocabulary for real ports and for the simulated network.
//!
//! A [`FaultPlan`] is a value: rules, each with a name, a condition and what happens then. A device applies
//! it to what it sends itself: where a packet is made, the device knows *what the packet is* ([`PacketKey`]),
//! and the packet's [`Fate`] is a function of the seed, the rule's name and that key. A [`WirePlan`] is for
//! the simulated network, which sees packets and nothing else: it draws for each packet in the order of
//! sending.
//!
//! **Invariant**: a fate depends on no clock, no batch, no thread, no number of this run, and on no other
//! rule. The only state is what counts along one kind of traffic of one queue pair's connection, and where
//! that traffic stands (`frontier`).

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod action;
mod answer;
mod arbiter;
mod armed;
mod at_calls;
mod at_work;
mod befall;
pub mod calls;
mod change;
pub mod completion_events;
pub mod completions;
pub mod connections;
mod decide;
mod deed;
pub mod frontier;
mod identity;
mod incident;
pub mod live;
mod notes;
mod partition;
mod plan;
mod reach;
mod ready;
mod rejection;
mod select;
pub mod shuffle;
mod text;
mod timed;
mod traffic;
mod trigger;
mod waits;
mod when;
mod wire;

pub use action::{Delay, Fault};
pub use arbiter::{Arbiter, ForPort};
pub use at_work::PlanAtWork;
pub use befall::Adapter;
pub use change::{Moment, Parts};
pub use completion_events::{CompletionEventCounts, CompletionEventFaults};
pub use completions::{CompletionFaults, Verdict};
pub use decide::Faults;
pub use decide::Fired;
pub use identity::{PacketClass, PacketKey, PacketService};
pub use incident::Incident;
pub use incident::{FIRST_PORT, GID_TABLE_LEN, MAX_PORTS};
pub use notes::Notes;
pub use partition::Partitions;
pub use plan::{
    Bursts, FaultPlan, PacketRule, PlanError, Recorded, RecordedCall, RecordedCompletion, Recording, Rule,
    Steps, What, When,
};
pub use pumice_transport::types::{Fate, Flips};
pub use ready::{READY, ReadyPlan};
pub use rejection::RejData;
pub use select::{PacketSelector, Span};
pub use text::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, Comparison, CompletionEventLine,
    CompletionLine, Difference, FaultKind, KINDS, MAX_PLAN_BYTES, ReportLine, SELECTOR, Summary, TextError,
    WHEN, compare, summaries,
};
pub use text::{NthField, OrdinalField};
pub use trigger::Occurrence;
pub use trigger::Trigger;
pub use waits::Triggers;
pub use waits::{CallAttendant, Gate};
pub use wire::WireFaults;
pub use wire::{WirePlan, WireRule, WireTrigger};
