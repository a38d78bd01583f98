//! What a fault plan makes happen to the objects and to the port of a device.

use pumice_transport::types::{AsyncEventType, Cause};
use pumice_transport::wire::Qpn;

use super::tables::{QpFault, Receives, Resources};
use crate::ground::link_rate::{Speed, Width};
use crate::objects::async_event::AsyncElement;

impl Resources {
    /// A queue pair goes to ERR, with this event.
    pub(crate) fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.raise_qp_event(qpn, event);
        self.qp_faults.push(QpFault { qpn, cause: Cause::Planned });
    }

    /// The completion queue with this ordinal fails, and with it the queue pairs that complete there.
    pub(crate) fn fail_cq(&mut self, ordinal: u32) {
        let found = self.cqs.iter().find(|(_, entry)| entry.ordinal == Some(ordinal));
        let Some(index) = found.map(|(handle, entry)| {
            entry.cq.fail();
            handle.index
        }) else {
            return;
        };
        self.cq_failed(index);
    }

    /// SRQ_LIMIT_REACHED of the shared receive queue with this ordinal, whose limit is disarmed.
    pub(crate) fn reach_srq_limit(&mut self, ordinal: u32) {
        let Some(index) = self.srq_place(ordinal) else { return };
        let Resources { receives, async_events, .. } = self;
        let Some(Receives::Shared(srq)) = receives.at_mut(index) else { return };
        srq.disarm();
        let element = AsyncElement::Srq { cookie: srq.cookie() };
        async_events.raise_for(AsyncEventType::SrqLimitReached, element, srq.account());
    }

    /// The shared receive queue with this ordinal fails, and with it the queue pairs that take from it.
    pub(crate) fn fail_srq(&mut self, ordinal: u32) {
        let Some(index) = self.srq_place(ordinal) else { return };
        let Resources { receives, async_events, .. } = self;
        let Some(Receives::Shared(srq)) = receives.at_mut(index) else { return };
        srq.fail();
        let element = AsyncElement::Srq { cookie: srq.cookie() };
        async_events.raise_for(AsyncEventType::SrqErr, element, srq.account());
        let takers = self.qps.iter().flatten().map(|attachment| &attachment.context);
        let takers: Vec<Qpn> = takers.filter(|qp| qp.recv_queue == index).map(|qp| qp.qpn).collect();
        for qpn in takers {
            self.end_queue_pair(qpn, AsyncEventType::QpFatal);
        }
    }

    fn srq_place(&self, ordinal: u32) -> Option<u32> {
        let is_it =
            |receives: &Receives| matches!(receives, Receives::Shared(srq) if srq.ordinal() == ordinal);
        self.receives.iter().find(|(_, receives)| is_it(receives)).map(|(handle, _)| handle.index)
    }

    /// Two places of the GID table change their addresses.
    pub(crate) fn move_gid(&mut self, from: u32, to: u32) {
        if self.gids.exchange(from, to) {
            self.raise_gid_change(true);
        }
    }

    /// The cable is out: nothing passes until this time of the clock, and no event tells of it.
    pub(crate) fn cable_went_out(&mut self, until_ns: u64) {
        self.is_cable_out = true;
        if let Some(faults) = self.faults.as_deref() {
            faults.part_from_all(until_ns);
        }
    }

    /// The cable is in again.
    pub(crate) fn cable_came_in(&mut self) {
        self.is_cable_out = false;
    }

    /// The link was trained again, at another rate: for a moment the port was down.
    pub(crate) fn change_rate(&mut self, speed: Option<Speed>, width: Option<Width>) {
        let (speed_before, width_before) = self.changed_rate;
        self.changed_rate = (speed.or(speed_before), width.or(width_before));
        if !self.is_port_down {
            for event in [AsyncEventType::PortErr, AsyncEventType::PortActive] {
                self.async_events.raise(event, AsyncElement::Port(1));
            }
        }
    }

    /// All queue pairs go to ERR, without an event for each.
    pub(crate) fn flush_queue_pairs(&mut self) {
        let all = self.qps.iter().flatten().map(|attachment| attachment.context.qpn);
        let all: Vec<Qpn> = all.collect();
        self.qp_faults.extend(all.into_iter().map(|qpn| QpFault { qpn, cause: Cause::Planned }));
    }

    /// The port is down: nothing passes until this time of the clock.
    pub(crate) fn port_went_down(&mut self, until_ns: u64) {
        if let Some(faults) = self.faults.as_deref() {
            faults.part_from_all(until_ns);
        }
        if !std::mem::replace(&mut self.is_port_down, true) {
            self.async_events.raise(AsyncEventType::PortErr, AsyncElement::Port(1));
        }
    }

    /// The port is up again.
    pub(crate) fn port_came_up(&mut self) {
        if let Some(faults) = self.faults.as_deref().filter(|_| !self.is_cable_out) {
            faults.rejoin_all();
        }
        if std::mem::replace(&mut self.is_port_down, false) {
            self.async_events.raise(AsyncEventType::PortActive, AsyncElement::Port(1));
        }
    }
}
