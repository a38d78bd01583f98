//! The names of the devices of a process that has several: lines about calls say which one they are about.

use std::sync::OnceLock;

static NAMES: OnceLock<Vec<String>> = OnceLock::new();

/// The process has several devices with these names, in this order.
pub(crate) fn name_devices(names: Vec<String>) {
    // The devices of a process stay the same.
    let _ = NAMES.set(names);
}

/// The name of the device with this place among several.
pub(in crate::ground) fn name_of(index: usize) -> Option<&'static str> {
    NAMES.get()?.get(index).map(String::as_str)
}
