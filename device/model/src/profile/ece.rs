//! The part of a profile about enhanced connection establishment (ECE): connection options that two ends
//! agree on.

use serde::Deserialize;

/// The options of a device (`[ece]`). By default it has none, of no vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EceProfile {
    /// The vendor of the options, as in `ibv_query_ece`.
    pub vendor_id: u32,
    /// The options that the device has, a bit each.
    pub options: u32,
}

impl Default for EceProfile {
    fn default() -> EceProfile {
        // The number belongs to no vendor.
        EceProfile { vendor_id: 0xff_ffff, options: 0 }
    }
}
