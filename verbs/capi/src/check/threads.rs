//! Objects that the program has promised to use with one thread at a time, and the descriptors that threads
//! sleep on.

use std::sync::atomic::{AtomicBool, Ordering};

use pumice_calls::Call;

use crate::call_sites::state::{is_on, with_checker};
use crate::platform::system_call::threads;

/// True if there is such an object.
static HAS_ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static THREAD_MARK: u8 = const { 0 };
}

/// Returns a number that no other thread has now: the address of a thread-local variable.
fn own() -> u64 {
    THREAD_MARK.try_with(|own| (own as *const u8).addr() as u64).unwrap_or_default()
}

/// Records that the object at an address is for one thread at a time, together with the others of `domain`:
/// the address of a thread domain, or its own.
pub(crate) fn for_one_thread(address: usize, domain: usize) {
    if is_on() {
        with_checker(|checker| checker.belongs_to_thread_domain(address as u64, domain as u64));
        HAS_ANY.store(true, Ordering::Relaxed);
    }
}

#[inline]
pub(super) fn enters(call: Call, address: usize) {
    if HAS_ANY.load(Ordering::Relaxed) && address != 0 {
        report_entry(call, address);
    }
}

#[cold]
#[inline(never)]
fn report_entry(call: Call, address: usize) {
    with_checker(|checker| checker.thread_enters(own(), call.name(), address as u64));
}

/// Handles the end of a call whose begin was passed to [`super::enters`].
#[inline]
pub(super) fn leaves(address: usize) {
    if HAS_ANY.load(Ordering::Relaxed) && address != 0 {
        report_exit(address);
    }
}

#[cold]
#[inline(never)]
fn report_exit(address: usize) {
    with_checker(|checker| checker.thread_leaves(own(), address as u64));
}

/// Returns those of the descriptors on which a thread sleeps in poll(2), select(2), epoll_wait(2), or a call
/// like these.
pub(super) fn awaited(descriptors: &[i32]) -> Vec<i32> {
    let mut awaited = Vec::new();
    for call in threads().into_iter().filter_map(|thread| thread.call) {
        awaited.extend(descriptors.iter().copied().filter(|descriptor| call.awaits(*descriptor)));
    }
    awaited
}
