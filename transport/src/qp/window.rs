//! The send window: the number of PSNs that may be unacknowledged.
//!
//! The window never exceeds the room in the peer's socket (`limit_packets`, given by the device), so no
//! packet is lost in steady state. On a lossy path it follows the bandwidth–delay product instead of
//! collapsing: go-back-N sends all packets in flight again, so a window above the product only makes each
//! loss more expensive, and one below leaves the path idle. A CNP cuts it like DCQCN's rate.

use crate::wire::Psn;

/// Window of a queue pair before the path is measured.
const INITIAL_PACKETS: u32 = 64;
/// Smallest window, with which a loss is still noticed by a gap.
const MINIMUM_PACKETS: u32 = 4;
/// Number of samples per round: an estimate of the bandwidth–delay product is dropped after one to two
/// rounds.
const PRODUCT_ROUNDS: u32 = 16;
/// Shortest time between two reactions to CNPs, in nanoseconds.
const CNP_INTERVAL_NS: u64 = 50_000;
/// Shortest time between two events that report the measurements, in nanoseconds.
const REPORT_INTERVAL_NS: u64 = 1_000_000;
/// Value of 1 in units of alpha (1/1024); DCQCN's gain g is 1/256.
const ALPHA_ONE: u32 = 1024;

#[derive(Debug, Clone)]
struct RttSample {
    psn: Psn,
    sent_at_ns: u64,
    delivered_before: u64,
}

/// The measured round trip of a path.
#[derive(Debug, Clone)]
pub(crate) struct RttEstimate {
    sample: Option<RttSample>,
    smoothed_ns: u64,
    deviation_ns: u64,
    minimum_ns: u64,
}

/// The measured bandwidth–delay product of a path.
#[derive(Debug, Clone)]
pub(crate) struct ProductEstimate {
    /// Largest product seen in this round of samples, and in the round before.
    packets: u32,
    former_packets: u32,
    age: u32,
}

/// Congestion state of one requester.
#[derive(Debug, Clone)]
pub(crate) struct SendWindow {
    packets: u32,
    limit_packets: u32,
    growing_fast: bool,
    growth_credit: u32,
    rtt: RttEstimate,
    delivered: u64,
    product: ProductEstimate,
    recovery_end: Option<Psn>,
    alpha: u32,
    last_cnp_ns: Option<u64>,
    last_report_ns: Option<u64>,
}

impl SendWindow {
    pub(crate) fn new(limit_packets: u32) -> SendWindow {
        let limit = limit_packets.max(MINIMUM_PACKETS);
        SendWindow {
            packets: INITIAL_PACKETS.min(limit),
            limit_packets: limit,
            growing_fast: true,
            growth_credit: 0,
            rtt: RttEstimate { sample: None, smoothed_ns: 0, deviation_ns: 0, minimum_ns: u64::MAX },
            delivered: 0,
            product: ProductEstimate { packets: 0, former_packets: 0, age: 0 },
            recovery_end: None,
            alpha: ALPHA_ONE,
            last_cnp_ns: None,
            last_report_ns: None,
        }
    }

    /// Reports whether it is time to report the measurements to subscribers.
    pub(crate) fn is_report_due(&mut self, now_ns: u64) -> bool {
        let is_time =
            self.last_report_ns.is_none_or(|last| now_ns.saturating_sub(last) >= REPORT_INTERVAL_NS);
        if is_time {
            self.last_report_ns = Some(now_ns);
        }
        is_time
    }

    /// Returns the number of PSNs that may be unacknowledged now.
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns the round trip time, smoothed, in ns; `None` before the first sample.
    pub(crate) fn rtt_ns(&self) -> Option<u64> {
        (self.rtt.smoothed_ns != 0).then_some(self.rtt.smoothed_ns)
    }

    /// Returns the number of packets of a long message between two requests for an acknowledgement, so that
    /// the window keeps moving.
    pub(crate) fn ack_interval(&self) -> u32 {
        (self.packets / 8).clamp(1, 16)
    }

    /// Starts a measurement with a packet that will be answered, unless one is under way.
    pub(crate) fn on_sent(&mut self, psn: Psn, now_ns: u64) {
        if self.rtt.sample.is_none() {
            self.rtt.sample = Some(RttSample { psn, sent_at_ns: now_ns, delivered_before: self.delivered });
        }
    }

    /// Handles the acknowledgement of `count` PSNs up to but excluding `acked`.
    pub(crate) fn on_acked(&mut self, acked: Psn, count: u32, now_ns: u64) {
        self.delivered += u64::from(count);
        if let Some(sample) = &self.rtt.sample
            && acked.is_after(sample.psn)
        {
            let rtt_ns = now_ns.saturating_sub(sample.sent_at_ns).max(1);
            let delivered = self.delivered - sample.delivered_before;
            self.rtt.sample = None;
            self.learn(rtt_ns, delivered);
        }
        if self.recovery_end.is_some_and(|end| !acked.is_before(end)) {
            self.recovery_end = None;
        }
        if self.recovery_end.is_none() {
            self.grow(count);
        }
    }

    fn learn(&mut self, rtt_ns: u64, delivered: u64) {
        if self.rtt.smoothed_ns == 0 {
            self.rtt.smoothed_ns = rtt_ns;
            self.rtt.deviation_ns = rtt_ns / 2;
        } else {
            let deviation = self.rtt.smoothed_ns.abs_diff(rtt_ns);
            self.rtt.deviation_ns = (3 * self.rtt.deviation_ns + deviation) / 4;
            self.rtt.smoothed_ns = (7 * self.rtt.smoothed_ns + rtt_ns) / 8;
        }
        self.rtt.minimum_ns = self.rtt.minimum_ns.min(rtt_ns);
        // The product is what was delivered in one round trip, scaled to an empty queue.
        let scaled = match delivered.checked_mul(self.rtt.minimum_ns) {
            _ if rtt_ns == self.rtt.minimum_ns => delivered,
            Some(both) => both / rtt_ns,
            // The multiplication overflows only after years.
            None => delivered,
        };
        let product = u32::try_from(scaled).unwrap_or(u32::MAX);
        // A sample of a flight that a loss cut short is too small: only the largest of many counts, and two
        // rounds are recorded so that there are always many.
        self.product.packets = self.product.packets.max(product);
        self.product.age += 1;
        if self.product.age >= PRODUCT_ROUNDS {
            self.product.former_packets = core::mem::take(&mut self.product.packets);
            self.product.age = 0;
        }
    }

    /// Returns the number of PSNs that keep the path busy.
    fn bandwidth_delay_product(&self) -> u32 {
        self.product.packets.max(self.product.former_packets)
    }

    fn grow(&mut self, count: u32) {
        if self.growing_fast {
            self.packets = self.packets.saturating_add(count).min(self.limit_packets);
            return;
        }
        // While all of the window is delivered in a round trip the path could carry more: grow by a quarter
        // per round trip. Beyond the product, by one packet.
        let product = self.bandwidth_delay_product();
        let idle = self.packets <= product + product / 8;
        let weight = if idle { (self.packets / 4).max(1) } else { 1 };
        self.growth_credit = self.growth_credit.saturating_add(count.saturating_mul(weight));
        if self.growth_credit >= self.packets {
            let more = self.growth_credit / self.packets.max(1);
            self.growth_credit = 0;
            self.packets = self.packets.saturating_add(more).min(self.limit_packets);
        }
    }

    /// Shrinks the window after a loss, once per flight: `sent_end` is the PSN after the newest one sent.
    pub(crate) fn on_loss(&mut self, sent_end: Psn) {
        self.rtt.sample = None;
        self.growing_fast = false;
        if self.recovery_end.is_some() {
            return;
        }
        self.recovery_end = Some(sent_end);
        let product = self.bandwidth_delay_product();
        // Before the first sample the path is unknown: one loss costs at most half of the window.
        let floor = if product == 0 { self.packets / 2 } else { self.packets / 8 };
        let product = product + product / 8;
        self.packets = product.max(floor).clamp(MINIMUM_PACKETS, self.packets.max(MINIMUM_PACKETS));
    }

    /// Shrinks the window after a whole timer without an answer, and starts again carefully.
    pub(crate) fn on_timeout(&mut self, sent_end: Psn) {
        self.recovery_end = None;
        self.on_loss(sent_end);
        self.packets = (self.packets / 2).max(MINIMUM_PACKETS);
        self.growing_fast = true;
    }

    /// Discards the round trip being measured, because its packets are being sent again.
    pub(crate) fn forget_sample(&mut self) {
        self.rtt.sample = None;
    }

    /// Shrinks the window because the peer reports congestion.
    pub(crate) fn on_cnp(&mut self, now_ns: u64) {
        if self.last_cnp_ns.is_some_and(|last| now_ns.saturating_sub(last) < CNP_INTERVAL_NS) {
            return;
        }
        // Alpha decays by 1/256 for each 55 µs without a CNP, and rises by 1/256 with one.
        if let Some(last) = self.last_cnp_ns {
            let quiet = (now_ns.saturating_sub(last) / 55_000).min(1024) as u32;
            for _ in 0..quiet {
                self.alpha -= self.alpha / 256;
            }
        }
        self.alpha = (self.alpha - self.alpha / 256 + ALPHA_ONE / 256).min(ALPHA_ONE);
        self.last_cnp_ns = Some(now_ns);
        self.growing_fast = false;
        let cut = u64::from(self.packets) * u64::from(self.alpha) / u64::from(2 * ALPHA_ONE);
        self.packets = self.packets.saturating_sub(cut as u32).max(1);
    }

    /// Returns the time of silence, in ns, after which packets are sent again on a path known to lose
    /// packets; `None` while no round trip was measured.
    pub(crate) fn early_retransmit_ns(&self) -> Option<u64> {
        (self.rtt.smoothed_ns > 0).then(|| {
            let wait = self.rtt.smoothed_ns + self.rtt.smoothed_ns / 4 + 4 * self.rtt.deviation_ns;
            wait.max(100_000)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> SendWindow {
        SendWindow::new(1000)
    }

    #[test]
    fn what_is_known_is_told_once_a_millisecond() {
        let mut w = window();
        let told: [bool; 6] =
            [5, 6, 1_000_004, 1_000_005, 2_000_004, 9_000_000].map(|now_ns| w.is_report_due(now_ns));
        assert_eq!(told, [true, false, false, true, false, true]);
    }

    #[test]
    fn the_window_grows_to_the_limit_and_no_further() {
        let mut w = window();
        let mut psn = Psn::new(0);
        for _ in 0..100 {
            psn = psn.plus(64);
            w.on_acked(psn, 64, 1000);
        }
        assert_eq!(w.packets(), 1000);
    }

    #[test]
    fn a_loss_takes_the_window_to_the_bandwidth_delay_product_once_per_flight() {
        let mut w = window();
        let mut now = 0;
        let mut psn = Psn::new(0);
        for _ in 0..20 {
            w.on_sent(psn, now);
            now += 100_000;
            psn = psn.plus(80);
            w.on_acked(psn, 80, now);
        }
        w.on_loss(psn.plus(500));
        let after = w.packets();
        assert!((80..=125).contains(&after), "{after}");
        w.on_loss(psn.plus(500));
        assert_eq!(w.packets(), after, "a second loss of the same flight changes nothing");
    }

    #[test]
    fn a_loss_before_anything_is_known_only_halves_the_window() {
        let mut w = window();
        w.on_loss(Psn::new(50));
        assert_eq!(w.packets(), 32);
    }

    #[test]
    fn samples_cut_short_do_not_shrink_the_estimate() {
        let mut w = SendWindow::new(200);
        let (mut now, mut psn) = (0, Psn::new(0));
        for round in 0..40 {
            let delivered = if round % 8 == 0 { 80 } else { 10 };
            w.on_sent(psn, now);
            now += 100_000;
            psn = psn.plus(delivered);
            w.on_acked(psn, delivered, now);
        }
        w.on_loss(psn.plus(500));
        assert_eq!(w.packets(), 90);
    }

    #[test]
    fn a_cnp_halves_the_window_and_is_rate_limited() {
        let mut w = window();
        w.on_cnp(1_000_000);
        assert_eq!(w.packets(), 32);
        w.on_cnp(1_010_000);
        assert_eq!(w.packets(), 32);
        w.on_cnp(1_100_000);
        assert!(w.packets() < 20);
    }

    #[test]
    fn silence_is_measured_in_round_trips_only_once_one_is_known() {
        let mut w = window();
        assert_eq!(w.early_retransmit_ns(), None);
        w.on_sent(Psn::new(0), 0);
        w.on_acked(Psn::new(1), 1, 200_000);
        assert!(w.early_retransmit_ns().is_some_and(|ns| (400_000..=1_000_000).contains(&ns)));
    }
}
