//! The application's polls of a completion queue.

use std::sync::atomic::Ordering;

use pumice_model::event::{Event, Topics};
use pumice_transport::types::WorkCompletion;

use super::CompletionQueue;
use super::ring::{ArmedFor, QueuedCompletion};

impl CompletionQueue {
    /// Returns how many completions a poll that asks for `requested` has to take at most: all, unless the
    /// schedule is shuffled.
    #[inline]
    pub fn max_returned(&self, requested: usize) -> usize {
        if self.shuffled { self.shuffled_max_returned(requested) } else { requested }
    }

    /// Reports whether the batch of a program that takes one completion after the other ends here, though
    /// there may be more: never, unless the schedule is shuffled.
    #[inline]
    pub fn ends_batch(&self) -> bool {
        self.shuffled && self.shuffled_ends_batch()
    }

    #[cold]
    fn shuffled_ends_batch(&self) -> bool {
        let mut state = self.lock();
        let returns_all = state.armed != ArmedFor::No || self.is_failed();
        state.held.as_mut().is_some_and(|held| held.ends_batch(returns_all))
    }

    #[cold]
    fn shuffled_max_returned(&self, requested: usize) -> usize {
        let state = self.lock();
        let returns_all = state.armed != ArmedFor::No || self.is_failed();
        state.held.as_ref().map_or(requested, |held| held.max_returned(requested, returns_all))
    }

    /// Makes the next poll find every completion that came before an event that the program gets.
    #[cold]
    pub fn release_held(&self) {
        if let Some(held) = &mut self.lock().held {
            held.release();
        }
    }

    /// Moves the oldest completions to `out` and returns how many: at most `out.len()`. Polling an empty
    /// queue costs one load.
    #[inline]
    pub fn poll(&self, out: &mut [WorkCompletion]) -> usize {
        if self.pending.load(Ordering::Acquire) == 0 {
            self.mark_seen_empty();
            return 0;
        }
        self.poll_some(out)
    }

    /// Moves the oldest completion out, with the time of the device's clock at which it was added; 0 if the
    /// queue was made without one.
    pub fn poll_stamped(&self) -> Option<(WorkCompletion, u64)> {
        if self.is_empty() {
            self.mark_seen_empty();
            return None;
        }
        let mut state = self.lock();
        let Some(QueuedCompletion { completion, released, at_ns }) = state.take() else {
            self.mark_seen_empty();
            state.found_nothing();
            return None;
        };
        if released != 0 {
            self.common.freed_send_slots.add(completion.qp_num, released);
        }
        self.pending.store(state.ring.len(), Ordering::Release);
        self.seen_empty.store(false, Ordering::Relaxed);
        self.common.events.emit(&Event::Polled { cq: self.handle, completion: &completion });
        Some((completion, at_ns))
    }

    /// Reports whether a poll would find nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Reports whether a completion that is made now may be given to the polling thread itself: the queue is
    /// empty and works as usual, and no subscriber has to be told that the completion was added or polled.
    #[inline]
    pub(crate) fn may_pass_over(&self) -> bool {
        self.is_plain
            && self.is_empty()
            && !self.failed.load(Ordering::Relaxed)
            && !self.common.armed.any()
            && !self.common.events.listen(Topics::POLLS)
    }

    /// Notes that a polling thread has got a completion of this queue pair past the queue: it frees so many
    /// entries of the send queue.
    #[inline]
    pub(crate) fn passed_over(&self, qpn: u32, released: u32) {
        self.seen_empty.store(false, Ordering::Relaxed);
        if released != 0 {
            // Another thread may poll the queue, and frees entries under its lock.
            let _held = self.lock();
            self.common.freed_send_slots.add(qpn, released);
        }
    }

    /// Returns the number of completions to be polled.
    pub fn len(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Passes the number of completions that wait to be polled to `look`, while no thread polls one.
    pub fn look(&self, look: impl FnOnce(usize)) {
        let _held = self.lock();
        look(self.len());
    }

    /// Notes that the application found the queue empty. An update that is lost to a firing at the same time
    /// makes one event too many.
    #[inline]
    fn mark_seen_empty(&self) {
        if !self.seen_empty.load(Ordering::Relaxed) {
            self.seen_empty.store(true, Ordering::Relaxed);
        }
    }

    fn poll_some(&self, out: &mut [WorkCompletion]) -> usize {
        let mut state = self.lock();
        let mut count = 0;
        // The queue counts as empty only once the application asks for more than there is.
        self.seen_empty.store(false, Ordering::Relaxed);
        for slot in out.iter_mut() {
            let Some(released) = state.take_into(slot) else {
                self.mark_seen_empty();
                break;
            };
            if released != 0 {
                // Under the lock: after `remove_of` no release of that queue pair is outstanding.
                self.common.freed_send_slots.add(slot.qp_num, released);
            }
            count += 1;
        }
        if count == 0 {
            state.found_nothing();
        }
        if state.ring.is_empty() {
            // Start again at the front: a shallow use of a deep queue stays in the cache.
            state.ring.clear();
            state.solicited = false;
        }
        self.pending.store(state.ring.len(), Ordering::Release);
        if self.common.events.listen(Topics::POLLS) {
            self.emit_polled(out.get(..count).unwrap_or_default());
        }
        count
    }

    #[cold]
    fn emit_polled(&self, completions: &[WorkCompletion]) {
        let at_ns = self.common.events.now_ns();
        for completion in completions {
            let event = Event::Polled { cq: self.handle, completion };
            self.common.events.deliver(at_ns, Topics::POLLS, &event);
        }
    }
}
