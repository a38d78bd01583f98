//! The addresses that a device offers.

use std::net::IpAddr;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::outside::interface::{Interface, interfaces};
use pumice_device::profile::DeviceDescription;

use crate::platform::errno::Errno;

/// Returns the addresses that a device offers, in GID table order.
pub(crate) fn gid_entries(device: &DeviceDescription) -> Result<Vec<GidEntry>, Errno> {
    let found = interfaces().map_err(|e| Errno(e.raw_os_error().unwrap_or(libc::EIO)))?;
    gid_entries_among(&found, device)
}

/// Returns the present addresses of the device, on interfaces that are up; `None` if the system does not list
/// them. 127.0.0.1 and ::1 remain if they were offered before the host had other addresses: queue pairs may
/// use them.
pub(crate) fn gid_entries_now(device: &DeviceDescription, offered: &[GidEntry]) -> Option<Vec<GidEntry>> {
    let found = interfaces().ok()?;
    // An address that was asked for may have gone.
    let mut entries = device.existing_gid_entries(&found);
    // A disconnected cable adds no address: the port is down then.
    if entries.iter().any(|entry| !entry.ip.is_loopback()) {
        entries.retain(|entry| !entry.ip.is_loopback());
    }
    let has =
        |ip: IpAddr| found.iter().any(|interface| interface.addresses.iter().any(|(own, _)| *own == ip));
    let loopback = offered.iter().filter(|entry| entry.ip.is_loopback() && has(entry.ip));
    let missing: Vec<GidEntry> = loopback.filter(|entry| !entries.contains(entry)).cloned().collect();
    entries.extend(missing);
    let is_up = |name: &str| found.iter().any(|interface| interface.up && interface.name == name);
    entries.retain(|entry| is_up(&entry.interface));
    Some(entries)
}

/// Returns the addresses that a device offers among these interfaces.
pub(crate) fn gid_entries_among(
    found: &[Interface],
    device: &DeviceDescription,
) -> Result<Vec<GidEntry>, Errno> {
    Ok(device.gid_entries(found)?)
}
