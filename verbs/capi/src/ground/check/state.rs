//! Whether programs are checked, and the checker.

use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::check::{Checker, OfDevice, holding};
use pumice_device::memory::{fill_mapped, on_demand_is_available, read_mapped, read_registered};
use pumice_device::outside::lineage::PerProcess;

use super::{early_uses, stack, waits};
use crate::ground::environment;
use crate::ground::own_devices::{device_at, name_of};
use crate::ground::process::own_process;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// In a child it knows what is the parent's.
pub(super) static CHECKER: PerProcess<Arc<Mutex<Checker>>> = PerProcess::new(|before| {
    // After a bare system call that forks, another thread of the parent may have it for ever.
    let inherited = before.and_then(|before| before.try_lock().ok()).map(|mut known| {
        let mut checker = mem::replace(&mut *known, new_checker());
        checker.forked();
        checker
    });
    Arc::new(Mutex::new(inherited.unwrap_or_else(new_checker)))
});

/// Whether programs are checked.
#[inline]
pub(crate) fn is_on() -> bool {
    match STATE.load(Ordering::Relaxed) {
        OFF => false,
        ON => true,
        _ => decide(),
    }
}

#[cold]
fn decide() -> bool {
    let is_on = environment::settings().is_ok_and(|settings| settings.check.is_some());
    if is_on {
        checker();
    }
    STATE.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
    is_on
}

/// The checker of this process.
pub(super) fn checker() -> &'static Arc<Mutex<Checker>> {
    &CHECKER
}

fn new_checker() -> Checker {
    let settings = environment::settings().ok().and_then(|settings| settings.check.as_ref());
    let looks_for_slow = settings.is_some_and(|settings| settings.looks_for_slow);
    let mut checker = Checker::new(stack::capture, looks_for_slow).with_switches(waits::outside);
    if on_demand_is_available() {
        checker.reads_memory_by(|ranges, out| read_mapped(own_process(), ranges, out));
        // SAFETY: the checker asks for payload of requests that the device has taken, which lies in
        // registered memory, and which the device itself copies now.
        checker.reads_mapped_memory_by(|ranges, out| unsafe { read_registered(ranges, out) });
    }
    checker.knows_stacks_by(stack::own_stack);
    checker.watches_memory_by(early_uses::WATCHPOINTS);
    if settings.is_some_and(|settings| settings.poisons) {
        checker.poisons_by(fill_mapped);
    }
    checker
}

pub(super) fn lock() -> MutexGuard<'static, Checker> {
    checker().lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device with this index among the devices, for the checker.
pub(super) fn of_device(index: Option<usize>) -> OfDevice {
    let Some(index) = index else { return OfDevice::default() };
    // There are 16 at most.
    OfDevice { index: u8::try_from(index).unwrap_or_default(), name: name_of(index) }
}

/// As [`tell`], about the object at this address, which says which device it is about.
pub(crate) fn tell_of(address: usize, say: impl FnOnce(&mut Checker)) {
    if is_on() {
        // Before the checker is locked.
        let device = of_device(device_at(address));
        tell(|checker| say(checker.on(device)));
    }
}

/// Tells the checker, if there is one. It must not call the device.
#[inline]
pub(crate) fn tell(say: impl FnOnce(&mut Checker)) {
    if is_on() {
        holding(|| say(&mut lock()));
    }
}
