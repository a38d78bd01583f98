//! The reaction point: the rate of one sender.

use alloc::sync::Arc;

use super::parameters::{DcqcnParameters, bits_per_second};

/// Binary digits of alpha's fraction (units of 2^-20), so many that it reaches 0.
const ALPHA_DIGITS: u32 = 20;
/// Binary digits of the parameters of alpha (units of 2^-10).
const PARAMETER_DIGITS: u32 = 10;
const PARAMETER_ONE: u64 = 1 << PARAMETER_DIGITS;
/// Largest number of timer steps that one call makes up for; a sender that was idle for longer restarts its
/// timers. Alpha is 0 and the rate is high by then.
const MAX_STEPS: u32 = 1 << 16;
/// Time of a timer that does not run.
const NEVER: u64 = u64::MAX;

/// State of a sender that got a CNP.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RateLimiter {
    /// Current rate Rc in bit/s.
    current: u64,
    /// Target rate Rt in bit/s.
    target: u64,
    /// Alpha in units of 2^-20.
    alpha: u64,
    alpha_due_ns: u64,
    increase_due_ns: u64,
    /// Number of bytes to the next increase by the byte counter.
    bytes_left: u64,
    time_stage: u32,
    byte_stage: u32,
    /// Earliest time of the next cut, or the time of a cut that waits.
    cut_due_ns: u64,
    /// True if a CNP waits for that time.
    cut_waits: bool,
}

/// The rate of one sender, computed by DCQCN. Before the first CNP it is the highest rate; it is again when
/// the sender has recovered, and the next CNP then counts as the first.
#[derive(Debug, Clone)]
pub struct ReactionPoint {
    parameters: Arc<DcqcnParameters>,
    most: u64,
    limiter: Option<RateLimiter>,
}

impl ReactionPoint {
    /// Creates a sender at the highest rate. The parameters have passed [`DcqcnParameters::check`].
    pub fn new(parameters: Arc<DcqcnParameters>) -> ReactionPoint {
        ReactionPoint { most: parameters.most_bits_per_second().max(1), parameters, limiter: None }
    }

    /// Creates a sender of a constant rate in bit/s, which gets no CNP.
    pub(crate) fn at_rate(bits_per_second: u64) -> ReactionPoint {
        let parameters = Arc::new(DcqcnParameters::CONNECTX);
        ReactionPoint { most: bits_per_second.max(1), parameters, limiter: None }
    }

    /// Returns the current rate Rc in bit/s.
    #[inline]
    pub fn current(&self) -> u64 {
        self.limiter.as_ref().map_or(self.most, |limiter| limiter.current)
    }

    /// Returns the target rate Rt in bit/s.
    pub fn target(&self) -> u64 {
        self.limiter.as_ref().map_or(self.most, |limiter| limiter.target)
    }

    /// Returns alpha, the estimate of congestion, in 2^-20; 0 while the rate is not limited.
    pub fn alpha(&self) -> u32 {
        self.limiter.as_ref().map_or(0, |limiter| limiter.alpha as u32)
    }

    /// Handles a CNP.
    pub fn handle_cnp(&mut self, now_ns: u64) {
        self.advance(now_ns);
        match &mut self.limiter {
            Some(limiter) if now_ns < limiter.cut_due_ns => limiter.cut_waits = true,
            Some(limiter) => limiter.cut(&self.parameters, now_ns),
            None => {
                let first = bits_per_second(self.parameters.rate_to_set_on_first_cnp);
                let mut limiter =
                    RateLimiter::new(&self.parameters, if first == 0 { self.most } else { first }, now_ns);
                if first == 0 {
                    limiter.cut(&self.parameters, now_ns);
                }
                self.limiter = Some(limiter);
            }
        }
    }

    /// Counts a packet of this many bytes on the link that is sent.
    #[inline]
    pub fn handle_sent(&mut self, bytes: u64, now_ns: u64) {
        if self.limiter.is_some() {
            self.count(bytes, now_ns);
        }
    }

    fn count(&mut self, mut bytes: u64, now_ns: u64) {
        self.advance(now_ns);
        while let Some(limiter) = &mut self.limiter {
            if bytes < limiter.bytes_left {
                limiter.bytes_left -= bytes;
                return;
            }
            bytes -= limiter.bytes_left;
            limiter.bytes_left = u64::from(self.parameters.rpg_byte_reset).max(1);
            limiter.byte_stage = limiter.byte_stage.saturating_add(1);
            limiter.increase(&self.parameters, self.most);
            self.release();
        }
    }

    /// Brings alpha and the rate up to date.
    #[inline]
    pub fn advance(&mut self, now_ns: u64) {
        if self.limiter.as_ref().is_some_and(|limiter| limiter.next_ns() <= now_ns) {
            self.step(now_ns);
        }
    }

    fn step(&mut self, now_ns: u64) {
        for _ in 0..MAX_STEPS {
            let Some(limiter) = &mut self.limiter else { return };
            let at_ns = limiter.next_ns();
            if at_ns > now_ns {
                return;
            }
            if limiter.cut_waits && limiter.cut_due_ns == at_ns {
                limiter.cut(&self.parameters, at_ns);
            } else if limiter.alpha_due_ns == at_ns {
                limiter.decay(&self.parameters, at_ns);
            } else {
                limiter.increase_due_ns = at_ns.saturating_add(ns(self.parameters.rpg_time_reset));
                limiter.time_stage = limiter.time_stage.saturating_add(1);
                limiter.increase(&self.parameters, self.most);
                self.release();
            }
        }
        if let Some(limiter) = &mut self.limiter {
            limiter.restart_timers(&self.parameters, now_ns);
        }
    }

    /// Removes the limit of a sender that is back at the highest rate.
    fn release(&mut self) {
        if self.limiter.as_ref().is_some_and(|limiter| limiter.current >= self.most) {
            self.limiter = None;
        }
    }
}

impl RateLimiter {
    fn new(parameters: &DcqcnParameters, rate: u64, now_ns: u64) -> RateLimiter {
        let mut limiter = RateLimiter {
            current: rate,
            target: rate,
            alpha: u64::from(parameters.initial_alpha_value) << (ALPHA_DIGITS - PARAMETER_DIGITS),
            alpha_due_ns: NEVER,
            increase_due_ns: NEVER,
            bytes_left: u64::from(parameters.rpg_byte_reset),
            time_stage: 0,
            byte_stage: 0,
            cut_due_ns: now_ns.saturating_add(ns(parameters.rate_reduce_monitor_period)),
            cut_waits: false,
        };
        limiter.restart_timers(parameters, now_ns);
        limiter
    }

    fn restart_timers(&mut self, parameters: &DcqcnParameters, now_ns: u64) {
        self.alpha_due_ns = now_ns.saturating_add(ns(parameters.dce_tcp_rtt));
        self.increase_due_ns = now_ns.saturating_add(ns(parameters.rpg_time_reset));
    }

    /// Returns the time of the next timer.
    #[inline]
    fn next_ns(&self) -> u64 {
        let cut_ns = if self.cut_waits { self.cut_due_ns } else { NEVER };
        self.alpha_due_ns.min(self.increase_due_ns).min(cut_ns)
    }

    /// Cuts the rate: Rt := Rc; Rc := Rc (1 − alpha / 2); alpha := (1 − g) alpha + g; recovery begins anew.
    fn cut(&mut self, parameters: &DcqcnParameters, now_ns: u64) {
        let increased =
            self.byte_stage > 0 || parameters.clamp_tgt_rate_after_time_inc && self.time_stage > 0;
        if parameters.clamp_tgt_rate || increased {
            self.target = self.current;
        }
        let shift = u32::from(parameters.rpg_gd) + ALPHA_DIGITS - PARAMETER_DIGITS;
        // The product is below 2^41 times 2^20.
        let cut = self.current.saturating_mul(self.alpha).checked_shr(shift).unwrap_or(0);
        let kept = self.current.saturating_mul(parameters.rpg_min_dec_fac.into()) / 100;
        let least = bits_per_second(parameters.rpg_min_rate);
        self.current = self.current.saturating_sub(cut).max(kept).max(least);
        self.target = self.target.max(self.current);
        let gain = PARAMETER_ONE.saturating_sub(parameters.dce_tcp_g.into());
        self.alpha = self.retained_alpha(parameters) + (gain << (ALPHA_DIGITS - PARAMETER_DIGITS));
        self.time_stage = 0;
        self.byte_stage = 0;
        self.bytes_left = parameters.rpg_byte_reset.into();
        self.cut_waits = false;
        self.cut_due_ns = now_ns.saturating_add(ns(parameters.rate_reduce_monitor_period));
        self.restart_timers(parameters, now_ns);
    }

    fn retained_alpha(&self, parameters: &DcqcnParameters) -> u64 {
        (self.alpha * u64::from(parameters.dce_tcp_g)) >> PARAMETER_DIGITS
    }

    /// Lowers alpha because no CNP came for a while: alpha := (1 − g) alpha.
    fn decay(&mut self, parameters: &DcqcnParameters, at_ns: u64) {
        self.alpha = self.retained_alpha(parameters);
        self.alpha_due_ns =
            if self.alpha == 0 { NEVER } else { at_ns.saturating_add(ns(parameters.dce_tcp_rtt)) };
    }

    /// Raises the rate when the timer or the byte counter expires: fast recovery, additive or hyper increase,
    /// by the two stages.
    fn increase(&mut self, parameters: &DcqcnParameters, most: u64) {
        let (fewer, more) = (self.time_stage.min(self.byte_stage), self.time_stage.max(self.byte_stage));
        let threshold = parameters.rpg_threshold;
        let growth = if more <= threshold {
            0
        } else if fewer > threshold {
            bits_per_second(parameters.rpg_hai_rate).saturating_mul(u64::from(fewer - threshold))
        } else {
            bits_per_second(parameters.rpg_ai_rate)
        };
        self.target = self.target.saturating_add(growth).min(most);
        self.current = self.current.midpoint(self.target);
        // Halving the distance never reaches the target.
        if self.target == most && most - self.current <= bits_per_second(parameters.rpg_ai_rate) {
            self.current = most;
        }
    }
}

/// Converts µs to ns.
const fn ns(us: u32) -> u64 {
    us as u64 * 1_000
}
