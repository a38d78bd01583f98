//! Devices on a simulated network.

use std::net::IpAddr;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_transport::types::Mtu;

use super::Device;
use super::options::DeviceOptions;
use super::simulation::Simulation;
use crate::check::DeviceCheck;
use crate::error::{Result, VerbsError};

impl Simulation {
    /// Adds a device with one address.
    ///
    /// # Errors
    /// `Refused`: no file descriptor is available.
    pub fn device(&self, address: IpAddr) -> Result<Device> {
        self.device_with(DeviceOptions::new().addresses([address]))
    }

    /// Adds a device. Faults are injected on its way out, besides those of the fabric; times in a capture are
    /// virtual. Options about sockets are ignored.
    ///
    /// # Errors
    /// `Invalid`: no address. `Os`: no capture file.
    pub fn device_with(&self, mut options: DeviceOptions) -> Result<Device> {
        let (check, subscriber) = options.take_check()?.map(DeviceCheck::new).unzip();
        let mut inner = self.lock();
        let link_mtu = u32::try_from(inner.world.fabric().config().link_mtu).unwrap_or(u32::MAX);
        let mtu = Mtu::largest_for_link(link_mtu).unwrap_or(Mtu::Mtu256);
        let gids: Vec<GidEntry> =
            options.addresses.iter().map(|&address| GidEntry::new(address, "sim", 0, mtu)).collect();
        if gids.is_empty() {
            return Err(VerbsError::Invalid {
                object: "device",
                attribute: "addresses",
                problem: "are none".to_owned(),
                remedy: "give a simulated device at least one address",
            });
        }
        let name = options.name.clone().unwrap_or_else(|| format!("pumice{}", inner.device_count));
        let mut opening = options.into_opening(name, gids);
        opening.hca.subscribers.extend(subscriber);
        let hca = opening.in_world(&mut inner.world)?;
        inner.device_count += 1;
        drop(inner);
        Ok(Device::new(hca, Some(self.clone()), check))
    }
}
