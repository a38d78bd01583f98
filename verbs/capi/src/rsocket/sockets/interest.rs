//! Sets of descriptors to wait for, as `repoll_create` makes them.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::rsocket::parts::waker::Waker;

/// Events and the program's number, by descriptor.
pub(crate) type Members = BTreeMap<RawFd, (u32, u64)>;

/// A set.
pub(crate) struct Interest {
    descriptor: OwnedFd,
    members: Mutex<Members>,
    /// Threads that wait: they look again when the set changes.
    waiting: Mutex<Vec<Arc<Waker>>>,
}

impl Interest {
    /// An empty set, which programs know by a descriptor.
    pub(crate) fn new(descriptor: OwnedFd) -> Interest {
        Interest { descriptor, members: Mutex::default(), waiting: Mutex::default() }
    }

    /// The number that programs know it by.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// The members, locked.
    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor itself goes with the last thread that waits.
    pub(crate) fn close(&self) {
        self.changed();
    }

    /// Wakes the threads that wait.
    pub(crate) fn changed(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|waker| waker.wake());
    }

    /// A thread begins to wait.
    pub(crate) fn add_waiting(&self, waker: &Arc<Waker>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(waker));
    }

    /// A thread does not wait any more.
    pub(crate) fn remove_waiting(&self, waker: &Arc<Waker>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|one| !Arc::ptr_eq(one, waker));
    }
}
