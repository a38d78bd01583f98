//! The part of a profile about the time after which a requester sends again.

use pumice_transport::qp::AdaptiveTimeout;
use serde::Deserialize;

/// The adaptive retransmission (`[adaptive_timer]`): the first wait, which doubles with each wait without an
/// answer up to the last. Without it the attribute `timeout` of a queue pair decides how long each wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveTimer {
    /// The first wait in µs; 0: the attribute `timeout` decides.
    pub first_us: u32,
    /// The longest wait in µs; 0: as the first.
    pub last_us: u32,
}

impl AdaptiveTimer {
    /// Returns the timeout for the protocol; `None`: the attribute decides.
    pub fn timeout(self) -> Option<AdaptiveTimeout> {
        let ns = |us: u32| u64::from(us) * 1_000;
        let last_ns = ns(self.last_us.max(self.first_us));
        (self.first_us != 0).then_some(AdaptiveTimeout { first_ns: ns(self.first_us), last_ns })
    }
}
