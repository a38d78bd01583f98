//! Adaptive retransmission: the timeouts of a requester that do not depend on the attribute `timeout`.

use crate::wire::transport_timer_ns;

/// Timeouts that double each time the peer stays silent, as on ConnectX adapters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdaptiveTimeout {
    /// First timeout in ns.
    pub first_ns: u64,
    /// Longest timeout in ns.
    pub last_ns: u64,
}

impl AdaptiveTimeout {
    /// Returns the timeout in ns after a number of timeouts without an answer.
    pub const fn wait_ns(&self, silences: u32) -> u64 {
        let most = self.first_ns.leading_zeros().saturating_sub(1);
        let doubled = self.first_ns << (if silences < most { silences } else { most });
        if doubled < self.last_ns { doubled } else { self.last_ns }
    }
}

/// Returns the timeout in ns of a requester with this attribute `timeout` after a number of timeouts without
/// an answer; `None` for ever.
#[inline]
pub(crate) fn wait_ns(timeout: u8, adaptive: Option<AdaptiveTimeout>, silences: u32) -> Option<u64> {
    let plain_ns = transport_timer_ns(timeout)?;
    Some(adaptive.map_or(plain_ns, |adaptive| adaptive.wait_ns(silences)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_last_whatever_the_attribute_says() {
        let adaptive = AdaptiveTimeout { first_ns: 2_000_000, last_ns: 12_000_000 };
        for timeout in [1, 14, 31] {
            let waits_ms =
                [0, 1, 2, 3, 4, 200].map(|n| wait_ns(timeout, Some(adaptive), n).unwrap() / 1_000_000);
            assert_eq!(waits_ms, [2, 4, 8, 12, 12, 12]);
        }
        assert_eq!(wait_ns(0, Some(adaptive), 0), None, "0 is for ever");
        assert_eq!(wait_ns(14, None, 3), transport_timer_ns(14));
        assert_eq!(AdaptiveTimeout { first_ns: 0, last_ns: 5 }.wait_ns(70), 0);
        assert_eq!(AdaptiveTimeout { first_ns: u64::MAX, last_ns: 5 }.wait_ns(70), 5);
    }
}
