//! The capabilities of the calling thread.

use rustix::thread::{CapabilitySet, capabilities};

/// Reports whether the calling thread may bind ports below 1024 (CAP_NET_BIND_SERVICE); true if that is not
/// known.
pub fn may_bind_low_ports() -> bool {
    capabilities(None).map_or(true, |sets| sets.effective.contains(CapabilitySet::NET_BIND_SERVICE))
}
