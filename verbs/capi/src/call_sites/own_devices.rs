//! The device of each context, and the names of the devices of a process that has several.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};

use super::register::context_at;

static NAMES: InheritedOnce<Vec<String>> = InheritedOnce::new();

/// Index among the devices of each open context's device, by the address of the context.
static CONTEXTS: PerProcess<Mutex<BTreeMap<usize, usize>>> = PerProcess::new(|_| Mutex::default());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the names of the devices of a process that has several, in this order.
pub(crate) fn name_devices(names: Vec<String>) {
    // The devices of a process stay the same.
    NAMES.set(names);
}

/// Returns the name of the device with this index among several.
pub(crate) fn name_of(index: usize) -> Option<&'static str> {
    NAMES.get()?.get(index).map(String::as_str)
}

/// Records that a context of the device with this index was opened.
pub(crate) fn context_opened(context: usize, device: usize) {
    contexts().insert(context, device);
}

/// Records that a context was closed.
pub(crate) fn context_closed(context: usize) {
    contexts().remove(&context);
}

/// Returns the index of the device of a context, or of an object in one, by its address.
pub(crate) fn device_at(address: usize) -> Option<usize> {
    let own = context_at(address).unwrap_or(address);
    contexts().get(&own).copied()
}
