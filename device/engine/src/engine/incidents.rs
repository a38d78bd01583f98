//! The application of incidents to the device: operations on its objects, its ports and itself, and the end
//! of those that last for a time.

use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::event::async_event::AsyncElement;
use pumice_model::fates::call::CallKey;
use pumice_model::fates::details::FIRST_PORT;
use pumice_model::fates::incident_effects::Adapter;
use pumice_model::port::group::PortCondition;
use pumice_model::port::traits::LinkChange;
use pumice_platform::link_rate::{Speed, Width};
use pumice_platform::link_settings::LinkSettings;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::Engine;

impl Engine {
    /// Applies the incidents that are due. Then the queue pairs continue that were halted for them.
    #[cold]
    pub(super) fn apply_incidents(&mut self) {
        let due = self.resources.decisions.take_incidents();
        let now_ns = self.now_ns();
        for (qpn, one) in &due {
            one.apply(self, *qpn, now_ns);
        }
        for (qpn, _) in due {
            if let Some((index, entry)) = self.queue_pairs.by_number(qpn) {
                entry.qp.go_on();
                self.touch(index);
            }
        }
    }

    /// Applies the incidents that waited for the return of this call.
    pub(crate) fn called(&mut self, key: &CallKey<'_>) {
        if self.resources.called(key) {
            self.settle();
        }
    }

    /// Returns the time of the fault plan's clock, in ns; 0 without a plan.
    fn now_ns(&self) -> u64 {
        self.resources.decisions.now_ns()
    }

    /// Publishes a change of a port's condition.
    fn publish_change(&mut self, port_num: u8, now_ns: u64, change: impl FnOnce(&mut PortCondition)) {
        let Some(before) = self.condition(port_num, now_ns) else { return };
        let mut condition = before;
        change(&mut condition);
        if condition != before
            && let Some(group) = self.port.group()
        {
            group.publish_condition(port_num, &condition);
        }
    }

    /// Updates the ports to the host's present addresses and interfaces. Returns whether GIDs changed.
    pub(crate) fn follow_addresses(&mut self, entries: Vec<GidEntry>, now_ns: u64) -> bool {
        let before = self.conditions(now_ns);
        let changed = self.resources.port.set_gids(entries);
        self.publish_other_than(&before, now_ns);
        changed
    }

    /// Publishes the conditions of ports where they differ from the expected ones.
    pub(crate) fn publish_conditions(&mut self, now_ns: u64) {
        self.publish_other_than(&[], now_ns);
    }

    fn publish_other_than(&mut self, before: &[PortCondition], now_ns: u64) {
        for (place, (port_num, condition)) in (FIRST_PORT..).zip(self.conditions(now_ns)).enumerate() {
            if condition != before.get(place).copied().unwrap_or_default()
                && let Some(group) = self.port.group()
            {
                group.publish_condition(port_num, &condition);
            }
        }
    }

    fn conditions(&self, now_ns: u64) -> Vec<PortCondition> {
        (FIRST_PORT..).map_while(|port_num| self.condition(port_num, now_ns)).collect()
    }

    /// Returns the condition of a port; `None` if the device has no such port.
    fn condition(&self, port_num: u8, now_ns: u64) -> Option<PortCondition> {
        let port = self.resources.port.ports.get(port_num)?;
        let (speed, width) = port.changed_rate();
        let back_ns = self.resources.port.presence.back_ns().filter(|_| port_num == FIRST_PORT);
        let removed_for_ns = back_ns.map(|back_ns| match back_ns {
            u64::MAX => u64::MAX,
            back_ns => back_ns.saturating_sub(now_ns),
        });
        let (is_down, is_cable_out) = (port.is_down, !port.is_cable_in());
        let gid_origins = port.gids.origins();
        // A port without addresses is shown as it was when the program began.
        let lacks_carrier = port.has_any() && !port.has_carrier();
        Some(PortCondition {
            is_down,
            is_cable_out,
            lacks_carrier,
            speed,
            width,
            removed_for_ns,
            gid_origins,
        })
    }

    /// Brings up ports, puts in cables, and makes timed incidents due, as far as their time has come.
    #[cold]
    pub(super) fn expire_outages(&mut self, now_ns: u64) {
        while let Some(port_num) = self.faults.outages.cable_in_ns.take_due(now_ns) {
            self.publish_change(port_num, now_ns, |condition| condition.is_cable_out = false);
            self.resources.plug_in_cable(port_num);
        }
        if self.faults.outages.link_over_ns.is_some_and(|over_ns| over_ns <= now_ns) {
            self.faults.outages.link_over_ns = None;
            self.port.change_link(&LinkChange::TemporaryEnded);
        }
        if self.faults.outages.timed_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.resources.advance_to_time(now_ns);
            self.faults.update_timed_deadline(&self.resources);
            self.settle();
        }
        while let Some(port_num) = self.faults.outages.port_up_ns.take_due(now_ns) {
            self.publish_change(port_num, now_ns, |condition| condition.is_down = false);
            self.resources.set_port_up(port_num);
        }
    }
}

impl Adapter for Engine {
    fn fail_cq(&mut self, cq: u32) {
        self.resources.fail_cq(cq);
    }

    fn raise_srq_limit(&mut self, srq: u32) {
        self.resources.raise_srq_limit(srq);
    }

    fn fail_srq(&mut self, srq: u32) {
        self.resources.fail_srq(srq);
    }

    fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.resources.end_queue_pair(qpn, event);
    }

    fn raise_qp_async_event(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.resources.raise_qp_event(qpn, event);
    }

    fn raise_port_async_event(&mut self, port: u8, event: AsyncEventType) {
        if self.resources.port.ports.get(port).is_some() {
            self.resources.port.async_events.raise(event, AsyncElement::Port(port));
        }
    }

    // The condition that sysfs shows of a port is published before the program can have the event.

    fn take_port_down(&mut self, port: u8, until_ns: u64) {
        self.publish_change(port, self.now_ns(), |condition| condition.is_down = true);
        self.resources.set_port_down(port, until_ns);
        self.faults.outages.port_up_ns.extend(port, until_ns);
    }

    fn bring_port_up(&mut self, port: u8) {
        self.publish_change(port, self.now_ns(), |condition| {
            (condition.is_down, condition.is_cable_out) = (false, false);
        });
        self.faults.outages.port_up_ns.end(port);
        self.faults.outages.cable_in_ns.end(port);
        self.resources.plug_in_cable(port);
        self.resources.set_port_up(port);
    }

    fn pull_cable(&mut self, port: u8, until_ns: u64) {
        self.publish_change(port, self.now_ns(), |condition| condition.is_cable_out = true);
        self.resources.unplug_cable(port, until_ns);
        self.faults.outages.cable_in_ns.extend(port, until_ns);
    }

    fn train_link(&mut self, port: u8, speed: Option<Speed>, width: Option<Width>) {
        self.publish_change(port, self.now_ns(), |condition| {
            condition.speed = speed.or(condition.speed);
            condition.width = width.or(condition.width);
        });
        self.resources.change_rate(port, speed, width);
    }

    fn change_link(&mut self, words: LinkSettings, until_ns: Option<u64>) {
        let change = match until_ns {
            None => LinkChange::Permanent(words),
            Some(until_ns) => {
                self.faults.outages.link_over_ns = Some(until_ns);
                LinkChange::Temporary(words)
            }
        };
        self.port.change_link(&change);
    }

    fn restore_link(&mut self) {
        self.faults.outages.link_over_ns = None;
        self.port.change_link(&LinkChange::Restored);
    }

    fn move_gid(&mut self, port: u8, from: u32, to: u32) {
        if let Some(found) = self.resources.port.ports.get(port) {
            let origins = found.gids.origins_after(from, to);
            self.publish_change(port, self.now_ns(), |condition| condition.gid_origins = origins);
        }
        self.resources.move_gid(port, from, to);
    }

    fn change_addresses(&mut self, port: u8) {
        self.resources.port.presence.change_address();
        self.raise_port_async_event(port, AsyncEventType::GidChange);
    }

    fn disconnect(&mut self, qpn: Qpn, now_ns: u64) {
        let peer = self.queue_pairs.by_number(qpn).and_then(|(_, entry)| entry.qp.peer());
        let Some((address, peer)) = peer else { return };
        if self.gsi.disconnect_from(address, peer, now_ns) {
            self.send_mads(now_ns);
        }
    }

    fn die(&mut self) {
        self.resources.port.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
        self.freeze(u64::MAX);
    }

    /// Queue pairs are flushed, as drivers do for a device that does not answer. The record of the first port
    /// says that the whole device is unplugged.
    fn leave(&mut self, back_ns: u64, now_ns: u64) {
        let for_ns = if back_ns == u64::MAX { u64::MAX } else { back_ns.saturating_sub(now_ns) };
        self.publish_change(FIRST_PORT, now_ns, |condition| condition.removed_for_ns = Some(for_ns));
        if self.resources.port.presence.leave(back_ns) {
            self.resources.port.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
            self.resources.flush_queue_pairs();
            self.freeze(u64::MAX);
        }
    }

    fn freeze(&mut self, until_ns: u64) {
        let stopped_until_ns = &mut self.faults.outages.stopped_until_ns;
        *stopped_until_ns = Some(stopped_until_ns.unwrap_or(0).max(until_ns));
    }
}
