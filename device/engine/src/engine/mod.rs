//! The engine: queue pairs, the resources they use, and a port. The thread that holds the lock drives it.
//!
//! [`Engine::receive`] passes packets from the port to queue pairs (`drive`, `dispatch`);
//! [`Engine::transmit`] passes what they send to the port (`transmit`, `batch`); [`Engine::expire`] runs due
//! timers (`timers`, `schedule`). The engine never reads a clock: time is an argument, so the same code runs
//! under an operating system and in virtual time.

mod acknowledgements;
mod arrivals;
mod batch;
mod budget;
mod cached_deadline;
mod dispatch;
mod drive;
mod fault_effects;
mod frames;
mod incidents;
mod inspect;
mod lane;
mod mrc;
mod orders;
mod outages;
mod port_conditions;
mod queue_pairs;
mod reception;
mod reply;
mod schedule;
mod targets;
mod timers;
mod transmit;
mod turns;

pub(crate) use acknowledgements::Acknowledge;
pub(crate) use budget::{read_limit_packets, window_limit_packets};
pub(crate) use drive::Engine;
pub(crate) use lane::LanePoll;
pub(crate) use mrc::{BufferWindow, ENDPOINT_INDEX, EndpointAsk, MrcEntry, automatic, with_ports};
pub use mrc::{
    CcChange, CcProfile, ControlError, EvChange, EvMode, EvName, EvRecord, EvSlot, FormatChange, FormatMode,
    FormatProfile, MOST_EVS, MOST_PROFILES, MrcAttributes, MrcChosen, MrcEvEvent, ProfileStage,
};
pub(crate) use queue_pairs::{QpEntry, QueuePairs};
