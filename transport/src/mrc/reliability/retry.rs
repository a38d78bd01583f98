//! The local ACK timeout, with linear retries first and exponential retries after them.

use crate::mrc::constants::{EXP_FOR_EVER, MAX_LINEAR_CNT, MAX_TIMEOUT};

/// Returns the nanoseconds of an exponent: 1.024 µs · 2^timeout, at most 17.17 s.
pub(crate) const fn timeout_ns(exponent: u8) -> u64 {
    1024 << if exponent > MAX_TIMEOUT { MAX_TIMEOUT } else { exponent }
}

/// All retries have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyRetries;

#[derive(Debug, Clone)]
pub(crate) struct RetryTimer {
    timeout: u8,
    linear_cnt: u8,
    exp_cnt: u8,
    /// Number of retries since the last progress.
    count: u32,
    /// Time of the last NACK that counted as a retry.
    nack_ns: Option<u64>,
}

impl RetryTimer {
    pub(crate) fn new(timeout: u8, linear_cnt: u8, exp_cnt: u8) -> RetryTimer {
        let linear_cnt = linear_cnt.min(MAX_LINEAR_CNT);
        let exp_cnt = exp_cnt.min(EXP_FOR_EVER);
        RetryTimer { timeout: timeout.min(MAX_TIMEOUT), linear_cnt, exp_cnt, count: 0, nack_ns: None }
    }

    /// Returns the timeout without doublings, in ns.
    pub(crate) fn first_ns(&self) -> u64 {
        timeout_ns(self.timeout)
    }

    /// Returns the time until the next retry, in ns.
    pub(crate) fn next_ns(&self) -> u64 {
        let retry = self.count.saturating_add(1);
        let doublings = retry.saturating_sub(self.linear_cnt.into()).min(self.exp_cnt.into());
        timeout_ns(self.timeout.saturating_add(u8::try_from(doublings).unwrap_or(u8::MAX)))
    }

    /// Returns the number of retries that are left; 255 for as many as are needed.
    pub(crate) fn retries_left(&self) -> u8 {
        let most = u32::from(self.linear_cnt) + u32::from(self.exp_cnt);
        if self.exp_cnt >= EXP_FOR_EVER { u8::MAX } else { most.saturating_sub(self.count) as u8 }
    }

    /// Resets the retries because a packet has arrived.
    pub(crate) fn progress(&mut self) {
        (self.count, self.nack_ns) = (0, None);
    }

    /// Counts a timeout.
    ///
    /// # Errors
    /// The number of retries is exhausted.
    pub(crate) fn retry(&mut self) -> Result<(), TooManyRetries> {
        self.count = self.count.saturating_add(1);
        let most = u32::from(self.linear_cnt) + u32::from(self.exp_cnt);
        if self.exp_cnt < EXP_FOR_EVER && self.count > most { Err(TooManyRetries) } else { Ok(()) }
    }

    /// Counts a NACK of the packet that all later ones wait for. Switches may trim that packet again in each
    /// round trip, so it counts at most once per timeout.
    ///
    /// # Errors
    /// As for [`RetryTimer::retry`].
    pub(crate) fn nack(&mut self, now_ns: u64) -> Result<(), TooManyRetries> {
        let is_early = |last: u64| now_ns < last.saturating_add(self.first_ns());
        if self.nack_ns.is_some_and(is_early) {
            return Ok(());
        }
        self.nack_ns = Some(now_ns);
        self.retry()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proofs::check_all;

    /// Checks that linear retries wait for the timeout, and exponential ones for twice the previous time, up
    /// to 17.17 s.
    #[test]
    fn retries_are_linear_and_then_exponential() {
        check_all(|from| {
            let (timeout, linear, exp) = (from.up_to(30) as u8, from.up_to(9) as u8, from.up_to(27) as u8);
            let mut timer = RetryTimer::new(timeout, linear, exp);
            let (timeout, linear, exp) = (timeout.min(24), linear.min(7), exp.min(25));
            for count in 0..40_u32 {
                let retry = (count + 1).saturating_sub(linear.into());
                let doublings = retry.min(exp.into()).min(u32::from(24 - timeout));
                assert_eq!(timer.next_ns(), 1024 << (u32::from(timeout) + doublings));
                let is_over = exp < 25 && count + 1 > u32::from(linear) + u32::from(exp);
                assert_eq!(timer.retry().is_err(), is_over);
            }
            timer.progress();
            assert_eq!(timer.next_ns() == timer.first_ns(), linear > 0 || exp == 0 || timeout == 24);
        });
    }

    #[test]
    fn nacks_count_once_in_a_timeout() {
        let mut timer = RetryTimer::new(14, 1, 0);
        assert_eq!((timer.nack(0), timer.nack(timer.first_ns() - 1)), (Ok(()), Ok(())));
        assert_eq!(timer.nack(timer.first_ns()), Err(TooManyRetries));
    }
}
