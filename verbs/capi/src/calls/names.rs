//! Names of numbers, for people, and the enumeration of link rates.

use std::ffi::{CStr, c_char, c_int};

const UNKNOWN: &CStr = c"unknown";

fn name(table: &[&'static CStr], number: c_int, otherwise: &'static CStr) -> *const c_char {
    usize::try_from(number).ok().and_then(|index| table.get(index)).unwrap_or(&otherwise).as_ptr()
}

pub(crate) extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    const NAMES: [&CStr; 8] = [
        UNKNOWN,
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    name(&NAMES, node_type, UNKNOWN)
}

pub(crate) extern "C" fn ibv_port_state_str(port_state: c_int) -> *const c_char {
    const NAMES: [&CStr; 6] =
        [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"in active deferred state"];
    name(&NAMES, port_state, UNKNOWN)
}

pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const NAMES: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    name(&NAMES, event, UNKNOWN)
}

pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const NAMES: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"tag matching error",
        c"tag matching rendezvous incomplete",
    ];
    name(&NAMES, status, UNKNOWN)
}

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
