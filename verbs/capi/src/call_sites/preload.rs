//! The preload libpumice_check.so, and the number of waits of the program's threads in the operating system.
//!
//! A thread that posts or polls can wait for a lock that another thread of this library holds: the program
//! learns nothing from that, so those waits do not count. Counting takes a system call at each end of a call;
//! it is done only while the checker asks, from one question to the next post.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::transmute;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_calls::Call;
use pumice_device::outside;

/// Returns the address of its function that registers callbacks; null if it is not loaded.
pub(crate) fn function() -> *const c_void {
    // SAFETY: a name that ends with NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_check_watches".as_ptr()) }
}

/// Makes each lock of the program a point of the world that it runs in, if the preload is loaded.
pub(crate) fn watch_locks() {
    // SAFETY: a name that ends with NUL.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"pumice_check_watches_locks".as_ptr()) };
    if !function.is_null() {
        // SAFETY: the function of that name has this type.
        let register: extern "C" fn(extern "C" fn()) = unsafe { transmute(function) };
        register(outside::world::lock_point);
    }
}

/// True if the checker has asked, for any thread: until then, no waits are counted.
static IS_QUERIED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static WAIT_COUNTS: WaitCounts = const { WaitCounts::new() };
}

/// Waits of a thread in this library.
struct WaitCounts {
    /// True if the checker asked during the newest post.
    is_watched: Cell<bool>,
    /// True if the checker asked during the present call.
    was_queried: Cell<bool>,
    /// Number of waits when the present call began.
    entered: Cell<Option<u64>>,
    /// Number of waits within calls of the data path.
    within: Cell<u64>,
}

impl WaitCounts {
    const fn new() -> WaitCounts {
        WaitCounts {
            is_watched: Cell::new(false),
            was_queried: Cell::new(false),
            entered: Cell::new(None),
            within: Cell::new(0),
        }
    }
}

/// Handles the begin of a call of the program.
#[inline]
pub(crate) fn begins() {
    if IS_QUERIED.load(Ordering::Relaxed) {
        begins_to_count();
    }
}

#[cold]
#[inline(never)]
fn begins_to_count() {
    let _ = WAIT_COUNTS.try_with(|own| own.entered.set(own.is_watched.get().then(count)));
}

/// Handles the end of a call whose begin was passed to [`begins`].
#[inline]
pub(crate) fn ends(call: Call) {
    if IS_QUERIED.load(Ordering::Relaxed) {
        counts(call);
    }
}

#[cold]
#[inline(never)]
fn counts(call: Call) {
    let is_post = call.posts();
    let is_data_path = is_post || call.polls();
    let _ = WAIT_COUNTS.try_with(|own| {
        if let (Some(entered), true) = (own.entered.take(), is_data_path) {
            own.within.set(own.within.get().wrapping_add(count().wrapping_sub(entered)));
        }
        if is_post {
            own.is_watched.set(own.was_queried.take());
        }
    });
}

/// Returns how often the calling thread has waited outside of calls of the data path. Called during a post.
pub(crate) fn outside_calls() -> u64 {
    IS_QUERIED.store(true, Ordering::Relaxed);
    let outside_calls = WAIT_COUNTS.try_with(|own| {
        own.was_queried.set(true);
        own.entered.get().unwrap_or_else(count).wrapping_sub(own.within.get())
    });
    outside_calls.unwrap_or_default()
}

/// Returns how often the calling thread has waited in the operating system.
fn count() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, which is valid when it is all zero.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw.unsigned_abs()
}
