//! The threads of sockets: the one that waits for events of the connection manager, those that sleep, and
//! those that are inside of this library.
//!
//! The thread that waits for events of the connection manager for all sockets: it makes them accept requests
//! and notice the ends of connections, even while the program makes no calls.
//!
//! Threads that are inside of this library. Sockets that the library itself opens must be the system's: under
//! a preload that replaces all sockets by rsockets, the C library's `socket` calls this library again.
//!
//! Wakers, on which threads sleep until a socket changes. Each thread has its own, so that a wake-up reaches
//! the right thread.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use libc::pollfd;
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;

use crate::call_sites::current_call::run_internally;
use crate::platform::{Errno, current_pid, system_call};

thread_local! {
    static IS_INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// A guard: while it lives, its thread is inside.
pub(crate) struct ReentryGuard(());

impl ReentryGuard {
    /// Marks the thread as inside.
    pub(crate) fn enter() -> ReentryGuard {
        // A thread that is being torn down has no such variable any more, and opens no sockets.
        let _ = IS_INSIDE.try_with(|inside| inside.set(inside.get() + 1));
        ReentryGuard(())
    }
}

impl Drop for ReentryGuard {
    fn drop(&mut self) {
        let _ = IS_INSIDE.try_with(|inside| inside.set(inside.get().saturating_sub(1)));
    }
}

/// Reports whether this thread is inside.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.try_with(|inside| inside.get() > 0).unwrap_or(true)
}

/// Marks a thread of the library itself as inside for ever.
fn never_leave() {
    std::mem::forget(ReentryGuard::enter());
}

/// A thread's waker.
pub(crate) struct Waker {
    event: OwnedFd,
    process: u32,
}

thread_local! {
    static FIRST: RefCell<Option<Arc<Waker>>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<Arc<Waker>>> = const { RefCell::new(None) };
}

impl Waker {
    /// Returns the waker of this thread.
    ///
    /// # Errors
    /// Fails if there are no descriptors.
    pub(crate) fn of_thread() -> Result<Arc<Waker>, Errno> {
        FIRST.with_borrow_mut(Waker::cached)
    }

    /// Returns another waker of this thread, for a call that waits through one that uses the first.
    ///
    /// # Errors
    /// Fails if there are no descriptors.
    pub(crate) fn second_of_thread() -> Result<Arc<Waker>, Errno> {
        SECOND.with_borrow_mut(Waker::cached)
    }

    fn cached(own: &mut Option<Arc<Waker>>) -> Result<Arc<Waker>, Errno> {
        match own {
            // A forked child has the parent's, and would be woken by it.
            Some(waker) if waker.process == current_pid() => Ok(Arc::clone(waker)),
            _ => {
                let event = system_call::event(libc::EFD_CLOEXEC)?;
                let waker = Arc::new(Waker { event, process: current_pid() });
                *own = Some(Arc::clone(&waker));
                Ok(waker)
            }
        }
    }

    /// Wakes its thread, now or when it next sleeps.
    pub(crate) fn wake(&self) {
        system_call::signal(self.event.as_fd());
    }

    /// Drops wake-ups that came before.
    pub(crate) fn clear(&self) {
        system_call::clear(self.event.as_fd());
    }

    /// Returns its entry for poll(2), for reading.
    pub(crate) fn entry(&self) -> pollfd {
        pollfd { fd: self.event.as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Sleeps until it is woken, or one of the descriptors is readable, or the time is up.
    ///
    /// # Errors
    /// Fails with EINTR if a signal handler ran.
    pub(crate) fn sleep(&self, others: &[c_int], until: Option<Instant>) -> Result<(), Errno> {
        let mut entries = vec![self.entry()];
        entries.extend(others.iter().map(|fd| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }));
        system_call::poll(&mut entries, until)?;
        self.clear();
        Ok(())
    }
}

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
    never_leave();
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waker_wakes_its_thread_even_if_it_was_used_before() {
        let waker = Waker::of_thread().unwrap();
        waker.wake();
        waker.sleep(&[], None).unwrap();
        let soon = Instant::now() + Duration::from_millis(1);
        waker.sleep(&[], Some(soon)).unwrap();
        assert!(Instant::now() >= soon, "one wake-up ends one sleep");
        let other = Arc::clone(&waker);
        let waking = std::thread::spawn(move || {
            other.wake();
            Waker::of_thread().unwrap().event.as_raw_fd()
        });
        waker.sleep(&[], None).unwrap();
        assert_ne!(waking.join().unwrap(), waker.event.as_raw_fd());
    }
}
