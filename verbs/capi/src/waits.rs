//! Waiting threads of the program, recorded while the wait watcher asks for them, and the events that wake
//! the watcher.
//!
//! The watcher does not ask as long as the device makes progress: calls of the data path then do not come
//! here, and those that sleep read one byte ten times a second. When no thread can be waiting, it sleeps
//! until the program makes a call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::event::{CallPhase, Event};
use pumice_device::outside;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::event_queue::Awaited;
use pumice_device::settings::LogLevel;

use super::check;
use crate::log::log_at;
use crate::platform::system_call::kernel_thread_number;
use crate::platform::threads::begun;

/// Time after which the log reports a waiting call.
const LOG_AFTER: Duration = Duration::from_secs(2);

/// A wait until the program has acknowledged the events of an object.
pub(crate) struct AcknowledgementWait<'a> {
    /// Call that waits.
    pub(crate) call: Call,
    /// Call with which the program acknowledges.
    pub(crate) by: Call,
    /// Address of the object.
    pub(crate) address: usize,
    /// Returns the number of events that are not acknowledged.
    pub(crate) left: &'a dyn Fn() -> u64,
    /// Waits for a time; returns true if all events are acknowledged.
    pub(crate) wait_for: &'a dyn Fn(Duration) -> bool,
}

impl AcknowledgementWait<'_> {
    /// Waits without a limit, as libibverbs does, because a thread of the program may still read an event.
    /// After a while it logs that it waits. `wait` waits for ever. The caller must hold no lock.
    pub(crate) fn wait(&self, wait: impl FnOnce()) {
        if (self.wait_for)(LOG_AFTER) {
            return;
        }
        let (AcknowledgementWait { call, by, address, .. }, left) = (self, (self.left)());
        let events = if left == 1 { "1 event".to_owned() } else { format!("{left} events") };
        log_at(LogLevel::Error, || {
            format!(
                "{call} waits, as libibverbs' does, until the program has called {by} for {events} that it \
                 has got of the object at {address:#x}"
            )
        });
        let _blocked = blocked(ThreadWait::Acknowledges { call: *call, by: *by, events: left });
        wait();
    }
}

/// Kind of a thread's wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadWait {
    /// The thread polls the completion queue at this address.
    Polls(usize),
    /// The thread sleeps on the completion channel at this address.
    SleepsOn(usize),
    /// The thread sleeps until the next event of a connection. `has_none`: no identifier uses its event
    /// channel; `elsewhere`: if so, the number of events that wait in channels of identifiers.
    SleepsForConnections { has_none: bool, elsewhere: u32 },
    /// The thread waits in `call` until the program has called `by` for this many events.
    Acknowledges { call: Call, by: Call, events: u64 },
}

/// A thread that waits, and return addresses of the program's frames, innermost first.
#[derive(Clone)]
pub(crate) struct WaitNote {
    /// Number of the thread.
    pub(crate) thread: u32,
    pub(crate) what: ThreadWait,
    pub(crate) stack: Vec<u64>,
}

/// True while the watcher asks.
static IS_RECORDING: AtomicBool = AtomicBool::new(false);
/// True while the watcher sleeps, or is about to: the next call of the program wakes it.
static WAKES_ON_CALL: AtomicBool = AtomicBool::new(false);
static NOTES: PerProcess<Mutex<Vec<WaitNote>>> = PerProcess::new(|_| Mutex::default());
/// Threads in calls that wait for ever, unless the program makes another call.
static BLOCKED: PerProcess<Mutex<Vec<WaitNote>>> = PerProcess::new(|_| Mutex::default());
/// Call site at which the program last asked for a connection.
static CONNECTED: PerProcess<Mutex<Vec<u64>>> = PerProcess::new(|_| Mutex::default());
static WAKE_EVENTS: PerProcess<Awaited<WakeEvents>> = PerProcess::new(|_| Awaited::new(WakeEvents::NOTHING));

/// Events that wake the watcher.
#[derive(Clone, Copy)]
pub(crate) struct WakeEvents {
    /// True if an object was made, or the program makes a call.
    pub(crate) is_woken: bool,
    /// True if another process asks what the threads wait for.
    pub(crate) is_queried: bool,
}

impl WakeEvents {
    const NOTHING: WakeEvents = WakeEvents { is_woken: false, is_queried: false };
}

/// Largest number of notes that are taken at a time.
const MAX_NOTES: usize = 32;
/// Duration of a sleep that may last for ever.
const LONG_SLEEP: Duration = Duration::from_millis(500);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reports whether all calls have to stop at the gate.
#[inline]
pub(crate) fn is_queried() -> bool {
    IS_RECORDING.load(Ordering::Relaxed) || WAKES_ON_CALL.load(Ordering::Relaxed)
}

/// Handles the event of a call: a thread polls a completion queue, or the call wakes the watcher.
pub(crate) fn on_event(event: &Event<'_>) {
    let Event::Call { made, phase: CallPhase::Begins } = event else { return };
    if WAKES_ON_CALL.load(Ordering::Relaxed) && WAKES_ON_CALL.swap(false, Ordering::AcqRel) {
        wake_watcher();
    }
    if IS_RECORDING.load(Ordering::Relaxed) && made.call.polls() {
        note(ThreadWait::Polls(made.on));
    }
}

/// Records a thread that sleeps in a call of several attempts, of which one has ended.
pub(crate) fn note_sleep(what: impl FnOnce() -> ThreadWait) {
    if outside::since(begun()) >= LONG_SLEEP && IS_RECORDING.load(Ordering::Relaxed) {
        note(what());
    }
}

/// A guard: the calling thread counts as waiting until it is dropped.
pub(crate) struct BlockedGuard(u32);

/// Records that the calling thread waits in a call that makes only one attempt.
pub(crate) fn blocked(what: ThreadWait) -> BlockedGuard {
    let thread = kernel_thread_number();
    let mut blocked = lock(&BLOCKED);
    if blocked.len() < MAX_NOTES {
        blocked.push(WaitNote { thread, what, stack: check::call_stack() });
    }
    BlockedGuard(thread)
}

impl Drop for BlockedGuard {
    fn drop(&mut self) {
        lock(&BLOCKED).retain(|note| note.thread != self.0);
    }
}

#[cold]
fn note(what: ThreadWait) {
    // The holder of the lock takes a note, too, and programs make calls in signal handlers.
    let Ok(mut notes) = NOTES.try_lock() else { return };
    let thread = kernel_thread_number();
    if notes.len() < MAX_NOTES && notes.iter().all(|known| (known.thread, known.what) != (thread, what)) {
        notes.push(WaitNote { thread, what, stack: check::call_stack() });
    }
}

/// Records that the program asks for a connection.
pub(crate) fn note_connect() {
    *lock(&CONNECTED) = check::call_stack();
}

/// Returns the call site at which the program last asked for a connection.
pub(crate) fn connected_at() -> Vec<u64> {
    lock(&CONNECTED).clone()
}

/// Starts to record waiting threads, if all calls stop at the gate.
pub(crate) fn begin() {
    lock(&NOTES).clear();
    IS_RECORDING.store(true, Ordering::SeqCst);
}

/// Stops recording, and returns the notes.
pub(crate) fn end() -> Vec<WaitNote> {
    IS_RECORDING.store(false, Ordering::SeqCst);
    let mut notes = std::mem::take(&mut *lock(&NOTES));
    notes.extend(lock(&BLOCKED).iter().cloned());
    notes
}

/// Wakes the watcher because threads may be waiting again.
pub(crate) fn wake_watcher() {
    WAKE_EVENTS.change(|wake_events| wake_events.is_woken = true);
}

/// Wakes the watcher because another process asks what the threads wait for.
pub(crate) fn query_threads() {
    WAKE_EVENTS.change(|wake_events| wake_events.is_queried = true);
}

/// Sets whether the next call of the program wakes the watcher, if all calls stop at the gate.
pub(crate) fn set_wake_on_call(does: bool) {
    WAKES_ON_CALL.store(does, Ordering::SeqCst);
}

/// Lets the watcher sleep for this time, or until it is stirred; a question of another process ends each
/// sleep.
pub(crate) fn wait_for_wake(period: Option<Duration>) -> WakeEvents {
    match period {
        Some(period) => drop(WAKE_EVENTS.wait_for(period, |wake_events| wake_events.is_queried)),
        None => WAKE_EVENTS.wait(|wake_events| wake_events.is_queried || wake_events.is_woken),
    }
    WAKE_EVENTS.change(|wake_events| std::mem::replace(wake_events, WakeEvents::NOTHING))
}
