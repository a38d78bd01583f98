//! Interface of congestion control algorithms: the samples that they receive and the window that they return.

use core::fmt::Debug;

/// A sample that congestion control receives for each SACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SackSample {
    /// Current time.
    pub now_ns: u64,
    /// Number of bytes that have arrived since the last SACK.
    pub new_bytes: u64,
    /// True if a switch marked the packet that caused the SACK.
    pub is_marked: bool,
    /// Round trip of that packet; `None` if it is ambiguous.
    pub rtt_ns: Option<u64>,
    /// Number of bytes in flight, without those that have arrived.
    pub inflight_bytes: u64,
    /// Penalty that the receiver imposes on the window, in 1/128 of the new bytes.
    pub penalty: u8,
    /// True if the window returns to its size before the penalty.
    pub restore_cwnd: bool,
    /// True if the program has nothing more to send.
    pub is_limited_by_program: bool,
}

/// A sample that congestion control receives for each packet that was lost or trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossSample {
    /// Current time.
    pub now_ns: u64,
    /// Size of the packet in bytes.
    pub size_bytes: u64,
    /// Round trip that was measured from the NACK.
    pub rtt_ns: Option<u64>,
    /// Number of bytes in flight, without those of the packet.
    pub inflight_bytes: u64,
}

/// An algorithm that limits the number of bytes in flight. Each instance serves one destination.
pub trait CongestionControl: Debug + Send {
    /// Returns the number of bytes that may be in flight.
    fn window_bytes(&self) -> u64;

    /// Handles a SACK.
    fn handle_sack(&mut self, sample: &SackSample);

    /// Handles a packet that a switch has trimmed.
    fn handle_trim(&mut self, sample: &LossSample);

    /// Handles a packet that a timer, a probe or a hole has shown to be lost.
    fn handle_loss(&mut self, sample: &LossSample);
}

/// An algorithm without congestion control: only the PSN window limits the packets in flight.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unlimited;

impl CongestionControl for Unlimited {
    fn window_bytes(&self) -> u64 {
        u64::MAX
    }
    fn handle_sack(&mut self, _: &SackSample) {}
    fn handle_trim(&mut self, _: &LossSample) {}
    fn handle_loss(&mut self, _: &LossSample) {}
}
