//! The thread that listens to the connection manager for all sockets: requests are accepted, and ends of
//! connections noticed, whatever the program is doing.

use std::ffi::{c_int, c_long};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::table::{Socket, find, streams};
use crate::ground::errno::{Errno, errno};
use crate::ground::process::own_process;

/// The descriptor on which it sleeps, one that wakes it, and whose thread it is.
struct Attendant {
    process: u32,
    epoll: OwnedFd,
    alarm: OwnedFd,
}

static ATTENDANT: Mutex<Option<Attendant>> = Mutex::new(None);
/// Stack of the thread; it calls into the device.
const STACK_BYTES: usize = 1 << 20;
/// There are sockets whose peers are probed.
static PROBING: AtomicBool = AtomicBool::new(false);
/// How often it is looked whose turn that is, in milliseconds.
const PROBING_MS: c_int = 1000;

/// From now on the socket of this descriptor is attended to, until the descriptor is closed.
///
/// # Errors
/// There are no threads or descriptors to be had.
pub(crate) fn attend_to(descriptor: RawFd) -> Result<(), Errno> {
    let attendant = started()?;
    let Some(attendant) = attendant.as_ref() else { return Ok(()) };
    match change(attendant.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, descriptor) {
        0 => Ok(()),
        _ if errno() == libc::EEXIST => Ok(()),
        _ => Err(Errno(errno())),
    }
}

/// The attendant, locked; it is there then.
fn started() -> Result<MutexGuard<'static, Option<Attendant>>, Errno> {
    let mut attendant = ATTENDANT.lock().unwrap_or_else(PoisonError::into_inner);
    if attendant.as_ref().is_none_or(|attendant| attendant.process != own_process()) {
        *attendant = Some(Attendant::start()?);
    }
    Ok(attendant)
}

/// A socket wants its peer to be probed.
///
/// # Errors
/// As of [`attend_to`].
pub(crate) fn probe_peers() -> Result<(), Errno> {
    let attendant = started()?;
    PROBING.store(true, Ordering::Relaxed);
    let Some(attendant) = attendant.as_ref() else { return Ok(()) };
    let one = 1_u64;
    // SAFETY: eight bytes, as an eventfd takes; it does not block.
    unsafe { libc::write(attendant.alarm.as_raw_fd(), (&raw const one).cast(), 8) };
    Ok(())
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
    if let Some(own) = attendant.as_ref().filter(|attendant| attendant.process == own_process()) {
        change(own.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, descriptor);
    }
}

impl Attendant {
    fn start() -> Result<Attendant, Errno> {
        // SAFETY: no memory is involved.
        let made = unsafe {
            [
                libc::epoll_create1(libc::EPOLL_CLOEXEC),
                libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK),
            ]
        };
        let [Some(epoll), Some(alarm)] = made.map(|fd| {
            // SAFETY: it is new, and nobody else's.
            (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
        }) else {
            return Err(Errno(libc::EMFILE));
        };
        let (number, woken_by) = (epoll.as_raw_fd(), alarm.as_raw_fd());
        if change(number, libc::EPOLL_CTL_ADD, woken_by) != 0 {
            return Err(Errno(errno()));
        }
        let started = without_signals(|| {
            std::thread::Builder::new()
                .name("pumice-rsocket".to_owned())
                .stack_size(STACK_BYTES)
                .spawn(move || attend(number, woken_by))
        });
        match started {
            Ok(_) => Ok(Attendant { process: own_process(), epoll, alarm }),
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

fn attend(epoll: RawFd, alarm: RawFd) {
    const BATCH: usize = 16;
    super::reentry::never_leave();
    let mut ready = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
    loop {
        let limit = if PROBING.load(Ordering::Relaxed) { PROBING_MS } else { -1 };
        let (place, no_mask) = (ready.as_mut_ptr(), std::ptr::null::<libc::sigset_t>());
        // SAFETY: room for so many; no signal mask.
        let count =
            unsafe { libc::syscall(libc::SYS_epoll_pwait, epoll, place, BATCH, limit, no_mask, 8_usize) };
        for event in ready.iter().take(usize::try_from(count).unwrap_or_default()) {
            let descriptor = event.u64 as RawFd;
            if descriptor == alarm {
                let mut word = 0_u64;
                // SAFETY: eight bytes, as an eventfd gives; it does not block.
                unsafe { libc::read(alarm, (&raw mut word).cast(), 8) };
                continue;
            }
            let attended = match find(descriptor) {
                Some(Socket::Stream(stream)) => stream.attend(),
                _ => Err(Errno(libc::EBADF)),
            };
            if attended.is_err() {
                // Nobody could be helped, now or later.
                change(epoll, libc::EPOLL_CTL_DEL, descriptor);
            }
        }
        if PROBING.load(Ordering::Relaxed) {
            let still = streams().iter().fold(false, |still, (_, stream)| stream.probe_peer() | still);
            PROBING.store(still, Ordering::Relaxed);
        }
    }
}
