//! Sets of descriptors to wait for, created by `repoll_create`.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rsocket::parts::waker::Waker;

/// Events and the program's number, by descriptor.
pub(crate) type Members = BTreeMap<RawFd, (u32, u64)>;

/// A set.
pub(crate) struct EpollInterest {
    descriptor: OwnedFd,
    members: Mutex<Members>,
    /// Threads that wait: they check again when the set changes.
    waiting: Mutex<Vec<Arc<Waker>>>,
}

impl EpollInterest {
    /// Creates an empty set, which programs know by a descriptor.
    pub(crate) fn new(descriptor: OwnedFd) -> EpollInterest {
        EpollInterest { descriptor, members: Mutex::default(), waiting: Mutex::default() }
    }

    /// Returns the descriptor by which programs know it.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Locks the members and returns them.
    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the set; the descriptor itself is closed with the last thread that waits.
    pub(crate) fn close(&self) {
        self.changed();
    }

    /// Wakes the threads that wait.
    pub(crate) fn changed(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|waker| waker.wake());
    }

    /// Adds a thread that begins to wait.
    pub(crate) fn add_waiting(&self, waker: &Arc<Waker>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(waker));
    }

    /// Removes a thread that does not wait any more.
    pub(crate) fn remove_waiting(&self, waker: &Arc<Waker>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| !Arc::ptr_eq(one, waker));
    }
}
