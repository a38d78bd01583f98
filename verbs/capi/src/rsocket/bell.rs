//! Bells: what a thread sleeps on until a socket changes. Each thread has one, so that nobody hears another's.

use std::cell::RefCell;
use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libc::{pollfd, timespec};

use crate::ground::errno::{Errno, errno};
use crate::ground::process::own_process;

/// A thread's bell.
pub(crate) struct Bell {
    descriptor: OwnedFd,
    process: u32,
}

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
    static SECOND: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

impl Bell {
    /// This thread's.
    ///
    /// # Errors
    /// There are no descriptors.
    pub(crate) fn of_thread() -> Result<Arc<Bell>, Errno> {
        BELL.with_borrow_mut(Bell::kept)
    }

    /// Another of this thread's, for whoever waits with the help of those who use the first.
    ///
    /// # Errors
    /// There are no descriptors.
    pub(crate) fn second_of_thread() -> Result<Arc<Bell>, Errno> {
        SECOND.with_borrow_mut(Bell::kept)
    }

    fn kept(own: &mut Option<Arc<Bell>>) -> Result<Arc<Bell>, Errno> {
        match own {
            // A fork child has the parent's, and would be woken by it.
            Some(bell) if bell.process == own_process() => Ok(Arc::clone(bell)),
            _ => {
                // SAFETY: no memory is involved.
                let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
                if descriptor < 0 {
                    return Err(Errno(errno()));
                }
                // SAFETY: it is new, and nobody else's.
                let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
                let bell = Arc::new(Bell { descriptor, process: own_process() });
                *own = Some(Arc::clone(&bell));
                Ok(bell)
            }
        }
    }

    /// Wakes its thread, now or when it next sleeps.
    pub(crate) fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes, as an eventfd takes; it does not block.
        unsafe { libc::write(self.descriptor.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// It has been heard.
    pub(crate) fn hush(&self) {
        let mut word = 0_u64;
        // SAFETY: eight bytes, as an eventfd gives; it does not block.
        unsafe { libc::read(self.descriptor.as_raw_fd(), (&raw mut word).cast(), 8) };
    }

    /// To poll for reading.
    pub(crate) fn entry(&self) -> pollfd {
        pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 }
    }

    /// Sleeps until it rings, or one of the descriptors is readable, or the time is up.
    ///
    /// # Errors
    /// EINTR: a signal handler ran.
    pub(crate) fn sleep(&self, others: &[c_int], until: Option<Instant>) -> Result<(), Errno> {
        let mut entries = vec![self.entry()];
        entries.extend(others.iter().map(|fd| pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }));
        poll(&mut entries, until)?;
        self.hush();
        Ok(())
    }
}

/// poll(2), but not by its name in the C library, which may be that of a preload that asks us.
///
/// # Errors
/// EINTR, and what else it says.
pub(crate) fn poll(entries: &mut [pollfd], until: Option<Instant>) -> Result<usize, Errno> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    // The structure outlives the call.
    let time = left.map(|left: Duration| timespec {
        tv_sec: left.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: left.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = entries.len() as c_ulong;
    let (no_mask, mask_bytes) = (ptr::null::<libc::sigset_t>(), 8_usize);
    // SAFETY: live entries and time; no signal mask.
    let ready =
        unsafe { libc::syscall(libc::SYS_ppoll, entries.as_mut_ptr(), count, time, no_mask, mask_bytes) };
    usize::try_from(ready).map_err(|_| Errno(errno()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_wakes_its_thread_even_if_it_rang_before() {
        let bell = Bell::of_thread().unwrap();
        bell.ring();
        bell.sleep(&[], None).unwrap();
        let soon = Instant::now() + Duration::from_millis(1);
        bell.sleep(&[], Some(soon)).unwrap();
        assert!(Instant::now() >= soon, "it was heard once");
        let other = Arc::clone(&bell);
        let ringer = std::thread::spawn(move || {
            other.ring();
            Bell::of_thread().unwrap().descriptor.as_raw_fd()
        });
        bell.sleep(&[], None).unwrap();
        assert_ne!(ringer.join().unwrap(), bell.descriptor.as_raw_fd());
    }
}
