//! What a fault plan can do to packets, calls, completions, events and the device, as values.

pub mod completion;
pub mod details;
pub mod fired;
pub mod identity;
pub mod incident;
pub mod live;
pub mod trigger;
