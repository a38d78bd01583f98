//! Rate limit of log sentences, and the call sites that they are about.
//!
//! Of sentences that differ only in their numbers, the first one of a period is printed. At the end of the
//! period, or at exit, a line gives the number of the others and the last of them; the next period is twice
//! as long.

use std::hash::Hasher as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fnv::FnvHasher;
use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::outside::fork_generation::PerProcess;
use pumice_transport::event::QpEvent;
use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use crate::call_sites::state;

/// Largest number of call sites that wait to be written.
const MAX_CALL_SITES: usize = 16;

/// Queue pairs, and return addresses of the program's frames, innermost first.
type PostCallSites = Vec<(Qpn, Vec<u64>)>;

/// Return addresses of the thread that posted, by queue pair.
static CALL_SITES: PerProcess<Mutex<PostCallSites>> = PerProcess::new(|_| Mutex::default());

fn lock() -> MutexGuard<'static, PostCallSites> {
    CALL_SITES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A subscriber that is notified of wrong requests in the thread that posts them, before the log writes about
/// them.
struct PostSubscriber;

impl Subscriber for PostSubscriber {
    fn topics(&self) -> Topics {
        Topics::LOG
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(cause) } = event
            && is_of_a_call(cause)
        {
            let mut call_sites = lock();
            if call_sites.len() < MAX_CALL_SITES {
                call_sites.push((qp.qpn, state::call_stack()));
            }
        }
    }
}

/// Reports whether the program makes the call that causes this while it is reported.
const fn is_of_a_call(cause: &Cause) -> bool {
    matches!(cause, Cause::NoReadDepth { .. } | Cause::RequestFaulty { .. } | Cause::DroppedByReset { .. })
}

/// Returns the subscriber, unless findings have the call sites already.
pub(crate) fn subscriber() -> Option<Box<dyn Subscriber>> {
    (!state::is_on()).then(|| -> Box<dyn Subscriber> { Box::new(PostSubscriber) })
}

/// Takes the lines of the log that say where the request of a cause was posted; empty if that is not known.
pub(crate) fn take(qpn: Qpn, cause: &Cause) -> Vec<String> {
    if !is_of_a_call(cause) {
        return Vec::new();
    }
    let mut call_sites = lock();
    let Some(index) = call_sites.iter().position(|(known, _)| *known == qpn) else { return Vec::new() };
    let (_, stack) = call_sites.remove(index);
    drop(call_sites);
    state::call_site_lines(&stack)
}

/// The first period of a kind of sentence.
const PERIOD: Duration = Duration::from_secs(1);
/// The longest period of a kind of sentence.
const MAX_PERIOD: Duration = Duration::from_secs(64);
/// Maximum number of kinds that are distinguished.
const MAX_KINDS: usize = 64;

/// The decision about a sentence: to print it or to leave it out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Print {
        /// Number of sentences of the kind that were left out since the last one printed.
        left_out: u64,
    },
    LeaveOut,
}

/// A kind of sentences, which differ only in their numbers.
struct SentenceKind {
    key: u64,
    since: Instant,
    period: Duration,
    /// True if further sentences of this period are left out: one was printed, or the count of a flood was.
    is_suppressing: bool,
    /// Number of sentences that were not printed.
    left_out: u64,
    /// The last sentence that was not printed.
    last: String,
}

impl SentenceKind {
    /// Begins the next period of a flood, and returns the number of sentences that were left out in the last
    /// one.
    fn next_period(&mut self, now: Instant) -> u64 {
        self.since = now;
        self.period = (self.period * 2).min(MAX_PERIOD);
        self.is_suppressing = true;
        std::mem::take(&mut self.left_out)
    }

    /// Returns the line that stands for the sentences that were left out.
    fn line(&mut self, left_out: u64) -> String {
        format!("{left_out} more like this: {}", std::mem::take(&mut self.last))
    }
}

/// Limits how often sentences of each kind are printed.
pub(crate) struct LogLimiter {
    kinds: Vec<SentenceKind>,
    /// Number of left-out sentences of kinds that were forgotten to make room for others.
    forgotten: u64,
}

impl LogLimiter {
    pub(crate) const fn new() -> LogLimiter {
        LogLimiter { kinds: Vec::new(), forgotten: 0 }
    }

    /// Decides whether a sentence is printed now.
    pub(crate) fn admit(&mut self, sentence: &str, now: Instant) -> Admission {
        let key = shape_of(sentence);
        let Some(kind) = self.kinds.iter_mut().find(|kind| kind.key == key) else {
            self.evict_oldest();
            self.kinds.push(SentenceKind {
                key,
                since: now,
                period: PERIOD,
                is_suppressing: true,
                left_out: 0,
                last: String::new(),
            });
            return Admission::Print { left_out: 0 };
        };
        if now.saturating_duration_since(kind.since) >= kind.period {
            if kind.left_out > 0 {
                return Admission::Print { left_out: kind.next_period(now) };
            }
            (kind.since, kind.period, kind.is_suppressing) = (now, PERIOD, false);
        }
        if std::mem::replace(&mut kind.is_suppressing, true) {
            kind.left_out += 1;
            kind.last.clear();
            kind.last.push_str(sentence);
            return Admission::LeaveOut;
        }
        Admission::Print { left_out: 0 }
    }

    /// Returns the lines that stand for the sentences left out in periods that are over.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<String> {
        let is_due = |kind: &&mut SentenceKind| {
            kind.left_out > 0 && now.saturating_duration_since(kind.since) >= kind.period
        };
        let due = self.kinds.iter_mut().filter(is_due).map(|kind| {
            let left_out = kind.next_period(now);
            kind.line(left_out)
        });
        due.collect()
    }

    /// Returns the lines that stand for all sentences left out.
    pub(crate) fn take_all(&mut self) -> Vec<String> {
        let left = self.kinds.iter_mut().filter(|kind| kind.left_out > 0).map(|kind| {
            let left_out = std::mem::take(&mut kind.left_out);
            kind.line(left_out)
        });
        let mut lines: Vec<String> = left.collect();
        match std::mem::take(&mut self.forgotten) {
            0 => {}
            forgotten => lines.push(format!("{forgotten} more sentences were left out")),
        }
        lines
    }

    fn evict_oldest(&mut self) {
        if self.kinds.len() < MAX_KINDS {
            return;
        }
        let oldest = self.kinds.iter().enumerate().min_by_key(|(_, kind)| kind.since);
        if let Some((index, _)) = oldest {
            self.forgotten += self.kinds.swap_remove(index).left_out;
        }
    }
}

/// Returns a sentence with the number of further ones like it, if there were any.
pub(crate) fn with_count(sentence: &str, more: u64) -> String {
    if more == 0 { sentence.to_owned() } else { format!("{sentence} ({more} more like it)") }
}

/// Returns a hash that is the same for sentences that differ only in their numbers. Names with a digit in
/// them, such as those of devices and of rules, are no numbers.
pub(crate) fn shape_of(sentence: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    for word in sentence.split_ascii_whitespace() {
        let bare = word.trim_start_matches(|mark: char| !mark.is_ascii_alphanumeric());
        let shown = if bare.starts_with(|first: char| first.is_ascii_digit()) { "#" } else { word };
        hasher.write(shown.as_bytes());
        hasher.write(b" ");
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINT: Admission = Admission::Print { left_out: 0 };

    #[test]
    fn a_flood_of_one_sentence_is_one_line_with_a_count() {
        let (mut limiter, start) = (LogLimiter::new(), Instant::now());
        let printed = |limiter: &mut LogLimiter, now| {
            (0..100)
                .filter(|_| limiter.admit("QP 0x1 dropped a datagram", now) != Admission::LeaveOut)
                .count()
        };
        assert_eq!(printed(&mut limiter, start), 1);
        assert!(limiter.take_due(start).is_empty());
        assert_eq!(limiter.take_due(start + PERIOD), ["99 more like this: QP 0x1 dropped a datagram"]);
        // The flood goes on, and the next line comes after two seconds.
        assert_eq!(printed(&mut limiter, start + 2 * PERIOD), 0);
        assert!(limiter.take_due(start + 2 * PERIOD).is_empty());
        let next = limiter.admit("QP 0x1 dropped a datagram", start + 3 * PERIOD);
        assert_eq!(next, Admission::Print { left_out: 100 });
        // The flood is over.
        assert_eq!(limiter.admit("QP 0x1 dropped a datagram", start + 20 * PERIOD), PRINT);
        assert!(limiter.take_all().is_empty());
    }

    #[test]
    fn sentences_that_differ_in_numbers_are_one_kind() {
        let (mut limiter, start) = (LogLimiter::new(), Instant::now());
        let of = |n: u32| format!("QP {n:#08x} dropped the message at PSN {n:#08x}: no receive request");
        let printed = (0..100).filter(|n| limiter.admit(&of(*n), start) != Admission::LeaveOut).count();
        assert_eq!(printed, 1);
        assert_eq!(limiter.admit("another kind", start), PRINT);
        assert_eq!(limiter.take_all(), [format!("99 more like this: {}", of(99))]);
        assert!(limiter.take_all().is_empty());
    }

    #[test]
    fn the_number_of_kinds_is_limited() {
        let (mut limiter, start) = (LogLimiter::new(), Instant::now());
        for _ in 0..10 {
            limiter.admit("first", start);
        }
        for kind in 0..1000_u64 {
            let word: String = (0..8).map(|bit| if kind >> bit & 1 == 0 { 'a' } else { 'b' }).collect();
            limiter.admit(&format!("{word} {}", "x".repeat(kind as usize >> 8)), start + PERIOD);
        }
        assert!(limiter.kinds.len() <= MAX_KINDS);
        assert_eq!(limiter.take_all(), ["9 more sentences were left out"]);
    }
}
