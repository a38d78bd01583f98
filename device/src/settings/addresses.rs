//! The addresses that a device with given settings offers.

use std::net::IpAddr;

use pumice_transport::types::Mtu;

use super::{ADDR, SettingError, Settings};
use crate::addresses::gid_table::GidEntry;
use crate::system::interface::{Interface, gid_addresses};

impl Settings {
    /// The GID table among the host's interfaces: the one address asked for, or all. It may be empty when
    /// nothing was asked for.
    ///
    /// # Errors
    /// The address asked for is not of this host: EADDRNOTAVAIL.
    pub fn gid_entries(&self, interfaces: &[Interface]) -> Result<Vec<GidEntry>, SettingError> {
        let Some(wanted) = self.address else {
            let all = gid_addresses(interfaces).into_iter();
            return Ok(all.map(|(ip, interface)| entry(ip, interface)).collect());
        };
        let has = |interface: &&Interface| interface.addresses.iter().any(|(ip, _)| *ip == wanted);
        // All of 127.0.0.0/8 is local though the interface lists one address of it.
        let loops = |interface: &&Interface| interface.loopback && wanted.is_ipv4() && wanted.is_loopback();
        let found = interfaces.iter().find(has).or_else(|| interfaces.iter().find(loops));
        let Some(interface) = found else {
            let problem = "it is no address of this host: `ip address` lists those that are, and all of \
                           127.0.0.0/8 is";
            return Err(SettingError::new(ADDR, wanted.to_string(), problem).with_errno(libc::EADDRNOTAVAIL));
        };
        Ok(vec![entry(wanted, interface)])
    }
}

fn entry(ip: IpAddr, interface: &Interface) -> GidEntry {
    let mtu = u32::try_from(interface.mtu).ok().and_then(Mtu::largest_for_link).unwrap_or(Mtu::Mtu1024);
    GidEntry::new(ip, &interface.name, interface.index, mtu)
}
