//! The order of a process's calls and of what arrives at it: written down while a run is recorded, and
//! imposed while it is replayed.
//!
//! A *point* is a call that changes something, a poll that found nothing after one that had found something,
//! or the last packet of a request that a queue pair accepts. Each has a name that other runs have too: the
//! thread by its [`ThreadName`], or without one by the order in which such threads make their first call; the
//! sender by its process and the ordinal of its queue pair there.
//!
//! **Invariant**: nothing waits for a point for longer than a named time, no process holds back more than a
//! named number of packets, and after the first thing that cannot be had nothing is held back any more.

mod caller;
mod points;
mod progress;
mod record;
mod replay;
mod schedule;
mod senders;

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_calls::Call;

use crate::outside;
use crate::outside::lineage::PerProcess;
use crate::outside::thread_name::ThreadName;

use points::Kind;
use record::Record;
use replay::Replay;

pub use caller::Caller;
pub use progress::{PROGRESS, points_done};
pub use schedule::{MAX_PROCESSES, Point, SCHEDULE, Stream, What, text_of};

/// What connections of TCP are called among calls.
const CONNECT: &str = "connect";

/// What a process does about the order of its points.
pub struct Order {
    mode: Mode,
    /// Threads without a name that have made a call.
    unnamed: AtomicU32,
    process: u32,
}

enum Mode {
    /// Nothing is known of a folder.
    Off,
    Record(Record),
    Replay(Box<Replay>),
}

thread_local! {
    /// The process in which the thread was called so, and how.
    static CALLER: Cell<Option<(u32, Caller)>> = const { Cell::new(None) };
    /// The thread has found something since it last found nothing.
    static HAS_FOUND: Cell<bool> = const { Cell::new(true) };
    /// The point that the call of the thread is, if it counts when the call leaves.
    static OPEN: Cell<Option<usize>> = const { Cell::new(None) };
    /// When the thread has begun to connect, in ns.
    static BEGUN_NS: Cell<u64> = const { Cell::new(0) };
}

static ORDER: PerProcess<std::sync::OnceLock<Order>> = PerProcess::new(|_| std::sync::OnceLock::new());

/// The process writes its order to a folder, or has that imposed which stands there; `tag`: what plans and
/// records call it. Only the first call counts.
pub fn begin(folder: &Path, tag: &str) {
    ORDER.get_or_init(|| Order::of(folder, tag));
}

/// What the process does about its order, if it does something.
pub fn of_process() -> Option<&'static Order> {
    let order = ORDER.if_made()?.get()?;
    (!matches!(order.mode, Mode::Off)).then_some(order)
}

impl Order {
    fn of(folder: &Path, tag: &str) -> Order {
        let process = outside::process::number();
        let mode = if folder.join(SCHEDULE).is_file() {
            Replay::begin(folder, tag, process).map_or(Mode::Off, |replay| Mode::Replay(Box::new(replay)))
        } else {
            Record::begin(folder, process).map_or(Mode::Off, Mode::Record)
        };
        Order { mode, unnamed: AtomicU32::new(0), process }
    }

    /// What this thread is called.
    fn caller(&self) -> Caller {
        let known = CALLER.try_with(Cell::get).ok().flatten();
        if let Some((_, caller)) = known.filter(|(process, _)| *process == self.process) {
            return caller;
        }
        let caller = match ThreadName::own() {
            Some(name) => Caller::Named(name),
            None => Caller::Unnamed(self.unnamed.fetch_add(1, Ordering::Relaxed)),
        };
        let _ = CALLER.try_with(|known| known.set(Some((self.process, caller))));
        caller
    }

    /// A call of the program enters: a replay holds it back until it is its turn.
    pub fn enters(&self, call: Call) {
        let kind = Kind::of(call);
        if kind == Kind::Other {
            return;
        }
        let _ = HAS_FOUND.try_with(|found| found.set(true));
        match &self.mode {
            Mode::Off => {}
            Mode::Record(record) if kind == Kind::Enters => record.call(self.caller(), call.name()),
            Mode::Record(_) => {}
            Mode::Replay(replay) => {
                let Some(index) = replay.wait_for_call(self.caller(), call.name()) else { return };
                if kind == Kind::Enters {
                    replay.done(index);
                } else {
                    let _ = OPEN.try_with(|open| open.set(Some(index)));
                }
            }
        }
    }

    /// A call of the program leaves; `is_idle`: it found nothing.
    pub fn leaves(&self, call: Call, is_idle: bool) {
        let kind = Kind::of(call);
        if is_idle {
            let had_found = HAS_FOUND.try_with(|found| found.replace(false)).unwrap_or_default();
            match &self.mode {
                Mode::Record(record) if had_found => record.idle(self.caller(), call.name()),
                Mode::Replay(replay) if had_found => replay.idle(self.caller(), call.name()),
                _ => {}
            }
            return;
        }
        let _ = HAS_FOUND.try_with(|found| found.set(true));
        if kind != Kind::Leaves {
            return;
        }
        match &self.mode {
            Mode::Record(record) => record.call(self.caller(), call.name()),
            Mode::Replay(replay) => {
                if let Some(index) = OPEN.try_with(Cell::take).ok().flatten() {
                    replay.done(index);
                }
            }
            Mode::Off => {}
        }
    }

    /// A thread begins to make a connection of TCP, whose place is here; it may fail, and be tried again.
    pub fn begins_to_connect(&self) {
        match &self.mode {
            Mode::Off => {}
            Mode::Record(_) => {
                let _ = BEGUN_NS.try_with(|begun_ns| begun_ns.set(outside::monotonic_ns()));
            }
            Mode::Replay(replay) => {
                let is_open = OPEN.try_with(Cell::get).ok().flatten().is_some();
                // A connection that was not made is in no record.
                if !is_open && replay.is_next(self.caller(), CONNECT) {
                    let point = replay.wait_for_call(self.caller(), CONNECT);
                    let _ = OPEN.try_with(|open| open.set(point));
                }
            }
        }
    }

    /// The thread has made the connection, or could not: then it may try again.
    pub fn has_connected(&self, is_made: bool) {
        if !is_made {
            return;
        }
        match &self.mode {
            Mode::Off => {}
            Mode::Record(record) => {
                let begun_ns = BEGUN_NS.try_with(Cell::get).unwrap_or_default();
                record.call_at(begun_ns, self.caller(), CONNECT);
            }
            Mode::Replay(replay) => {
                if let Some(index) = OPEN.try_with(Cell::take).ok().flatten() {
                    replay.done(index);
                }
            }
        }
    }

    /// Whether a request that a queue pair would accept may come to it now.
    pub fn may_arrive(&self, stream: Stream) -> bool {
        match &self.mode {
            Mode::Replay(replay) => replay.may_arrive(stream),
            Mode::Record(_) | Mode::Off => true,
        }
    }

    /// A queue pair has accepted a request.
    pub fn arrived(&self, stream: Stream) {
        match &self.mode {
            Mode::Record(record) => record.arrival(stream),
            Mode::Replay(replay) => replay.arrived(stream),
            Mode::Off => {}
        }
    }

    /// So many packets are held back that no more can be: nothing is, from now on.
    pub fn is_too_much(&self) {
        if let Mode::Replay(replay) = &self.mode {
            replay.depart("more packets came before their turn than can be held back", true);
        }
    }
}
