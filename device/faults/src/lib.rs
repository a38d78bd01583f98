//! Fault plans: one vocabulary of injected faults for real ports and for the simulated network.
//!
//! A [`FaultPlan`] is a value: rules, each with a name, a condition and an effect. A device applies it to
//! what it sends itself: where a packet is made, the device knows *what the packet is* ([`PacketKey`]), and
//! the packet's [`Fate`] is a function of the seed, the rule's name and that key. A [`WirePlan`] is for the
//! simulated network, which sees packets and nothing else: it draws for each packet in the order of sending.
//!
//! **Invariant**: a fate depends on no clock, no batch, no thread, no number of this run, and on no other
//! rule. The only state is what rules count along one kind of traffic of one queue pair's connection, and the
//! progress of that traffic (`frontier`).

// Input from the network, from the program's arguments or from shared memory must not end the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod action;
mod answer;
mod arbiter;
mod armed;
mod at_calls;
pub mod calls;
mod change;
pub mod completion_events;
pub mod completions;
mod decide;
pub mod frontier;
mod incident;
mod plan;
pub mod port;
mod reach;
mod ready;
mod select;
mod settings;
mod text;
pub mod traffic;
mod waits;
mod wire;

pub use action::{Delay, Fault};
pub use arbiter::{Arbiter, PortDecisions};
pub use at_calls::ActivePlan;
pub use change::{PlanParts, ProcessProgress};
pub use completion_events::{CompletionEventCounts, CompletionEventFaults};
pub use completions::{CompletionFaults, CompletionVerdict};
pub use decide::Faults;
pub use plan::{
    Bursts, FaultPlan, PacketRule, PlanError, Recorded, RecordedCall, RecordedCompletion, Recording, Rule,
    RuleConditions, Steps, What,
};
pub use pumice_model::fates::details::{FIRST_PORT, MAX_PORTS};
pub use pumice_model::fates::fired::{Fired, RejData};
pub use pumice_model::fates::incident::{Adapter, GID_TABLE_LEN, Incident, IncidentKind};
pub use pumice_model::fates::trigger::{Occurrence, Partition, Partitions, Trigger};
pub use pumice_model::fates::{Notes, PacketClass, PacketKey, PacketService, live};
pub use pumice_transport::types::{Fate, Flips};
pub use ready::{READY, ReadyPlan};
pub use select::{PacketSelector, PlaneSpan, Span};
pub use text::{
    CALLS_SELECTOR, COMPLETION_EVENTS_SELECTOR, COMPLETIONS_SELECTOR, Comparison, CompletionEventLine,
    CompletionLine, Difference, FaultKind, KINDS, MAX_PLAN_BYTES, ReportLine, SELECTOR, Summary, TextError,
    WHEN, compare, summaries,
};
pub use text::{NthField, OrdinalField};
pub use waits::Triggers;
pub use waits::{CallHook, TriggerGate};
pub use wire::WireFaults;
pub use wire::{WirePlan, WireRule, WireTrigger};
