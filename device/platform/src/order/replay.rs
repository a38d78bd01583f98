//! The replay of a recorded order.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::progress::{Progress, ReplayProgress, Senders, text_within};
use super::schedule::{Caller, MAX_BYTES, Point, PointKind, RequestReceiver, SCHEDULE, Schedule, Sender};
use crate::outside::output_file::{on_standard_error, write_private};
use crate::outside::{files, monotonic_ns, sleep};

/// The longest time from one point to the next, beyond the recorded time, in ns.
const PATIENCE_NS: u64 = 2_000_000_000;
/// The longest time beyond that for which a packet is held back, in ns: its sender sends it again meanwhile,
/// and gives up.
const HOLD_NS: u64 = 400_000_000;
/// The longest time that a packet waits for a poll that has to find nothing before it, in ns.
const IDLE_NS: u64 = 20_000_000;
/// The longest recorded time between two points that is repeated, in ns.
const MAX_GAP_NS: u64 = 2_000_000_000;
/// Interval in which a waiting call checks whether it is its turn.
const TURN_POLL_INTERVAL: Duration = Duration::from_micros(20);
/// The delay up to which a point counts as in time, in ns: the time for checking and waking up does not add
/// up from point to point, because the program's own waits do not grow by it.
const IN_TIME_NS: u64 = 2_000_000;
/// Number of points before the next one that are searched for polls that have to find nothing.
const MAX_IDLE_POLLS: usize = 256;
/// Number of calls of a thread that are searched for one that came too early.
const LOOKAHEAD: usize = 16;

/// The order of a run, and this process's progress in it.
pub(super) struct Replay {
    folder: PathBuf,
    tag: String,
    number: u32,
    /// The index of this process.
    own: usize,
    /// For each point of the run the recorded time since the point before it, in ns; polls that find nothing
    /// do not count.
    gaps_ns: Vec<u64>,
    /// The positions of each process's points in the run; polls that find nothing are not among them.
    positions: Vec<Vec<usize>>,
    /// The points of this process, each with its position in the run.
    points: Vec<(usize, PointKind<Sender>)>,
    progress: Progress,
    is_over: AtomicBool,
    has_departed: AtomicBool,
    state: Mutex<ReplayState>,
}

struct ReplayState {
    done: Vec<bool>,
    /// The index of the next point; all points before it are done.
    next: usize,
    /// Number of done points that count for other processes.
    counted: u64,
    callers: HashMap<Caller, VecDeque<usize>>,
    arrivals: HashMap<Sender, VecDeque<usize>>,
    senders: Senders,
    /// The last known progress of all processes, and since when it is so, in ns.
    last_progress: (ReplayProgress, u64),
    /// The point of a packet that is held back, and since when, in ns.
    held: Option<(usize, u64)>,
    /// The point whose turn has come last, and its time, in ns.
    due: (usize, u64),
}

/// The answer to the question whether it is a point's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnCheck {
    Now,
    /// The points before this one are all polls that have to find nothing.
    AfterPolls,
    Later,
    /// The points before it have not come for too long.
    Never,
}

impl Replay {
    /// Begins the replay of this process in a folder; `None` if the run had no such process, or its order is
    /// damaged, which is reported.
    pub(super) fn begin(folder: &Path, tag: &str, number: u32) -> Option<Replay> {
        let text = text_within(&folder.join(SCHEDULE), MAX_BYTES);
        let Some(schedule) = text.and_then(|text| Schedule::parse(&text)) else {
            on_standard_error(&format!("the order in {} is damaged: it is not imposed", folder.display()));
            return None;
        };
        let own = claim(folder, &schedule.tags, tag, number)?;
        let progress = Progress::open(folder, own, schedule.tags.len()).ok()?;
        let mut positions = vec![Vec::new(); schedule.tags.len()];
        let (mut gaps_ns, mut points, mut before_ns) = (Vec::new(), Vec::new(), None);
        let mut state = ReplayState {
            done: Vec::new(),
            next: 0,
            counted: 0,
            callers: HashMap::new(),
            arrivals: HashMap::new(),
            senders: Senders::new(folder),
            last_progress: (ReplayProgress::default(), monotonic_ns()),
            held: None,
            due: (usize::MAX, 0),
        };
        for (position, (process, Point { at_ns, what })) in schedule.points.into_iter().enumerate() {
            gaps_ns.push(before_ns.map_or(0, |before_ns| at_ns.saturating_sub(before_ns)));
            let process = process as usize;
            if !matches!(what, PointKind::Idle { .. })
                && let Some(positions) = positions.get_mut(process)
            {
                positions.push(position);
                before_ns = Some(at_ns);
            }
            if process != own {
                continue;
            }
            match &what {
                PointKind::Call { caller, .. } | PointKind::Idle { caller, .. } => {
                    state.callers.entry(*caller).or_default().push_back(points.len());
                }
                PointKind::Arrival(sender) => {
                    state.arrivals.entry(*sender).or_default().push_back(points.len())
                }
            }
            points.push((position, what));
        }
        state.done = vec![false; points.len()];
        Some(Replay {
            folder: folder.to_owned(),
            tag: tag.to_owned(),
            number,
            own,
            gaps_ns,
            positions,
            points,
            progress,
            is_over: AtomicBool::new(false),
            has_departed: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits until it is the turn of this call, and returns its point; `None` if it has none.
    pub(super) fn wait_for_call(&self, caller: Caller, call: &str) -> Option<usize> {
        if self.is_over() {
            return None;
        }
        let (index, other) = self.call_of(caller, call);
        if let Some(other) = other {
            self.depart(&format!("it calls {call} where {other} was called"), false);
        }
        let index = index?;
        loop {
            let turn = self.turn(&mut self.lock(), index);
            match turn {
                TurnCheck::Now | TurnCheck::AfterPolls => return Some(index),
                TurnCheck::Never => {
                    self.depart(&format!("{call} waits in vain for what came before it"), true)
                }
                TurnCheck::Later => sleep(TURN_POLL_INTERVAL),
            }
            if self.is_over() {
                return None;
            }
        }
    }

    /// Reports whether this is the next call of a thread.
    pub(super) fn is_next(&self, caller: Caller, call: &str) -> bool {
        let state = self.lock();
        let calls = state.callers.get(&caller).into_iter().flatten();
        let mut named =
            calls.filter_map(|index| self.points.get(*index)).filter_map(|(_, what)| match what {
                PointKind::Call { call, .. } => Some(call),
                PointKind::Idle { .. } | PointKind::Arrival(_) => None,
            });
        !self.is_over() && named.next().is_some_and(|next| next == call)
    }

    /// Returns the point of a thread's call, and the name of the recorded call if it is another one.
    fn call_of(&self, caller: Caller, call: &str) -> (Option<usize>, Option<String>) {
        let mut state = self.lock();
        let Some(calls) = state.callers.get_mut(&caller) else { return (None, Some("nothing".to_owned())) };
        let name = |index: &usize| match self.points.get(*index) {
            Some((_, PointKind::Call { call, .. })) => Some(call.as_str()),
            _ => None,
        };
        let next = calls.iter().find_map(name).map(str::to_owned);
        let named = calls.iter().enumerate().filter_map(|(at, index)| Some((at, name(index)?)));
        let found = named.take(LOOKAHEAD).find(|(_, name)| *name == call).map(|(at, _)| at);
        let skipped: Vec<usize> = calls.drain(..found.unwrap_or_default()).collect();
        let index = found.and_then(|_| calls.pop_front());
        for skipped in skipped {
            self.finish(&mut state, skipped);
        }
        let other = (next.as_deref() != Some(call)).then(|| next.unwrap_or_else(|| "nothing".to_owned()));
        (index, other)
    }

    /// Records that a thread has found nothing.
    pub(super) fn idle(&self, caller: Caller, call: &str) {
        if self.is_over() {
            return;
        }
        let mut state = self.lock();
        let Some(calls) = state.callers.get_mut(&caller) else { return };
        let Some(index) = calls.front().copied() else { return };
        if let Some((_, PointKind::Idle { call: was, .. })) = self.points.get(index)
            && was == call
        {
            calls.pop_front();
            self.finish(&mut state, index);
        }
    }

    pub(super) fn may_arrive(&self, stream: RequestReceiver) -> bool {
        if self.is_over() {
            return true;
        }
        let mut state = self.lock();
        let Some(index) = next_arrival(&mut state, stream) else { return true };
        let turn = self.turn(&mut state, index);
        if turn == TurnCheck::Now {
            return true;
        }
        let now_ns = monotonic_ns();
        let since_ns = match state.held {
            Some((held, since_ns)) if held == index => since_ns,
            _ => {
                state.held = Some((index, now_ns));
                now_ns
            }
        };
        let waited_ns = now_ns.saturating_sub(since_ns);
        drop(state);
        if turn == TurnCheck::AfterPolls && waited_ns > IDLE_NS {
            return true;
        }
        if turn == TurnCheck::Never || waited_ns > HOLD_NS.saturating_add(self.gap_ns(self.position(index))) {
            self.depart("a packet waits in vain for what came before it", true);
            return true;
        }
        false
    }

    pub(super) fn arrived(&self, stream: RequestReceiver) {
        if self.is_over() {
            return;
        }
        let mut state = self.lock();
        let sender = state.senders.of(stream);
        let arrivals = sender.and_then(|sender| state.arrivals.get_mut(&sender));
        if let Some(index) = arrivals.and_then(VecDeque::pop_front) {
            self.finish(&mut state, index);
        }
    }

    pub(super) fn done(&self, index: usize) {
        if !self.is_over() {
            self.finish(&mut self.lock(), index);
        }
    }

    fn finish(&self, state: &mut ReplayState, index: usize) {
        if let Some(done) = state.done.get_mut(index) {
            *done = true;
        }
        let before = state.counted;
        while let Some((_, what)) = self.points.get(state.next) {
            let is_idle = matches!(what, PointKind::Idle { .. });
            if !is_idle && !state.done.get(state.next).copied().unwrap_or_default() {
                break;
            }
            state.next += 1;
            state.counted += u64::from(!is_idle);
        }
        if state.counted != before {
            let (due, due_ns) = state.due;
            let now_ns = monotonic_ns();
            let is_in_time = due == index && now_ns.saturating_sub(due_ns) < IN_TIME_NS;
            self.progress.note(state.counted, if is_in_time { due_ns } else { now_ns });
        }
    }

    fn position(&self, index: usize) -> usize {
        self.points.get(index).map_or(usize::MAX, |(position, _)| *position)
    }

    /// Returns the recorded time from the previous point to a point, in ns.
    fn gap_ns(&self, position: usize) -> u64 {
        self.gaps_ns.get(position).copied().unwrap_or_default()
    }

    /// Decides whether it is the turn of a point of this process.
    fn turn(&self, state: &mut ReplayState, index: usize) -> TurnCheck {
        let now_ns = monotonic_ns();
        let latest = self.progress.read();
        if latest.is_over {
            self.is_over.store(true, Ordering::Relaxed);
            return TurnCheck::Now;
        }
        let position = self.position(index);
        let waits_for = |(process, positions): (usize, &Vec<usize>)| {
            let needed = positions.partition_point(|other| *other < position) as u64;
            process != self.own && latest.done.get(process).copied().unwrap_or_default() < needed
        };
        // Polls before `next` count as well: they hold up packets, and nothing else.
        let first = state.next.saturating_sub(MAX_IDLE_POLLS);
        let before = || self.points.iter().zip(&state.done).take(index).skip(first);
        let own = || before().filter(|(_, done)| !**done);
        let is_idle = |what: &PointKind<Sender>| matches!(what, PointKind::Idle { .. });
        let is_behind = own().any(|((_, what), _)| !is_idle(what));
        if !is_behind && !self.positions.iter().enumerate().any(waits_for) {
            let gap_ns = self.gap_ns(position).min(MAX_GAP_NS);
            let due_ns = latest.last_ns.saturating_add(gap_ns);
            state.due = (index, due_ns);
            return match () {
                () if now_ns < due_ns => TurnCheck::Later,
                () if own().next().is_some() => TurnCheck::AfterPolls,
                () => TurnCheck::Now,
            };
        }
        if state.last_progress.0 != latest {
            state.last_progress = (latest, now_ns);
            return TurnCheck::Later;
        }
        let next = |(process, positions): (usize, &Vec<usize>)| {
            let done = state.last_progress.0.done.get(process).copied().unwrap_or_default();
            positions.get(usize::try_from(done).ok()?).copied()
        };
        let awaited = self.positions.iter().enumerate().filter_map(next).min();
        let patience_ns = PATIENCE_NS.saturating_add(awaited.map_or(0, |position| self.gap_ns(position)));
        if now_ns.saturating_sub(state.last_progress.1) > patience_ns {
            TurnCheck::Never
        } else {
            TurnCheck::Later
        }
    }

    /// Reports once that the order cannot be followed; `is_over`: nothing is held back any more, in any
    /// process.
    pub(super) fn depart(&self, why: &str, is_over: bool) {
        if is_over {
            self.is_over.store(true, Ordering::Relaxed);
            self.progress.end();
        }
        if self.has_departed.swap(true, Ordering::Relaxed) {
            return;
        }
        let done = self.lock().counted;
        let all = self.positions.get(self.own).map_or(0, Vec::len);
        let sentence = format!("{}: after {done} of {all} points of the recorded order, {why}", self.tag);
        on_standard_error(&sentence);
        let _ = write_private(&self.folder.join(format!("{}.departed", self.number)), sentence.as_bytes());
    }
}

/// Returns the next point of the sender to a queue pair.
fn next_arrival(state: &mut ReplayState, stream: RequestReceiver) -> Option<usize> {
    let sender = state.senders.of(stream)?;
    state.arrivals.get(&sender)?.front().copied()
}

/// Claims an index of the run's processes for this process: the first one of its tag that no other has
/// claimed.
fn claim(folder: &Path, tags: &[String], tag: &str, number: u32) -> Option<usize> {
    for (index, _) in tags.iter().enumerate().filter(|(_, known)| *known == tag) {
        let name = folder.join(format!("{index}.claim"));
        if files::options().write(true).create_new(true).open(name).is_ok() {
            write_private(&folder.join(format!("{number}.is")), index.to_string().as_bytes()).ok()?;
            return Some(index);
        }
    }
    None
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
