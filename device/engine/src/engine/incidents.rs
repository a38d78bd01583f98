//! What a fault plan makes happen to the device.

use pumice_faults::calls::CallKey;
use pumice_faults::{FIRST_PORT, Faults, Incident};
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
        let Some(faults) = self.resources.faults.as_deref_mut() else { return };
        let due = faults.take_incidents();
        for (qpn, incident) in &due {
            self.happen_at(*qpn, *incident);
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

    fn happen_at(&mut self, qpn: Qpn, incident: Incident) {
        let now_ns = self.resources.faults.as_deref().map_or(0, Faults::now_ns);
        self.publish_before(now_ns, incident);
        let resources = &mut self.resources;
        match incident {
            Incident::CqError { cq } => resources.fail_cq(cq),
            Incident::SrqLimit { srq } => resources.reach_srq_limit(srq),
            Incident::SrqError { srq } => resources.fail_srq(srq),
            Incident::QpFatal => resources.end_queue_pair(qpn, AsyncEventType::QpFatal),
            Incident::QpAccessError => resources.end_queue_pair(qpn, AsyncEventType::QpAccessErr),
            Incident::PathMigrationError => resources.raise_qp_event(qpn, AsyncEventType::PathMigErr),
            Incident::PortDown { port, for_ns } => {
                let until_ns = end_ns(now_ns, for_ns);
                resources.port_went_down(port, until_ns);
                self.plight.port_up_ns.extend(port, until_ns);
            }
            Incident::PortUp { port } => {
                self.plight.port_up_ns.end(port);
                self.plight.cable_in_ns.end(port);
                resources.cable_came_in(port);
                resources.port_came_up(port);
            }
            Incident::CablePull { port, for_ns } => {
                let until_ns = end_ns(now_ns, for_ns);
                resources.cable_went_out(port, until_ns);
                self.plight.cable_in_ns.extend(port, until_ns);
            }
            Incident::SpeedChange { port, speed, width } => resources.change_rate(port, speed, width),
            Incident::Link { words, for_ns } => {
                let change = match for_ns {
                    None => LinkChange::Lasting(words),
                    Some(for_ns) => {
                        self.plight.link_over_ns = Some(now_ns.saturating_add(for_ns));
                        LinkChange::Passing(words)
                    }
                };
                self.port.change_link(&change);
            }
            Incident::LinkRestore => {
                self.plight.link_over_ns = None;
                self.port.change_link(&LinkChange::Restored);
            }
            Incident::GidMove { port, from, to } => resources.move_gid(port, from, to),
            Incident::AddrChange { port } => {
                resources.presence.change_address();
                self.raise_of_port(port, AsyncEventType::GidChange);
            }
            Incident::Disconnect => self.disconnect(qpn, now_ns),
            Incident::LidChange { port } => self.raise_of_port(port, AsyncEventType::LidChange),
            Incident::PkeyChange { port } => self.raise_of_port(port, AsyncEventType::PkeyChange),
            Incident::DeviceFatal => {
                resources.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
                self.stand_still(u64::MAX);
            }
            Incident::Unplug { for_ns } => self.unplug(end_ns(now_ns, for_ns)),
            Incident::Freeze { for_ns } => self.stand_still(now_ns.saturating_add(for_ns)),
        }
    }

    /// What sysfs shows of the ports, at the latest when the program can have the event.
    fn publish_before(&mut self, now_ns: u64, incident: Incident) {
        match incident {
            Incident::PortDown { port, .. } => {
                self.publish_change(port, now_ns, |condition| condition.is_down = true);
            }
            Incident::CablePull { port, .. } => {
                self.publish_change(port, now_ns, |condition| condition.is_cable_out = true);
            }
            Incident::PortUp { port } => self.publish_change(port, now_ns, |condition| {
                (condition.is_down, condition.is_cable_out) = (false, false);
            }),
            Incident::SpeedChange { port, speed, width } => {
                self.publish_change(port, now_ns, |condition| {
                    condition.speed = speed.or(condition.speed);
                    condition.width = width.or(condition.width);
                });
            }
            Incident::GidMove { port, from, to } => {
                if let Some(found) = self.resources.ports.get(port) {
                    let origins = found.gids.origins_after(from, to);
                    self.publish_change(port, now_ns, |condition| condition.gid_origins = origins);
                }
            }
            // The record of the first port says that the whole device is pulled out.
            Incident::Unplug { for_ns } => self.publish_change(FIRST_PORT, now_ns, |condition| {
                condition.gone_for_ns = Some(for_ns.unwrap_or(u64::MAX));
            }),
            _ => {}
        }
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

    /// The device is gone: its queue pairs are flushed, as drivers do for a device that answers nothing.
    fn unplug(&mut self, back_ns: u64) {
        let resources = &mut self.resources;
        if !resources.presence.leave(back_ns) {
            return;
        }
        resources.async_events.raise(AsyncEventType::DeviceFatal, AsyncElement::Device);
        resources.flush_queue_pairs();
        self.stand_still(u64::MAX);
    }

    /// The connection manager ends the connection of a queue pair, if it made it.
    fn disconnect(&mut self, qpn: Qpn, now_ns: u64) {
        let peer = self.queue_pairs.by_number(qpn).and_then(|(_, entry)| entry.qp.peer());
        let Some((address, peer)) = peer else { return };
        if self.gsi.disconnect_from(address, peer, now_ns) {
            self.send_mads(now_ns);
        }
    }

    /// What happens to a port that the device does not have, happens to none.
    fn raise_of_port(&self, port_num: u8, event: AsyncEventType) {
        if self.resources.ports.get(port_num).is_some() {
            self.resources.async_events.raise(event, AsyncElement::Port(port_num));
        }
    }

    /// When the plan has something happen is found out anew.
    pub(super) fn look_at_times(&mut self) {
        self.plight.timed_ns = self.resources.faults.as_deref().and_then(Faults::next_timed_ns);
    }

    fn stand_still(&mut self, until_ns: u64) {
        self.plight.still_until_ns = Some(self.plight.still_until_ns.unwrap_or(0).max(until_ns));
    }

    /// Whether the device does nothing now. What arrives meanwhile is lost.
    #[cold]
    pub(super) fn stands_still(&mut self, now_ns: u64) -> bool {
        if self.plight.still_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.plight.still_until_ns = None;
            return false;
        }
        while self.port.receive(now_ns, &mut |_| {}) {}
        true
    }

    /// The port comes up, the cable is in again, or something happens by the plan, if it is time.
    #[cold]
    pub(super) fn expire_plight(&mut self, now_ns: u64) {
        while let Some(port_num) = self.plight.cable_in_ns.take_due(now_ns) {
            self.publish_change(port_num, now_ns, |condition| condition.is_cable_out = false);
            self.resources.cable_came_in(port_num);
        }
        if self.plight.link_over_ns.is_some_and(|over_ns| over_ns <= now_ns) {
            self.plight.link_over_ns = None;
            self.port.change_link(&LinkChange::Over);
        }
        if self.plight.timed_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.resources.time_came(now_ns);
            self.look_at_times();
            self.settle();
        }
        while let Some(port_num) = self.plight.port_up_ns.take_due(now_ns) {
            self.publish_change(port_num, now_ns, |condition| condition.is_down = false);
            self.resources.port_came_up(port_num);
        }
    }
}

/// When something that begins now ends.
fn end_ns(now_ns: u64, for_ns: Option<u64>) -> u64 {
    for_ns.map_or(u64::MAX, |for_ns| now_ns.saturating_add(for_ns))
}
