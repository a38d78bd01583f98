//! The time since which nothing has moved.

/// Time from a judgement to the next examination, in patiences.
pub(super) const PATIENCES: u64 = 4;
/// Largest number of times that this time is doubled while nothing moves: an idle server is examined once in
/// some minutes.
const MAX_DOUBLED: u32 = 5;

/// The time for which a device has not progressed.
#[derive(Debug, Default)]
pub(super) struct StallTimer {
    moved: u64,
    since_ns: u64,
    again_ns: u64,
    judged: u32,
}

impl StallTimer {
    /// Notes `moved`, which changes when the device progresses, and returns whether it has.
    pub(super) fn observe(&mut self, now_ns: u64, moved: u64) -> bool {
        let has_moved = self.moved != moved || self.since_ns == 0;
        if has_moved {
            *self = StallTimer { moved, since_ns: now_ns.max(1), ..StallTimer::default() };
        }
        has_moved
    }

    /// Reports whether nothing has moved for `patience_ns`.
    pub(super) fn is_long(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.since_ns != 0 && now_ns.saturating_sub(self.since_ns) >= patience_ns
    }

    /// Reports whether the state has to be judged.
    pub(super) fn is_due(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.is_long(now_ns, patience_ns) && now_ns >= self.again_ns
    }

    /// Notes that the state was judged.
    pub(super) fn judged(&mut self, now_ns: u64, patience_ns: u64) {
        let pause_ns = (PATIENCES << self.judged.min(MAX_DOUBLED)).saturating_mul(patience_ns);
        self.again_ns = now_ns.saturating_add(pause_ns);
        self.judged = self.judged.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_at_rest_is_judged_less_and_less_often_until_it_moves() {
        let mut rest = StallTimer::default();
        let mut judged = Vec::new();
        for now_ns in 0..200 {
            rest.observe(now_ns, 7);
            if rest.is_due(now_ns, 2) {
                judged.push(now_ns);
                rest.judged(now_ns, 2);
            }
        }
        assert_eq!(judged, [3, 11, 27, 59, 123]);
        rest.observe(200, 8);
        assert!(!rest.is_due(201, 2) && rest.is_due(202, 2));
    }
}
