//! Implementation choices where the published texts about MRC are silent or disagree, all in one place.
//! docs/mrc.md lists them.

use super::entropy::DscpTable;

/// UDP port that other texts name, with two digits swapped. A device that makes MRC queue pairs accepts
/// packets on both ports.
pub const OTHER_PORT: u16 = 4971;

/// First MSN and RQMSN. A responder takes the order from PSNs, so a peer may start at other numbers.
pub const FIRST_MSN: u16 = 0;

/// Number of PSNs in one unit of the window.
pub const MPR_UNIT: u32 = 128;
/// Default window in units, used unless the peers have agreed on another.
pub const DEFAULT_MPR: u8 = 8;
/// Default number of WRITEs with immediate in flight, used unless the peers have agreed on another.
pub const DEFAULT_MAX_WIMM: u16 = 32;
/// Default exponent of the local ACK timeout: 1.024 µs · 2^14, which is 16.8 ms.
pub const DEFAULT_TIMEOUT: u8 = 14;
/// Largest exponent of the timeout, also for exponential retries.
pub const MAX_TIMEOUT: u8 = 24;
/// Default number of linear retries, which all wait for the same timeout.
pub const DEFAULT_LINEAR_CNT: u8 = 7;
/// Largest number of linear retries.
pub const MAX_LINEAR_CNT: u8 = 7;
/// Default number of exponential retries, each of which doubles the timeout.
pub const DEFAULT_EXP_CNT: u8 = 7;
/// Number of exponential retries that means retrying forever.
pub const EXP_FOR_EVER: u8 = 25;

/// Default number of received bytes after which a responder sends a SACK.
pub const SACK_THRESHOLD_BYTES: u32 = 16 << 10;
/// Least number of bytes that a packet counts towards the threshold of a SACK.
pub const SACK_LEAST_PACKET_BYTES: u32 = 1024;
/// Largest number of SACKs for one trigger, sent if the news does not fit into one bitmap.
pub const MAX_SACKS_OF_A_TRIGGER: u32 = 4;
/// Largest number of answers that wait for room in the network. Beyond it, the oldest SACKs and NACKs are
/// dropped, as the network may also lose them.
pub const MAX_ANSWERS: usize = 64;
/// Shortest time between two NACKs of PSNs beyond the window.
pub const OUT_OF_WINDOW_NACK_INTERVAL_NS: u64 = 10_000;

/// Least number of later transmissions that must have arrived before a hole counts as lost. The number is
/// larger if the window holds more packets.
pub const MIN_HOLE_LAG: u64 = 3;
/// Divisor of the round trip that is added to it: a hole counts as lost when it is older than 5/4 of the
/// round trip.
pub const HOLE_AGE_SHARE: u64 = 4;
/// Number of round trips without a packet from the peer after which a reliability probe asks for a SACK.
pub const PROBE_AFTER_ROUND_TRIPS: u64 = 2;
/// Least number of round trips that the local ACK timer waits for, however short the agreed timeout is: an
/// answer that is behind others in the queues of a busy host is not lost. Probes come earlier.
pub const TIMEOUT_ROUND_TRIPS: u64 = 4;
/// Largest number of outstanding probes that are remembered; all paths of a queue pair may be tested at once.
pub const MAX_PROBES: usize = 256;

/// Number of consecutive answered probes after which a bad entropy value becomes good.
pub const PROBES_TO_GOOD: u8 = 3;
/// Time between two probes of a bad entropy value whose probes are answered. It doubles with each probe that
/// is not.
pub const BAD_PROBE_INTERVAL_NS: u64 = 1_000_000;
/// Longest time between two probes of a bad entropy value, unless two round trips are longer.
pub const MAX_BAD_PROBE_INTERVAL_NS: u64 = 32_000_000;
/// Default number of active entropy values of a queue pair.
pub const DEFAULT_ACTIVE_EVS: u16 = 128;
/// Default number of entropy values that are held back to replace active ones.
pub const DEFAULT_BACKUP_EVS: u16 = 32;
/// Default part of the active entropy values of a queue pair that stay usable even if packets are lost on
/// them: with fewer, a network that loses on all planes is reduced to the planes that these happen to be in.
pub const DEFAULT_MIN_ACTIVE_SHARE: u16 = 4;
/// Least number of entropy values that stay usable, unless a controller says otherwise.
pub const DEFAULT_MIN_ACTIVE_EVS: u16 = 8;
/// Largest number of path state changes that wait for their reader. Further changes are only counted.
pub const MAX_PATH_EVENTS: usize = 64;

/// Assumed round trip until one is measured.
pub const DEFAULT_BASE_RTT_NS: u64 = 50_000;
/// Congestion window below which every packet has BTH.a set.
pub const ACK_REQUEST_WINDOW_BYTES: u64 = 16 << 10;
/// Number of bytes added to the UDP length of a packet to get its size for congestion control.
pub const NOMINAL_OVERHEAD_BYTES: u32 = 40;

/// Largest number of outstanding endpoint requests that are remembered.
pub const MAX_ENDPOINT_REQUESTS: usize = 1024;
/// Time until a port status update is first retransmitted. The time doubles with each attempt.
pub const PORT_UPDATE_INTERVAL_NS: u64 = 1_000_000;
/// Number of times that a port status update is sent before it is given up.
pub const PORT_UPDATE_ATTEMPTS: u8 = 12;
/// Time after which an EV probe counts as unanswered.
pub const EV_PROBE_TIMEOUT_NS: u64 = 100_000_000;

/// Default DSCPs, used if the operator chose none: data 0, control 46, trimmed 12.
pub const DEFAULT_DSCPS: DscpTable = DscpTable {
    no_trim: 0,
    trimmable: 4,
    trimmable_retransmission: 8,
    trimmed: 12,
    trimmed_last_hop: 16,
    control: 46,
};
