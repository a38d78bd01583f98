//! Threads of the program that wait, while the watch over waits asks for them; and what wakes the watch.
//!
//! It does not ask as long as the device makes progress: then calls of the data path do not come here, and
//! those that sleep look at one byte ten times a second. When nothing can be waited for, it sleeps until the
//! program makes a call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::event::{CallPhase, Event};
use pumice_device::ground::awaited::Awaited;
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;

use super::cancellation::begun;
use super::check;
use super::thread_calls::own_thread;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It polls the completion queue at this address.
    Polls(usize),
    /// It sleeps on the completion channel at this address.
    SleepsOn(usize),
    /// It sleeps until something happens to a connection. `has_none`: no identifier uses its event channel;
    /// `elsewhere`: if so, events that wait in channels of identifiers.
    SleepsForConnections { has_none: bool, elsewhere: u32 },
    /// It waits in `call` until the program has called `by` for so many events.
    Acknowledges { call: Call, by: Call, events: u64 },
}

/// A thread that waits, and return addresses of the program's frames, innermost first.
#[derive(Clone)]
pub(crate) struct Note {
    /// Its number.
    pub(crate) thread: u32,
    pub(crate) what: Waiting,
    pub(crate) stack: Vec<u64>,
}

/// The watch asks.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
/// The watch sleeps, or is about to: the next call of the program wakes it.
static DOZES: AtomicBool = AtomicBool::new(false);
static NOTES: PerProcess<Mutex<Vec<Note>>> = PerProcess::new(|_| Mutex::default());
/// Threads in calls that wait for ever, unless the program does something.
static STAYS: PerProcess<Mutex<Vec<Note>>> = PerProcess::new(|_| Mutex::default());
/// Where the program asked for a connection last.
static CONNECTED: PerProcess<Mutex<Vec<u64>>> = PerProcess::new(|_| Mutex::default());
static STIRRED: PerProcess<Awaited<Stirred>> = PerProcess::new(|_| Awaited::new(Stirred::NOTHING));

/// What wakes the watch.
#[derive(Clone, Copy)]
pub(crate) struct Stirred {
    /// Something was made, or the program makes a call.
    pub(crate) is_stirred: bool,
    /// Another process asks what is waited for.
    pub(crate) is_asked: bool,
}

impl Stirred {
    const NOTHING: Stirred = Stirred { is_stirred: false, is_asked: false };
}

/// Notes that are taken at a time.
const MOST: usize = 32;
/// A thread that has slept for so long may sleep for ever.
const LONG: Duration = Duration::from_millis(500);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether all calls have to stop at the gate.
#[inline]
pub(super) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed) || DOZES.load(Ordering::Relaxed)
}

/// The program makes a call: a thread polls a completion queue, or the call wakes the watch.
pub(super) fn hear(event: &Event<'_>) {
    let Event::Call { made, phase: CallPhase::Begins } = event else { return };
    if DOZES.load(Ordering::Relaxed) && DOZES.swap(false, Ordering::AcqRel) {
        stir();
    }
    if IS_ASKED.load(Ordering::Relaxed) && made.call.polls() {
        note(Waiting::Polls(made.on));
    }
}

/// A thread sleeps in a call that makes attempts, of which one has ended.
pub(crate) fn sleeps(what: impl FnOnce() -> Waiting) {
    if outside::since(begun()) >= LONG && IS_ASKED.load(Ordering::Relaxed) {
        note(what());
    }
}

/// The calling thread waits, until this is dropped.
pub(crate) struct Stay(u32);

/// The calling thread waits in a call that makes no attempts.
pub(crate) fn stays(what: Waiting) -> Stay {
    let thread = own_thread();
    let mut stays = lock(&STAYS);
    if stays.len() < MOST {
        stays.push(Note { thread, what, stack: check::own_stack() });
    }
    Stay(thread)
}

impl Drop for Stay {
    fn drop(&mut self) {
        lock(&STAYS).retain(|note| note.thread != self.0);
    }
}

#[cold]
fn note(what: Waiting) {
    // Who holds it takes a note, too, and programs make calls in signal handlers.
    let Ok(mut notes) = NOTES.try_lock() else { return };
    let thread = own_thread();
    if notes.len() < MOST && notes.iter().all(|known| (known.thread, known.what) != (thread, what)) {
        notes.push(Note { thread, what, stack: check::own_stack() });
    }
}

/// The program asks for a connection.
pub(crate) fn connects() {
    *lock(&CONNECTED) = check::own_stack();
}

/// Where the program asked for a connection last.
pub(crate) fn connected_at() -> Vec<u64> {
    lock(&CONNECTED).clone()
}

/// From now on threads that wait are noted, if all calls stop at the gate.
pub(crate) fn begin() {
    lock(&NOTES).clear();
    IS_ASKED.store(true, Ordering::SeqCst);
}

/// No longer: the notes.
pub(crate) fn end() -> Vec<Note> {
    IS_ASKED.store(false, Ordering::SeqCst);
    let mut notes = std::mem::take(&mut *lock(&NOTES));
    notes.extend(lock(&STAYS).iter().cloned());
    notes
}

/// Something may be waited for again.
pub(crate) fn stir() {
    STIRRED.change(|stirred| stirred.is_stirred = true);
}

/// Another process asks what is waited for.
pub(crate) fn ask() {
    STIRRED.change(|stirred| stirred.is_asked = true);
}

/// Whether the next call of the program wakes the watch, if all calls stop at the gate.
pub(crate) fn dozes(does: bool) {
    DOZES.store(does, Ordering::SeqCst);
}

/// The watch rests for this time, or until it is stirred; a question ends each rest.
pub(crate) fn rest(period: Option<Duration>) -> Stirred {
    match period {
        Some(period) => drop(STIRRED.wait_for(period, |stirred| stirred.is_asked)),
        None => STIRRED.wait(|stirred| stirred.is_asked || stirred.is_stirred),
    }
    STIRRED.change(|stirred| std::mem::replace(stirred, Stirred::NOTHING))
}
