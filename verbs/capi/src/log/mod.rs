//! The log on standard error: the reasons why a call was refused, a queue pair failed, or a message was
//! dropped.
//!
//! Messages that a peer or a loop can cause again and again are limited (`log_limit`).

pub(crate) mod device_subscribers;
pub(crate) mod log_limit;
pub(crate) mod refusal;
pub(crate) mod settings;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pumice_device::findings::{Level, finding_of_cause, kind_of_cause, text};
use pumice_device::outside;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess, current_pid};
use pumice_device::outside::system_call::{Uncancelled, within_limit};
use pumice_device::platform::error::printable;
use pumice_device::settings::LogLevel;
use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use crate::call_sites::state;
use crate::log::log_limit::{Admission, LogLimiter, shape_of, with_count};
use crate::platform::settings;

/// Time after the first failure of a cause in which further ones are reported together with it.
const SIBLINGS_WITHIN: Duration = Duration::from_millis(200);
/// Time after the first failure of a cause from which a further one is reported again.
const SIBLINGS_UNTIL: Duration = Duration::from_secs(1);

/// Prints the reason of a refusal or drop, if PUMICE_LOG is warn or more.
pub(crate) fn log_warning(reason: impl FnOnce() -> String) {
    log_at(LogLevel::Warn, reason);
}

/// Prints a message if PUMICE_LOG is at least `level`.
pub(crate) fn log_at(level: LogLevel, reason: impl FnOnce() -> String) {
    mark_logged();
    let is_printed = logs(level);
    if is_printed || state::is_on() {
        let sentence = reason();
        if is_printed {
            print_limited(&sentence);
        }
        let _ = SENTENCE.try_with(|last| last.replace(sentence));
        HAS_SENTENCE.store(true, Ordering::Relaxed);
    }
}

/// Prints an event of a queue pair. A failure is always printed, failures of one cause together; messages
/// about drops are limited.
pub(crate) fn log_cause(qpn: Qpn, cause: &Cause) {
    let sentence = || text::sentence(&finding_of_cause(qpn, cause));
    match kind_of_cause(cause).level {
        Level::Ok | Level::Note => log_at(LogLevel::Info, sentence),
        // A finding reports it.
        Level::Warning if state::is_on() && matches!(cause, Cause::DroppedByReset { .. }) => {}
        Level::Warning => {
            log_warning(sentence);
            log_limit::take(qpn, cause).iter().for_each(|frame| print_always(frame));
        }
        // It is a finding, or the effect of one, which is reported with it; calls on a queue that overran
        // fail before.
        Level::Error if state::is_on() && !matches!(cause, Cause::CqOverrun { .. }) => {}
        Level::Error if logs(LogLevel::Error) => print_failure(qpn, &sentence()),
        Level::Error => {}
    }
}

/// Reports whether a level is printed.
pub(crate) fn logs(level: LogLevel) -> bool {
    match settings() {
        Ok(settings) => settings.log >= level,
        Err(error) => {
            log_always(&error.to_string());
            false
        }
    }
}

thread_local! {
    /// True if this thread has logged something since [`take_logged`].
    static LOGGED: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// Last message of this thread, if programs are checked.
    static SENTENCE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// True if a thread has logged something while programs are checked.
static HAS_SENTENCE: AtomicBool = AtomicBool::new(false);

/// Drops the last message of this thread.
#[inline]
pub(crate) fn forget_log_message() {
    if HAS_SENTENCE.load(Ordering::Relaxed) {
        drop(take_log_message());
    }
}

/// Takes the last message of this thread; empty if there is none, or programs are not checked.
pub(crate) fn take_log_message() -> String {
    SENTENCE.try_with(RefCell::take).unwrap_or_default()
}

fn mark_logged() {
    // A thread that is ending does not log any more.
    let _ = LOGGED.try_with(|logged| logged.set(true));
}

/// Reports whether this thread has logged something since the last call: the result of its call then needs no
/// further message.
pub(crate) fn take_logged() -> bool {
    LOGGED.try_with(|logged| logged.replace(false)).unwrap_or(true)
}

/// Prints an error that makes the whole device unusable, at every value of PUMICE_LOG; once, even if programs
/// try again.
pub(crate) fn log_always(sentence: &str) {
    mark_logged();
    static LAST_LOGGED: PerProcess<Mutex<Option<String>>> = PerProcess::new(|_| Mutex::new(None));
    let mut last_logged = LAST_LOGGED.lock().unwrap_or_else(PoisonError::into_inner);
    if last_logged.as_deref() != Some(sentence) {
        print_always(sentence);
        *last_logged = Some(sentence.to_owned());
    }
}

/// Prints a message.
pub(crate) fn print_always(sentence: &str) {
    // The data path calls this too, and writing is a cancellation point. Standard error may be a file, and
    // there may be a limit on its size.
    let _uncancelled = Uncancelled::begin();
    // A program without stderr does not want the log. There is one write call per line, so that lines of
    // processes do not mix. Messages contain plans, and names of other processes, which may have unprintable
    // characters.
    let line = format!("pumice: {}\n", printable(sentence));
    // The descriptor is used directly: the lock of Rust's standard error may be held by a thread that does
    // not exist in this child. SAFETY: the number of a descriptor, which this owner does not close.
    let mut error = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    let _ = within_limit(|| error.write_all(line.as_bytes()));
}

/// Prints a step of a trace, with its process and the time since the program first asked for the device.
pub(crate) fn print_step(line: &str) {
    static START: InheritedOnce<Instant> = InheritedOnce::new();
    let since = outside::since(*START.get_or_init(outside::now));
    let (seconds, ns) = (since.as_secs(), since.subsec_nanos());
    print_always(&format!("{seconds}.{ns:09}  pid {}  {line}", current_pid()));
}

/// Failures of one cause, of which the first was printed.
struct SiblingFailures {
    shape: u64,
    since: Instant,
    /// Queue pairs of the others, as many as are named, and their total number.
    others: Vec<Qpn>,
    count: u64,
}

static SIBLINGS: PerProcess<Mutex<Vec<SiblingFailures>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

/// Largest number of queue pairs that are named.
const MAX_NAMED: usize = 4;
/// Largest number of causes that are distinguished.
const MAX_CAUSES: usize = 8;

/// Prints that a queue pair has failed, or counts it with those that have failed for the same reason just
/// before.
fn print_failure(qpn: Qpn, sentence: &str) {
    let (shape, now) = (shape_of(sentence), outside::now());
    let mut known = SIBLINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_old = |one: &mut SiblingFailures| now.saturating_duration_since(one.since) >= SIBLINGS_UNTIL;
    let mut over: Vec<SiblingFailures> = known.extract_if(.., is_old).collect();
    if let Some(same) = known.iter_mut().find(|one| one.shape == shape) {
        if same.others.len() < MAX_NAMED {
            same.others.push(qpn);
        }
        same.count = same.count.saturating_add(1);
    } else {
        if known.len() >= MAX_CAUSES {
            over.push(known.remove(0));
        }
        known.push(SiblingFailures { shape, since: now, others: Vec::new(), count: 0 });
        print_always(sentence);
    }
    drop(known);
    over.iter().for_each(print_siblings);
}

/// Prints how many others have failed for the same reasons as those that were printed; later failures are
/// printed anew. Waits for no lock.
pub(crate) fn print_due_siblings() {
    if let Ok(mut known) = SIBLINGS.try_lock() {
        let is_over = |one: &mut SiblingFailures| outside::since(one.since) >= SIBLINGS_WITHIN;
        let over: Vec<SiblingFailures> = known.extract_if(.., is_over).collect();
        drop(known);
        over.iter().for_each(print_siblings);
    }
}

fn print_siblings(known: &SiblingFailures) {
    let names: Vec<String> = known.others.iter().map(|qpn| format!("QP {qpn}")).collect();
    let more = if known.count > MAX_NAMED as u64 { " and more" } else { "" };
    match known.count {
        0 => {}
        1 => print_always(&format!("and 1 other of the same cause: {}", names.join(", "))),
        count => print_always(&format!("and {count} others of the same cause: {}{more}", names.join(", "))),
    }
}

/// Prints at exit how many messages were left out. Waits for no lock.
pub(crate) fn report_left_out() {
    let known = SIBLINGS.try_lock().map(|mut known| std::mem::take(&mut *known));
    known.iter().flatten().for_each(print_siblings);
    print_due(LogLimiter::take_all);
}

/// Prints the counts of floods of sentences whose period is over. Waits for no lock.
pub(crate) fn print_due_floods() {
    print_due(|limiter| limiter.take_due(outside::now()));
}

fn print_due(take: impl FnOnce(&mut LogLimiter) -> Vec<String>) {
    let Ok(mut limiter) = LIMITER.try_lock() else { return };
    let due = take(&mut limiter);
    drop(limiter);
    due.iter().for_each(|sentence| print_always(sentence));
}

static LIMITER: PerProcess<Mutex<LogLimiter>> = PerProcess::new(|_| Mutex::new(LogLimiter::new()));

fn print_limited(sentence: &str) {
    let admission = LIMITER.lock().unwrap_or_else(PoisonError::into_inner).admit(sentence, outside::now());
    match admission {
        Admission::Print { left_out } => print_with_call_site(&with_count(sentence, left_out)),
        Admission::LeaveOut => {}
    }
}

/// Prints a message, and below it the line of the program whose call this thread is in, if that is known.
fn print_with_call_site(sentence: &str) {
    print_always(sentence);
    state::own_call_site().iter().for_each(|frame| print_always(frame));
}
