//! What the calling thread may do.

use rustix::thread::{CapabilitySet, capabilities};

/// Whether the calling thread may bind ports below 1024 (CAP_NET_BIND_SERVICE); also if it cannot be told.
pub fn may_bind_low_ports() -> bool {
    capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
}
