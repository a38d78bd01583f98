//! The outages of the device that a fault plan caused: the device is stopped, or its port is down.

pub(crate) use pumice_model::addresses::MAX_PORTS;
use pumice_platform::clock::earliest;

/// For each port the time until which it waits, if it does.
#[derive(Debug, Default)]
pub(super) struct PortDeadlines([Option<u64>; MAX_PORTS]);

impl PortDeadlines {
    /// Makes a port wait until this time, or longer if it already waits longer.
    pub(super) fn extend(&mut self, port_num: u8, until_ns: u64) {
        if let Some(slot_mut) = self.slot_mut(port_num) {
            *slot_mut = Some(slot_mut.unwrap_or(0).max(until_ns));
        }
    }

    /// Ends the wait of a port.
    pub(super) fn end(&mut self, port_num: u8) {
        if let Some(slot_mut) = self.slot_mut(port_num) {
            *slot_mut = None;
        }
    }

    /// Returns the earliest end of a wait, in ns.
    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        earliest(self.0)
    }

    /// Takes the next port whose wait is over.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<u8> {
        let (port_num, slot_mut) = (1..)
            .zip(&mut self.0)
            .find(|(_, slot_mut)| slot_mut.is_some_and(|until_ns| until_ns <= now_ns))?;
        *slot_mut = None;
        Some(port_num)
    }

    fn slot_mut(&mut self, port_num: u8) -> Option<&mut Option<u64>> {
        self.0.get_mut(usize::from(port_num).checked_sub(1)?)
    }
}

/// The outages of the device that a fault plan caused.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// The time until which the device is stopped, in ns; `u64::MAX`: for ever.
    pub(super) stopped_until_ns: Option<u64>,
    /// The times at which the ports come up.
    pub(super) port_up_ns: PortDeadlines,
    /// The times at which the cables are in again.
    pub(super) cable_in_ns: PortDeadlines,
    /// The time at which a temporary change of link settings is over, in ns.
    pub(super) link_over_ns: Option<u64>,
    /// The time at which the next timed incident is due, in ns; it needs no packet.
    pub(super) timed_ns: Option<u64>,
}

impl Outages {
    /// Reports whether the device is stopped.
    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped_until_ns.is_some()
    }

    /// Returns when the next outage ends or the next timed incident is due, in ns.
    #[inline]
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        if self.is_stopped() {
            return self.stopped_until_ns;
        }
        let all = [self.port_up_ns.first(), self.cable_in_ns.first(), self.link_over_ns, self.timed_ns];
        earliest(all)
    }
}
