//! The callbacks of libpumice.so, and the next object's functions, which this object's functions hide.

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// A function of the next object that defines it.
pub(crate) struct Original {
    name: &'static CStr,
    /// Address of the function; null until it is known.
    address: AtomicPtr<c_void>,
    is_sought: AtomicBool,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()), is_sought: AtomicBool::new(false) }
    }

    /// Returns its address; null during the search for it, which may call it, and if there is none.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// Returns its address, also while another thread searches for it; null if there is none. For functions
    /// that the search does not call.
    #[inline]
    pub(crate) fn certain_address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.look_up() } else { known }
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: a name that ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(found, Ordering::Relaxed);
        found
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        if self.is_sought.swap(true, Ordering::Acquire) {
            return self.address.load(Ordering::Relaxed);
        }
        let found = self.look_up();
        self.is_sought.store(false, Ordering::Release);
        found
    }
}

/// Callbacks that libpumice.so registers, with the same structure in `verbs/capi/src/check/freed.rs`.
#[repr(C)]
pub(crate) struct MemoryHooks {
    /// Bounds of the memory that requests use: the first address, and the first one behind it.
    low: AtomicU64,
    high: AtomicU64,
    /// Returns the request that uses bytes of a range (address, bytes) of memory; 0 if none does.
    find_user: extern "C" fn(u64, u64) -> u64,
    /// Reports that the memory of that request is freed by a call: 0 free, 1 realloc, 2 munmap.
    report_freed: extern "C" fn(u64, c_int),
    /// Reports that the process ends at once, without functions of atexit(3).
    on_exit: extern "C" fn(),
    /// Reports that the thread is about to sleep for a time.
    on_sleep: extern "C" fn(),
}

/// Registered callbacks; null if there are none.
static HOOKS: AtomicPtr<MemoryHooks> = AtomicPtr::new(null_mut());

/// Function that is called at locks; null outside of worlds.
static LOCK_POINT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Functions that only programs with a sanitizer have.
const SANITIZERS: [&CStr; 4] = [c"__asan_init", c"__tsan_init", c"__msan_init", c"__hwasan_init"];

/// Registers callbacks: libpumice.so calls this once, if the program is checked.
///
/// # Safety
/// `hooks` must stay valid as long as the process lives.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn pumice_check_watches(hooks: *mut MemoryHooks) {
    // SAFETY: names that end with NUL.
    let has = |name: &&CStr| !unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.is_null();
    if !SANITIZERS.iter().any(has) {
        HOOKS.store(hooks, Ordering::Release);
    }
}

/// Registers the function that is called at locks: libpumice.so calls this once, if the program runs in a
/// world.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn pumice_check_watches_locks(point: extern "C" fn()) {
    LOCK_POINT.store(point as *mut c_void, Ordering::Release);
}

/// Reports that the thread takes a lock, or has given one back.
#[inline]
pub(crate) fn reach_lock() {
    let point = LOCK_POINT.load(Ordering::Acquire);
    if !point.is_null() {
        // SAFETY: the address is that of the registered function, which has this type.
        let point = unsafe { transmute::<*mut c_void, extern "C" fn()>(point) };
        preserving_errno(|| point());
    }
}

/// Returns the request that uses memory from `address` on; 0 if none does. `bytes` is called only if that is
/// possible.
#[inline]
pub(crate) fn request_using(address: usize, bytes: impl FnOnce() -> usize) -> u64 {
    // SAFETY: null, or the callbacks of libpumice.so, which stay valid.
    let Some(hooks) = (unsafe { HOOKS.load(Ordering::Acquire).as_ref() }) else { return 0 };
    let address = address as u64;
    if address == 0 || address >= hooks.high.load(Ordering::Relaxed) {
        return 0;
    }
    let bytes = bytes() as u64;
    if address.saturating_add(bytes) <= hooks.low.load(Ordering::Relaxed) {
        return 0;
    }
    preserving_errno(|| (hooks.find_user)(address, bytes))
}

/// Reports that a request's memory is freed.
#[cold]
pub(crate) fn report_freed(request: u64, call: c_int) {
    // SAFETY: as above.
    if let Some(hooks) = unsafe { HOOKS.load(Ordering::Acquire).as_ref() } {
        preserving_errno(|| (hooks.report_freed)(request, call));
    }
}

/// Reports that the process ends at once.
#[cold]
pub(crate) fn report_exit() {
    // SAFETY: as above.
    if let Some(hooks) = unsafe { HOOKS.load(Ordering::Acquire).as_ref() } {
        (hooks.on_exit)();
    }
}

/// Reports that the thread is about to sleep.
pub(crate) fn report_sleep() {
    // SAFETY: as above.
    if let Some(hooks) = unsafe { HOOKS.load(Ordering::Acquire).as_ref() } {
        preserving_errno(|| (hooks.on_sleep)());
    }
}

/// Runs a function without changing errno, as free(3) requires.
fn preserving_errno<T>(run: impl FnOnce() -> T) -> T {
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

    #[test]
    fn functions_are_found_by_their_names() {
        let (known, unknown) = (Original::new(c"getpid"), Original::new(c"no_such_function_at_all"));
        assert!(!known.address().is_null() && known.address() == known.address());
        assert!(unknown.address().is_null() && unknown.address().is_null());
    }

    extern "C" fn find_user(address: u64, bytes: u64) -> u64 {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::EIO };
        if address < 1500 && address + bytes > 1400 { 7 } else { 0 }
    }

    extern "C" fn nothing(_request: u64, _call: c_int) {}

    extern "C" fn at_the_end() {}

    static SLEPT: AtomicU64 = AtomicU64::new(0);

    extern "C" fn slept() {
        SLEPT.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn only_what_lies_in_the_bounds_is_looked_at() {
        assert_eq!(request_using(1450, || panic!("nothing is watched")), 0);
        let (low, high) = (AtomicU64::new(1000), AtomicU64::new(2000));
        let hooks = Box::leak(Box::new(MemoryHooks {
            low,
            high,
            find_user,
            report_freed: nothing,
            on_exit: at_the_end,
            on_sleep: slept,
        }));
        // SAFETY: it is never freed.
        unsafe { pumice_check_watches(hooks) };
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = 3 };
        assert_eq!(request_using(2000, || panic!("it lies above")), 0);
        assert_eq!(request_using(0, || panic!("it is null")), 0);
        assert_eq!(
            [request_using(900, || 100), request_using(900, || 501), request_using(1499, || 1)],
            [0, 7, 7]
        );
        report_sleep();
        assert_eq!(SLEPT.load(Ordering::Relaxed), 1);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 3);
    }
}
