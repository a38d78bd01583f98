//! The charge of packets in a receive buffer of the simulated network.

/// Returns what Linux charges a receive buffer for a packet that did not come in a batch: the power of two
/// its data fits into and the bookkeeping (measured: 832 bytes for 24, 2305 for 1056, 8456 for 4128).
pub(super) fn receive_charge(payload_bytes: usize) -> usize {
    (payload_bytes + 320).next_power_of_two().max(576) + 264
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receive_charges_are_about_what_was_measured() {
        for (payload, measured) in [(24, 832), (80, 832), (1056, 2305), (4128, 8456)] {
            let charge = receive_charge(payload);
            assert!(charge.abs_diff(measured) <= 10, "{payload}: {charge}");
        }
    }
}
