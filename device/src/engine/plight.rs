//! What the device is in because of a fault plan: it stands still, or its port is down.

/// What the device is in because of a fault plan.
#[derive(Debug, Default)]
pub(super) struct Plight {
    /// It does nothing until then; `u64::MAX`: any more.
    pub(super) still_until_ns: Option<u64>,
    /// When its port comes up.
    pub(super) port_up_ns: Option<u64>,
    /// When its cable is in again.
    pub(super) cable_in_ns: Option<u64>,
    /// When the plan has something happen, also if the device sends nothing.
    pub(super) timed_ns: Option<u64>,
}

impl Plight {
    /// Whether the device does nothing.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        self.still_until_ns.is_some()
    }

    /// When it changes.
    #[inline]
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        if self.is_still() {
            return self.still_until_ns;
        }
        [self.port_up_ns, self.cable_in_ns, self.timed_ns].into_iter().flatten().min()
    }
}
