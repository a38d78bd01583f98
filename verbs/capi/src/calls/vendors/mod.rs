//! Calls of vendors' libraries that work on a device that looks like the vendor's. On every other device they
//! are refused like calls that are not implemented.

pub(crate) mod dc;
pub(crate) mod efa;
pub(crate) mod mlx5;
pub(crate) mod mlx5_keys;
pub(crate) mod mlx5_queues;
pub(crate) mod mlx5_requests;

use pumice_device::profile::Vendor;

use crate::log::settings::profile;

/// Reports whether programs of this process get the calls of a vendor.
pub(crate) fn has_vendor_calls(vendor: Vendor) -> bool {
    profile().is_ok_and(|profile| profile.direct_calls() == Some(vendor))
}

/// Reports whether a device of this process may look like one of a vendor.
fn imitates(vendor: Vendor) -> bool {
    profile().is_ok_and(|profile| profile.has_device_of(vendor))
}
