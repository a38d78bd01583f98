//! Programs that are ended by a signal: findings are written before, and then a last message about what the
//! program still waits for.
//!
//! A signal handler may do very little, so the writer thread does the work, and the thread that got the
//! signal waits for it. Then the signal has its usual effect. Signals for which the program has its own
//! handler, or which it ignores, are left alone.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

use pumice_device::outside;

use crate::abi::plain::zeroed;
use crate::platform::current_pid;

/// Signals that end a program, and come from people, test runners and abort(3).
const SIGNALS: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGALRM, libc::SIGABRT];
/// Signals of a program that crashes, for example because it used the NULL that a refused call returned.
const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// Number of checks, one each ms, after which the thread that got the signal ends the process without the
/// findings: the writer thread may need a lock that it holds.
const MAX_CHECKS: u32 = 1000;

/// True if this process has a writer thread.
static HAS_WRITER: AtomicBool = AtomicBool::new(false);
/// Signal that ends the process; 0 for none.
static PENDING: AtomicI32 = AtomicI32::new(0);
/// True if the findings are written.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// The last message of a process.
struct LastMessage {
    text: String,
    /// Process that the message is of: a forked child inherits it from its parent, and does not write it.
    process: u32,
}

/// The last message, which is never freed; null if there is none.
static LAST_MESSAGE: AtomicPtr<LastMessage> = AtomicPtr::new(ptr::null_mut());

/// Sets the last message for the case that a signal ends the process; empty for no message.
pub(crate) fn set_last_message(text: &str) {
    let known = LAST_MESSAGE.load(Ordering::Acquire);
    // SAFETY: null, or a value that was leaked below.
    let is_known = unsafe { known.as_ref() }.map_or("", |last| last.text.as_str()) == text;
    if is_known {
        return;
    }
    // A handler may be reading it, so it is not freed. There is one for each wait that is reported.
    let new = if text.is_empty() { ptr::null_mut() } else { leak_message(text) };
    LAST_MESSAGE.store(new, Ordering::Release);
    if !text.is_empty() {
        watch_ends();
    }
}

fn leak_message(text: &str) -> *mut LastMessage {
    Box::into_raw(Box::new(LastMessage { text: text.to_owned(), process: current_pid() }))
}

/// Writes the last message. A signal handler may call this.
pub(super) fn write_last_message() {
    // SAFETY: null, or a value that was leaked above.
    let last = unsafe { LAST_MESSAGE.load(Ordering::Acquire).as_ref() };
    if let Some(LastMessage { text, .. }) = last.filter(|last| last.process == current_pid()) {
        // SAFETY: the bytes of a text that is never freed. A program without standard error does not want the
        // message.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

/// Registers handlers so that findings are written before a signal or a crash ends the process.
pub(super) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    watch_ends();
    if !outside::world::is_in_world() && !WATCHED.swap(true, Ordering::Relaxed) {
        handle(&FAULTS);
    }
}

fn watch_ends() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // A forked child inherits the handlers from its parent. In a world, signals are part of the run.
    if !outside::world::is_in_world() && !WATCHED.swap(true, Ordering::Relaxed) {
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
            // SAFETY: the handler is never unmapped, because the object is linked with -z nodelete.
            unsafe { libc::sigaction(signal, &own, ptr::null_mut()) };
        }
    }
}

/// Records whether this process has a writer thread; a forked child has none.
pub(super) fn has_writer(has_one: bool) {
    HAS_WRITER.store(has_one, Ordering::Release);
}

/// Returns the signal that ends the process, and whose thread waits.
pub(super) fn pending() -> Option<c_int> {
    Some(PENDING.load(Ordering::Acquire)).filter(|signal| *signal != 0)
}

/// Returns the name of a signal by which a program crashes; empty for those with which people end programs.
pub(super) const fn name_of(signal: c_int) -> &'static str {
    match signal {
        libc::SIGABRT => "SIGABRT",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGBUS => "SIGBUS",
        _ => "",
    }
}

/// Records that the findings are written: the signal may have its effect.
pub(super) fn is_written() {
    IS_WRITTEN.store(true, Ordering::Release);
}

type Handler = extern "C" fn(c_int, *const libc::siginfo_t, *mut c_void);

/// Handles a signal in a thread of the program, which may hold any lock: it makes only system calls, and
/// sleeps with one.
extern "C" fn on_signal(signal: c_int, info: *const libc::siginfo_t, _context: *mut c_void) {
    PENDING.store(signal, Ordering::Release);
    for _ in 0..MAX_CHECKS {
        if IS_WRITTEN.load(Ordering::Acquire) || !HAS_WRITER.load(Ordering::Acquire) {
            break;
        }
        outside::sleep(Duration::from_millis(1));
    }
    write_last_message();
    let mut usual: libc::sigaction = zeroed();
    usual.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the kernel gives the structure to a handler with SA_SIGINFO.
    let is_fault = FAULTS.contains(&signal) && unsafe { (*info).si_code } > 0;
    let mut only: libc::sigset_t = zeroed();
    // SAFETY: structures of this frame are read and written; a handler may call all of these.
    unsafe {
        libc::sigaction(signal, &usual, ptr::null_mut());
        if is_fault {
            // The fault happens again when this returns, and ends the process at its instruction.
            return;
        }
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, ptr::null_mut());
    }
}
