//! Profiles: what the device says about itself, and where it stops.
//!
//! A profile is a TOML file. It says only what differs from [`default.toml`](Profile::default), which lists
//! everything there is to say. Built in are `default`, `rxe`, `connectx`, with eight devices `dgx-h100`, with
//! two `laptop`, with two ports `two-port`, and the personalities `connectx-7` and `efa`.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod addresses;
mod bounds;
mod capability;
mod congestion;
mod description;
mod device;
mod devices;
mod face;
mod port;
mod reading;
pub mod settings;
#[cfg(test)]
mod tests;
mod vendor;

pub use bounds::{Range, ranges};
pub use capability::Capabilities;
pub use congestion::{Algorithm, CongestionProfile, Preset};
pub use description::{Atomics, Profile};
pub use device::{DevicePortProfile, DeviceProfile};
pub use devices::{DeviceDescription, PortDescription};
pub use face::{DirectCalls, LinkLayer, NodeType, QueuePairKinds, Refusals};
pub use port::{PortProfile, Speed, Width};
pub use reading::BUILT_IN;
pub use reading::sentence;
pub use settings::PERSONALITIES;
pub use vendor::Vendor;
