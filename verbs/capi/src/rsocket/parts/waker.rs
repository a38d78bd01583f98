//! Wakers, on which threads sleep until a socket changes. Each thread has its own, so that a wake-up reaches
//! the right thread.

use std::cell::RefCell;
use std::ffi::c_int;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use libc::pollfd;

use crate::platform::errno::Errno;
use crate::platform::process::current_pid;
use crate::platform::system_call;

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
