//! How often the program's threads have waited in the operating system, outside of calls of the data path.
//!
//! A thread that posts or polls can wait for a lock that another thread of this library holds: that tells the
//! program nothing, so those waits do not count. Counting is a system call at each end of a call; it is done
//! only while the checker asks, from one look to the next post.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_calls::Call;

/// The checker has asked, of any thread: until it does, nothing is counted.
static HAS_ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static OWN: Own = const { Own::new() };
}

/// What a thread has waited for in this library.
struct Own {
    /// The checker asked during the newest post.
    is_watched: Cell<bool>,
    /// The checker asked during the present call.
    was_asked: Cell<bool>,
    /// Waits when the present call entered.
    entered: Cell<Option<u64>>,
    /// Waits within calls of the data path.
    within: Cell<u64>,
}

impl Own {
    const fn new() -> Own {
        Own {
            is_watched: Cell::new(false),
            was_asked: Cell::new(false),
            entered: Cell::new(None),
            within: Cell::new(0),
        }
    }
}

/// A call of the program begins.
#[inline]
pub(super) fn begins() {
    if HAS_ASKED.load(Ordering::Relaxed) {
        begins_to_count();
    }
}

#[cold]
#[inline(never)]
fn begins_to_count() {
    let _ = OWN.try_with(|own| own.entered.set(own.is_watched.get().then(count)));
}

/// A call of which [`begins`] was told ends.
#[inline]
pub(super) fn ends(call: Call) {
    if HAS_ASKED.load(Ordering::Relaxed) {
        counts(call);
    }
}

#[cold]
#[inline(never)]
fn counts(call: Call) {
    let is_post = call.posts();
    let is_data_path = is_post || call.polls();
    let _ = OWN.try_with(|own| {
        if let (Some(entered), true) = (own.entered.take(), is_data_path) {
            own.within.set(own.within.get().wrapping_add(count().wrapping_sub(entered)));
        }
        if is_post {
            own.is_watched.set(own.was_asked.take());
        }
    });
}

/// How often the calling thread has waited outside of calls of the data path. Asked during a post.
pub(super) fn outside() -> u64 {
    HAS_ASKED.store(true, Ordering::Relaxed);
    let outside = OWN.try_with(|own| {
        own.was_asked.set(true);
        own.entered.get().unwrap_or_else(count).wrapping_sub(own.within.get())
    });
    outside.unwrap_or_default()
}

/// How often the calling thread has waited in the operating system.
fn count() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, which is valid when it is all zero.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw.unsigned_abs()
}
