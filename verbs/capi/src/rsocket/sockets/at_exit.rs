//! Streams that a program leaves open when it exits: what it has sent arrives all the same, as it does with
//! TCP, and the peer is told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::table::streams;
use crate::ground::outcome::value;
use crate::ground::process::own_process;
use crate::rsocket::parts::reentry::Inside;

/// How long the exit of a program may take for that.
const AT_MOST: Duration = Duration::from_secs(5);

/// Has [`finish_all`] run at exit.
pub(crate) fn once() {
    static PROCESS: AtomicU32 = AtomicU32::new(0);
    // A fork child has it from its parent, if that had it.
    if PROCESS.swap(own_process(), Ordering::Relaxed) == 0 {
        // SAFETY: the function is there as long as the process: this object is never unloaded.
        unsafe { libc::atexit(finish_all) };
    }
}

extern "C" fn finish_all() {
    value((), || {
        let _inside = Inside::enter();
        for (_, stream) in streams() {
            stream.finish_unless_busy(AT_MOST);
        }
    });
}
