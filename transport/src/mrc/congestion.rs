//! Congestion control, which limits the number of bytes in flight.
//!
//! Interface of congestion control algorithms: the samples that they receive and the window that they return.
//!
//! NSCC: a congestion window that follows the queueing delay and the congestion marks of switches.
//!
//! The names are those of the UEC specification. The window is a whole number of bytes: fractions are cut off
//! at each change.

use alloc::boxed::Box;
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

/// Queueing delay below which the queue counts as empty.
const EMPTY_QUEUE_NS: f64 = 1000.0;
/// Bandwidth-delay product of the network that the defaults refer to: 100 Gb/s and 12 µs.
const REFERENCE_BDP_BYTES: f64 = 150_000.0;
const REFERENCE_RTT_NS: f64 = 12_000.0;

/// Parameters of NSCC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NsccParameters {
    /// Payload bytes of a full packet.
    pub mtu_bytes: u32,
    /// Rate of the slower of both links, in bytes per ns.
    pub rate_bytes_per_ns: f64,
    /// Round trip without queues.
    pub base_rtt_ns: u64,
    /// Queueing delay that the window aims at.
    pub target_delay_ns: u64,
    /// Factor of the proportional increase.
    pub alpha: f64,
    /// Factor of the fair increase.
    pub fi: f64,
    /// Share of the arrived bytes by which the window grows while queues are empty.
    pub fi_scale: f64,
    /// Number of bytes by which the window grows in each period.
    pub eta: f64,
    /// Factor of the multiplicative decrease; a larger one shrinks the window more.
    pub gamma: f64,
    /// Least share of the window that remains after one multiplicative decrease.
    pub max_md_jump: f64,
    /// Exponent n of quick adaption, which acts if fewer bytes arrive in a period than the largest window
    /// divided by 2^n. `None` turns quick adaption off.
    pub qa_gate: Option<u8>,
    /// Queueing delay that leads to a quick adaption.
    pub qa_threshold_ns: u64,
    /// Number of arrived bytes after which an increase takes effect.
    pub adjust_bytes: u64,
    /// Time after which an increase takes effect.
    pub adjust_period_ns: u64,
    /// Largest window in bytes; `None` for one and a half of the bandwidth-delay product.
    pub max_cwnd: Option<u64>,
}

impl NsccParameters {
    /// Returns the defaults for a network of this rate and round trip. `has_trimming` says whether its
    /// switches trim.
    pub fn new(
        mtu_bytes: u32,
        rate_bytes_per_ns: f64,
        base_rtt_ns: u64,
        has_trimming: bool,
    ) -> NsccParameters {
        let base = base_rtt_ns.max(1);
        let target = if has_trimming { base / 4 * 3 + base % 4 * 3 / 4 } else { base };
        let mtu = f64::from(mtu_bytes);
        let a = rate_bytes_per_ns * base as f64 / REFERENCE_BDP_BYTES;
        NsccParameters {
            mtu_bytes,
            rate_bytes_per_ns,
            base_rtt_ns: base,
            target_delay_ns: target,
            // 4·a·b·MTU/T, of which b is T/12 µs.
            alpha: 4.0 * a * mtu / REFERENCE_RTT_NS,
            fi: 5.0 * mtu * a,
            fi_scale: 0.25 * a,
            eta: 0.15 * mtu * a,
            gamma: 0.8,
            max_md_jump: 0.5,
            qa_gate: Some(3),
            qa_threshold_ns: if has_trimming { u64::MAX } else { 4 * target },
            adjust_bytes: 8 * u64::from(mtu_bytes),
            adjust_period_ns: base,
            max_cwnd: None,
        }
    }
}

/// The state of quick adaption, which acts if few bytes arrive in a period.
#[derive(Debug, Clone)]
struct QuickAdaption {
    achieved: u64,
    bytes_to_ignore: u64,
    bytes_ignored: u64,
    qa_end_ns: u64,
    trigger_qa: bool,
}

/// State of NSCC towards one destination.
#[derive(Debug, Clone)]
pub struct Nscc {
    parameters: NsccParameters,
    cwnd: u64,
    base_rtt_ns: u64,
    avg_delay_ns: f64,
    last_sample_ns: u64,
    quick: QuickAdaption,
    received: u64,
    inc_bytes: f64,
    fi_count: u64,
    is_fast: bool,
    last_adjust_ns: u64,
    last_dec_ns: u64,
    saved_cwnd: Option<u64>,
}

impl Nscc {
    /// Creates the state with the largest window.
    pub fn new(parameters: NsccParameters) -> Nscc {
        let mut nscc = Nscc {
            base_rtt_ns: parameters.base_rtt_ns,
            cwnd: 0,
            avg_delay_ns: 0.0,
            last_sample_ns: 0,
            quick: QuickAdaption {
                achieved: 0,
                bytes_to_ignore: 0,
                bytes_ignored: 0,
                qa_end_ns: 0,
                trigger_qa: false,
            },
            received: 0,
            inc_bytes: 0.0,
            fi_count: 0,
            is_fast: false,
            last_adjust_ns: 0,
            last_dec_ns: 0,
            saved_cwnd: None,
            parameters,
        };
        nscc.cwnd = nscc.max_wnd();
        nscc
    }

    /// Returns the shortest round trip so far.
    pub fn base_rtt_ns(&self) -> u64 {
        self.base_rtt_ns
    }

    /// Returns the mean queueing delay.
    pub fn avg_delay_ns(&self) -> f64 {
        self.avg_delay_ns
    }

    fn mtu(&self) -> u64 {
        self.parameters.mtu_bytes.into()
    }

    fn max_wnd(&self) -> u64 {
        let bdp = self.parameters.rate_bytes_per_ns * self.base_rtt_ns as f64;
        self.parameters.max_cwnd.unwrap_or((1.5 * bdp) as u64).max(self.mtu())
    }

    fn measure(&mut self, rtt_ns: Option<u64>) -> Option<f64> {
        let rtt_ns = rtt_ns?;
        self.base_rtt_ns = self.base_rtt_ns.min(rtt_ns.max(1));
        Some((rtt_ns.saturating_sub(self.base_rtt_ns)) as f64)
    }

    fn average(&mut self, now_ns: u64, delay_ns: f64) {
        let passed = now_ns.saturating_sub(self.last_sample_ns) as f64 / self.base_rtt_ns as f64;
        let weight = if passed < 1.0 { passed } else { 1.0 };
        self.avg_delay_ns += weight * (delay_ns - self.avg_delay_ns);
        self.last_sample_ns = now_ns;
    }

    fn decrease(&mut self, now_ns: u64) {
        (self.is_fast, self.fi_count) = (false, 0);
        let target = self.parameters.target_delay_ns as f64;
        let is_due = now_ns.saturating_sub(self.last_dec_ns) > self.base_rtt_ns;
        if self.avg_delay_ns > target && is_due {
            let factor = 1.0 - self.parameters.gamma * (self.avg_delay_ns - target) / self.avg_delay_ns;
            let factor = factor.max(self.parameters.max_md_jump);
            self.cwnd = ((self.cwnd as f64 * factor) as u64).max(self.mtu());
            self.last_dec_ns = now_ns;
        }
    }

    /// Increases the window while queues are empty, and reports whether it grew.
    fn fast_increase(&mut self, delay_ns: f64, new_bytes: u64) -> bool {
        if delay_ns >= EMPTY_QUEUE_NS {
            (self.is_fast, self.fi_count) = (false, 0);
            return false;
        }
        self.fi_count = self.fi_count.saturating_add(new_bytes);
        if self.is_fast || self.fi_count > self.cwnd {
            let grown = self.cwnd as f64 + new_bytes as f64 * self.parameters.fi_scale;
            (self.cwnd, self.is_fast) = (grown as u64, true);
        }
        self.is_fast
    }

    /// Sets the window to what has arrived if the network is overloaded. Reports whether it acted; nothing
    /// else is to be done then.
    fn quick_adapt(
        &mut self,
        now_ns: u64,
        is_loss: bool,
        is_marked: bool,
        delay_ns: f64,
        inflight: u64,
    ) -> bool {
        let Some(gate) = self.parameters.qa_gate else { return false };
        let mut acted = false;
        if self.quick.bytes_ignored < self.quick.bytes_to_ignore && is_marked {
            acted = true;
        } else if now_ns >= self.quick.qa_end_ns {
            let is_requested =
                self.quick.trigger_qa || is_loss || delay_ns > self.parameters.qa_threshold_ns as f64;
            let low = self.max_wnd().checked_shr(gate.into()).unwrap_or(0);
            if self.quick.qa_end_ns != 0 && is_requested && self.quick.achieved < low {
                self.cwnd = self.quick.achieved.max(self.mtu());
                (self.quick.bytes_to_ignore, self.quick.bytes_ignored, self.quick.trigger_qa) =
                    (inflight, 0, false);
                acted = true;
            }
            self.quick.achieved = 0;
            let period = self.base_rtt_ns.saturating_add(self.parameters.target_delay_ns);
            self.quick.qa_end_ns = now_ns.saturating_add(period);
        }
        if acted {
            (self.inc_bytes, self.received) = (0.0, 0);
        }
        acted
    }

    /// Applies the receiver's penalty to the window, or restores the window after it. Reports whether there
    /// is a penalty; the window does not grow in this step then.
    fn punish(&mut self, sample: &SackSample) -> bool {
        if sample.penalty > 0 {
            self.saved_cwnd.get_or_insert(self.cwnd);
            let taken = (u64::from(sample.penalty).saturating_mul(sample.new_bytes)) >> 7;
            let left = self.cwnd.min(sample.inflight_bytes).saturating_sub(taken);
            self.cwnd = left.max(self.mtu());
            return true;
        }
        if let Some(saved) = self.saved_cwnd.take_if(|_| sample.restore_cwnd) {
            self.cwnd = saved;
        }
        false
    }

    fn adjust(&mut self, now_ns: u64) {
        let has_passed = now_ns.saturating_sub(self.last_adjust_ns) >= self.parameters.adjust_period_ns;
        if !has_passed && self.received <= self.parameters.adjust_bytes {
            return;
        }
        self.cwnd = (self.cwnd as f64 + self.inc_bytes / self.cwnd.max(1) as f64) as u64;
        if has_passed {
            self.cwnd = (self.cwnd as f64 + self.parameters.eta) as u64;
            self.last_adjust_ns = now_ns;
        }
        self.cwnd = self.cwnd.clamp(self.mtu(), self.max_wnd());
        (self.inc_bytes, self.received) = (0.0, 0);
    }
}

impl CongestionControl for Nscc {
    fn window_bytes(&self) -> u64 {
        self.cwnd
    }

    fn handle_sack(&mut self, sample: &SackSample) {
        let new = sample.new_bytes;
        self.quick.bytes_ignored = self.quick.bytes_ignored.saturating_add(new);
        self.received = self.received.saturating_add(new);
        self.quick.achieved = self.quick.achieved.saturating_add(new);
        let delay = self.measure(sample.rtt_ns);
        if let Some(delay) = delay {
            self.average(sample.now_ns, delay);
        }
        // A SACK without a delay sample of its own is judged by the mean.
        let delay = delay.unwrap_or(self.avg_delay_ns);
        let is_punished = self.punish(sample);
        if self.quick_adapt(sample.now_ns, false, sample.is_marked, delay, sample.inflight_bytes) {
            return;
        }
        let target = self.parameters.target_delay_ns as f64;
        match (sample.is_marked, delay >= target) {
            (true, true) => self.decrease(sample.now_ns),
            (true, false) => {}
            _ if is_punished => {}
            (false, true) if sample.is_limited_by_program => {}
            (false, true) => self.inc_bytes += self.parameters.fi * new as f64,
            (false, false) => {
                if !self.fast_increase(delay, new) {
                    self.inc_bytes += self.parameters.alpha * new as f64 * (target - delay);
                }
            }
        }
        if !is_punished {
            self.adjust(sample.now_ns);
        }
    }

    fn handle_trim(&mut self, sample: &LossSample) {
        let _ = self.measure(sample.rtt_ns);
        self.quick.bytes_ignored = self.quick.bytes_ignored.saturating_add(sample.size_bytes);
        self.average(sample.now_ns, self.base_rtt_ns as f64);
        self.quick.trigger_qa = true;
        if !self.quick_adapt(sample.now_ns, true, true, 0.0, sample.inflight_bytes) {
            self.cwnd = self.cwnd.saturating_sub(sample.size_bytes).max(self.mtu());
        }
    }

    fn handle_loss(&mut self, sample: &LossSample) {
        self.cwnd = self.cwnd.saturating_sub(sample.size_bytes).max(self.mtu());
        self.quick.bytes_ignored = self.quick.bytes_ignored.saturating_add(sample.size_bytes);
    }
}

/// Name of the algorithm NSCC in profiles of congestion control.
pub const NSCC_NAME: &str = "uet-1.0-nscc";

/// Returns the algorithm of a name; `None` if the name is unknown. Without a name, there is no congestion
/// control.
pub fn algorithm(name: Option<&str>, nscc: NsccParameters) -> Option<Box<dyn CongestionControl>> {
    match name {
        None => Some(Box::new(Unlimited)),
        Some(NSCC_NAME) => Some(Box::new(Nscc::new(nscc))),
        Some(_) => None,
    }
}
