//! The identity of a port: GIDs, partitions, multicast groups, the node's GUID.
//!
//! The ports of a device: the state and the P_Key table of each.
//!
//! A port is a view of the one network port that the device sends and receives by: some of its addresses, and
//! the state that verbs report of them. A packet belongs to the port whose address it leaves from or goes to.

use std::net::IpAddr;

use pumice_platform::error::ResourceError;
use pumice_platform::link_settings::{Speed, Width};
use pumice_transport::types::{Gid, Mtu};

use crate::addresses::gid_table::{GidEntry, GidTable};

/// The partition keys of a port. RoCE usually has one partition: the default key 0xffff at index 0. Further
/// entries are empty (0) unless the device's profile fills them.
#[derive(Debug, Clone)]
pub struct PkeyTable {
    keys: Vec<u16>,
}

impl PkeyTable {
    /// The key of the default partition, full member.
    pub const DEFAULT: u16 = 0xffff;

    /// Returns a table of `len` entries, at least one and at least as many as there are keys. Without any key
    /// the first is the default one.
    pub fn new(keys: &[u16], len: u16) -> PkeyTable {
        let mut keys = if keys.is_empty() { vec![PkeyTable::DEFAULT] } else { keys.to_vec() };
        keys.truncate(usize::from(u16::MAX));
        keys.resize(keys.len().max(len.into()), 0);
        PkeyTable { keys }
    }

    /// Returns the number of entries in the table.
    pub const fn len(&self) -> u16 {
        self.keys.len() as u16
    }

    /// Returns false: there is at least one entry.
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key at an index; 0 at an empty entry.
    ///
    /// # Errors
    /// `Invalid`: the index is beyond the table.
    pub fn pkey(&self, index: u32) -> Result<u16, ResourceError> {
        self.keys.get(index as usize).copied().ok_or_else(|| {
            ResourceError::invalid(format!(
                "P_Key index {index} is beyond the table of {} entries",
                self.keys.len()
            ))
        })
    }

    /// Returns the index of a key; the membership bit does not count.
    pub fn index_of(&self, pkey: u16) -> Option<u16> {
        let same = |key: &u16| key & 0x7fff == pkey & 0x7fff && key & 0x7fff != 0;
        self.keys.iter().position(same).and_then(|index| u16::try_from(index).ok())
    }
}

/// The number of the first port.
pub const FIRST_PORT: u8 = 1;
/// Largest number of ports of a device.
pub const MAX_PORTS: usize = 2;

/// A port of a device.
#[derive(Debug, Clone)]
pub struct DevicePort {
    /// The addresses of the port.
    pub gids: GidTable,
    /// The partitions of the port.
    pub pkeys: PkeyTable,
    /// The longest path MTU that was chosen; `None`: that of the interface of its first address.
    chosen_mtu: Option<Mtu>,
    /// The longest path MTU.
    active_mtu: Mtu,
    /// True if a fault plan has taken the port down.
    pub is_down: bool,
    /// True if a fault plan has pulled the cable.
    pub is_cable_out: bool,
    /// The rate of a lane and the number of lanes, where a fault plan has changed them.
    pub changed_rate: (Option<Speed>, Option<Width>),
}

impl DevicePort {
    /// Returns a port without addresses.
    pub fn new(pkeys: PkeyTable, active_mtu: Mtu) -> DevicePort {
        DevicePort {
            gids: GidTable::new(),
            pkeys,
            chosen_mtu: None,
            active_mtu,
            is_down: false,
            is_cable_out: false,
            changed_rate: (None, None),
        }
    }

    /// Reports whether the port has an address on an interface that has a carrier, and no fault plan has
    /// taken it down: what `ibv_query_port` calls active.
    pub fn is_active(&self) -> bool {
        !self.is_down && self.has_carrier()
    }

    /// Reports whether the port has no address, as after its interface was taken down, or a fault plan has
    /// taken it down.
    pub fn is_disabled(&self) -> bool {
        self.is_down || !self.has_any()
    }

    /// Reports whether the port has an address on an interface that has a carrier.
    pub fn has_carrier(&self) -> bool {
        self.gids.iter().any(|(_, entry)| entry.carrier)
    }

    /// Sets the longest path MTU, instead of that of its interface.
    pub fn choose_mtu(&mut self, mtu: Option<Mtu>) {
        self.chosen_mtu = mtu;
        self.active_mtu = mtu.unwrap_or(self.active_mtu);
    }

    /// Updates the MTU after a change of the interfaces of its addresses.
    pub fn follow_mtu(&mut self) {
        let first = self.gids.iter().next().map(|(_, entry)| entry.mtu);
        self.active_mtu = self.chosen_mtu.or(first).unwrap_or(self.active_mtu);
    }

    /// Reports whether no fault plan has pulled the cable.
    pub fn is_cable_in(&self) -> bool {
        !self.is_cable_out
    }

    /// Returns the rate of a lane and the number of lanes, where a fault plan has changed them.
    pub fn changed_rate(&self) -> (Option<Speed>, Option<Width>) {
        self.changed_rate
    }

    /// Returns the longest path MTU.
    pub fn active_mtu(&self) -> Mtu {
        self.active_mtu
    }

    /// Reports whether the port has any address.
    pub fn has_any(&self) -> bool {
        self.gids.iter().next().is_some()
    }

    fn has(&self, address: IpAddr) -> bool {
        self.gids.iter().any(|(_, entry)| entry.ip == address)
    }
}

/// The ports of a device, which are numbered from 1.
#[derive(Debug, Clone)]
pub struct Ports(Vec<DevicePort>);

impl Ports {
    /// Returns the ports of a device with this port only.
    pub fn one(port: DevicePort) -> Ports {
        Ports(vec![port])
    }

    /// Adds a port, if the device may have one more.
    pub fn push(&mut self, port: DevicePort) {
        if self.0.len() < MAX_PORTS {
            self.0.push(port);
        }
    }

    /// Returns the number of ports.
    pub fn count(&self) -> u8 {
        self.0.len() as u8
    }

    /// Reports whether there is more than one port.
    #[inline]
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns the port with a number.
    ///
    /// # Errors
    /// `Invalid`: no port has this number.
    pub fn require(&self, port_num: u8) -> Result<&DevicePort, ResourceError> {
        self.get(port_num).ok_or_else(|| {
            let there = if self.are_several() { "ports 1 and 2" } else { "port 1" };
            ResourceError::invalid(format!("port {port_num}: the device has only {there}"))
        })
    }

    /// Returns the port with a number, if there is one.
    pub fn get(&self, port_num: u8) -> Option<&DevicePort> {
        self.0.get(usize::from(port_num).checked_sub(1)?)
    }

    /// Returns the port with a number, mutably, if there is one.
    pub fn get_mut(&mut self, port_num: u8) -> Option<&mut DevicePort> {
        self.0.get_mut(usize::from(port_num).checked_sub(1)?)
    }

    /// Returns the longest path MTU of all ports.
    pub fn longest_mtu(&self) -> Mtu {
        self.0.iter().map(|port| port.active_mtu).max().unwrap_or(Mtu::Mtu256)
    }

    /// Returns all ports with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &DevicePort)> {
        (1..).zip(&self.0)
    }

    /// Returns the addresses of all ports, each with its index in the table of its port.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &GidEntry)> {
        self.0.iter().flat_map(|port| port.gids.iter())
    }

    /// Returns the port that has a GID, and the index of the GID there.
    pub fn find(&self, gid: Gid) -> Option<(u8, u32)> {
        self.iter().find_map(|(number, port)| Some((number, port.gids.index_of(gid)?)))
    }

    /// Returns the port that has an address.
    pub fn number_of(&self, address: IpAddr) -> Option<u8> {
        self.iter().find(|(_, port)| port.has(address)).map(|(number, _)| number)
    }

    /// Adds an address to the table of its port; see [`GidTable::add`].
    ///
    /// # Errors
    /// `NoMemory`: the table is full. `Invalid`: the port does not exist.
    pub fn add(&mut self, entry: GidEntry) -> Result<bool, ResourceError> {
        self.require(entry.port_num)?;
        self.get_mut(entry.port_num).map_or(Ok(false), |port| port.gids.add(entry))
    }
}

pub mod address_handle;
pub mod gid_table;
pub mod multicast;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_key_is_at_index_0_and_nothing_else_is() {
        for (len, beyond) in [(0, 1), (1, 1), (64, 64)] {
            let table = PkeyTable::new(&[], len);
            assert_eq!(table.pkey(0), Ok(0xffff));
            assert_eq!(table.pkey(beyond).unwrap_err().errno(), libc::EINVAL);
        }
        assert_eq!(PkeyTable::new(&[], 64).pkey(63), Ok(0));
        assert_eq!(PkeyTable::new(&[], 1).index_of(0x7fff), Some(0));
        assert_eq!(PkeyTable::new(&[], 1).index_of(0x8001), None);
    }

    #[test]
    fn a_profile_fills_more_entries() {
        let table = PkeyTable::new(&[0xffff, 0x8005, 0x0006], 4);
        assert_eq!((table.len(), table.pkey(1), table.pkey(3)), (4, Ok(0x8005), Ok(0)));
        assert_eq!(
            (table.index_of(0x0005), table.index_of(0x8006), table.index_of(0)),
            (Some(1), Some(2), None)
        );
        assert_eq!(PkeyTable::new(&[0xffff, 0x8005], 1).len(), 2);
    }

    #[test]
    fn each_port_has_a_table_of_its_own() {
        let port = || DevicePort::new(PkeyTable::new(&[], 1), Mtu::Mtu1024);
        let mut ports = Ports::one(port());
        assert!(ports.require(2).unwrap_err().to_string().contains("port 2: the device has only port 1"));
        ports.push(port());
        ports.push(port());
        assert_eq!(ports.count(), 2, "a third one has no room");
        let entry = |last: u8| GidEntry::new(IpAddr::from([127, 0, 0, last]), "lo", 1, Mtu::Mtu1024);
        assert_eq!(ports.add(entry(1)), Ok(true));
        assert_eq!(ports.add(entry(2).at_port(2)), Ok(true));
        assert_eq!(ports.add(entry(3).at_port(3)).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(ports.find(entry(2).gid), Some((2, 0)));
        assert_eq!((ports.number_of(entry(1).ip), ports.number_of(entry(3).ip)), (Some(1), None));
        assert_eq!(
            ports.entries().map(|(index, entry)| (index, entry.port_num)).collect::<Vec<_>>(),
            [(0, 1), (0, 2)]
        );
        for wrong in [0, 3, u8::MAX] {
            assert!(ports.get(wrong).is_none());
        }
    }
}
