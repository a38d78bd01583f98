//! Imposing a recorded order.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::caller::Caller;
use super::progress::{Progress, Standing};
use super::schedule::{MAX_BYTES, Point, SCHEDULE, Schedule, Sender, Stream, What};
use super::senders::{Senders, text_within};
use crate::outside::output_file::{on_standard_error, write_private};
use crate::outside::{files, monotonic_ns, sleep};

/// How long a point may take to come after the one before it, beyond the time that it took when recorded.
const PATIENCE_NS: u64 = 2_000_000_000;
/// How long a packet is held back at most beyond that: its sender sends it again meanwhile, and gives up.
const HOLD_NS: u64 = 400_000_000;
/// How long a packet waits for a poll that is to find nothing before it.
const IDLE_NS: u64 = 20_000_000;
/// Recorded time between two points that is let pass again.
const MAX_GAP_NS: u64 = 2_000_000_000;
/// Time between two looks whether it is a call's turn.
const LOOK: Duration = Duration::from_micros(20);
/// A point that comes no later than this after its time was in time: what looking and waking up take does not
/// add up from point to point, because the program's own waits do not grow by it.
const IN_TIME_NS: u64 = 2_000_000;
/// Points before the next one among which polls are looked for that are to find nothing.
const MOST_POLLS: usize = 256;
/// Calls of a thread that are looked at for one that came too early.
const LOOKAHEAD: usize = 16;

/// The order of a run, as this process keeps it.
pub(super) struct Replay {
    folder: PathBuf,
    tag: String,
    number: u32,
    /// The index of this process.
    own: usize,
    /// How long after the point before it each point of the run was; polls that find nothing do not count.
    gaps_ns: Vec<u64>,
    /// The positions of each process's points in the run; polls that find nothing are not among them.
    positions: Vec<Vec<usize>>,
    /// The points of this process, each with its position in the run.
    points: Vec<(usize, What<Sender>)>,
    progress: Progress,
    is_over: AtomicBool,
    has_departed: AtomicBool,
    state: Mutex<State>,
}

struct State {
    done: Vec<bool>,
    /// Points before it are done.
    next: usize,
    /// How many of those count for other processes.
    counted: u64,
    callers: HashMap<Caller, VecDeque<usize>>,
    arrivals: HashMap<Sender, VecDeque<usize>>,
    senders: Senders,
    /// What was seen last of all processes, and since when.
    seen: (Standing, u64),
    /// The point of a packet that is held back, and since when.
    held: Option<(usize, u64)>,
    /// The point whose turn has come last, and its time.
    due: (usize, u64),
}

/// Whether it is a point's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Now,
    /// Only polls that are to find nothing come before it.
    AfterPolls,
    Later,
    /// What comes before it has not come for too long.
    Never,
}

impl Replay {
    /// That of this process in a folder; none if the run had no such process, or its order is damaged, which
    /// is said.
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
        let mut state = State {
            done: Vec::new(),
            next: 0,
            counted: 0,
            callers: HashMap::new(),
            arrivals: HashMap::new(),
            senders: Senders::new(folder),
            seen: (Standing::default(), monotonic_ns()),
            held: None,
            due: (usize::MAX, 0),
        };
        for (position, (process, Point { at_ns, what })) in schedule.points.into_iter().enumerate() {
            gaps_ns.push(before_ns.map_or(0, |before_ns| at_ns.saturating_sub(before_ns)));
            let process = process as usize;
            if !matches!(what, What::Idle { .. })
                && let Some(positions) = positions.get_mut(process)
            {
                positions.push(position);
                before_ns = Some(at_ns);
            }
            if process != own {
                continue;
            }
            match &what {
                What::Call { caller, .. } | What::Idle { caller, .. } => {
                    state.callers.entry(*caller).or_default().push_back(points.len());
                }
                What::Arrival(sender) => state.arrivals.entry(*sender).or_default().push_back(points.len()),
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits until it is the turn of this call: its point; none if it has none.
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
                Turn::Now | Turn::AfterPolls => return Some(index),
                Turn::Never => self.depart(&format!("{call} waits in vain for what came before it"), true),
                Turn::Later => sleep(LOOK),
            }
            if self.is_over() {
                return None;
            }
        }
    }

    /// Whether this is the next call of a thread.
    pub(super) fn is_next(&self, caller: Caller, call: &str) -> bool {
        let state = self.lock();
        let calls = state.callers.get(&caller).into_iter().flatten();
        let mut named =
            calls.filter_map(|index| self.points.get(*index)).filter_map(|(_, what)| match what {
                What::Call { call, .. } => Some(call),
                What::Idle { .. } | What::Arrival(_) => None,
            });
        !self.is_over() && named.next().is_some_and(|next| next == call)
    }

    /// The point of a thread's call, and what call was recorded there if it is another one.
    fn call_of(&self, caller: Caller, call: &str) -> (Option<usize>, Option<String>) {
        let mut state = self.lock();
        let Some(calls) = state.callers.get_mut(&caller) else { return (None, Some("nothing".to_owned())) };
        let name = |index: &usize| match self.points.get(*index) {
            Some((_, What::Call { call, .. })) => Some(call.as_str()),
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

    /// A thread has found nothing.
    pub(super) fn idle(&self, caller: Caller, call: &str) {
        if self.is_over() {
            return;
        }
        let mut state = self.lock();
        let Some(calls) = state.callers.get_mut(&caller) else { return };
        let Some(index) = calls.front().copied() else { return };
        if let Some((_, What::Idle { call: was, .. })) = self.points.get(index)
            && was == call
        {
            calls.pop_front();
            self.finish(&mut state, index);
        }
    }

    pub(super) fn may_arrive(&self, stream: Stream) -> bool {
        if self.is_over() {
            return true;
        }
        let mut state = self.lock();
        let Some(index) = next_arrival(&mut state, stream) else { return true };
        let turn = self.turn(&mut state, index);
        if turn == Turn::Now {
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
        if turn == Turn::AfterPolls && waited_ns > IDLE_NS {
            return true;
        }
        if turn == Turn::Never || waited_ns > HOLD_NS.saturating_add(self.gap_ns(self.position(index))) {
            self.depart("a packet waits in vain for what came before it", true);
            return true;
        }
        false
    }

    pub(super) fn arrived(&self, stream: Stream) {
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

    fn finish(&self, state: &mut State, index: usize) {
        if let Some(done) = state.done.get_mut(index) {
            *done = true;
        }
        let before = state.counted;
        while let Some((_, what)) = self.points.get(state.next) {
            let is_idle = matches!(what, What::Idle { .. });
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

    /// How long after the point before it a point came when it was recorded.
    fn gap_ns(&self, position: usize) -> u64 {
        self.gaps_ns.get(position).copied().unwrap_or_default()
    }

    /// Whether it is the turn of a point of this process.
    fn turn(&self, state: &mut State, index: usize) -> Turn {
        let now_ns = monotonic_ns();
        let standing = self.progress.read();
        if standing.is_over {
            self.is_over.store(true, Ordering::Relaxed);
            return Turn::Now;
        }
        let position = self.position(index);
        let waits_for = |(process, positions): (usize, &Vec<usize>)| {
            let needed = positions.partition_point(|other| *other < position) as u64;
            process != self.own && standing.done.get(process).copied().unwrap_or_default() < needed
        };
        // Polls are behind `next` too: they hold up packets, and nothing else.
        let first = state.next.saturating_sub(MOST_POLLS);
        let before = || self.points.iter().zip(&state.done).take(index).skip(first);
        let own = || before().filter(|(_, done)| !**done);
        let is_idle = |what: &What<Sender>| matches!(what, What::Idle { .. });
        let is_behind = own().any(|((_, what), _)| !is_idle(what));
        if !is_behind && !self.positions.iter().enumerate().any(waits_for) {
            let gap_ns = self.gap_ns(position).min(MAX_GAP_NS);
            let due_ns = standing.last_ns.saturating_add(gap_ns);
            state.due = (index, due_ns);
            return match () {
                () if now_ns < due_ns => Turn::Later,
                () if own().next().is_some() => Turn::AfterPolls,
                () => Turn::Now,
            };
        }
        if state.seen.0 != standing {
            state.seen = (standing, now_ns);
            return Turn::Later;
        }
        let next = |(process, positions): (usize, &Vec<usize>)| {
            let done = state.seen.0.done.get(process).copied().unwrap_or_default();
            positions.get(usize::try_from(done).ok()?).copied()
        };
        let awaited = self.positions.iter().enumerate().filter_map(next).min();
        let patience_ns = PATIENCE_NS.saturating_add(awaited.map_or(0, |position| self.gap_ns(position)));
        if now_ns.saturating_sub(state.seen.1) > patience_ns { Turn::Never } else { Turn::Later }
    }

    /// Says once that the order cannot be had; `is_over`: nothing is held back any more, in any process.
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

/// The next point of who sends to a queue pair.
fn next_arrival(state: &mut State, stream: Stream) -> Option<usize> {
    let sender = state.senders.of(stream)?;
    state.arrivals.get(&sender)?.front().copied()
}

/// The index of the process in the run that this one is now: the first of its tag that no other has taken.
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
