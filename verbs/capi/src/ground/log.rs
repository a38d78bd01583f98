//! The log on standard error: why a call was refused, a queue pair failed, or a message was dropped.
//!
//! What a peer or a loop can cause again and again is limited: of one kind of sentence a few are printed per
//! second, and how many were left out is said with the next one, or at exit.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::hash::Hasher as _;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fnv::FnvHasher;
use pumice_device::findings::{Level, finding_of_cause, kind_of_cause, text};
use pumice_device::ground::printable::printable;
use pumice_device::outside;
use pumice_device::outside::cancellation::Uncancelled;
use pumice_device::outside::lineage::{PerProcess, Settled, own_process};
use pumice_device::outside::unsignalled::within_limit;
use pumice_device::settings::Log;
use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use super::check;
use super::environment::settings;
use super::log_places;

/// Sentences of one kind per [`PERIOD`].
const BURST: u32 = 8;
/// Failures of one cause that come so soon after the first are told with it.
const SIBLINGS_WITHIN: Duration = Duration::from_millis(200);
/// See [`BURST`].
const PERIOD: Duration = Duration::from_secs(1);
/// Kinds that are told apart.
const MAX_KINDS: usize = 64;

/// Prints why something was refused or dropped, if PUMICE_LOG is warn or more.
pub(crate) fn log_warning(reason: impl FnOnce() -> String) {
    log_at(Log::Warn, reason);
}

/// Prints a sentence if PUMICE_LOG is at least `level`.
pub(crate) fn log_at(level: Log, reason: impl FnOnce() -> String) {
    note_logged();
    let is_printed = logs(level);
    if is_printed || check::is_on() {
        let sentence = reason();
        if is_printed {
            print_limited(&sentence);
        }
        let _ = SENTENCE.try_with(|last| last.replace(sentence));
        HAS_SENTENCE.store(true, Ordering::Relaxed);
    }
}

/// Prints what happened to a queue pair. That one fails is always said, those of one cause together; dropped
/// messages are limited.
pub(crate) fn log_cause(qpn: Qpn, cause: &Cause) {
    let sentence = || text::sentence(&finding_of_cause(qpn, cause));
    match kind_of_cause(cause).level {
        Level::Ok | Level::Note => log_at(Log::Info, sentence),
        Level::Warning => {
            log_warning(sentence);
            log_places::take(qpn, cause).iter().for_each(|frame| print_always(frame));
        }
        // It is a finding, or the effect of one, which is told with it; calls on a queue that overran fail
        // before.
        Level::Error if check::is_on() && !matches!(cause, Cause::CqOverrun { .. }) => {}
        Level::Error if logs(Log::Error) => print_failure(qpn, &sentence()),
        Level::Error => {}
    }
}

/// Whether a level is printed.
pub(crate) fn logs(level: Log) -> bool {
    match settings() {
        Ok(settings) => settings.log >= level,
        Err(error) => {
            log_always(&error.to_string());
            false
        }
    }
}

thread_local! {
    /// This thread has logged something since [`take_logged`].
    static LOGGED: Cell<bool> = const { Cell::new(false) };
}

thread_local! {
    /// What this thread has logged last, if programs are checked.
    static SENTENCE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A thread has logged something while programs are checked.
static HAS_SENTENCE: AtomicBool = AtomicBool::new(false);

/// What this thread has logged last is of no interest any more.
#[inline]
pub(crate) fn forget_sentence() {
    if HAS_SENTENCE.load(Ordering::Relaxed) {
        drop(take_sentence());
    }
}

/// As [`forget_sentence`], and says it; empty if that is nothing, or programs are not checked.
pub(crate) fn take_sentence() -> String {
    SENTENCE.try_with(RefCell::take).unwrap_or_default()
}

fn note_logged() {
    // A thread that is ending has nothing to log any more.
    let _ = LOGGED.try_with(|logged| logged.set(true));
}

/// Whether this thread has logged something since it asked before: what a call returns then needs no
/// further sentence.
pub(crate) fn take_logged() -> bool {
    LOGGED.try_with(|logged| logged.replace(false)).unwrap_or(true)
}

/// Prints what keeps the whole device from being used, at every value of PUMICE_LOG; once, also if programs
/// try again.
pub(crate) fn log_always(sentence: &str) {
    note_logged();
    static SAID: PerProcess<Mutex<Option<String>>> = PerProcess::new(|_| Mutex::new(None));
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.as_deref() != Some(sentence) {
        print_always(sentence);
        *said = Some(sentence.to_owned());
    }
}

/// Prints a sentence.
pub(crate) fn print_always(sentence: &str) {
    // The data path comes here too, and writing is a cancellation point. Standard error may be a file, and
    // there may be a limit on its size.
    let _whole = Uncancelled::begin();
    // A program without stderr has chosen not to know. One call per line: lines of processes do not mix.
    // Plans, and names of other processes, are in sentences.
    let line = format!("pumice: {}\n", printable(sentence));
    // By the descriptor: the lock of Rust's standard error may be held by a thread that this child has not.
    // SAFETY: a number, which this owner does not close.
    let mut error = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    let _ = within_limit(|| error.write_all(line.as_bytes()));
}

/// Prints a step of a trace, with its process and the time since the program first asked for the device.
pub(crate) fn print_step(line: &str) {
    static START: Settled<Instant> = Settled::new();
    let since = outside::since(*START.get_or_init(outside::now));
    let (seconds, ns) = (since.as_secs(), since.subsec_nanos());
    print_always(&format!("{seconds}.{ns:09}  pid {}  {line}", own_process()));
}

/// Failures of one cause, of which the first was printed.
struct Siblings {
    shape: u64,
    since: Instant,
    /// The queue pairs of the others, as many as are named, and how many they are.
    others: Vec<Qpn>,
    count: u64,
}

static SIBLINGS: PerProcess<Mutex<Vec<Siblings>>> = PerProcess::new(|_| Mutex::new(Vec::new()));

/// Queue pairs that are named.
const MAX_NAMED: usize = 4;
/// Causes that are told apart.
const MAX_CAUSES: usize = 8;

/// Prints that a queue pair has failed, or counts it with those that have for the same reason just now.
fn print_failure(qpn: Qpn, sentence: &str) {
    let (shape, now) = (shape_of(sentence), outside::now());
    let mut known = SIBLINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_old = |one: &mut Siblings| now.saturating_duration_since(one.since) >= PERIOD;
    let mut over: Vec<Siblings> = known.extract_if(.., is_old).collect();
    if let Some(same) = known.iter_mut().find(|one| one.shape == shape) {
        if same.others.len() < MAX_NAMED {
            same.others.push(qpn);
        }
        same.count = same.count.saturating_add(1);
    } else {
        if known.len() >= MAX_CAUSES {
            over.push(known.remove(0));
        }
        known.push(Siblings { shape, since: now, others: Vec::new(), count: 0 });
        print_always(sentence);
    }
    drop(known);
    over.iter().for_each(print_siblings);
}

/// Says how many others have failed for the same reasons as those that were printed; later ones are told
/// anew.
/// Takes no lock that is held.
pub(crate) fn tell_siblings() {
    if let Ok(mut known) = SIBLINGS.try_lock() {
        let is_over = |one: &mut Siblings| outside::since(one.since) >= SIBLINGS_WITHIN;
        let over: Vec<Siblings> = known.extract_if(.., is_over).collect();
        drop(known);
        over.iter().for_each(print_siblings);
    }
}

fn print_siblings(known: &Siblings) {
    let names: Vec<String> = known.others.iter().map(|qpn| format!("QP {qpn}")).collect();
    let more = if known.count > MAX_NAMED as u64 { " and more" } else { "" };
    match known.count {
        0 => {}
        1 => print_always(&format!("and 1 other of the same cause: {}", names.join(", "))),
        count => print_always(&format!("and {count} others of the same cause: {}{more}", names.join(", "))),
    }
}

/// At exit: says how much was left out. Takes no lock that is held.
pub(crate) fn report_left_out() {
    let known = SIBLINGS.try_lock().map(|mut known| std::mem::take(&mut *known));
    known.iter().flatten().for_each(print_siblings);
    let Ok(mut limiter) = LIMITER.try_lock() else { return };
    let left_out = limiter.take_left_out();
    drop(limiter);
    if left_out > 0 {
        print_always(&format!(
            "{left_out} more sentences were left out, of kinds that came more than {BURST} times a second"
        ));
    }
}

static LIMITER: PerProcess<Mutex<Limiter>> = PerProcess::new(|_| Mutex::new(Limiter::new()));

fn print_limited(sentence: &str) {
    let admission = LIMITER.lock().unwrap_or_else(PoisonError::into_inner).admit(sentence, outside::now());
    match admission {
        Admission::Print { left_out: 0 } => print_with_place(sentence),
        Admission::Print { left_out } => {
            print_with_place(&format!("{sentence} ({left_out} more like it left out)"))
        }
        Admission::LeaveOut => {}
    }
}

/// Prints a sentence, and below it the line of the program whose call this thread is in, if that is known.
fn print_with_place(sentence: &str) {
    print_always(sentence);
    check::own_place().iter().for_each(|frame| print_always(frame));
}

#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Print {
        /// Sentences of the kind that were left out since the last one printed.
        left_out: u64,
    },
    LeaveOut,
}

struct SentenceKind {
    key: u64,
    since: Instant,
    printed: u32,
    left_out: u64,
}

struct Limiter {
    kinds: Vec<SentenceKind>,
    /// Of kinds that had to make room for others.
    forgotten: u64,
}

impl Limiter {
    const fn new() -> Limiter {
        Limiter { kinds: Vec::new(), forgotten: 0 }
    }

    fn admit(&mut self, sentence: &str, now: Instant) -> Admission {
        let key = shape_of(sentence);
        let Some(kind) = self.kinds.iter_mut().find(|kind| kind.key == key) else {
            self.make_room();
            self.kinds.push(SentenceKind { key, since: now, printed: 1, left_out: 0 });
            return Admission::Print { left_out: 0 };
        };
        if now.saturating_duration_since(kind.since) >= PERIOD {
            kind.since = now;
            kind.printed = 0;
        }
        if kind.printed < BURST {
            kind.printed += 1;
            return Admission::Print { left_out: std::mem::take(&mut kind.left_out) };
        }
        kind.left_out += 1;
        Admission::LeaveOut
    }

    fn make_room(&mut self) {
        if self.kinds.len() < MAX_KINDS {
            return;
        }
        let oldest = self.kinds.iter().enumerate().min_by_key(|(_, kind)| kind.since);
        if let Some((index, _)) = oldest {
            self.forgotten += self.kinds.swap_remove(index).left_out;
        }
    }

    fn take_left_out(&mut self) -> u64 {
        let forgotten = std::mem::take(&mut self.forgotten);
        self.kinds.iter_mut().map(|kind| std::mem::take(&mut kind.left_out)).sum::<u64>() + forgotten
    }
}

/// The same for sentences that differ in their numbers only.
fn shape_of(sentence: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    for word in sentence.split_ascii_whitespace() {
        let shown = if word.bytes().any(|byte| byte.is_ascii_digit()) { "#" } else { word };
        hasher.write(shown.as_bytes());
        hasher.write(b" ");
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_limited_and_counted() {
        let mut limiter = Limiter::new();
        let start = Instant::now();
        let printed = |limiter: &mut Limiter, now| {
            let of = |n: u32| format!("QP {n:#08x} dropped the message at PSN {n:#08x}: no receive request");
            (0..100).filter(|n| limiter.admit(&of(*n), now) != Admission::LeaveOut).count()
        };
        assert_eq!(printed(&mut limiter, start), BURST as usize);
        assert_eq!(limiter.admit("another kind", start), Admission::Print { left_out: 0 });
        let later = start + PERIOD;
        let again = limiter.admit("QP 0x1 dropped the message at PSN 0x2: no receive request", later);
        assert_eq!(again, Admission::Print { left_out: 92 });
        assert_eq!(printed(&mut limiter, later), BURST as usize - 1);
        assert_eq!((limiter.take_left_out(), limiter.take_left_out()), (93, 0));
    }

    #[test]
    fn the_number_of_kinds_is_limited() {
        let mut limiter = Limiter::new();
        let start = Instant::now();
        for _ in 0..10 {
            limiter.admit("first", start);
        }
        for kind in 0..1000_u64 {
            let word: String = (0..8).map(|bit| if kind >> bit & 1 == 0 { 'a' } else { 'b' }).collect();
            limiter.admit(&format!("{word} {}", "x".repeat(kind as usize >> 8)), start + PERIOD);
        }
        assert!(limiter.kinds.len() <= MAX_KINDS);
        assert_eq!(limiter.take_left_out(), 2);
    }
}
