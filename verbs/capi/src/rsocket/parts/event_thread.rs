//! The thread that waits for events of the connection manager for all sockets: it makes them accept requests
//! and notice the ends of connections, even while the program makes no calls.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;

use super::reentry;
use crate::call_sites::current_call::run_internally;
use crate::platform::errno::Errno;
use crate::platform::system_call;

/// Callbacks of the thread, which the layer of sockets above implements.
#[derive(Clone, Copy)]
pub(crate) struct EventHandlers {
    /// Takes the events of the socket of this descriptor. Fails if there is no such socket, or if no event
    /// can be taken any more.
    pub(crate) ready: fn(RawFd) -> Result<(), Errno>,
    /// Probes the peers whose turn it is; returns whether peers are to be probed later.
    pub(crate) probe: fn() -> bool,
}

/// The thread of a process, and the descriptors that it waits on.
struct EventThread {
    epoll: OwnedFd,
    /// Descriptor that wakes the thread.
    wake: OwnedFd,
}

static THREAD: PerProcess<Mutex<Option<EventThread>>> = PerProcess::new(|_| Mutex::new(None));
/// Stack size of the thread in bytes; it calls into the device.
const STACK_BYTES: usize = 1 << 20;
/// True if there are sockets whose peers are probed.
static PROBING: AtomicBool = AtomicBool::new(false);
/// Interval in ms at which the thread checks whose peer is to be probed.
const PROBING_MS: c_int = 1000;

/// Makes the thread take the events of the socket of this descriptor, until the descriptor is closed.
///
/// # Errors
/// Fails if no threads or descriptors are available.
pub(crate) fn watch(socket: RawFd, handlers: EventHandlers) -> Result<(), Errno> {
    let thread = started(handlers)?;
    let Some(thread) = thread.as_ref() else { return Ok(()) };
    match system_call::epoll_change(thread.epoll.as_fd(), libc::EPOLL_CTL_ADD, socket) {
        Err(Errno(libc::EEXIST)) => Ok(()),
        other => other,
    }
}

/// Makes the thread probe peers, because a socket wants that.
///
/// # Errors
/// Fails as [`watch`].
pub(crate) fn probe_peers(handlers: EventHandlers) -> Result<(), Errno> {
    let thread = started(handlers)?;
    PROBING.store(true, Ordering::Relaxed);
    if let Some(thread) = thread.as_ref() {
        system_call::signal(thread.wake.as_fd());
    }
    Ok(())
}

/// Stops watching a descriptor that is about to be closed. Closing would not be enough: a forked child may
/// have a copy of it.
pub(crate) fn unwatch(socket: RawFd) {
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = &*thread {
        // The descriptor may never have been watched.
        let _ = system_call::epoll_change(own.epoll.as_fd(), libc::EPOLL_CTL_DEL, socket);
    }
}

/// Locks the thread's record, after starting the thread if it does not run.
fn started(handlers: EventHandlers) -> Result<MutexGuard<'static, Option<EventThread>>, Errno> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        *thread = Some(EventThread::start(handlers)?);
    }
    Ok(thread)
}

impl EventThread {
    fn start(handlers: EventHandlers) -> Result<EventThread, Errno> {
        let (epoll, wake) = (system_call::epoll()?, system_call::event(libc::EFD_CLOEXEC)?);
        system_call::epoll_change(epoll.as_fd(), libc::EPOLL_CTL_ADD, wake.as_raw_fd())?;
        let numbers = (epoll.as_raw_fd(), wake.as_raw_fd());
        let started = without_signals(|| {
            outside::thread::start("pumice-rsocket", Some(STACK_BYTES), move || {
                // SAFETY: `THREAD` owns the descriptors, and never closes them.
                let (epoll, wake) =
                    unsafe { (BorrowedFd::borrow_raw(numbers.0), BorrowedFd::borrow_raw(numbers.1)) };
                // Its calls do not count as the program's.
                run_internally(|| run(epoll, wake, handlers));
            })
        });
        match started {
            Ok(_) => Ok(EventThread { epoll, wake }),
            Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))),
        }
    }
}

/// Starts a thread that gets no signals except those of its own faults: all others are the program's.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: live sets; the first call fills the one that the second reads.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // These signals are raised when memory that is being copied was unmapped.
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the set was filled by the second call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

fn run(epoll: BorrowedFd<'_>, wake: BorrowedFd<'_>, handlers: EventHandlers) {
    const BATCH: usize = 16;
    reentry::never_leave();
    let mut ready = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
    loop {
        let limit = if PROBING.load(Ordering::Relaxed) { PROBING_MS } else { -1 };
        let count = system_call::epoll_wait(epoll, &mut ready, limit);
        for event in ready.iter().take(count) {
            let socket = event.u64 as RawFd;
            if socket == wake.as_raw_fd() {
                system_call::clear(wake);
            } else if (handlers.ready)(socket).is_err() {
                // No socket takes the events, now or later.
                let _ = system_call::epoll_change(epoll, libc::EPOLL_CTL_DEL, socket);
            }
        }
        if PROBING.load(Ordering::Relaxed) {
            PROBING.store((handlers.probe)(), Ordering::Relaxed);
        }
    }
}
