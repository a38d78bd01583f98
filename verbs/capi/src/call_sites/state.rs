//! The checker, and the setting whether programs are checked.

use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::check::{Checker, DeviceTag, holding};
use pumice_device::memory::{fill_mapped, on_demand_is_available, read_mapped, read_registered};
use pumice_device::outside::fork_generation::PerProcess;

use super::{early_uses, stack, waits};
use crate::call_sites::own_devices::{device_at, name_of};
use crate::platform::environment;
use crate::platform::process::current_pid;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static SETTING: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The checker of this process; in a child it has the state of the parent's.
pub(crate) static CHECKER: PerProcess<Arc<Mutex<Checker>>> = PerProcess::new(|before| {
    // After a system call that forks without the C library, another thread of the parent may hold it for
    // ever.
    let inherited = before.and_then(|before| before.try_lock().ok()).map(|mut known| {
        let mut checker = mem::replace(&mut *known, new_checker());
        checker.forked();
        checker
    });
    Arc::new(Mutex::new(inherited.unwrap_or_else(new_checker)))
});

/// Reports whether programs are checked.
#[inline]
pub(crate) fn is_on() -> bool {
    match SETTING.load(Ordering::Relaxed) {
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
    SETTING.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
    is_on
}

/// Returns the checker of this process.
pub(crate) fn checker() -> &'static Arc<Mutex<Checker>> {
    &CHECKER
}

fn new_checker() -> Checker {
    let settings = environment::settings().ok().and_then(|settings| settings.check.as_ref());
    let checks_performance = settings.is_some_and(|settings| settings.checks_performance);
    let mut checker = Checker::new(stack::capture, checks_performance).with_wait_counter(waits::outside);
    if on_demand_is_available() {
        checker.set_memory_reader(|ranges, out| read_mapped(current_pid(), ranges, out));
        // SAFETY: the checker asks for payload of requests that the device has taken, which is in registered
        // memory, and which the device itself copies now.
        checker.set_mapped_memory_reader(|ranges, out| unsafe { read_registered(ranges, out) });
    }
    checker.set_stack_source(stack::stack_bounds);
    checker.set_watchpoints(early_uses::WATCHPOINTS);
    if settings.is_some_and(|settings| settings.poisons) {
        checker.set_poisoner(fill_mapped);
    }
    checker
}

pub(crate) fn lock() -> MutexGuard<'static, Checker> {
    checker().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the device with this index among the devices, for the checker.
pub(crate) fn of_device(index: Option<usize>) -> DeviceTag {
    let Some(index) = index else { return DeviceTag::default() };
    // There are at most 16 devices.
    DeviceTag { index: u8::try_from(index).unwrap_or_default(), name: name_of(index) }
}

/// Calls the checker as [`with_checker`] does, about the object at this address, which determines the device.
pub(crate) fn with_checker_of(address: usize, run: impl FnOnce(&mut Checker)) {
    if is_on() {
        // The device is determined before the checker is locked.
        let device = of_device(device_at(address));
        with_checker(|checker| run(checker.on(device)));
    }
}

/// Calls the checker, if there is one. The function must not call the device.
#[inline]
pub(crate) fn with_checker(run: impl FnOnce(&mut Checker)) {
    if is_on() {
        holding(|| run(&mut lock()));
    }
}
