//! Which device of a program calls and events are about.
//!
//! Each device counts its objects from the beginning, so the handles of two of them are alike. What the
//! checker keeps by handle it keeps by the device as well. Numbers of queue pairs need no device: each device
//! of a process has numbers of its own.

/// A device of the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OfDevice {
    /// Its index among the devices, below 16.
    pub index: u8,
    /// Its name, if there are several: findings have it.
    pub name: Option<&'static str>,
}

impl OfDevice {
    /// As in " of pumice1", if there are several.
    pub(super) fn words(self) -> String {
        self.name.map(|name| format!(" of {name}")).unwrap_or_default()
    }

    /// What stands for a handle of this device.
    pub(super) const fn handle(self, handle: u32) -> u32 {
        // No table of a device has 2^28 entries.
        (self.index as u32) << 28 | handle
    }

    /// What stands for a memory key of this device.
    pub(super) const fn key(self, key: u32) -> u64 {
        (self.index as u64) << 32 | key as u64
    }
}
