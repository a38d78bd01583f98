//! The counters of port sharing.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::files::sockets::SendOutcome;

/// Values of the counters of port sharing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharingStats {
    /// Runs of packets handed to the process they are for.
    pub forwarded: u64,
    /// Runs of packets lost because that process did not keep up.
    pub forward_dropped: u64,
    /// Runs of packets taken over from other processes.
    pub taken_over: u64,
    /// Datagrams of other users, or not of this process, or malformed: dropped.
    pub rejected: u64,
    /// Requests that were handed to another process than the kernel would have given them to, because that
    /// one did not run.
    pub rerouted: u64,
    /// Number of times that this process read the registry to repair the steering.
    pub repaired: u64,
    /// Batches lost because a process of this host did not take what was in the ring to it for long.
    pub ring_lost: u64,
}

/// The counters behind [`SharingStats`], which outlive the port and may be read from any thread.
#[derive(Debug, Default)]
pub struct SharingCounters {
    forwarded: AtomicU64,
    forward_dropped: AtomicU64,
    pub(super) taken_over: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) rerouted: AtomicU64,
    pub(super) repaired: AtomicU64,
    pub(super) ring_lost: AtomicU64,
}

impl SharingCounters {
    /// Returns the current values.
    pub fn stats(&self) -> SharingStats {
        SharingStats {
            forwarded: self.forwarded.load(Ordering::Relaxed),
            forward_dropped: self.forward_dropped.load(Ordering::Relaxed),
            taken_over: self.taken_over.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
            rerouted: self.rerouted.load(Ordering::Relaxed),
            repaired: self.repaired.load(Ordering::Relaxed),
            ring_lost: self.ring_lost.load(Ordering::Relaxed),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Counts a run of packets that was offered to another process.
pub(super) fn note_sent(counters: &SharingCounters, sent: SendOutcome) {
    match sent {
        SendOutcome::Done => count(&counters.forwarded),
        SendOutcome::Full => count(&counters.forward_dropped),
        SendOutcome::NoProcess => {}
    }
}
