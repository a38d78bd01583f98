//! The addresses of a device's port.

use pumice_transport::types::{AsyncEventType, Gid};

use super::tables::Resources;
use crate::addresses::gid_table::GidEntry;
use crate::objects::async_event::AsyncElement;

impl Resources {
    /// Makes the addresses of the port these, and says so if anything changed.
    pub fn set_gids(&mut self, entries: Vec<GidEntry>) -> bool {
        let had_any = self.gids.iter().next().is_some();
        let gone: Vec<Gid> = self
            .gids
            .iter()
            .map(|(_, known)| known.gid)
            .filter(|gid| !entries.iter().any(|entry| entry.gid == *gid))
            .collect();
        let mut changed = !gone.is_empty();
        for gid in gone {
            self.gids.remove(gid);
        }
        for entry in entries {
            // What does not fit in the table has no place until another address goes.
            changed |= self.gids.add(entry).unwrap_or(false);
        }
        if changed {
            self.raise_gid_change(had_any);
        }
        changed
    }

    /// GID_CHANGE; PORT_ERR before it if the last address has gone, PORT_ACTIVE after it if there was none.
    pub(crate) fn raise_gid_change(&self, had_any: bool) {
        let raise = |event| self.async_events.raise(event, AsyncElement::Port(1));
        let has_any = self.gids.iter().next().is_some();
        if had_any && !has_any {
            raise(AsyncEventType::PortErr);
        }
        raise(AsyncEventType::GidChange);
        if !had_any && has_any {
            raise(AsyncEventType::PortActive);
        }
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::Mtu;

    use super::*;
    use crate::ground::limits::Limits;

    #[test]
    fn a_new_list_of_addresses_keeps_places_and_is_told_once() {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let entry = |ip: &str| GidEntry::new(ip.parse().unwrap(), "eth0", 2, Mtu::Mtu1024);
        let events = |resources: &Resources| -> Vec<AsyncEventType> {
            std::iter::from_fn(|| resources.async_events.try_event().map(|event| event.event)).collect()
        };
        use AsyncEventType::{GidChange, PortActive, PortErr};
        let three = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(entry);
        assert!(resources.set_gids(three.to_vec()));
        assert_eq!(events(&resources), [GidChange, PortActive]);
        assert!(
            !resources.set_gids(three.iter().rev().cloned().collect()),
            "the order of the list means nothing"
        );
        assert_eq!(events(&resources), []);
        let next = [three[2].clone(), entry("10.0.0.4"), entry("10.0.0.5")];
        assert!(resources.set_gids(next.to_vec()));
        assert_eq!(events(&resources), [GidChange], "two gone and two new: one event");
        let places: Vec<_> =
            resources.gids.iter().map(|(index, entry)| (index, entry.ip.to_string())).collect();
        let expected = [(0, "10.0.0.4"), (1, "10.0.0.5"), (2, "10.0.0.3")];
        assert_eq!(places, expected.map(|(index, ip)| (index, ip.to_owned())));
        assert!(resources.set_gids(Vec::new()));
        assert_eq!(events(&resources), [PortErr, GidChange]);
    }
}
