//! Streams that a program leaves open when it exits: sent data arrives nevertheless, as with TCP, and the
//! peer is notified.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::table::streams;
use crate::entry::outcome::value;
use crate::platform::process::current_pid;
use crate::rsocket::parts::reentry::ReentryGuard;

/// Longest time that the exit of a program may take for that.
const MAX_EXIT_TIME: Duration = Duration::from_secs(5);

/// Registers [`finish_all`] to run at exit.
pub(crate) fn once() {
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    // A forked child inherits the registration from its parent, if that made it.
    if PROCESS.swap(current_pid(), Ordering::Relaxed) == 0 {
        // SAFETY: the function lives as long as the process: this object is never unloaded.
        unsafe { libc::atexit(finish_all) };
    }
}

extern "C" fn finish_all() {
    value((), || {
        let _inside = ReentryGuard::enter();
        for (_, stream) in streams() {
            stream.finish_unless_busy(MAX_EXIT_TIME);
        }
    });
}
