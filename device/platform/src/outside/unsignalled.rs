//! Writes that the kernel answers with a signal.
//!
//! Beyond the limit on the size of files (`ulimit -f`, RLIMIT_FSIZE) the kernel sends SIGXFSZ to the thread
//! that writes, and where a pipe has no reader any more SIGPIPE; either ends a process that has no handler. A
//! write of the device's own must not do that to the program: it gets EFBIG or EPIPE instead.

use libc::{SIGPIPE, SIGXFSZ, sigset_t};
use rustix::process::{Resource, getrlimit};

use super::cancellation::Uncancelled;

/// The signals that a write can cause.
const CAUSED: [i32; 2] = [SIGXFSZ, SIGPIPE];

/// A guard that makes writes of its thread end in an error and not in a signal while it lives, and prevents
/// the thread's cancellation.
pub struct Unsignalled {
    /// The signals that the thread had blocked before.
    before: sigset_t,
    /// The signals that were pending before: they are the program's.
    pending_before: sigset_t,
    _uncancelled: Uncancelled,
}

impl Unsignalled {
    /// Begins the guard for this thread.
    pub fn begin() -> Unsignalled {
        let uncancelled = Uncancelled::begin();
        let caused = set_of_caused();
        let (mut before, mut pending_before) = (caused, caused);
        // SAFETY: sets of this frame are written and read.
        unsafe {
            libc::sigpending(&mut pending_before);
            libc::pthread_sigmask(libc::SIG_BLOCK, &caused, &mut before);
        }
        Unsignalled { before, pending_before, _uncancelled: uncancelled }
    }
}

impl Drop for Unsignalled {
    fn drop(&mut self) {
        for signal in CAUSED {
            // SAFETY: a set of this object is read.
            if unsafe { libc::sigismember(&self.pending_before, signal) } == 0 {
                take(signal);
            }
        }
        // SAFETY: the set that there was is read; the one that is replaced is not wanted.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Takes a pending signal of this thread, if there is one.
fn take(signal: i32) {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let mut one = empty_set();
    // SAFETY: a set and a time of this frame; what is told of the signal is not wanted.
    unsafe {
        libc::sigaddset(&mut one, signal);
        libc::sigtimedwait(&one, std::ptr::null_mut(), &now);
    }
}

fn empty_set() -> sigset_t {
    let mut set = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset writes all of the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn set_of_caused() -> sigset_t {
    let mut set = empty_set();
    // SAFETY: a set of this frame.
    CAUSED.iter().for_each(|signal| unsafe {
        libc::sigaddset(&mut set, *signal);
    });
    set
}

/// Makes a change of a regular file that ends in an error where it would end in SIGXFSZ. The limit is read
/// each time, because a program may change it: without a limit nothing else is done.
#[inline]
pub fn within_limit<T>(change: impl FnOnce() -> T) -> T {
    let _held = getrlimit(Resource::Fsize).current.is_some().then(Unsignalled::begin);
    change()
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, pipe};

    use super::*;

    fn blocked(signal: i32) -> bool {
        let mut now = empty_set();
        // SAFETY: a set of this frame is written and read.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    fn waits(signal: i32) -> bool {
        let mut now = empty_set();
        // SAFETY: a set of this frame is written and read.
        unsafe {
            libc::sigpending(&mut now);
            libc::sigismember(&now, signal) == 1
        }
    }

    // SIGXFSZ itself is tested in `tests/cli_limits.rs`: the limit is a process's, not a thread's.
    #[test]
    fn a_write_ends_in_an_error_and_leaves_no_signal() {
        let (reader, mut writer) = pipe().unwrap();
        drop(reader);
        let held = Unsignalled::begin();
        assert!(blocked(SIGXFSZ) && blocked(SIGPIPE));
        assert_eq!(writer.write(b"x").unwrap_err().raw_os_error(), Some(libc::EPIPE));
        drop(held);
        assert!(!blocked(SIGXFSZ) && !blocked(SIGPIPE) && !waits(SIGPIPE));
    }

    #[test]
    fn what_the_program_holds_back_stays() {
        let mut one = empty_set();
        // SAFETY: sets of this frame, and a signal to this thread, which has it blocked.
        unsafe {
            libc::sigaddset(&mut one, SIGXFSZ);
            libc::pthread_sigmask(libc::SIG_BLOCK, &one, std::ptr::null_mut());
            libc::pthread_kill(libc::pthread_self(), SIGXFSZ);
        }
        drop(Unsignalled::begin());
        assert!(blocked(SIGXFSZ) && waits(SIGXFSZ), "the program's own signal waits on");
        take(SIGXFSZ);
    }
}
