//! Time codes of CM: five bits t stand for 4.096 µs · 2^t; Linux counts in milliseconds.

/// Returns the duration of a time code in nanoseconds, as Linux computes it: 2^(t − 8) milliseconds, at least
/// one.
pub const fn time_code_ns(code: u8) -> u64 {
    let code = if code > 31 { 31 } else { code };
    //= linux:cm.c#cm_convert_to_ms
    //| A time code t stands for 2 to the power of t minus 8 milliseconds, and for one at least.
    (1 << code.saturating_sub(8)) * 1_000_000
}

/// Returns the time code of a queue pair's ACK timeout: twice the packet life time, plus the remote adapter's
/// delay, rounded up to a power of two.
pub const fn ack_timeout(ca_ack_delay: u8, packet_life_time: u8) -> u8 {
    //= linux:cm.c#cm_ack_timeout
    //| The ACK timeout is two packet life times and the delay of the adapter of the peer.
    let round_trip = packet_life_time.saturating_add(1);
    // The sum of two powers of two is at most twice the larger one: the code is one more if they are close.
    let sum = if round_trip >= ca_ack_delay {
        round_trip.saturating_add((ca_ack_delay >= packet_life_time) as u8)
    } else {
        ca_ack_delay.saturating_add((round_trip >= ca_ack_delay.saturating_sub(1)) as u8)
    };
    if sum > 31 { 31 } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_powers_of_two_in_milliseconds() {
        assert_eq!(time_code_ns(0), 1_000_000);
        assert_eq!(time_code_ns(8), 1_000_000);
        assert_eq!(time_code_ns(20), 4_096_000_000);
        assert_eq!(time_code_ns(24), 65_536_000_000);
        assert_eq!(time_code_ns(255), time_code_ns(31));
    }

    #[test]
    fn ack_timeouts_are_those_of_linux() {
        // rdma_rxe: packet life time 16, delay 15: 17 as in the captures.
        assert_eq!(ack_timeout(15, 16), 17);
        assert_eq!(ack_timeout(16, 16), 18);
        assert_eq!(ack_timeout(17, 16), 18);
        assert_eq!(ack_timeout(18, 16), 19);
        assert_eq!(ack_timeout(19, 16), 19);
        assert_eq!(ack_timeout(0, 16), 17);
        assert_eq!(ack_timeout(255, 255), 31);
        assert_eq!(ack_timeout(0, 0), 2);
    }
}
