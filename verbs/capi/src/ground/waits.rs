//! Threads of the program that wait, while the watch over waits asks for them.
//!
//! It does not ask as long as the device makes progress: then calls of the data path do not come here, and
//! those that sleep look at one byte ten times a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::event::{CallPhase, Event};
use pumice_device::outside;
use pumice_device::outside::lineage::PerProcess;

use super::cancellation::begun;
use super::check;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It polls the completion queue at this address.
    Polls(usize),
    /// It sleeps on the completion channel at this address.
    SleepsOn(usize),
    /// It sleeps until something happens to a connection.
    SleepsForConnections,
}

/// A thread that waits, and return addresses of the program's frames, innermost first.
pub(crate) struct Note {
    pub(crate) what: Waiting,
    pub(crate) stack: Vec<u64>,
}

/// The watch asks.
static IS_ASKED: AtomicBool = AtomicBool::new(false);
static NOTES: PerProcess<Mutex<Vec<Note>>> = PerProcess::new(|_| Mutex::default());
/// Where the program asked for a connection last.
static CONNECTED: PerProcess<Mutex<Vec<u64>>> = PerProcess::new(|_| Mutex::default());

/// Notes that are taken at a time.
const MOST: usize = 16;
/// A thread that has slept for so long may sleep for ever.
const LONG: Duration = Duration::from_millis(1500);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the watch asks.
#[inline]
pub(super) fn is_asked() -> bool {
    IS_ASKED.load(Ordering::Relaxed)
}

/// A thread polls a completion queue.
pub(super) fn hear(event: &Event<'_>) {
    if let Event::Call { made, phase: CallPhase::Begins } = event
        && is_asked()
        && made.call.polls()
    {
        note(Waiting::Polls(made.on));
    }
}

/// A thread sleeps in a call that makes attempts, of which one has ended.
pub(crate) fn sleeps(what: Waiting) {
    if outside::since(begun()) >= LONG && is_asked() {
        note(what);
    }
}

fn note(what: Waiting) {
    // Who holds it takes a note, too, and programs make calls in signal handlers.
    let Ok(mut notes) = NOTES.try_lock() else { return };
    if notes.len() < MOST && notes.iter().all(|known| known.what != what) {
        notes.push(Note { what, stack: check::own_stack() });
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
    std::mem::take(&mut *lock(&NOTES))
}
