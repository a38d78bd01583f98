//! Profiles: the device's description of itself, and its limits.
//!
//! A profile is a TOML file. It contains only what differs from [`default.toml`](Profile::default), which
//! lists all fields. [`BUILT_IN`] has the profiles that pumice brings.

mod bounds;
mod capability;
mod congestion;
mod description;
mod device;
mod devices;
mod ece;
mod failures;
mod personality_traits;
mod port;
mod reading;
mod retransmission;
#[cfg(test)]
mod tests;
mod vendor;

pub use crate::built_in::{BUILT_IN, BuiltIn};
pub use bounds::{ValueRange, ranges};
pub use capability::Capabilities;
pub use congestion::{Algorithm, CongestionProfile, Preset};
pub use description::{Atomics, Profile};
pub use device::{DevicePortProfile, DeviceProfile};
pub use devices::{DeviceDescription, PortDescription};
pub use ece::EceProfile;
pub use failures::{Failures, OwnVendorErrs, PostCall, Provider, VENDOR_ERRS, VendorErr};
pub use personality_traits::{DirectCalls, LinkLayer, NodeType, QpnReuse, QueuePairKinds, Refusals};
pub use port::{PortProfile, Speed, Width};
pub use reading::sentence;
pub use retransmission::AdaptiveTimer;
pub use vendor::Vendor;
