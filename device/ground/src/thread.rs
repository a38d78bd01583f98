//! Threads of the device.

use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

/// Starts a thread that gets no signals: these are for the program's threads.
///
/// # Errors
/// The operating system has no thread to give.
pub fn start_without_signals(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    // The thread inherits that it gets none. If that cannot be had, handlers run on it, which programs have
    // to expect of libraries.
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let started = Builder::new().name(name.to_owned()).spawn(run);
    let _ = before.map(|before| before.thread_set_mask());
    started
}
