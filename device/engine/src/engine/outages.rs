//! What the device is in because of a fault plan: it stands still, or its port is down.

use pumice_ground::clock::earliest;
pub(crate) use pumice_profile::addresses::ports::MAX_PORTS;

/// A time for each port that waits for one.
#[derive(Debug, Default)]
pub(super) struct OfPorts([Option<u64>; MAX_PORTS]);

impl OfPorts {
    /// A port waits until then, and no shorter than it did.
    pub(super) fn extend(&mut self, port_num: u8, until_ns: u64) {
        if let Some(place) = self.place(port_num) {
            *place = Some(place.unwrap_or(0).max(until_ns));
        }
    }

    /// A port waits no more.
    pub(super) fn end(&mut self, port_num: u8) {
        if let Some(place) = self.place(port_num) {
            *place = None;
        }
    }

    /// When the first of them has waited for long enough.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        earliest(self.0)
    }

    /// The next port that has waited for long enough, and waits no more.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<u8> {
        let (port_num, place) =
            (1..).zip(&mut self.0).find(|(_, place)| place.is_some_and(|until_ns| until_ns <= now_ns))?;
        *place = None;
        Some(port_num)
    }

    fn place(&mut self, port_num: u8) -> Option<&mut Option<u64>> {
        self.0.get_mut(usize::from(port_num).checked_sub(1)?)
    }
}

/// What the device is in because of a fault plan.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// It does nothing until then; `u64::MAX`: any more.
    pub(super) still_until_ns: Option<u64>,
    /// When its ports come up.
    pub(super) port_up_ns: OfPorts,
    /// When their cables are in again.
    pub(super) cable_in_ns: OfPorts,
    /// When what was changed of its links for a time is over.
    pub(super) link_over_ns: Option<u64>,
    /// When the plan has something happen, also if the device sends nothing.
    pub(super) timed_ns: Option<u64>,
}

impl Outages {
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
        let all = [self.port_up_ns.first(), self.cable_in_ns.first(), self.link_over_ns, self.timed_ns];
        earliest(all)
    }
}
