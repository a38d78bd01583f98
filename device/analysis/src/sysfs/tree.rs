//! A tree and its name.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::entry::SysfsEntry;
use super::{SysfsDevice, contents};

/// A tree. Paths are relative to its folder: `sys/class/infiniband`, `dev/infiniband`, ….
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysfs {
    pub(super) entries: BTreeMap<String, SysfsEntry>,
}

impl Sysfs {
    /// Creates the tree of these devices.
    pub fn of(devices: &[SysfsDevice<'_>]) -> Sysfs {
        Sysfs { entries: devices.iter().flat_map(contents::entries).collect() }
    }

    /// Returns a name for its folder. Other contents have another name, so a tree that is in use never
    /// changes.
    pub fn folder_name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        format!("sysfs-{:016x}", hasher.finish())
    }
}
