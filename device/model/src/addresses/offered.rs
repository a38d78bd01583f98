//! The addresses that a device offers.

use std::net::IpAddr;

use pumice_platform::outside::interface::{Interface, gid_addresses};
use pumice_transport::types::Mtu;

use crate::addresses::gid_table::GidEntry;

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
