//! The order of a process's calls and arrivals, and which calls are points of it.
//!
//! The order of a process's calls and arrivals: recorded while a run is recorded, and imposed while it is
//! replayed.
//!
//! A *point* is a call that changes something, a poll that found nothing after one that had found something,
//! or the last packet of a request that a queue pair accepts. Each has a name that other runs have too: the
//! thread by its [`ThreadName`], or without one by the order in which such threads make their first call; the
//! sender by its process and the ordinal of its queue pair there.
//!
//! **Invariant**: nothing waits for a point for longer than a named time, no process holds back more than a
//! named number of packets, and after the first point that cannot be reached nothing is held back any more.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use pumice_calls::Call;
use replay::Replay;
use schedule::Record;

use crate::outside;
use crate::outside::fork_generation::PerProcess;
use crate::outside::thread::ThreadName;

/// The role of a call in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointTiming {
    /// The call counts where it enters: its effects elsewhere come after that.
    Enters,
    /// The call counts where it leaves: only then its change in this process is visible.
    Leaves,
    /// The call asks, waits or polls, and changes nothing.
    Other,
}

impl PointTiming {
    pub(super) const fn of(call: Call) -> PointTiming {
        if !call.changes_objects() {
            PointTiming::Other
        } else if call.expects() {
            PointTiming::Leaves
        } else {
            PointTiming::Enters
        }
    }
}

mod progress;
mod replay;
mod schedule;

pub use progress::{PROGRESS, points_done};
pub use schedule::Caller;
pub use schedule::{MAX_PROCESSES, Point, PointKind, RequestReceiver, SCHEDULE, text_of};

/// The name of TCP connections among calls.
const CONNECT: &str = "connect";

/// The recording or the replay of a process's order.
pub struct RunOrder {
    mode: OrderMode,
    /// Number of threads without a name that have made a call.
    unnamed: AtomicU32,
    process: u32,
}

enum OrderMode {
    /// There is no folder.
    Off,
    Record(Record),
    Replay(Box<Replay>),
}

thread_local! {
    /// The thread's name, and the process in which it got the name.
    static CALLER: Cell<Option<(u32, Caller)>> = const { Cell::new(None) };
    /// True if the thread has found something since it last found nothing.
    static HAS_FOUND: Cell<bool> = const { Cell::new(true) };
    /// The point of the thread's present call, if it counts when the call leaves.
    static OPEN_POINT: Cell<Option<usize>> = const { Cell::new(None) };
    /// The time at which the thread has begun to connect, in ns.
    static CONNECT_BEGUN_NS: Cell<u64> = const { Cell::new(0) };
}

static ORDER: PerProcess<std::sync::OnceLock<RunOrder>> = PerProcess::new(|_| std::sync::OnceLock::new());

/// Begins to write the order of the process to a folder, or to impose the order that the folder contains.
/// `tag` is the process's tag in plans and records. Only the first call counts.
pub fn begin(folder: &Path, tag: &str) {
    ORDER.get_or_init(|| RunOrder::of(folder, tag));
}

/// Returns the recording or the replay of this process, if there is one.
pub fn of_process() -> Option<&'static RunOrder> {
    let order = ORDER.get_if_created()?.get()?;
    (!matches!(order.mode, OrderMode::Off)).then_some(order)
}

impl RunOrder {
    fn of(folder: &Path, tag: &str) -> RunOrder {
        let process = outside::process::number();
        let mode = if folder.join(SCHEDULE).is_file() {
            Replay::begin(folder, tag, process)
                .map_or(OrderMode::Off, |replay| OrderMode::Replay(Box::new(replay)))
        } else {
            Record::begin(folder, process).map_or(OrderMode::Off, OrderMode::Record)
        };
        RunOrder { mode, unnamed: AtomicU32::new(0), process }
    }

    /// Returns the identity of this thread.
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

    /// Records that a call of the program enters: a replay holds it back until it is its turn.
    pub fn enters(&self, call: Call) {
        let kind = PointTiming::of(call);
        if kind == PointTiming::Other {
            return;
        }
        let _ = HAS_FOUND.try_with(|found| found.set(true));
        match &self.mode {
            OrderMode::Off => {}
            OrderMode::Record(record) if kind == PointTiming::Enters => {
                record.call(self.caller(), call.name())
            }
            OrderMode::Record(_) => {}
            OrderMode::Replay(replay) => {
                let Some(index) = replay.wait_for_call(self.caller(), call.name()) else { return };
                if kind == PointTiming::Enters {
                    replay.done(index);
                } else {
                    let _ = OPEN_POINT.try_with(|open| open.set(Some(index)));
                }
            }
        }
    }

    /// Records that a call of the program leaves; `is_idle`: it found nothing.
    pub fn leaves(&self, call: Call, is_idle: bool) {
        let kind = PointTiming::of(call);
        if is_idle {
            let had_found = HAS_FOUND.try_with(|found| found.replace(false)).unwrap_or_default();
            match &self.mode {
                OrderMode::Record(record) if had_found => record.idle(self.caller(), call.name()),
                OrderMode::Replay(replay) if had_found => replay.idle(self.caller(), call.name()),
                _ => {}
            }
            return;
        }
        let _ = HAS_FOUND.try_with(|found| found.set(true));
        if kind != PointTiming::Leaves {
            return;
        }
        match &self.mode {
            OrderMode::Record(record) => record.call(self.caller(), call.name()),
            OrderMode::Replay(replay) => {
                if let Some(index) = OPEN_POINT.try_with(Cell::take).ok().flatten() {
                    replay.done(index);
                }
            }
            OrderMode::Off => {}
        }
    }

    /// Records that a thread begins to make a TCP connection, whose turn in the order is here; it may fail,
    /// and be tried again.
    pub fn begins_to_connect(&self) {
        match &self.mode {
            OrderMode::Off => {}
            OrderMode::Record(_) => {
                let _ = CONNECT_BEGUN_NS.try_with(|begun_ns| begun_ns.set(outside::monotonic_ns()));
            }
            OrderMode::Replay(replay) => {
                let is_open = OPEN_POINT.try_with(Cell::get).ok().flatten().is_some();
                // A connection that was not made is in no record.
                if !is_open && replay.is_next(self.caller(), CONNECT) {
                    let point = replay.wait_for_call(self.caller(), CONNECT);
                    let _ = OPEN_POINT.try_with(|open| open.set(point));
                }
            }
        }
    }

    /// Records that the thread has made the connection, or could not: then it may try again.
    pub fn has_connected(&self, is_made: bool) {
        if !is_made {
            return;
        }
        match &self.mode {
            OrderMode::Off => {}
            OrderMode::Record(record) => {
                let begun_ns = CONNECT_BEGUN_NS.try_with(Cell::get).unwrap_or_default();
                record.call_at(begun_ns, self.caller(), CONNECT);
            }
            OrderMode::Replay(replay) => {
                if let Some(index) = OPEN_POINT.try_with(Cell::take).ok().flatten() {
                    replay.done(index);
                }
            }
        }
    }

    /// Reports whether a request that a queue pair would accept may come to it now.
    pub fn may_arrive(&self, stream: RequestReceiver) -> bool {
        match &self.mode {
            OrderMode::Replay(replay) => replay.may_arrive(stream),
            OrderMode::Record(_) | OrderMode::Off => true,
        }
    }

    /// Records that a queue pair has accepted a request.
    pub fn arrived(&self, stream: RequestReceiver) {
        match &self.mode {
            OrderMode::Record(record) => record.arrival(stream),
            OrderMode::Replay(replay) => replay.arrived(stream),
            OrderMode::Off => {}
        }
    }

    /// Ends the replay because no more packets can be held back.
    pub fn abandon_replay(&self) {
        if let OrderMode::Replay(replay) = &self.mode {
            replay.depart("more packets came before their turn than can be held back", true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_something_are_points() {
        for enters in [
            Call::ibv_post_send,
            Call::ibv_wr_start,
            Call::ibv_create_qp,
            Call::ibv_modify_qp,
            Call::ibv_dereg_mr,
            Call::rdma_create_id,
            Call::rdma_listen,
            Call::rdma_connect,
        ] {
            assert_eq!(PointTiming::of(enters), PointTiming::Enters, "{enters}");
        }
        for leaves in [Call::ibv_post_recv, Call::ibv_post_srq_recv, Call::ibv_req_notify_cq] {
            assert_eq!(PointTiming::of(leaves), PointTiming::Leaves, "{leaves}");
        }
        for other in [
            Call::ibv_poll_cq,
            Call::ibv_query_port,
            Call::rdma_get_cm_event,
            Call::ibv_get_device_list,
            Call::rdma_getaddrinfo,
            Call::rsend,
        ] {
            assert_eq!(PointTiming::of(other), PointTiming::Other, "{other}");
        }
    }
}
