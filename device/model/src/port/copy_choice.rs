//! The choice of the way in which a producer writes long batches into its ring.
//!
//! Two ways differ by a factor of ten on some machines, and which one is faster depends on where the two
//! processes run: cores that share a cache pass lines through it, other cores pass them slower than memory
//! does. So the first long messages try both ways in turns, and the faster one stays. After each GiB both are
//! measured once more, because a hypervisor or a scheduler may have moved the cores.
//!
//! **Invariant**: this value reads no clock. Its caller times the batches while [`CopyChoice::is_timed`].
//! With any durations, a trial ends after a bounded number of bytes.

use super::batch::{CopyMode, CopyReason, CopyReport, CopyWay};

/// Number of bytes of a run above which its batches count as long messages.
const BULK_BYTES: u64 = 64 << 10;
/// Number of bytes that count as long messages behind such a run: a slow consumer makes room in small pieces.
const CREDIT_BYTES: u64 = 1 << 20;
/// Length of the shortest batch of long messages, in bytes.
const LEAST_BATCH_BYTES: u32 = 2048;
/// Number of bytes in a measured window.
const WINDOW_BYTES: u64 = 1 << 20;
/// Number of windows of each way in a whole trial. The fastest one of each counts, because other work on the
/// machine makes windows slower and never faster.
const ROUNDS: u8 = 3;
/// Number of bytes between two reviews of the choice.
const REVIEW_BYTES: u64 = 1 << 30;
/// Number of percent by which the other way must be faster to be chosen.
const GAIN_PERCENT: u128 = 10;

/// A batch that was put into the ring, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimedPut {
    /// Time at which the copy began, in ns.
    pub begun_ns: u64,
    /// Time at which the copy ended, in ns.
    pub ended_ns: u64,
    /// Length of the batch, in bytes.
    pub length_bytes: u32,
    /// Number of data bytes written before the batch, since the beginning.
    pub written_bytes: u64,
    /// Number of data bytes that the consumer had taken when the copy began.
    pub taken_bytes: u64,
}

/// The choice of a way, for one ring.
#[derive(Debug)]
pub struct CopyChoice {
    way: CopyWay,
    state: State,
    /// Rates of the ways, as measured last: cached, streaming, in bytes per second.
    rates: [Option<u64>; 2],
    run: Run,
}

#[derive(Debug)]
enum State {
    /// The way does not change.
    Fixed(CopyReason),
    /// The ways take turns.
    Trying(Trial),
    /// The faster way is used for so many more bytes.
    Settled { left_bytes: u64 },
}

#[derive(Debug)]
struct Trial {
    /// The way that stays unless the other one is clearly faster.
    usual: CopyWay,
    /// The usual way has been chosen by an earlier trial.
    is_review: bool,
    windows_left: u8,
    best: [Option<u64>; 2],
    window: Window,
}

/// A part of a trial, in which all batches are written in one way.
#[derive(Debug)]
enum Window {
    /// No batch was put yet.
    New,
    /// The consumer still takes batches that were written before, up to this number of bytes.
    Draining { until_bytes: u64 },
    /// Batches count.
    Measuring { last: TimedPut, bytes: u64, busy_ns: u64 },
}

/// The recognition of long messages, from the batches of a turn and the room in the ring.
#[derive(Debug, Default)]
struct Run {
    turn_ns: u64,
    turn_bytes: u64,
    credit_bytes: u64,
}

impl Run {
    /// Reports whether a batch belongs to a long message. `now_ns` is the time of the turn.
    #[inline]
    fn is_bulk(&mut self, now_ns: u64, length_bytes: u32) -> bool {
        if length_bytes < LEAST_BATCH_BYTES {
            return false;
        }
        if now_ns != self.turn_ns {
            (self.turn_ns, self.turn_bytes) = (now_ns, 0);
        }
        self.turn_bytes += u64::from(length_bytes);
        if self.turn_bytes > BULK_BYTES {
            self.credit_bytes = CREDIT_BYTES;
        } else {
            self.credit_bytes = self.credit_bytes.saturating_sub(length_bytes.into());
        }
        self.credit_bytes > 0
    }
}

fn index(way: CopyWay) -> usize {
    match way {
        CopyWay::Cached => 0,
        CopyWay::Streaming => 1,
    }
}

impl CopyChoice {
    /// Creates the choice of a new ring. `only`: the reason why it is not measured, if there is one.
    pub fn new(mode: CopyMode, only: Option<CopyReason>) -> CopyChoice {
        let (way, state) = match (mode, only) {
            (_, Some(CopyReason::OnlyWay)) => (CopyWay::Cached, State::Fixed(CopyReason::OnlyWay)),
            (CopyMode::Cached, _) => (CopyWay::Cached, State::Fixed(CopyReason::Set)),
            (CopyMode::Streaming, _) => (CopyWay::Streaming, State::Fixed(CopyReason::Set)),
            (CopyMode::Auto, Some(reason)) => (CopyWay::Cached, State::Fixed(reason)),
            (CopyMode::Auto, None) => (CopyWay::Cached, State::Trying(Trial::new(CopyWay::Cached, false))),
        };
        CopyChoice { way, state, rates: [None; 2], run: Run::default() }
    }

    /// Returns the way in which to write a batch; `None` for the ordinary one, because the batch is short.
    /// `now_ns` is the time of the turn in which the batch is sent.
    #[inline]
    pub fn way_of(&mut self, now_ns: u64, length_bytes: u32) -> Option<CopyWay> {
        self.run.is_bulk(now_ns, length_bytes).then_some(self.way)
    }

    /// Notes that the ring was full, so that what comes next belongs to a long message.
    #[inline]
    pub fn note_full(&mut self) {
        self.run.credit_bytes = CREDIT_BYTES;
    }

    /// Reports whether the next batch of a long message has to be timed.
    #[inline]
    pub fn is_timed(&self) -> bool {
        matches!(self.state, State::Trying(_))
    }

    /// Notes a batch of a long message that was not timed.
    #[inline]
    pub fn note(&mut self, length_bytes: u32) {
        if let State::Settled { left_bytes } = &mut self.state {
            *left_bytes = left_bytes.saturating_sub(length_bytes.into());
            if *left_bytes == 0 {
                self.state = State::Trying(Trial::new(self.way, true));
            }
        }
    }

    /// Notes a batch of a long message that was timed.
    pub fn note_timed(&mut self, put: TimedPut) {
        let State::Trying(trial) = &mut self.state else { return self.note(put.length_bytes) };
        let Some(rate) = trial.window.measure(put) else { return };
        if let Some(best) = trial.best.get_mut(index(self.way)) {
            *best = (*best).max(Some(rate));
        }
        trial.windows_left = trial.windows_left.saturating_sub(1);
        if trial.windows_left > 0 {
            self.way = self.way.other();
            trial.window = Window::New;
            return;
        }
        let gains = trial.is_other_faster();
        if gains && trial.is_review {
            // One window each may be an accident.
            trial.is_review = false;
            trial.windows_left = 2 * (ROUNDS - 1);
            trial.window = Window::New;
            self.way = trial.usual;
            return;
        }
        self.way = if gains { trial.usual.other() } else { trial.usual };
        self.rates = trial.best;
        self.state = State::Settled { left_bytes: REVIEW_BYTES };
    }

    /// Returns what is known.
    pub fn report(&self) -> CopyReport {
        let [cached_bytes_per_s, streaming_bytes_per_s] = self.rates;
        let (way, reason) = match &self.state {
            State::Fixed(reason) => (self.way, *reason),
            State::Settled { .. } => (self.way, CopyReason::Measured),
            State::Trying(Trial { is_review: true, usual, .. }) => (*usual, CopyReason::Measured),
            State::Trying(Trial { window: Window::New, best: [None, None], usual, .. }) => {
                (*usual, CopyReason::Untried)
            }
            State::Trying(_) => (self.way, CopyReason::Trying),
        };
        CopyReport { way, reason, cached_bytes_per_s, streaming_bytes_per_s }
    }
}

impl Trial {
    /// Creates a trial that begins with the usual way.
    fn new(usual: CopyWay, is_review: bool) -> Trial {
        let windows_left = if is_review { 2 } else { 2 * ROUNDS };
        Trial { usual, is_review, windows_left, best: [None; 2], window: Window::New }
    }

    /// Reports whether the way that is not the usual one is clearly faster.
    fn is_other_faster(&self) -> bool {
        let best = |way| self.best.get(index(way)).copied().flatten().unwrap_or(0);
        let (usual, other) = (best(self.usual), best(self.usual.other()));
        u128::from(other) * 100 > u128::from(usual) * (100 + GAIN_PERCENT)
    }
}

impl Window {
    /// Counts a batch, and returns the rate of the window in bytes per second when it is complete: that at
    /// which the consumer took what was written, because a ring that fills hides a slow consumer.
    ///
    /// The time of a batch lasts to the beginning of the next one, if the consumer had work all the while.
    /// Else the consumer is the faster side, and only the producer's copy counts, not what the program waits.
    fn measure(&mut self, put: TimedPut) -> Option<u64> {
        match self {
            Window::New if put.taken_bytes < put.written_bytes => {
                *self = Window::Draining { until_bytes: put.written_bytes };
            }
            Window::Draining { until_bytes } if put.taken_bytes < *until_bytes => {}
            Window::New | Window::Draining { .. } => {
                *self = Window::Measuring { last: put, bytes: 0, busy_ns: 0 };
            }
            Window::Measuring { last, bytes, busy_ns } => {
                let is_busy = put.taken_bytes < put.written_bytes;
                let until_ns = if is_busy { put.begun_ns } else { last.ended_ns };
                *busy_ns = busy_ns.saturating_add(until_ns.saturating_sub(last.begun_ns));
                *bytes = bytes.saturating_add(put.taken_bytes.saturating_sub(last.taken_bytes));
                *last = put;
                if *bytes >= WINDOW_BYTES {
                    let rate = u128::from(*bytes) * 1_000_000_000 / u128::from((*busy_ns).max(1));
                    return Some(u64::try_from(rate).unwrap_or(u64::MAX));
                }
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "copy_choice_tests.rs"]
mod tests;
