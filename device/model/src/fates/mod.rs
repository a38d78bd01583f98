//! What a fault plan can do to packets, calls, completions, events and the device, as values.

pub mod call;
pub mod completion;
pub mod completion_event;
pub mod details;
pub mod errno;
pub mod fired;
pub mod identity;
pub mod incident;
pub mod incident_effects;
pub mod live;
pub mod notes;
pub mod partition;
pub mod pattern;
pub mod refusal;
pub mod rejection;
pub mod status;
pub mod trigger;
