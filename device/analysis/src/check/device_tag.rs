//! The device of a program that calls and events are about.
//!
//! Each device counts its objects from the beginning, so the handles of two of them are alike. Records by
//! handle are therefore by device as well. Numbers of queue pairs need no device: each device of a process
//! has numbers of its own.

/// A device of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceTag {
    /// Index among the devices, below 16.
    pub index: u8,
    /// Name for findings, if there are several devices.
    pub name: Option<&'static str>,
}

impl DeviceTag {
    /// Returns the words that name the device, as in " of pumice1"; empty if there is only one.
    pub(super) fn words(self) -> String {
        self.name.map(|name| format!(" of {name}")).unwrap_or_default()
    }

    /// Returns the number that stands for a handle of this device.
    pub(super) const fn handle(self, handle: u32) -> u32 {
        // No table of a device has 2^28 entries.
        (self.index as u32) << 28 | handle
    }

    /// Returns the number that stands for a memory key of this device.
    pub(super) const fn key(self, key: u32) -> u64 {
        (self.index as u64) << 32 | key as u64
    }
}
