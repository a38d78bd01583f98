//! Which device a context is of, and the names of the devices of a process that has several.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::outside::lineage::{PerProcess, Settled};

use super::register::context_at;

static NAMES: Settled<Vec<String>> = Settled::new();

/// The indices among the devices of the devices of open contexts, by the addresses of the contexts.
static CONTEXTS: PerProcess<Mutex<BTreeMap<usize, usize>>> = PerProcess::new(|_| Mutex::default());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process has several devices with these names, in this order.
pub(crate) fn name_devices(names: Vec<String>) {
    // The devices of a process stay the same.
    NAMES.set(names);
}

/// The name of the device with this index among several.
pub(super) fn name_of(index: usize) -> Option<&'static str> {
    NAMES.get()?.get(index).map(String::as_str)
}

/// A context was opened, of the device with this index among the devices.
pub(super) fn context_opened(context: usize, device: usize) {
    contexts().insert(context, device);
}

/// A context was closed.
pub(super) fn context_closed(context: usize) {
    contexts().remove(&context);
}

/// The index among the devices of the device of a context, or of what is in one, by its address.
pub(super) fn device_at(address: usize) -> Option<usize> {
    let own = context_at(address).unwrap_or(address);
    contexts().get(&own).copied()
}
