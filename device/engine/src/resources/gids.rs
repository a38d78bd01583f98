//! The addresses of a device's ports.

use pumice_model::addresses::DevicePort;
use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::event::async_event::AsyncElement;
use pumice_transport::host::Counter;
use pumice_transport::qp::Arrival;
use pumice_transport::types::{AsyncEventType, Gid};
use pumice_transport::wire::{Packet, Qpn};

use super::tables::{PortState, Resources};

impl PortState {
    /// Replaces the addresses of the ports, each at the port that it names, and raises GID_CHANGE of each
    /// port whose addresses changed. Returns whether any did.
    pub fn set_gids(&mut self, entries: Vec<GidEntry>) -> bool {
        let numbers: Vec<u8> = self.ports.iter().map(|(number, _)| number).collect();
        let mut changed = false;
        for number in numbers {
            let own = entries.iter().filter(|entry| entry.port_num == number).cloned().collect();
            changed |= self.set_gids_of(number, own);
        }
        changed
    }

    fn set_gids_of(&mut self, port_num: u8, entries: Vec<GidEntry>) -> bool {
        let Some(port) = self.ports.get_mut(port_num) else { return false };
        let had_carrier = port.has_carrier();
        let gone: Vec<Gid> = port
            .gids
            .iter()
            .map(|(_, known)| known.gid)
            .filter(|gid| !entries.iter().any(|entry| entry.gid == *gid))
            .collect();
        let mut changed = !gone.is_empty();
        for gid in gone {
            port.gids.remove(gid);
        }
        for entry in entries {
            // An address that does not fit in the table has no index until another one is removed.
            changed |= port.gids.add(entry).unwrap_or(false);
        }
        port.follow_mtu();
        if changed {
            self.raise_gid_change(port_num, had_carrier);
        } else if port.has_carrier() != had_carrier {
            self.raise_carrier_change(port_num, had_carrier);
        }
        changed
    }

    /// Raises GID_CHANGE of a port; before it PORT_ERR if the last address that had a carrier has gone, after
    /// it PORT_ACTIVE if there was none.
    pub(crate) fn raise_gid_change(&self, port_num: u8, had_carrier: bool) {
        let has_carrier = self.ports.get(port_num).is_some_and(DevicePort::has_carrier);
        if had_carrier && !has_carrier {
            self.raise_port_async_event(port_num, AsyncEventType::PortErr);
        }
        self.raise_port_async_event(port_num, AsyncEventType::GidChange);
        if !had_carrier && has_carrier {
            self.raise_port_async_event(port_num, AsyncEventType::PortActive);
        }
    }

    /// Raises PORT_ERR or PORT_ACTIVE because a cable was pulled or plugged in. A port that a fault plan has
    /// taken down stays down.
    fn raise_carrier_change(&self, port_num: u8, had_carrier: bool) {
        if self.ports.get(port_num).is_none_or(|port| port.is_down) {
            return;
        }
        let event = if had_carrier { AsyncEventType::PortErr } else { AsyncEventType::PortActive };
        self.raise_port_async_event(port_num, event);
    }

    fn raise_port_async_event(&self, port_num: u8, event: AsyncEventType) {
        self.async_events.raise(event, AsyncElement::Port(port_num));
    }
}

impl Resources {
    /// Records the port of a queue pair, so that its events are counted there, too.
    pub(crate) fn put_at_port(&mut self, qpn: Qpn, port_num: u8) {
        let counters = usize::from(port_num)
            .checked_sub(1)
            .and_then(|index| self.port.port_counters.get(index))
            .cloned();
        if let Some(attachment) = self.objects.attachment_mut(qpn) {
            attachment.port_counters = counters;
        }
    }

    /// Reports whether a packet comes to an address of a port, and drops it if not: it is for a queue pair of
    /// another port.
    #[cold]
    pub(crate) fn is_addressed_to_port(
        &mut self,
        port_num: u8,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
    ) -> bool {
        let comes = self.port.ports.number_of(arrival.flow.destination) == Some(port_num);
        if !comes {
            self.drop_packet(Counter::RxWrongAddress, arrival.flow.source, Some(packet));
        }
        comes
    }
}

#[cfg(test)]
mod tests {
    use pumice_model::addresses::PkeyTable;
    use pumice_platform::limits::Limits;
    use pumice_transport::types::Mtu;

    use super::*;

    #[test]
    fn a_new_list_of_addresses_keeps_indices_and_is_told_once() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let entry = |ip: &str| GidEntry::new(ip.parse().unwrap(), "eth0", 2, Mtu::Mtu1024);
        let events = |resources: &Resources| -> Vec<AsyncEventType> {
            std::iter::from_fn(|| resources.port.async_events.try_event().map(|event| event.event)).collect()
        };
        use AsyncEventType::{GidChange, PortActive, PortErr};
        let three = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(entry);
        assert!(resources.port.set_gids(three.to_vec()));
        assert_eq!(events(&resources), [GidChange, PortActive]);
        assert!(
            !resources.port.set_gids(three.iter().rev().cloned().collect()),
            "the order of the list means nothing"
        );
        assert_eq!(events(&resources), []);
        let next = [three[2].clone(), entry("10.0.0.4"), entry("10.0.0.5")];
        assert!(resources.port.set_gids(next.to_vec()));
        assert_eq!(events(&resources), [GidChange], "two gone and two new: one event");
        let entries: Vec<_> =
            resources.port.ports.entries().map(|(index, entry)| (index, entry.ip.to_string())).collect();
        let expected = [(0, "10.0.0.4"), (1, "10.0.0.5"), (2, "10.0.0.3")];
        assert_eq!(entries, expected.map(|(index, ip)| (index, ip.to_owned())));
        assert!(resources.port.set_gids(Vec::new()));
        assert_eq!(events(&resources), [PortErr, GidChange]);
    }

    #[test]
    fn a_port_follows_the_carrier_and_the_mtu_of_its_interface() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let entry =
            |carrier, mtu| vec![GidEntry { carrier, ..GidEntry::new([10, 0, 0, 1].into(), "eth0", 2, mtu) }];
        let state = |resources: &Resources| {
            let events: Vec<_> =
                std::iter::from_fn(|| resources.port.async_events.try_event().map(|event| event.event))
                    .collect();
            let port = resources.port.ports.get(1).unwrap();
            (events, port.is_active(), port.active_mtu())
        };
        use AsyncEventType::{GidChange, PortActive, PortErr};
        assert!(resources.port.set_gids(entry(true, Mtu::Mtu1024)));
        assert_eq!(state(&resources), (vec![GidChange, PortActive], true, Mtu::Mtu1024));
        assert!(!resources.port.set_gids(entry(false, Mtu::Mtu1024)), "no GID changes");
        assert_eq!(state(&resources), (vec![PortErr], false, Mtu::Mtu1024));
        assert!(!resources.port.set_gids(entry(false, Mtu::Mtu4096)));
        assert_eq!(state(&resources), (vec![], false, Mtu::Mtu4096));
        assert!(!resources.port.set_gids(entry(true, Mtu::Mtu4096)));
        assert_eq!(state(&resources), (vec![PortActive], true, Mtu::Mtu4096));
        resources.port.ports.get_mut(1).unwrap().choose_mtu(Some(Mtu::Mtu512));
        resources.port.set_gids(entry(true, Mtu::Mtu1024));
        assert_eq!(state(&resources), (vec![], true, Mtu::Mtu512), "one that was chosen stays");
    }

    #[test]
    fn what_happens_to_a_port_is_told_of_that_port() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let second = DevicePort::new(PkeyTable::new(&[], 1), Mtu::Mtu1024);
        resources.port.ports.push(second);
        let entry = |last: u8, port_num| {
            GidEntry::new([127, 0, 0, last].into(), "lo", 1, Mtu::Mtu1024).at_port(port_num)
        };
        let events = |resources: &Resources| -> Vec<(AsyncEventType, AsyncElement)> {
            let next = || resources.port.async_events.try_event().map(|event| (event.event, event.element));
            std::iter::from_fn(next).collect()
        };
        use AsyncEventType::{GidChange, PortActive, PortErr};
        let [first, second] = [1, 2].map(AsyncElement::Port);
        assert!(resources.port.set_gids(vec![entry(1, 1), entry(2, 2)]));
        let begun = [(GidChange, first), (PortActive, first), (GidChange, second), (PortActive, second)];
        assert_eq!(events(&resources), begun);
        assert!(resources.port.set_gids(vec![entry(1, 1)]));
        assert_eq!(events(&resources), [(PortErr, second), (GidChange, second)]);
    }
}
