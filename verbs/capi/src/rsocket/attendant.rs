//! The thread that listens to the connection manager for all sockets: requests are accepted, and ends of
//! connections noticed, whatever the program is doing.

use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use super::table::{Socket, find};
use crate::outcome::{Errno, errno};

/// Its descriptor, on which it sleeps, and whose thread it is.
struct Attendant {
    process: u32,
    epoll: OwnedFd,
}

static ATTENDANT: Mutex<Option<Attendant>> = Mutex::new(None);
/// Stack of the thread; it calls into the device.
const STACK_BYTES: usize = 1 << 20;

/// From now on the socket of this descriptor is attended to, until the descriptor is closed.
///
/// # Errors
/// There are no threads or descriptors to be had.
pub(crate) fn attend_to(descriptor: RawFd) -> Result<(), Errno> {
    let mut attendant = ATTENDANT.lock().unwrap_or_else(PoisonError::into_inner);
    if attendant.as_ref().is_none_or(|attendant| attendant.process != std::process::id()) {
        *attendant = Some(Attendant::start()?);
    }
    let Some(attendant) = attendant.as_ref() else { return Ok(()) };
    match change(attendant.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor) {
        0 => Ok(()),
        _ if errno() == libc::EEXIST => Ok(()),
        _ => Err(Errno(errno())),
    }
}

/// epoll_ctl(2), but not by its name in the C library, which may be that of a preload to which the descriptor is a
/// socket.
fn change(epoll: RawFd, operation: c_int, descriptor: RawFd) -> c_long {
    let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: descriptor as u64 };
    // SAFETY: a live structure.
    unsafe { libc::syscall(libc::SYS_epoll_ctl, epoll, operation, descriptor, &raw mut interest) }
}

/// The descriptor is about to be closed. Closing would not be enough: a fork child may have a copy of it.
pub(crate) fn forget(descriptor: RawFd) {
    let attendant = ATTENDANT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = attendant.as_ref().filter(|attendant| attendant.process == std::process::id()) {
        change(own.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, descriptor);
    }
}

impl Attendant {
    fn start() -> Result<Attendant, Errno> {
        // SAFETY: no memory is involved.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(Errno(errno()));
        }
        // SAFETY: it is new, and nobody else's.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let number = epoll.as_raw_fd();
        let started = without_signals(|| {
            std::thread::Builder::new()
                .name("pumice-rsocket".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || attend(number))
        });
        match started {
            Ok(_) => Ok(Attendant { process: std::process::id(), epoll }),
            Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))),
        }
    }
}

/// A thread that is started here gets no signals: they are the program's.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: live sets, filled before they are used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the set from above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

fn attend(epoll: RawFd) {
    const BATCH: usize = 16;
    super::reentry::never_leave();
    let mut ready = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
    loop {
        let (place, forever, no_mask) = (ready.as_mut_ptr(), -1, std::ptr::null::<libc::sigset_t>());
        // SAFETY: room for so many; no signal mask.
        let count = unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, place, BATCH, forever, no_mask, 8) };
        for event in ready.iter().take(usize::try_from(count).unwrap_or_default()) {
            let descriptor = event.u64 as RawFd;
            let attended = match find(descriptor) {
                Some(Socket::Stream(stream)) => stream.attend(),
                _ => Err(Errno(libc::EBADF)),
            };
            if attended.is_err() {
                // Nobody could be helped, now or later.
                change(epoll, libc::EPOLL_CTL_DEL, descriptor);
            }
        }
    }
}
