//! The thread that waits for events of the connection manager on behalf of all sockets: it has requests
//! accepted and ends of connections noticed, also while the program makes no calls.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;

use super::reentry;
use crate::ground::errno::Errno;
use crate::ground::gate::quietly;
use crate::ground::system_call;

/// What the thread does, which is the business of the sockets above.
#[derive(Clone, Copy)]
pub(crate) struct Handlers {
    /// Takes the events of the socket of this descriptor. An error: there is no such socket, or no event can
    /// be taken any more.
    pub(crate) ready: fn(RawFd) -> Result<(), Errno>,
    /// Probes the peers whose turn it is; whether peers are to be probed later.
    pub(crate) probe: fn() -> bool,
}

/// The thread of a process, and the descriptors that it waits on.
struct EventThread {
    epoll: OwnedFd,
    /// Wakes the thread.
    wake: OwnedFd,
}

static THREAD: PerProcess<Mutex<Option<EventThread>>> = PerProcess::new(|_| Mutex::new(None));
/// Stack of the thread; it calls into the device.
const STACK_BYTES: usize = 1 << 20;
/// There are sockets whose peers are probed.
static PROBING: AtomicBool = AtomicBool::new(false);
/// How often the thread looks whose peer is to be probed.
const PROBING_MS: c_int = 1000;

/// From now on the thread takes the events of the socket of this descriptor, until the descriptor is closed.
///
/// # Errors
/// There are no threads or descriptors to be had.
pub(crate) fn watch(socket: RawFd, handlers: Handlers) -> Result<(), Errno> {
    let thread = started(handlers)?;
    let Some(thread) = thread.as_ref() else { return Ok(()) };
    match system_call::epoll_change(thread.epoll.as_fd(), libc::EPOLL_CTL_ADD, socket) {
        Err(Errno(libc::EEXIST)) => Ok(()),
        other => other,
    }
}

/// A socket wants its peer to be probed.
///
/// # Errors
/// As of [`watch`].
pub(crate) fn probe_peers(handlers: Handlers) -> Result<(), Errno> {
    let thread = started(handlers)?;
    PROBING.store(true, Ordering::Relaxed);
    if let Some(thread) = thread.as_ref() {
        system_call::signal(thread.wake.as_fd());
    }
    Ok(())
}

/// The descriptor is about to be closed. Closing would not be enough: a fork child may have a copy of it.
pub(crate) fn unwatch(socket: RawFd) {
    let thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = &*thread {
        // The descriptor may never have been watched.
        let _ = system_call::epoll_change(own.epoll.as_fd(), libc::EPOLL_CTL_DEL, socket);
    }
}

/// The thread, locked; it is there then.
fn started(handlers: Handlers) -> Result<MutexGuard<'static, Option<EventThread>>, Errno> {
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if thread.is_none() {
        *thread = Some(EventThread::start(handlers)?);
    }
    Ok(thread)
}

impl EventThread {
    fn start(handlers: Handlers) -> Result<EventThread, Errno> {
        let (epoll, wake) = (system_call::epoll()?, system_call::event(libc::EFD_CLOEXEC)?);
        system_call::epoll_change(epoll.as_fd(), libc::EPOLL_CTL_ADD, wake.as_raw_fd())?;
        let numbers = (epoll.as_raw_fd(), wake.as_raw_fd());
        let started = without_signals(|| {
            outside::thread::start("pumice-rsocket", Some(STACK_BYTES), move || {
                // SAFETY: `THREAD` owns the descriptors, and keeps them as long as the process lives.
                let (epoll, wake) =
                    unsafe { (BorrowedFd::borrow_raw(numbers.0), BorrowedFd::borrow_raw(numbers.1)) };
                // What it does is none of the program's calls.
                quietly(|| run(epoll, wake, handlers));
            })
        });
        match started {
            Ok(_) => Ok(EventThread { epoll, wake }),
            Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EAGAIN))),
        }
    }
}

/// A thread that is started here gets no signals but those of its own faults: they are the program's.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: live sets; the first call fills the one that the second reads.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // What a copy of memory that has gone meets.
        libc::sigdelset(all.as_mut_ptr(), libc::SIGSEGV);
        libc::sigdelset(all.as_mut_ptr(), libc::SIGBUS);
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the set that the second call above has filled.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

fn run(epoll: BorrowedFd<'_>, wake: BorrowedFd<'_>, handlers: Handlers) {
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
                // There is no socket to take the events, now or later.
                let _ = system_call::epoll_change(epoll, libc::EPOLL_CTL_DEL, socket);
            }
        }
        if PROBING.load(Ordering::Relaxed) {
            PROBING.store((handlers.probe)(), Ordering::Relaxed);
        }
    }
}
