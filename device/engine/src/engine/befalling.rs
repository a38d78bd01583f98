//! What befalls the device: operations on its objects, its ports and itself, and what of them ends by itself.

use pumice_faults::calls::CallKey;
use pumice_faults::{Adapter, FIRST_PORT};
use pumice_ground::link_rate::{Speed, Width};
use pumice_ground::link_words::LinkSettings;
use pumice_objects::async_event::AsyncElement;
use pumice_ports::{LinkChange, PortCondition};
use pumice_profile::addresses::gid_table::GidEntry;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

use super::Engine;

impl Engine {
    /// What is due happens. Then the queue pairs go on that stood still for it.
    #[cold]
    pub(super) fn happen(&mut self) {
        let due = self.resources.decisions.take_incidents();
        let now_ns = self.now_ns();
        for (qpn, one) in &due {
            one.befall(self, *qpn, now_ns);
        }
        for (qpn, _) in due {
            if let Some((index, entry)) = self.queue_pairs.by_number(qpn) {
                entry.qp.go_on();
                self.touch(index);
            }
        }
    }

    /// A call has returned: what waited for it happens.
    pub(crate) fn called(&mut self, key: &CallKey<'_>) {
        if self.resources.called(key) {
            self.settle();
        }
    }

    /// The time of the clock that plans go by; 0 without a plan.
    fn now_ns(&self) -> u64 {
        self.resources.decisions.now_ns()
    }

    /// A port's condition is another one from now on.
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

    /// The host's addresses and interfaces are these now. Whether GIDs changed.
    pub(crate) fn follow_addresses(&mut self, entries: Vec<GidEntry>, now_ns: u64) -> bool {
        let before = self.conditions(now_ns);
        let changed = self.resources.set_gids(entries);
        self.publish_other_than(&before, now_ns);
        changed
    }

    /// Tells what ports are in, where it is not what is expected of them.
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

    /// None: the device has no such port.
    fn condition(&self, port_num: u8, now_ns: u64) -> Option<PortCondition> {
        let port = self.resources.ports.get(port_num)?;
        let (speed, width) = port.changed_rate();
        let back_ns = self.resources.presence.back_ns().filter(|_| port_num == FIRST_PORT);
        let gone_for_ns = back_ns.map(|back_ns| match back_ns {
            u64::MAX => u64::MAX,
            back_ns => back_ns.saturating_sub(now_ns),
        });
        let (is_down, is_cable_out) = (port.is_down, !port.is_cable_in());
        let gid_origins = port.gids.origins();
        // A port without addresses is shown as it was when the program began.
        let lacks_carrier = port.has_any() && !port.has_carrier();
        Some(PortCondition { is_down, is_cable_out, lacks_carrier, speed, width, gone_for_ns, gid_origins })
    }

    /// When the plan has something happen is found out anew.
    pub(super) fn look_at_times(&mut self) {
        self.outages.timed_ns = self.resources.decisions.next_timed_ns();
    }

    /// Whether the device does nothing now. What arrives meanwhile is lost.
    #[cold]
    pub(super) fn stands_still(&mut self, now_ns: u64) -> bool {
        if self.outages.still_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.outages.still_until_ns = None;
            return false;
        }
        while self.port.receive(now_ns, &mut |_| {}) {}
        true
    }

    /// The port comes up, the cable is in again, or something happens by the plan, if it is time.
    #[cold]
    pub(super) fn expire_outages(&mut self, now_ns: u64) {
        while let Some(port_num) = self.outages.cable_in_ns.take_due(now_ns) {
            self.publish_change(port_num, now_ns, |condition| condition.is_cable_out = false);
            self.resources.cable_came_in(port_num);
        }
        if self.outages.link_over_ns.is_some_and(|over_ns| over_ns <= now_ns) {
            self.outages.link_over_ns = None;
            self.port.change_link(&LinkChange::Over);
        }
        if self.outages.timed_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.resources.time_came(now_ns);
            self.look_at_times();
            self.settle();
        }
        while let Some(port_num) = self.outages.port_up_ns.take_due(now_ns) {
            self.publish_change(port_num, now_ns, |condition| condition.is_down = false);
            self.resources.port_came_up(port_num);
        }
    }
}

impl Adapter for Engine {
    fn fail_cq(&mut self, cq: u32) {
        self.resources.fail_cq(cq);
    }

    fn reach_srq_limit(&mut self, srq: u32) {
        self.resources.reach_srq_limit(srq);
    }

    fn fail_srq(&mut self, srq: u32) {
        self.resources.fail_srq(srq);
    }

    fn end_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.resources.end_queue_pair(qpn, event);
    }

    fn raise_of_queue_pair(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.resources.raise_qp_event(qpn, event);
    }

    fn raise_of_port(&mut self, port: u8, event: AsyncEventType) {
        if self.resources.ports.get(port).is_some() {
            self.resources.async_events.raise(event, AsyncElement::Port(port));
        }
    }

    // What sysfs shows of a port is published before the program can have the event.

    fn take_port_down(&mut self, port: u8, until_ns: u64) {
        self.publish_change(port, self.now_ns(), |condition| condition.is_down = true);
        self.resources.port_went_down(port, until_ns);
        self.outages.port_up_ns.extend(port, until_ns);
    }

    fn bring_port_up(&mut self, port: u8) {
        self.publish_change(port, self.now_ns(), |condition| {
            (condition.is_down, condition.is_cable_out) = (false, false);
        });
        self.outages.port_up_ns.end(port);
        self.outages.cable_in_ns.end(port);
        self.resources.cable_came_in(port);
        self.resources.port_came_up(port);
    }

    fn pull_cable(&mut self, port: u8, until_ns: u64) {
        self.publish_change(port, self.now_ns(), |condition| condition.is_cable_out = true);
        self.resources.cable_went_out(port, until_ns);
        self.outages.cable_in_ns.extend(port, until_ns);
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
            None => LinkChange::Lasting(words),
            Some(until_ns) => {
                self.outages.link_over_ns = Some(until_ns);
                LinkChange::Passing(words)
            }
        };
        self.port.change_link(&change);
    }

    fn restore_link(&mut self) {
        self.outages.link_over_ns = None;
        self.port.change_link(&LinkChange::Restored);
    }

    fn move_gid(&mut self, port: u8, from: u32, to: u32) {
        if let Some(found) = self.resources.ports.get(port) {
            let origins = found.gids.origins_after(from, to);
            self.publish_change(port, self.now_ns(), |condition| condition.gid_origins = origins);
        }
        self.resources.move_gid(port, from, to);
    }

    fn change_addresses(&mut self, port: u8) {
        self.resources.presence.change_address();
        self.raise_of_port(port, AsyncEventType::GidChange);
    }

    fn disconnect(&mut self, qpn: Qpn, now_ns: u64) {
        let peer = self.queue_pairs.by_number(qpn).and_then(|(_, entry)| entry.qp.peer());
        let Some((address, peer)) = peer else { return };
        if self.gsi.disconnect_from(address, peer, now_ns) {
            self.send_mads(now_ns);
        }
    }

    fn die(&mut self) {
        self.resources.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
        self.stand_still(u64::MAX);
    }

    /// Queue pairs are flushed, as drivers do for a device that answers nothing. The record of the first port
    /// says that the whole device is pulled out.
    fn leave(&mut self, back_ns: u64, now_ns: u64) {
        let for_ns = if back_ns == u64::MAX { u64::MAX } else { back_ns.saturating_sub(now_ns) };
        self.publish_change(FIRST_PORT, now_ns, |condition| condition.gone_for_ns = Some(for_ns));
        if self.resources.presence.leave(back_ns) {
            self.resources.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
            self.resources.flush_queue_pairs();
            self.stand_still(u64::MAX);
        }
    }

    fn stand_still(&mut self, until_ns: u64) {
        self.outages.still_until_ns = Some(self.outages.still_until_ns.unwrap_or(0).max(until_ns));
    }
}
