//! Threads of the library.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::{Builder, JoinHandle};

use super::thread_name::Quiet;

/// Starts a thread of this name, with `stack_bytes` of stack, or as much as the standard library gives.
///
/// # Errors
/// The operating system cannot create a thread.
pub fn start<T: Send + 'static>(
    name: &str,
    stack_bytes: Option<usize>,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _quiet = Quiet::begin();
    let builder = Builder::new().name(name.to_owned());
    match stack_bytes {
        Some(bytes) => builder.stack_size(bytes).spawn(run),
        None => builder.spawn(run),
    }
}

/// Starts a thread that gets no signals: these are for the program's threads.
///
/// # Errors
/// The operating system cannot create a thread.
pub fn start_without_signals(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The thread inherits the blocked signals.
    let _blocked = Blocked::begin();
    start(name, None, run)
}

/// A guard that blocks all signals of this thread while it lives.
struct Blocked(Option<libc::sigset_t>);

impl Blocked {
    /// Blocks the signals. If that fails, handlers run, which programs have to expect of libraries.
    fn begin() -> Blocked {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the first call fills `all`, which the second one reads; it fills `before` if it succeeds.
        let is_blocked = unsafe {
            libc::sigfillset(all.as_mut_ptr()) == 0
                && libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
        };
        // SAFETY: the call that fills it has succeeded.
        Blocked(is_blocked.then(|| unsafe { before.assume_init() }))
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: `before` is a set of signals that the same call has filled; a null pointer asks for
            // nothing.
            let _ = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, ptr::null_mut()) };
        }
    }
}
