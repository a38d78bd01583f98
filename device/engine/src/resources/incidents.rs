//! Incidents of the objects and ports of a device.

use pumice_model::event::async_event::AsyncElement;
use pumice_platform::link_settings::{Speed, Width};
use pumice_platform::ordinal::Ordinal;
use pumice_transport::types::{AsyncEventType, Cause};
use pumice_transport::wire::Qpn;

use super::tables::{QpFailure, Receives, Resources};

impl Resources {
    /// Moves a queue pair to ERR, with this event.
    pub(crate) fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.raise_qp_event(qpn, event);
        self.completions.qp_failures.push(QpFailure { qpn, cause: Cause::Planned });
    }

    /// Fails the completion queue with this ordinal, and the queue pairs that complete there.
    pub(crate) fn fail_cq(&mut self, ordinal: u32) {
        let found = {
            let is_meant = |own: u32| Ordinal(own).matches_selector(Ordinal(ordinal));
            self.objects.cqs.iter().find(|(_, entry)| entry.ordinal.is_some_and(is_meant))
        };
        let Some(index) = found.map(|(handle, entry)| {
            entry.cq.fail();
            handle.index
        }) else {
            return;
        };
        self.cq_failed(index);
    }

    /// Raises SRQ_LIMIT_REACHED of the shared receive queue with this ordinal, and disarms its limit.
    pub(crate) fn raise_srq_limit(&mut self, ordinal: u32) {
        let Some(index) = self.srq_index(ordinal) else { return };
        let Resources { objects, port, .. } = self;
        let Some(Receives::Shared(srq)) = objects.receives.at_mut(index) else { return };
        srq.disarm();
        let element = AsyncElement::Srq { cookie: srq.cookie() };
        port.async_events.raise_for(AsyncEventType::SrqLimitReached, element, srq.account());
    }

    /// Fails the shared receive queue with this ordinal, and the queue pairs that take from it.
    pub(crate) fn fail_srq(&mut self, ordinal: u32) {
        let Some(index) = self.srq_index(ordinal) else { return };
        let Resources { objects, port, .. } = self;
        let Some(Receives::Shared(srq)) = objects.receives.at_mut(index) else { return };
        srq.fail();
        let element = AsyncElement::Srq { cookie: srq.cookie() };
        port.async_events.raise_for(AsyncEventType::SrqErr, element, srq.account());
        let takers = self.objects.qps.iter().flatten().map(|attachment| &attachment.context);
        let takers: Vec<Qpn> = takers.filter(|qp| qp.recv_queue == index).map(|qp| qp.qpn).collect();
        for qpn in takers {
            self.end_queue_pair(qpn, AsyncEventType::QpFatal);
        }
    }

    fn srq_index(&self, ordinal: u32) -> Option<u32> {
        let is_meant = |own: u32| Ordinal(own).matches_selector(Ordinal(ordinal));
        let is_it =
            |receives: &Receives| matches!(receives, Receives::Shared(srq) if is_meant(srq.ordinal()));
        self.objects.receives.iter().find(|(_, receives)| is_it(receives)).map(|(handle, _)| handle.index)
    }

    /// Swaps the addresses of two entries of the GID table.
    pub(crate) fn move_gid(&mut self, port_num: u8, from: u32, to: u32) {
        if self.port.ports.get_mut(port_num).is_some_and(|port| port.gids.exchange(from, to)) {
            self.port.raise_gid_change(port_num, true);
        }
    }

    /// Pulls the cable of a port: nothing passes until this time of the clock, and no event is raised.
    pub(crate) fn unplug_cable(&mut self, port_num: u8, until_ns: u64) {
        let Some(port) = self.port.ports.get_mut(port_num) else { return };
        port.is_cable_out = true;
        self.cut_off(port_num, until_ns);
    }

    /// Plugs in the cable of a port again.
    pub(crate) fn plug_in_cable(&mut self, port_num: u8) {
        if let Some(port) = self.port.ports.get_mut(port_num) {
            port.is_cable_out = false;
        }
    }

    /// Stops all traffic of a port until this time of the clock.
    fn cut_off(&self, port_num: u8, until_ns: u64) {
        // The only port has all addresses, also those that it gets meanwhile.
        let own = match self.port.ports.get(port_num) {
            Some(port) if self.port.ports.are_several() => {
                port.gids.iter().map(|(_, entry)| entry.ip).collect()
            }
            _ => Vec::new(),
        };
        self.decisions.cut_off(port_num, own, until_ns);
    }

    /// Retrains the link at another rate: for a moment the port was down.
    pub(crate) fn change_rate(&mut self, port_num: u8, speed: Option<Speed>, width: Option<Width>) {
        let Some(port) = self.port.ports.get_mut(port_num) else { return };
        let (speed_before, width_before) = port.changed_rate;
        port.changed_rate = (speed.or(speed_before), width.or(width_before));
        if !port.is_down {
            for event in [AsyncEventType::PortErr, AsyncEventType::PortActive] {
                self.port.async_events.raise(event, AsyncElement::Port(port_num));
            }
        }
    }

    /// Moves all queue pairs to ERR, without an event for each.
    pub(crate) fn flush_queue_pairs(&mut self) {
        let all = self.objects.qps.iter().flatten().map(|attachment| attachment.context.qpn);
        let all: Vec<Qpn> = all.collect();
        self.completions
            .qp_failures
            .extend(all.into_iter().map(|qpn| QpFailure { qpn, cause: Cause::Planned }));
    }

    /// Takes a port down: nothing passes it until this time of the clock.
    pub(crate) fn set_port_down(&mut self, port_num: u8, until_ns: u64) {
        let Some(port) = self.port.ports.get_mut(port_num) else { return };
        let was_down = std::mem::replace(&mut port.is_down, true);
        self.cut_off(port_num, until_ns);
        if !was_down {
            self.port.async_events.raise(AsyncEventType::PortErr, AsyncElement::Port(port_num));
        }
    }

    /// Brings a port up again.
    pub(crate) fn set_port_up(&mut self, port_num: u8) {
        let Some(port) = self.port.ports.get_mut(port_num) else { return };
        let was_down = std::mem::replace(&mut port.is_down, false);
        let is_cable_in = !port.is_cable_out;
        if is_cable_in {
            self.decisions.rejoin(port_num);
        }
        if was_down {
            self.port.async_events.raise(AsyncEventType::PortActive, AsyncElement::Port(port_num));
        }
    }
}
