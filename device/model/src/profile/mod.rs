//! Profiles: the device's description of itself, and its limits.
//!
//! A profile is a TOML file. It contains only what differs from [`default.toml`](Profile::default), which
//! lists all fields. [`BUILT_IN`] has the profiles that pumice brings.

mod bounds;
mod congestion;
mod description;
mod devices;
mod personality_traits;
#[cfg(test)]
mod tests;

pub use crate::built_in::{BUILT_IN, BuiltIn};
pub use bounds::{ValueRange, ranges, sentence};
pub use congestion::{
    Algorithm, CongestionProfile, DevicePortProfile, DeviceProfile, PortProfile, Preset, Speed, Width,
};
pub use description::{AdaptiveTimer, Atomics, Capabilities, EceProfile, Profile, Vendor};
pub use devices::{DeviceDescription, PortDescription};
pub use personality_traits::{
    DirectCalls, Failures, LinkLayer, NodeType, OwnVendorErrs, PostCall, Provider, QpnReuse, QueuePairKinds,
    Refusals, VENDOR_ERRS, VendorErr,
};
