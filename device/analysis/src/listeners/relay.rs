//! A channel by which items of a subscriber leave the engine, so that a slow terminal does not hold the
//! engine's lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use pumice_platform::awaited::Awaited;
use pumice_platform::error::ResourceError;
use pumice_platform::outside::thread::start_without_signals;

enum RelayMessage<T> {
    Item(T),
    End,
}

/// A thread that takes items one by one. Items that it is too slow for are lost, and counted: a peer can
/// cause any number of them.
pub(super) struct RelayThread<T> {
    sender: Sender<RelayMessage<T>>,
    /// Number of items that are not taken yet.
    waiting: Arc<Awaited<usize>>,
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> RelayThread<T> {
    /// Starts the thread. `take` gets each item, and how many were lost before it.
    ///
    /// # Errors
    /// Fails if the operating system has no thread to give.
    pub(super) fn start(
        name: &str,
        capacity: usize,
        mut take: impl FnMut(T, u64) + Send + 'static,
    ) -> Result<RelayThread<T>, ResourceError> {
        let (sender, receiver) = bounded::<RelayMessage<T>>(capacity);
        let (lost, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(Awaited::new(0_usize)));
        let (lost_here, taken) = (Arc::clone(&lost), Arc::clone(&waiting));
        let run = move || {
            while let Ok(RelayMessage::Item(item)) = receiver.recv() {
                take(item, lost_here.swap(0, Ordering::Relaxed));
                taken.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        };
        let started = start_without_signals(name, run);
        let thread = started.map_err(|error| ResourceError::Os {
            what: "start a thread that writes what happens",
            errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
        })?;
        Ok(RelayThread { sender, waiting, lost, thread: Mutex::new(Some(thread)) })
    }

    /// Sends an item to the thread, without waiting.
    pub(super) fn send(&self, item: T) {
        self.waiting.change(|waiting| *waiting += 1);
        if self.sender.try_send(RelayMessage::Item(item)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.waiting.change(|waiting| *waiting = waiting.saturating_sub(1));
        }
    }

    /// Waits until everything so far has been taken, or until `patience` is over.
    pub(super) fn settle(&self, patience: Duration) {
        // An item that is still not taken is late, not lost.
        let _ = self.waiting.wait_for(patience, |waiting| *waiting == 0);
    }

    /// Waits until everything has been taken, and ends the thread.
    pub(super) fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Neither fails unless the thread has panicked, which was reported where it happened.
            let _ = self.sender.send(RelayMessage::End);
            let _ = thread.join();
        }
    }
}
