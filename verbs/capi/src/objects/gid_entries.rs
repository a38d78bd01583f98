//! The addresses that a device offers.

use std::net::IpAddr;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::outside::interface::{Interface, interfaces};
use pumice_device::profile::DeviceDescription;

use crate::ground::errno::Errno;

/// The addresses that a device offers, in GID table order.
pub(crate) fn gid_entries(device: &DeviceDescription) -> Result<Vec<GidEntry>, Errno> {
    let found = interfaces().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))?;
    gid_entries_among(&found, device)
}

/// The addresses of the device that are there, on interfaces that are up; none if the system does not tell.
/// 127.0.0.1 and ::1 stay if they were offered before the host had other addresses: queue pairs may use them.
pub(crate) fn gid_entries_now(device: &DeviceDescription, offered: &[GidEntry]) -> Option<Vec<GidEntry>> {
    let found = interfaces().ok()?;
    // An address that was asked for may have gone.
    let mut entries = device.gid_entries_there(&found);
    // A cable that is pulled brings no address: the port is down then.
    if entries.iter().any(|entry| !entry.ip.is_loopback()) {
        entries.retain(|entry| !entry.ip.is_loopback());
    }
    let has =
        |ip: IpAddr| found.iter().any(|interface| interface.addresses.iter().any(|(own, _)| *own == ip));
    let loopback = offered.iter().filter(|entry| entry.ip.is_loopback() && has(entry.ip));
    let stay: Vec<GidEntry> = loopback.filter(|entry| !entries.contains(entry)).cloned().collect();
    entries.extend(stay);
    let is_up = |name: &str| found.iter().any(|interface| interface.up && interface.name == name);
    entries.retain(|entry| is_up(&entry.interface));
    Some(entries)
}

/// The same among these interfaces.
pub(crate) fn gid_entries_among(
    found: &[Interface],
    device: &DeviceDescription,
) -> Result<Vec<GidEntry>, Errno> {
    Ok(device.gid_entries(found)?)
}
