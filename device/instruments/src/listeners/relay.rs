//! What a subscriber hears leaves the engine by a channel, so that a slow terminal does not hold the engine's
//! lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use pumice_ground::awaited::Awaited;
use pumice_ground::error::ResourceError;
use pumice_ground::outside::thread::start_without_signals;

enum Message<T> {
    Item(T),
    End,
}

/// A thread that takes items one by one. Items that it is too slow for are lost, and counted: a peer can
/// cause any number of them.
pub(super) struct Relay<T> {
    sender: Sender<Message<T>>,
    /// Items that are not taken yet.
    waiting: Arc<Awaited<usize>>,
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<T: Send + 'static> Relay<T> {
    /// Starts the thread; `take` is given each item, and how many were lost before it.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(super) fn start(
        name: &str,
        capacity: usize,
        mut take: impl FnMut(T, u64) + Send + 'static,
    ) -> Result<Relay<T>, ResourceError> {
        let (sender, receiver) = bounded::<Message<T>>(capacity);
        let (lost, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(Awaited::new(0_usize)));
        let (lost_here, taken) = (Arc::clone(&lost), Arc::clone(&waiting));
        let run = move || {
            while let Ok(Message::Item(item)) = receiver.recv() {
                take(item, lost_here.swap(0, Ordering::Relaxed));
                taken.change(|waiting| *waiting = waiting.saturating_sub(1));
            }
        };
        let started = start_without_signals(name, run);
        let thread = started.map_err(|error| ResourceError::Os {
            what: "start a thread that writes what happens",
            errno: error.raw_os_error().unwrap_or(libc::EAGAIN),
        })?;
        Ok(Relay { sender, waiting, lost, thread: Mutex::new(Some(thread)) })
    }

    /// Hands an item over, without waiting.
    pub(super) fn send(&self, item: T) {
        self.waiting.change(|waiting| *waiting += 1);
        if self.sender.try_send(Message::Item(item)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.waiting.change(|waiting| *waiting = waiting.saturating_sub(1));
        }
    }

    /// Waits until everything so far has been taken, or `patience` is over.
    pub(super) fn settle(&self, patience: Duration) {
        // An item that is still not taken is late, not lost.
        let _ = self.waiting.wait_for(patience, |waiting| *waiting == 0);
    }

    /// Waits until everything has been taken, and ends the thread.
    pub(super) fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Neither fails unless the thread has panicked, which was reported where it happened.
            let _ = self.sender.send(Message::End);
            let _ = thread.join();
        }
    }
}
