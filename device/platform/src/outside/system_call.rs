//! System calls that are no cancellation points, that wait for a socket, or that the kernel may answer with a
//! signal.
//!
//! The C library's functions of these names end a thread that was cancelled (pthread_cancel(3)) during the
//! call, by unwinding its stack past the locks that the data path holds. `libc::syscall` does not, and costs
//! less: the functions change the thread's state before and after each call in case it is cancelled
//! meanwhile.
//!
//! The C library ends a cancelled thread at its next cancellation point, which nearly every system call by
//! the C library's functions is, by unwinding its stack. Locks that the thread holds would stay locked, and a
//! frame of Rust that catches panics aborts the process. So this crate makes its frequent system calls
//! through `crate::outside::system_call`, and the others during the life of an [`Uncancelled`].
//!
//! Beyond the limit on the size of files (`ulimit -f`, RLIMIT_FSIZE) the kernel sends SIGXFSZ to the thread
//! that writes, and where a pipe has no reader any more SIGPIPE; either ends a process that has no handler. A
//! write of the device's own must not do that to the program: it gets EFBIG or EPIPE instead.

use std::ffi::{c_int, c_long};
use std::os::fd::RawFd;
use std::time::Duration;
use std::{io, ptr};

use libc::{SIGPIPE, SIGXFSZ, sigset_t};
use rustix::process::{Resource, getrlimit};

use super::system_call;

/// Calls sendmsg(2).
///
/// # Safety
/// As of the C library's function.
#[inline]
pub unsafe fn sendmsg(fd: RawFd, message: *const libc::msghdr, flags: c_int) -> c_long {
    // SAFETY: the caller's promise; errno is set as the function does.
    unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) }
}

/// Calls recvmsg(2).
///
/// # Safety
/// As of the C library's function.
#[inline]
pub unsafe fn recvmsg(fd: RawFd, message: *mut libc::msghdr, flags: c_int) -> c_long {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_recvmsg, fd, message, flags) }
}

/// Calls ppoll(2) without changing the signal mask.
///
/// # Safety
/// `timeout` is null or a live time, which may be changed.
#[inline]
unsafe fn ppoll(entries: &mut [libc::pollfd], timeout: *mut libc::timespec) -> c_long {
    let (mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_ppoll, entries.as_mut_ptr(), entries.len(), timeout, mask, mask_bytes) }
}

/// The option of prctl(2) by which a program in a world speaks to its supervisor; the kernel has no such
/// option.
const HINT: libc::c_int = 0x7075_6d69;

/// Sends a hint to the supervisor of a world. Where there is none, the kernel answers EINVAL.
#[cold]
pub(crate) fn hint(kind: u64, value: u64) {
    hint_about(kind, value, 0, 0);
}

/// Sends a hint as [`hint`] does, about the object with a number, and with one more.
#[cold]
pub(crate) fn hint_about(kind: u64, value: u64, object: u64, more: u64) {
    // SAFETY: numbers only.
    unsafe { libc::syscall(libc::SYS_prctl, HINT, kind, value, object, more) };
}

/// Returns the address of the page that the supervisor of a world has mapped for this program; 0: there is
/// none.
#[cold]
pub(crate) fn world_page() -> usize {
    const ASKS: u64 = 2;
    // SAFETY: numbers only.
    let answer = unsafe { libc::syscall(libc::SYS_prctl, HINT, ASKS, 0_u64, 0_u64, 0_u64) };
    usize::try_from(answer).unwrap_or(0)
}

/// Waits until one of `fds` or `wake` is readable or `timeout` is over; `None` waits for ever. Returns
/// whether something is readable; a signal ends the wait early with false. Nothing is read: the caller drains
/// `wake`.
///
/// This is ppoll(2) on purpose: a permanent epoll registration costs every packet a callback, even while no
/// thread waits.
///
/// # Errors
/// The error of ppoll, e.g. too many descriptors.
pub fn wait_readable(fds: &[RawFd], wake: Option<RawFd>, timeout: Option<Duration>) -> io::Result<bool> {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .copied()
        .chain(wake)
        .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 })
        .collect();
    let mut timeout = timeout.map(|t| libc::timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: t.subsec_nanos() as _,
    });
    let timeout_ptr = timeout.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
    // SAFETY: `polled` is a live array of the length given, `timeout_ptr` is null or points to `timeout`,
    // which outlives the call; a null signal mask leaves the mask alone.
    let ready = unsafe { system_call::ppoll(&mut polled, timeout_ptr) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        e => Err(e),
    }
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// A guard that prevents the cancellation of its thread while it lives. (For a thread of the type
/// PTHREAD_CANCEL_ASYNCHRONOUS its end is a cancellation point.)
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// Disables cancellation of this thread.
    pub fn begin() -> Uncancelled {
        let mut before = 0;
        // SAFETY: a live variable.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the state that it was; the old one is not wanted.
        unsafe { pthread_setcancelstate(self.before, &mut 0) };
    }
}

/// Makes a call without cancellation of the thread.
#[inline]
pub fn without_cancellation<T>(call: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::begin();
    call()
}

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
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_datagram_or_the_wake_descriptor_ends_the_wait() {
        let (quiet, busy) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let both = [quiet.as_raw_fd(), busy.as_raw_fd()];
        assert!(!wait_readable(&both, None, Some(Duration::ZERO)).unwrap());
        quiet.send_to(b"x", busy.local_addr().unwrap()).unwrap();
        assert!(wait_readable(&both, None, None).unwrap());
        assert!(!wait_readable(&both[..1], None, Some(Duration::ZERO)).unwrap());
        assert!(wait_readable(&both[..1], Some(busy.as_raw_fd()), None).unwrap());
    }

    fn state() -> c_int {
        let mut state = -1;
        // SAFETY: a live variable; the state is put back.
        unsafe {
            pthread_setcancelstate(DISABLE, &mut state);
            pthread_setcancelstate(state, &mut 0);
        }
        state
    }

    #[test]
    fn the_state_is_as_before_when_the_last_one_is_gone() {
        let outer = Uncancelled::begin();
        assert_eq!(state(), DISABLE);
        assert_eq!(without_cancellation(state), DISABLE);
        assert_eq!(state(), DISABLE, "the outer one lives");
        drop(outer);
        assert_eq!(state(), 0);
    }

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
