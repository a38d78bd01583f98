//! The conditions of a device's ports, which other processes see as well.

use pumice_model::addresses::FIRST_PORT;
use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::port::Port;
use pumice_model::port::group::PortCondition;

use crate::resources::Resources;

/// The ports of a device, and the group that their conditions are published in.
pub(crate) struct PortConditions<'a> {
    pub(super) resources: &'a mut Resources,
    pub(super) port: &'a mut dyn Port,
}

impl PortConditions<'_> {
    /// Publishes a change of a port's condition.
    pub(super) fn publish_change(
        &mut self,
        port_num: u8,
        now_ns: u64,
        change: impl FnOnce(&mut PortCondition),
    ) {
        let Some(before) = self.condition(port_num, now_ns) else { return };
        let mut condition = before;
        change(&mut condition);
        if condition != before
            && let Some(group) = self.port.group()
        {
            group.publish_condition(port_num, &condition);
        }
    }

    /// Publishes a change of a port's condition by an incident, at the time of the fault plan's clock.
    pub(super) fn publish_incident(&mut self, port_num: u8, change: impl FnOnce(&mut PortCondition)) {
        self.publish_change(port_num, self.resources.decisions.now_ns(), change);
    }

    /// Updates the ports to the host's present addresses and interfaces. Returns whether GIDs changed.
    pub(crate) fn follow_addresses(&mut self, entries: Vec<GidEntry>, now_ns: u64) -> bool {
        let before = self.conditions(now_ns);
        let changed = self.resources.port.set_gids(entries);
        self.publish_other_than(&before, now_ns);
        changed
    }

    /// Publishes the conditions of ports where they differ from the expected ones.
    pub(crate) fn publish_all(&mut self, now_ns: u64) {
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
}
