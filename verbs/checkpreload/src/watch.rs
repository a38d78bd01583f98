//! What libpumice.so wants to be told.

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// What libpumice.so gives: it has the same structure, in `verbs/capi/src/ground/check/freed.rs`.
#[repr(C)]
pub(crate) struct MemoryHooks {
    /// All memory that requests use lies from the one up to before the other.
    low: AtomicU64,
    high: AtomicU64,
    /// The request that uses bytes of a range (address, bytes) of memory; 0 if none does.
    look: extern "C" fn(u64, u64) -> u64,
    /// Tells that the memory of that request is freed by a call: 0 free, 1 realloc, 2 munmap.
    tell: extern "C" fn(u64, c_int),
    /// Tells that the process ends at once, without functions of atexit(3).
    end: extern "C" fn(),
}

/// Null: nothing is to be told.
static WATCH: AtomicPtr<MemoryHooks> = AtomicPtr::new(null_mut());

/// Functions that only programs with a sanitizer have.
const SANITIZERS: [&CStr; 4] = [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init"];

/// libpumice.so calls this once, if the program is checked.
///
/// # Safety
/// `watch` stays where it is as long as the process lives.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pumice_check_watches(watch: *mut MemoryHooks) {
    // SAFETY: names that end with NUL.
    let has = |name: &&CStr| !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null();
    if !SANITIZERS.iter().any(has) {
        WATCH.store(watch, Ordering::Release);
    }
}

/// The request that uses memory from `address` on; 0 if none does. `bytes` is asked only if that may be.
#[inline]
pub(crate) fn user_of(address: usize, bytes: impl FnOnce() -> usize) -> u64 {
    // SAFETY: null, or what libpumice.so gave, which stays.
    let Some(watch) = (unsafe { WATCH.load(Ordering::Acquire).as_ref() }) else { return 0 };
    let address = address as u64;
    if address == 0 || address >= watch.high.load(Ordering::Relaxed) {
        return 0;
    }
    let bytes = bytes() as u64;
    if address.saturating_add(bytes) <= watch.low.load(Ordering::Relaxed) {
        return 0;
    }
    keeping_errno(|| (watch.look)(address, bytes))
}

/// Tells that a request's memory is freed.
#[cold]
pub(crate) fn tell(request: u64, call: c_int) {
    // SAFETY: as above.
    if let Some(watch) = unsafe { WATCH.load(Ordering::Acquire).as_ref() } {
        keeping_errno(|| (watch.tell)(request, call));
    }
}

/// Tells that the process ends at once.
#[cold]
pub(crate) fn ends() {
    // SAFETY: as above.
    if let Some(watch) = unsafe { WATCH.load(Ordering::Acquire).as_ref() } {
        (watch.end)();
    }
}

/// free(3) leaves errno as it is.
fn keeping_errno<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: the location is this thread's own.
    let errno = unsafe { *libc::__errno_location() };
    let outcome = run();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn look(address: u64, bytes: u64) -> u64 {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::EIO };
        if address < 1500 && address + bytes > 1400 { 7 } else { 0 }
    }

    extern "C" fn nothing(_request: u64, _call: c_int) {}

    extern "C" fn at_the_end() {}

    #[test]
    fn only_what_lies_in_the_bounds_is_looked_at() {
        assert_eq!(user_of(1450, || panic!("nothing is watched")), 0);
        let (low, high) = (AtomicU64::new(1000), AtomicU64::new(2000));
        let watch = Box::leak(Box::new(MemoryHooks { low, high, look, tell: nothing, end: at_the_end }));
        // SAFETY: it is never freed.
        unsafe { pumice_check_watches(watch) };
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = 3 };
        assert_eq!(user_of(2000, || panic!("it lies above")), 0);
        assert_eq!(user_of(0, || panic!("it is null")), 0);
        assert_eq!([user_of(900, || 100), user_of(900, || 501), user_of(1499, || 1)], [0, 7, 7]);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 3);
    }
}
