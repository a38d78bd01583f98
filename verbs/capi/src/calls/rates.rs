//! The enumeration of link rates (`enum ibv_rate`), as multiples of 2.5 Gbit/s and in Mbit/s.

use std::ffi::c_int;

/// Table of the rates: number, multiple of 2.5 Gbit/s (rounded), Mbit/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (11, 6, 14_062),
    (6, 8, 20_000),
    (15, 10, 25_781),
    (19, 11, 28_125),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (20, 20, 53_125),
    (12, 22, 56_250),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (16, 40, 103_125),
    (13, 45, 112_500),
    (10, 48, 120_000),
    (14, 67, 168_750),
    (17, 80, 206_250),
    (18, 120, 309_375),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// The value `IBV_RATE_MAX`, for numbers that are no rate.
const RATE_MAX: c_int = 0;

pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    //= man:ibv_rate_to_mult
    //| The call gives a rate as a multiple of 2.5 Gbit/s.
    RATES.iter().find(|entry| entry.0 == rate).map_or(-1, |entry| entry.1)
}

pub(crate) extern "C" fn mult_to_ibv_rate(mult: c_int) -> c_int {
    RATES.iter().find(|entry| entry.1 == mult).map_or(RATE_MAX, |entry| entry.0)
}

pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|entry| entry.0 == rate).map_or(-1, |entry| entry.2)
}

pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    //= man:ibv_rate_to_mbps
    //| The call gives the rate that has so many Mbit/s.
    RATES.iter().find(|entry| entry.2 == mbps).map_or(RATE_MAX, |entry| entry.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_their_own_inverses() {
        for (rate, mult, mbps) in RATES {
            assert_eq!((ibv_rate_to_mult(rate), mult_to_ibv_rate(mult)), (mult, rate));
            assert_eq!((ibv_rate_to_mbps(rate), mbps_to_ibv_rate(mbps)), (mbps, rate));
        }
        assert_eq!((ibv_rate_to_mult(1), mult_to_ibv_rate(3), mbps_to_ibv_rate(1)), (-1, 0, 0));
    }
}
