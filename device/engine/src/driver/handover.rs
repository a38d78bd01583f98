//! The hand-over between application threads and the background thread: the facts of the policy, in atomics.
//!
//! Application threads pay for it on every post and poll: loads and plain stores, no lock and no
//! read-modify-write. The model in `handover_model.rs` runs this file and the background thread's loop in
//! every order that the memory model allows.
//!
//! **Invariants**: a thread announces its sleep, and a call reads the announcement, while it holds the
//! engine's lock. The bell is readable only from the ring that set `rung` until the clear that resets it.

use std::sync::atomic::Ordering;

use pumice_platform::outside::event_fd::EventFd;
use pumice_platform::word::AtomicWord;

use super::policy::{self, ApplicationActivity, EmptyPoll, Idling, PendingWork, Yielded};

/// The object that ends a wait of the background thread.
pub(crate) trait Bell {
    /// Makes the bell readable.
    fn set(&self);
    /// Makes the bell unreadable. Returns whether it was readable.
    fn clear(&self) -> bool;
}

impl Bell for EventFd {
    fn set(&self) {
        self.set();
    }

    fn clear(&self) -> bool {
        self.clear()
    }
}

const NO: u64 = 0;
const YES: u64 = 1;
const AWAKE: u64 = 0;

/// The facts that both sides see.
#[derive(Debug)]
pub(crate) struct Handover<W, B> {
    /// Number of polls of empty queues so far: while the number changes, the application drives.
    polls: W,
    /// True if the application polls so often that a poll may leave to a later one what can wait.
    dense: W,
    /// The [`Idling`] state, encoded as a number.
    idling: W,
    /// Number of application threads that drive while they wait for an event.
    waiters: W,
    /// True if the application has waited for an event by driving, since the background thread last took
    /// over.
    waits_here: W,
    /// True if an application thread wants the background thread to take over.
    called: W,
    /// The time until which the background thread sleeps, in ns; [`AWAKE`] while it does not.
    sleeping_until_ns: W,
    stopping: W,
    /// True if the bell is readable, or a thread is about to make it so.
    rung: W,
    bell: B,
}

impl<W: AtomicWord, B: Bell> Handover<W, B> {
    pub(crate) fn new(bell: B) -> Handover<W, B> {
        Handover {
            polls: W::new(0),
            dense: W::new(NO),
            idling: W::new(Idling::START.encode()),
            waiters: W::new(0),
            waits_here: W::new(NO),
            called: W::new(NO),
            sleeping_until_ns: W::new(AWAKE),
            stopping: W::new(NO),
            rung: W::new(NO),
            bell,
        }
    }

    /// Returns the bell on which the background thread waits.
    pub(crate) fn bell(&self) -> &B {
        &self.bell
    }
}

/// The application's side.
impl<W: AtomicWord, B: Bell> Handover<W, B> {
    /// Counts a poll of an empty queue. Two threads at once may count as one: the number only has to change.
    #[inline]
    pub(crate) fn polled(&self) {
        self.polls.store(self.polls().wrapping_add(1), Ordering::Relaxed);
    }

    /// Reports whether the application has polled very often lately, as far as the background thread has
    /// seen.
    #[inline]
    pub(crate) fn polls_are_dense(&self) -> bool {
        self.dense.load(Ordering::Relaxed) == YES
    }

    /// Counts a poll that found nothing, and returns what to do before the application gets the processor
    /// back.
    #[inline]
    pub(crate) fn found_nothing(&self) -> EmptyPoll {
        let mut idling = Idling::decode(self.idling.load(Ordering::Relaxed));
        let answer = idling.polled();
        self.idling.store(idling.encode(), Ordering::Relaxed);
        answer
    }

    /// Records that an application thread has yielded the processor.
    pub(crate) fn yielded(&self, yielded: Yielded) {
        let mut idling = Idling::decode(self.idling.load(Ordering::Relaxed));
        idling.yielded(yielded);
        self.idling.store(idling.encode(), Ordering::Relaxed);
    }

    /// Records that a completion queue was armed, and wakes the background thread if it has to take over.
    pub(crate) fn armed(&self) {
        if policy::arming_calls(self.waits_here.load(Ordering::Relaxed) == YES) {
            self.called.store(YES, Ordering::Release);
            self.ring();
        }
    }

    /// Ends a call that is about to release the engine's lock and leaves `left` in the engine. The background
    /// thread is woken if it would sleep past that.
    #[inline]
    pub(crate) fn leave(&self, now_ns: u64, left: impl FnOnce() -> PendingWork) {
        let sleeping_until_ns = self.sleeping_until_ns.load(Ordering::Acquire);
        // The thread is awake, or wakes by itself now.
        if sleeping_until_ns <= now_ns {
            return;
        }
        if policy::call_wakes(sleeping_until_ns, left()) {
            self.sleeping_until_ns.store(AWAKE, Ordering::Release);
            self.ring();
        }
    }

    /// Records that an application thread begins to wait for an event, and drives meanwhile.
    pub(crate) fn wait_begins(&self) {
        self.waits_here.store(YES, Ordering::Relaxed);
        self.waiters.add(1, Ordering::AcqRel);
    }

    /// Records that the thread has its event, or has given up.
    pub(crate) fn wait_ends(&self) {
        self.polled();
        self.waiters.sub(1, Ordering::AcqRel);
    }

    /// Tells the background thread to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(YES, Ordering::Release);
        self.ring();
    }

    /// Makes the bell readable, once until it is cleared.
    fn ring(&self) {
        if self.rung.swap(YES, Ordering::AcqRel) == NO {
            self.bell.set();
        }
    }
}

/// The background thread's side.
impl<W: AtomicWord, B: Bell> Handover<W, B> {
    /// Reports whether the thread has to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire) == YES
    }

    /// Reports whether a thread has rung the bell since it was last cleared, or is about to.
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Acquire) == YES
    }

    /// Returns the number of polls so far.
    #[inline]
    pub(crate) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Records whether the application polls very often.
    pub(crate) fn note_density(&self, is_dense: bool) {
        if self.polls_are_dense() != is_dense {
            self.dense.store(if is_dense { YES } else { NO }, Ordering::Relaxed);
        }
    }

    /// Takes the signals of application threads. Their call to take over is reset: the next turn does not see
    /// it.
    pub(crate) fn take_signals(&self, is_armed: impl FnOnce() -> bool) -> ApplicationActivity {
        ApplicationActivity {
            polls: self.polls(),
            waiters: self.waiters.load(Ordering::Acquire),
            armed: is_armed(),
            called: self.called.swap(NO, Ordering::AcqRel) == YES,
        }
    }

    /// Records that the thread drives from now on: the next arming has to call it again.
    pub(crate) fn take_over(&self) {
        self.waits_here.store(NO, Ordering::Relaxed);
    }

    /// Announces that the thread is about to sleep. It holds the engine's lock.
    pub(crate) fn announce_sleep(&self, until_ns: u64) {
        self.sleeping_until_ns.store(until_ns, Ordering::Release);
    }

    /// Records that the thread has slept.
    pub(crate) fn wake_up(&self) {
        self.sleeping_until_ns.store(AWAKE, Ordering::Release);
        self.clear_bell();
    }

    /// Makes the bell unreadable; this is one load unless a thread has rung it.
    ///
    /// The flag is reset by a swap, so that what a thread did before it found the flag set, and therefore did
    /// not set the bell, is seen after this call. The flag stays set while the thread that set it has not yet
    /// set the bell.
    pub(crate) fn clear_bell(&self) {
        if self.rung.load(Ordering::Acquire) == YES && self.bell.clear() {
            self.rung.swap(NO, Ordering::AcqRel);
        }
    }

    /// Returns what another thread sees of the sleep, for tests.
    #[cfg(test)]
    pub(crate) fn sleeping_until_ns(&self) -> u64 {
        self.sleeping_until_ns.load(Ordering::Acquire)
    }
}
