//! A port's link towards the switch: serialisation at a rate behind a bounded queue.

use super::config::FabricConfig;

/// Ethernet header and FCS.
const ETHERNET_BYTES: usize = 14 + 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// IP and UDP headers in front of a packet.
pub(super) fn ip_overhead(ipv4: bool) -> usize {
    UDP_BYTES + if ipv4 { IPV4_BYTES } else { IPV6_BYTES }
}

/// Bytes a packet takes on the link.
pub(super) fn wire_bytes(ipv4: bool, payload_bytes: usize) -> usize {
    ETHERNET_BYTES + ip_overhead(ipv4) + payload_bytes
}

/// What Linux charges a receive buffer for a packet that did not come in a batch: the power of two its
/// data fits into and the bookkeeping (measured: 832 bytes for 24, 2305 for 1056, 8456 for 4128).
pub(super) fn receive_charge(payload_bytes: usize) -> usize {
    (payload_bytes + 320).next_power_of_two().max(576) + 264
}

/// When the link is free again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Link {
    free_at_ns: u64,
}

/// A packet that got onto the link.
pub(super) struct Departure {
    /// Its last bit has left.
    pub(super) at_ns: u64,
    /// What was in front of it.
    pub(super) backlog_bytes: u64,
}

impl Link {
    /// Queues a packet of `bytes` on the wire; `None` if the queue is full.
    pub(super) fn send(&mut self, config: &FabricConfig, now_ns: u64, bytes: usize) -> Option<Departure> {
        let Some(rate) = config.rate_bits_per_second else {
            return Some(Departure { at_ns: now_ns, backlog_bytes: 0 });
        };
        let rate = u128::from(rate.max(1));
        let bytes = bytes as u64;
        let waiting_ns = self.free_at_ns.saturating_sub(now_ns);
        let backlog_bytes = u64::try_from(u128::from(waiting_ns) * rate / 8_000_000_000).unwrap_or(u64::MAX);
        if backlog_bytes.saturating_add(bytes) > config.queue_bytes as u64 {
            return None;
        }
        let takes_ns = (u128::from(bytes) * 8_000_000_000).div_ceil(rate);
        self.free_at_ns =
            self.free_at_ns.max(now_ns).saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        Some(Departure { at_ns: self.free_at_ns, backlog_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_after_the_other_at_the_rate() {
        let config = FabricConfig {
            rate_bits_per_second: Some(8_000_000_000),
            queue_bytes: 2_500,
            ..Default::default()
        };
        let mut link = Link::default();
        let mut send = |now| link.send(&config, now, 1_000).map(|d| (d.at_ns, d.backlog_bytes));
        assert_eq!(send(100), Some((1_100, 0)));
        assert_eq!(send(100), Some((2_100, 1_000)));
        assert_eq!(send(100), None, "2000 + 1000 bytes exceed the queue");
        assert_eq!(send(600), Some((3_100, 1_500)));
        assert_eq!(send(10_000), Some((11_000, 0)), "an idle link saves nothing up");
    }

    #[test]
    fn receive_charges_are_about_what_was_measured() {
        for (payload, measured) in [(24, 832), (80, 832), (1056, 2305), (4128, 8456)] {
            assert!(
                receive_charge(payload).abs_diff(measured) <= 10,
                "{payload}: {}",
                receive_charge(payload)
            );
        }
    }
}
