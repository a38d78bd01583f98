//! The GID table of a port, the GUID of the node, and the addresses that a device offers.

use std::hash::Hasher as _;
use std::net::IpAddr;

use fnv::FnvHasher;
use pumice_platform::error::ResourceError;
use pumice_platform::outside::interface::{Interface, gid_addresses};
use pumice_transport::types::{Gid, Mtu};

/// Returns the EUI-64 of the first interface with a link-layer address, in network byte order; else one made
/// of the first address of the GID table.
pub fn node_guid(interfaces: &[Interface], gids: &[GidEntry]) -> [u8; 8] {
    let mac = interfaces.iter().filter_map(|interface| interface.mac).find(|mac| *mac != [0; 6]);
    let [a, b, c, d, e, f] = mac.unwrap_or_else(|| {
        let [a, b, c, d] = match gids.first().map(|entry| entry.ip) {
            Some(IpAddr::V4(v4)) => v4.octets(),
            _ => [0, 0, 0, 1],
        };
        [2, 0, a, b, c, d]
    });
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns the node GUID for an adapter that is given none: the same in all processes that have its first
/// address, made as from a locally administered MAC address.
pub fn default_guid(gids: &[GidEntry]) -> u64 {
    let gid = gids.first().map_or(Gid::ZERO, |entry| entry.gid);
    let mut hasher = FnvHasher::default();
    hasher.write(&gid.0);
    let [a, b, c, d, e, f, _, _] = hasher.finish().to_be_bytes();
    u64::from_be_bytes([a & 0xfc, b, c, 0xff, 0xfe, d, e, f])
}

/// An address of the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID: `ip` in GID form.
    pub gid: Gid,
    /// The IP address: the source of packets sent with this GID index.
    pub ip: IpAddr,
    /// The name of the network interface ("eth0").
    pub interface: String,
    /// The index of the network interface; 0 if there is none.
    pub interface_index: u32,
    /// The largest path MTU that the interface carries.
    pub mtu: Mtu,
    /// The number of the device's port, from 1.
    pub port_num: u8,
    /// The first index of the table that the address may have.
    pub first_index: u32,
    /// True if the interface has a carrier.
    pub carrier: bool,
}

impl GidEntry {
    /// Returns the entry of an IP address, of port 1.
    pub fn new(ip: IpAddr, interface: &str, interface_index: u32, mtu: Mtu) -> GidEntry {
        let interface = interface.to_owned();
        let (port_num, first_index, carrier) = (1, 0, true);
        GidEntry { gid: Gid::from(ip), ip, interface, interface_index, mtu, port_num, first_index, carrier }
    }

    /// Sets the port.
    #[must_use]
    pub fn at_port(self, port_num: u8) -> GidEntry {
        GidEntry { port_num, ..self }
    }

    /// Reports whether programs see the same in both entries, which excludes the state of the interface.
    fn is_same(&self, other: &GidEntry) -> bool {
        *self == GidEntry { mtu: self.mtu, carrier: self.carrier, ..other.clone() }
    }
}

/// Number of entries that the files of sysfs show although they are empty, and whose moves these files
/// follow.
pub const SHOWN_GIDS: usize = 8;
/// The highest index that the first address may have: it is among those that files of sysfs show.
pub const MAX_FIRST_INDEX: u32 = SHOWN_GIDS as u32 - 1;

/// Most entries that a sentence lists.
const MAX_LISTED: usize = 6;

/// For each of the first indices the index that its address had when the port began, plus one: 0 where it has
/// not moved; [`NO_ORIGIN`] if the address had none of the first indices.
pub type GidOrigins = [u8; SHOWN_GIDS];

/// The origin of an address that had none of the first indices.
pub const NO_ORIGIN: u8 = u8::MAX;

/// The GIDs of a port. A removed one leaves its entry empty (the zero GID), to be reused by the next that is
/// added; the others stay where they are.
#[derive(Debug, Clone, Default)]
pub struct GidTable {
    entries: Vec<Option<GidEntry>>,
    /// The original index of each entry, changed by exchanges; entries beyond have not moved.
    origins: Vec<u32>,
}

impl GidTable {
    /// Number of entries of a table, as the device reports them.
    pub const LEN: u32 = 1024;

    /// Returns an empty table.
    pub const fn new() -> GidTable {
        GidTable { entries: Vec::new(), origins: Vec::new() }
    }

    /// Adds an address at the first free index, or updates the interface, carrier and MTU of an existing one.
    /// Returns whether the table changed (raise GID_CHANGE then): MTU and carrier are not part of the table.
    ///
    /// # Errors
    /// `NoMemory`: the table is full.
    pub fn add(&mut self, entry: GidEntry) -> Result<bool, ResourceError> {
        if let Some(known) = self.entries.iter_mut().flatten().find(|known| known.gid == entry.gid) {
            let changed = !known.is_same(&entry);
            *known = entry;
            return Ok(changed);
        }
        let first = entry.first_index.min(GidTable::LEN - 1) as usize;
        if self.entries.len() < first {
            self.entries.resize(first, None);
        }
        //= linux:cache.c#__ib_cache_gid_add
        //| A new address takes the first free place of the table.
        if let Some(free) = self.entries.iter_mut().skip(first).find(|entry| entry.is_none()) {
            *free = Some(entry);
        } else if self.entries.len() < GidTable::LEN as usize {
            self.entries.push(Some(entry));
        } else {
            return Err(ResourceError::no_memory(format!(
                "the GID table holds all of its {} addresses",
                GidTable::LEN
            )));
        }
        Ok(true)
    }

    /// Exchanges the addresses of two entries. Returns whether that changed anything; indices beyond the
    /// table and two empty ones change nothing.
    pub fn exchange(&mut self, one: u32, other: u32) -> bool {
        if one == other || one.max(other) >= GidTable::LEN {
            return false;
        }
        if self.get(one).is_none() && self.get(other).is_none() {
            return false;
        }
        let needed = one.max(other) as usize + 1;
        if self.entries.len() < needed {
            self.entries.resize(needed, None);
        }
        self.entries.swap(one as usize, other as usize);
        let unmoved = self.origins.len() as u32..needed as u32;
        self.origins.extend(unmoved);
        self.origins.swap(one as usize, other as usize);
        true
    }

    /// Returns the origins of the first entries.
    pub fn origins(&self) -> GidOrigins {
        std::array::from_fn(|index| match self.origins.get(index) {
            Some(origin) if *origin as usize != index => match u8::try_from(*origin) {
                Ok(origin) if usize::from(origin) < SHOWN_GIDS => origin + 1,
                _ => NO_ORIGIN,
            },
            _ => 0,
        })
    }

    /// Returns the origins of the first entries after an exchange of two entries.
    pub fn origins_after(&self, one: u32, other: u32) -> GidOrigins {
        let mut after = self.clone();
        after.exchange(one, other);
        after.origins()
    }

    /// Removes an address. Returns whether it was in the table.
    pub fn remove(&mut self, gid: Gid) -> bool {
        let found = self.entries.iter_mut().find(|slot| slot.as_ref().is_some_and(|entry| entry.gid == gid));
        match found {
            Some(slot) => slot.take().is_some(),
            None => false,
        }
    }

    /// Returns the GID at an index, as `ibv_query_gid` gives it: zero at an empty entry.
    ///
    /// # Errors
    /// `Invalid`: the index is beyond the table.
    pub fn gid(&self, index: u32) -> Result<Gid, ResourceError> {
        GidTable::check_index(index)?;
        Ok(self.get(index).map_or(Gid::ZERO, |entry| entry.gid))
    }

    /// Returns the entry at an index, as `ibv_query_gid_ex` gives it.
    ///
    /// # Errors
    /// `Invalid`: the index is beyond the table. `NoData`: the entry is empty.
    pub fn entry(&self, index: u32) -> Result<&GidEntry, ResourceError> {
        GidTable::check_index(index)?;
        //= man:ibv_query_gid_ex
        //| An empty place of the table has no data.
        let empty =
            || format!("GID index {index} has no GID (ibv_query_gid gives :: for it); {}", self.listed());
        self.get(index).ok_or_else(|| ResourceError::NoData { what: empty().into() })
    }

    /// Returns a list of the entries that are not empty, for people.
    fn listed(&self) -> String {
        let named: Vec<String> =
            self.iter().take(MAX_LISTED).map(|(index, entry)| format!("{index} ({})", entry.ip)).collect();
        match self.iter().count().checked_sub(named.len()) {
            _ if named.is_empty() => "no index of the port has one: it has no address".to_owned(),
            Some(more @ 1..) => format!("those that have one are {} and {more} more", named.join(", ")),
            _ => format!("those that have one are {}", named.join(", ")),
        }
    }

    /// Returns the entry at an index, if there is one.
    pub fn get(&self, index: u32) -> Option<&GidEntry> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// Returns the index of a GID.
    pub fn index_of(&self, gid: Gid) -> Option<u32> {
        self.iter().find(|(_, entry)| entry.gid == gid).map(|(index, _)| index)
    }

    /// Returns all entries with their index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &GidEntry)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| slot.as_ref().map(|entry| (index as u32, entry)))
    }

    fn check_index(index: u32) -> Result<(), ResourceError> {
        if index < GidTable::LEN {
            return Ok(());
        }
        Err(ResourceError::invalid(format!(
            "GID index {index} is beyond the table of {} entries",
            GidTable::LEN
        )))
    }
}

/// Returns the GID table among the host's interfaces: the requested address, or all. It may be empty when no
/// address was requested.
///
/// # Errors
/// A sentence: the requested address is not of this host.
pub(crate) fn gid_entries(
    wanted: Option<IpAddr>,
    interfaces: &[Interface],
) -> Result<Vec<GidEntry>, &'static str> {
    let Some(wanted) = wanted else {
        let all = gid_addresses(interfaces).into_iter();
        return Ok(all.map(|(ip, interface)| entry(ip, interface)).collect());
    };
    let has = |interface: &&Interface| interface.addresses.iter().any(|(ip, _)| *ip == wanted);
    // All of 127.0.0.0/8 is local though the interface lists one address of it.
    let loops = |interface: &&Interface| interface.loopback && wanted.is_ipv4() && wanted.is_loopback();
    let found = interfaces.iter().find(has).or_else(|| interfaces.iter().find(loops));
    found
        .map(|interface| vec![entry(wanted, interface)])
        .ok_or("it is no address of this host: `ip address` lists those that are, and all of 127.0.0.0/8 is")
}

fn entry(ip: IpAddr, interface: &Interface) -> GidEntry {
    let mtu = u32::try_from(interface.mtu).ok().and_then(Mtu::largest_for_link).unwrap_or(Mtu::Mtu1024);
    GidEntry { carrier: interface.carrier, ..GidEntry::new(ip, &interface.name, interface.index, mtu) }
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::Mtu;

    use super::*;

    #[test]
    fn a_guid_is_made_of_a_link_layer_address_or_else_of_an_address() {
        let interface = |mac| Interface {
            name: "x".to_owned(),
            index: 1,
            up: true,
            carrier: true,
            loopback: false,
            mtu: 1500,
            addresses: Vec::new(),
            mac,
        };
        let own = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];
        let interfaces = [interface(None), interface(Some([0; 6])), interface(Some(own))];
        assert_eq!(node_guid(&interfaces, &[]), [0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55]);
        let gid = GidEntry::new([127, 0, 0, 9].into(), "lo", 1, Mtu::Mtu4096);
        assert_eq!(node_guid(&interfaces[..2], &[gid]), [0, 0, 127, 0xff, 0xfe, 0, 0, 9]);
        assert_eq!(node_guid(&[], &[]), [0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    }

    fn entry(ip: &str) -> GidEntry {
        GidEntry::new(ip.parse().unwrap(), "eth0", 2, Mtu::Mtu1024)
    }

    #[test]
    fn entries_do_not_move_and_are_reused_first_free_first() {
        let mut table = GidTable::new();
        let entries = ["fe80::1", "10.0.0.1", "10.0.0.2", "2001:db8::1"].map(entry);
        for added in &entries {
            assert_eq!(table.add(added.clone()), Ok(true));
        }
        assert_eq!(table.add(entries[1].clone()), Ok(false));
        assert!(table.remove(entries[2].gid));
        assert!(table.remove(entries[1].gid));
        assert!(!table.remove(entries[1].gid));
        assert_eq!(table.gid(1), Ok(Gid::ZERO));
        assert_eq!(table.entry(1).unwrap_err().errno(), libc::ENODATA);
        assert_eq!(table.gid(3), Ok(entries[3].gid));
        assert_eq!(table.add(entry("10.0.0.9")), Ok(true));
        assert_eq!(table.index_of(entry("10.0.0.9").gid), Some(1));
        assert_eq!(table.iter().map(|(index, _)| index).collect::<Vec<_>>(), [0, 1, 3]);
    }

    #[test]
    fn a_table_may_begin_behind_empty_entries() {
        let mut table = GidTable::new();
        for ip in ["10.0.0.1", "10.0.0.2"] {
            assert_eq!(table.add(GidEntry { first_index: 3, ..entry(ip) }), Ok(true));
        }
        assert_eq!(table.iter().map(|(index, _)| index).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(table.entry(0).unwrap_err().errno(), libc::ENODATA);
        assert!(table.remove(entry("10.0.0.1").gid));
        assert_eq!(table.add(GidEntry { first_index: 3, ..entry("10.0.0.3") }), Ok(true));
        assert_eq!(table.index_of(entry("10.0.0.3").gid), Some(3));
    }

    #[test]
    fn what_has_moved_tells_where_it_was() {
        let mut table = GidTable::new();
        table.add(entry("10.0.0.1")).unwrap();
        table.add(entry("10.0.0.2")).unwrap();
        assert_eq!(table.origins(), [0; SHOWN_GIDS]);
        assert_eq!(table.origins_after(0, 5), [6, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(table.origins_after(2, 3), [0; SHOWN_GIDS], "two empty entries");
        assert!(table.exchange(0, 5) && table.exchange(5, 1));
        assert_eq!(table.origins(), [6, 1, 0, 0, 0, 2, 0, 0]);
        // The entry moves to an index that is not among the first, and back.
        assert!(table.exchange(1, 200));
        assert_eq!(table.origins(), [6, NO_ORIGIN, 0, 0, 0, 2, 0, 0]);
        assert!(table.exchange(200, 1) && table.exchange(1, 5) && table.exchange(5, 0));
        assert_eq!(table.origins(), [0; SHOWN_GIDS]);
    }

    #[test]
    fn a_new_mtu_and_a_lost_carrier_are_no_change_of_the_table() {
        let mut table = GidTable::new();
        assert_eq!(table.add(entry("10.0.0.1")), Ok(true));
        assert_eq!(
            table.add(GidEntry { mtu: Mtu::Mtu4096, ..entry("10.0.0.1") }),
            Ok(false),
            "no change of GIDs"
        );
        assert_eq!(table.get(0).unwrap().mtu, Mtu::Mtu4096);
        assert_eq!(table.add(GidEntry { carrier: false, ..entry("10.0.0.1") }), Ok(false));
        assert_eq!(table.add(GidEntry { interface: "eth9".into(), ..entry("10.0.0.1") }), Ok(true));
        assert_eq!(table.entry(0).unwrap().mtu, Mtu::Mtu1024);
        assert_eq!(table.iter().count(), 1);
    }

    #[test]
    fn indices_beyond_the_table_and_entries_beyond_its_size_are_refused() {
        let mut table = GidTable::new();
        assert_eq!(table.gid(GidTable::LEN - 1), Ok(Gid::ZERO));
        assert_eq!(table.gid(GidTable::LEN).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(table.entry(GidTable::LEN).unwrap_err().errno(), libc::EINVAL);
        for number in 0..GidTable::LEN {
            table.add(entry(&format!("2001:db8::{number:x}"))).unwrap();
        }
        assert_eq!(table.add(entry("10.0.0.1")).unwrap_err().errno(), libc::ENOMEM);
    }
}
