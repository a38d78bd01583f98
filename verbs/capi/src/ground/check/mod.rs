//! `pumice check`: what calls tell the checker ([`pumice_device::check`]), and where what it finds goes.
//!
//! Off, nothing here runs: calls of the data path do not look, because the gate lets them pass. On, all calls
//! stop at the gate. Stacks are captured as return addresses, in the thread of the program; a thread of this
//! library finds the symbols and writes.

mod exit;
mod fork;
mod outputs;
mod stack;
mod symbols;
mod writer;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pumice_device::check::{CheckSubscriber, Checker};
use pumice_device::event::Subscriber;

use crate::ground::environment;

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
static CHECKER: OnceLock<Arc<Mutex<Checker>>> = OnceLock::new();

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
        fork::watch();
    }
    STATE.store(if is_on { ON } else { OFF }, Ordering::Relaxed);
    is_on
}

fn checker() -> &'static Arc<Mutex<Checker>> {
    CHECKER.get_or_init(|| {
        let settings = environment::settings().ok().and_then(|settings| settings.check.as_ref());
        let looks_for_slow = settings.is_some_and(|settings| settings.looks_for_slow);
        Arc::new(Mutex::new(Checker::new(stack::capture, looks_for_slow)))
    })
}

fn lock() -> MutexGuard<'static, Checker> {
    checker().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the checker, if there is one. It must not call the device.
#[inline]
pub(crate) fn tell(say: impl FnOnce(&mut Checker)) {
    if is_on() {
        say(&mut lock());
    }
}

/// What listens to the events of this process's device, if programs are checked. From now on what is found is
/// written.
pub(crate) fn subscriber() -> Option<Box<dyn Subscriber>> {
    if !is_on() {
        return None;
    }
    exit::watch();
    writer::start();
    Some(Box::new(CheckSubscriber(Arc::clone(checker()))))
}

/// Before a call that blocks until the events of an object are acknowledged: if they are not after a second,
/// that is told, because the call may never return.
pub(crate) fn waits_for_acknowledgements(
    address: usize,
    events: &str,
    remedy: &str,
    unacknowledged: impl Fn() -> u64,
) {
    use std::time::{Duration, Instant};
    const PATIENCE: Duration = Duration::from_secs(1);
    const LOOK: Duration = Duration::from_millis(5);
    if !is_on() || unacknowledged() == 0 {
        return;
    }
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if unacknowledged() == 0 {
            return;
        }
        std::thread::sleep(LOOK);
    }
    let count = unacknowledged();
    tell(|checker| checker.waits_for_acknowledgements(address as u64, count, events, remedy));
}
