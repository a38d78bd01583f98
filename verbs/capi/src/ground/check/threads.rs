//! Objects that the program has promised to use with one thread at a time.

use std::sync::atomic::{AtomicBool, Ordering};

use pumice_calls::Call;

use super::state::{is_on, tell};

/// There is such an object.
static HAS_ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OWN: u8 = const { 0 };
}

/// A number that no other thread has now: an address of its own.
fn own() -> u64 {
    OWN.try_with(|own| (own as *const u8).addr() as u64).unwrap_or_default()
}

/// The object at an address is for one thread at a time, together with the others of `domain`: the address of
/// a thread domain, or its own.
pub(crate) fn for_one_thread(address: usize, domain: usize) {
    if is_on() {
        tell(|checker| checker.belongs_to_thread_domain(address as u64, domain as u64));
        HAS_ANY.store(true, Ordering::Relaxed);
    }
}

#[inline]
pub(super) fn enters(call: Call, address: usize) {
    if HAS_ANY.load(Ordering::Relaxed) && address != 0 {
        tell_of_entry(call, address);
    }
}

#[cold]
#[inline(never)]
fn tell_of_entry(call: Call, address: usize) {
    tell(|checker| checker.thread_enters(own(), call.name(), address as u64));
}

/// A call of which [`super::enters`] was told ends.
#[inline]
pub(super) fn leaves(address: usize) {
    if HAS_ANY.load(Ordering::Relaxed) && address != 0 {
        tell_of_end(address);
    }
}

#[cold]
#[inline(never)]
fn tell_of_end(address: usize) {
    tell(|checker| checker.thread_leaves(own(), address as u64));
}
