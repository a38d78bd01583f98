//! Programs that are ended by a signal: what was found is written before, and what they wait for in vain is
//! the last thing that is said.
//!
//! A handler may do next to nothing, so the thread that writes does it, and the thread that got the signal
//! waits for it. Then the signal has its usual effect. Signals for which the program has its own handler, or
//! which it ignores, stay as they are.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

use pumice_device::outside;

use crate::ground::process::own_process;
use crate::ground::zeroed::zeroed;

/// Signals that end a program, and come from people, test runners and abort(3).
const SIGNALS: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGALRM, libc::SIGABRT];
/// Signals of a program that crashes: it used the NULL that a refused call returned, for example.
const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Looks of the thread that got the signal, one each ms, until it ends without what was found: the thread
/// that writes may need a lock that it holds.
const LOOKS: u32 = 1000;

/// A thread of this process writes.
static HAS_WRITER: AtomicBool = AtomicBool::new(false);
/// The signal that ends the process; 0: none.
static PENDING: AtomicI32 = AtomicI32::new(0);
/// What was found is written.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// What a process says last.
struct Last {
    text: String,
    /// A fork child has it from its parent, and does not say it.
    process: u32,
}

/// It stays; null: nothing is said.
static LAST: AtomicPtr<Last> = AtomicPtr::new(ptr::null_mut());

/// From now on this is said last, if a signal ends the process; empty: nothing is.
pub(crate) fn says_last(text: &str) {
    let known = LAST.load(Ordering::Acquire);
    // SAFETY: null, or what was leaked below.
    let is_known = unsafe { known.as_ref() }.map_or("", |last| last.text.as_str()) == text;
    if is_known {
        return;
    }
    // A handler may be reading it, so it stays. There are as many as there are waits that are told.
    let new = if text.is_empty() { ptr::null_mut() } else { own_last(text) };
    LAST.store(new, Ordering::Release);
    if !text.is_empty() {
        watch_ends();
    }
}

fn own_last(text: &str) -> *mut Last {
    Box::into_raw(Box::new(Last { text: text.to_owned(), process: own_process() }))
}

/// Says it. A handler may do this.
pub(super) fn say_last() {
    // SAFETY: null, or what was leaked above.
    let last = unsafe { LAST.load(Ordering::Acquire).as_ref() };
    if let Some(Last { text, .. }) = last.filter(|last| last.process == own_process()) {
        // SAFETY: the bytes of a text that stays. A program without standard error has chosen not to know.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

/// From now on what was found is written before a signal or a crash ends the process.
pub(super) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    watch_ends();
    if !outside::world::is_here() && !WATCHED.swap(true, Ordering::Relaxed) {
        handle(&FAULTS);
    }
}

fn watch_ends() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // A fork child has it from its parent. In a world, signals are part of the run.
    if !outside::world::is_here() && !WATCHED.swap(true, Ordering::Relaxed) {
        handle(&SIGNALS);
    }
}

/// Handles those of these signals that would end the process.
fn handle(signals: &[c_int]) {
    for &signal in signals {
        let mut before: libc::sigaction = zeroed();
        // SAFETY: the kernel fills the structure of this frame.
        let is_known = unsafe { libc::sigaction(signal, ptr::null(), &mut before) } == 0;
        if is_known && before.sa_sigaction == libc::SIG_DFL {
            let mut own: libc::sigaction = zeroed();
            own.sa_sigaction = on_signal as Handler as usize;
            own.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO | libc::SA_ONSTACK;
            // SAFETY: the handler stays: the object is never unmapped (it is linked with -z nodelete).
            unsafe { libc::sigaction(signal, &own, ptr::null_mut()) };
        }
    }
}

/// A thread of this process writes from now on; a fork child has none.
pub(super) fn has_writer(has_one: bool) {
    HAS_WRITER.store(has_one, Ordering::Release);
}

/// The signal that ends the process, and for which a thread waits.
pub(super) fn pending() -> Option<c_int> {
    Some(PENDING.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// What was found is written: the signal may have its effect.
pub(super) fn is_written() {
    IS_WRITTEN.store(true, Ordering::Release);
}

type Handler = extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void);

/// Runs in a thread of the program, which may hold any lock: makes system calls only, and sleeps by one.
extern "C" fn on_signal(signal: c_int, info: *const libc::siginfo_t, _context: *mut c_void) {
    PENDING.store(signal, Ordering::Release);
    for _ in 0..LOOKS {
        if IS_WRITTEN.load(Ordering::Acquire) || !HAS_WRITER.load(Ordering::Acquire) {
            break;
        }
        outside::sleep(Duration::from_millis(1));
    }
    say_last();
    let mut usual: libc::sigaction = zeroed();
    usual.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the kernel gives it to a handler with SA_SIGINFO.
    let is_fault = FAULTS.contains(&signal) && unsafe { (*info).si_code } > 0;
    let mut only: libc::sigset_t = zeroed();
    // SAFETY: structures of this frame are read and written; a handler may call all of these.
    unsafe {
        libc::sigaction(signal, &usual, ptr::null_mut());
        if is_fault {
            // It happens again when this returns, and ends the process where it was.
            return;
        }
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, ptr::null_mut());
    }
}
