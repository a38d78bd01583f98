//! Since when nothing has moved.

/// Patiences after a judgement until something is looked for again.
pub(super) const PATIENCES: u64 = 4;
/// That time is doubled so often at most, while nothing moves: a server that is idle is looked at once in
/// some minutes.
const MOST_DOUBLED: u32 = 5;

/// How long a device has not got on.
#[derive(Debug, Default)]
pub(super) struct Rest {
    moved: u64,
    since_ns: u64,
    again_ns: u64,
    judged: u32,
}

impl Rest {
    /// `moved` changes when the device gets on. Whether it has.
    pub(super) fn see(&mut self, now_ns: u64, moved: u64) -> bool {
        let has_moved = self.moved != moved || self.since_ns == 0;
        if has_moved {
            *self = Rest { moved, since_ns: now_ns.max(1), ..Rest::default() };
        }
        has_moved
    }

    /// Whether nothing has moved for so long.
    pub(super) fn is_long(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.since_ns != 0 && now_ns.saturating_sub(self.since_ns) >= patience_ns
    }

    /// Whether it has to be judged.
    pub(super) fn is_due(&self, now_ns: u64, patience_ns: u64) -> bool {
        self.is_long(now_ns, patience_ns) && now_ns >= self.again_ns
    }

    /// It was judged.
    pub(super) fn judged(&mut self, now_ns: u64, patience_ns: u64) {
        let pause_ns = (PATIENCES << self.judged.min(MOST_DOUBLED)).saturating_mul(patience_ns);
        self.again_ns = now_ns.saturating_add(pause_ns);
        self.judged = self.judged.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_at_rest_is_judged_less_and_less_often_until_it_moves() {
        let mut rest = Rest::default();
        let mut judged = Vec::new();
        for now_ns in 0..200 {
            rest.see(now_ns, 7);
            if rest.is_due(now_ns, 2) {
                judged.push(now_ns);
                rest.judged(now_ns, 2);
            }
        }
        assert_eq!(judged, [3, 11, 27, 59, 123]);
        rest.see(200, 8);
        assert!(!rest.is_due(201, 2) && rest.is_due(202, 2));
    }
}
