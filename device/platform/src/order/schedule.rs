//! The order of all points of a run, as text, and its recording.

use std::fmt;
use std::fmt::{Display, Write as _};
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use crate::ordinal::Ordinal;
use crate::outside::monotonic_ns;
use crate::outside::output_file::{OutputFile, complete_lines, on_standard_error};
use crate::outside::thread::ThreadName;

/// Most threads without a name that are told apart.
const MAX_UNNAMED: u32 = 1 << 16;

/// A thread, identified in the same way in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Caller {
    /// A thread with a name.
    Named(ThreadName),
    /// A thread without a name, by the number of such threads that had made a call before.
    Unnamed(u32),
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Named(name) => write!(f, "{name}"),
            Caller::Unnamed(number) => write!(f, "~{number}"),
        }
    }
}

/// The error of a text that names no thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidCaller;

impl FromStr for Caller {
    type Err = InvalidCaller;

    fn from_str(text: &str) -> Result<Caller, InvalidCaller> {
        let found = match text.strip_prefix('~') {
            Some(number) => number.parse().ok().filter(|number| *number < MAX_UNNAMED).map(Caller::Unnamed),
            None => text.parse().ok().map(Caller::Named),
        };
        found.ok_or(InvalidCaller)
    }
}

/// A file with a line for each point.
pub(super) struct Record(Mutex<RecordState>);

struct RecordState {
    out: OutputFile,
    points: u32,
}

impl Record {
    /// Creates the record of this process in a folder; `None` if it cannot be written, which is reported.
    pub(super) fn begin(folder: &Path, process: u32) -> Option<Record> {
        let file = folder.join(format!("{process}.{ORDER}"));
        let made =
            OutputFile::create(&file, "the record of the order", complete_lines, Box::new(on_standard_error));
        match made {
            Ok(out) => Some(Record(Mutex::new(RecordState { out, points: 0 }))),
            Err(error) => {
                let file = file.display();
                on_standard_error(&format!("{file} cannot be written: {error}: the record lacks the order"));
                None
            }
        }
    }

    pub(super) fn call(&self, caller: Caller, call: &str) {
        self.line(&format_args!("{caller} {call}"));
    }

    /// Records a call that was made at an earlier time, in ns.
    pub(super) fn call_at(&self, at_ns: u64, caller: Caller, call: &str) {
        self.line_of(|| at_ns, &format_args!("{caller} {call}"));
    }

    pub(super) fn idle(&self, caller: Caller, call: &str) {
        self.line(&format_args!("{caller} -{call}"));
    }

    pub(super) fn arrival(&self, stream: RequestReceiver) {
        self.line(&format_args!("* {} {}", stream.address, stream.qpn));
    }

    fn line(&self, what: &dyn Display) {
        self.line_of(monotonic_ns, what);
    }

    fn line_of(&self, at_ns: impl FnOnce() -> u64, what: &dyn Display) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.points < MAX_POINTS {
            state.points += 1;
            // The lock makes the order of the file that of the times.
            let line = format!("{} {what}\n", at_ns());
            // A full disk is reported by `append`, and the rest of the order is not imposed.
            let _ = state.out.append(line.as_bytes());
        }
    }
}

/// The extension of the file in which a process records its order.
pub(super) const ORDER: &str = "order";
/// The file of a replay with the order that it imposes.
pub const SCHEDULE: &str = "order";
/// Most processes of an order.
pub const MAX_PROCESSES: usize = 1024;
/// Most points of an order.
const MAX_POINTS: u32 = 1 << 20;
/// Most bytes of an order.
pub(super) const MAX_BYTES: u64 = 128 << 20;

/// The receiver of a request: the address and the number of the queue pair that accepts it. The records say
/// which queue pair is connected to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestReceiver {
    /// The address that the request was sent to.
    pub address: IpAddr,
    /// The number of the queue pair.
    pub qpn: u32,
}

/// The occurrence at a point. `S` is the type that identifies the sender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PointKind<S> {
    /// A thread makes a call of this name.
    Call {
        /// The thread.
        caller: Caller,
        /// The call's name.
        call: String,
    },
    /// A thread makes a call of this name, and it finds nothing.
    Idle {
        /// The thread.
        caller: Caller,
        /// The call's name.
        call: String,
    },
    /// A request is accepted.
    Arrival(S),
}

/// A point of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point<S> {
    /// The time of the point, in ns of CLOCK_MONOTONIC, which all processes of a host have in common.
    pub at_ns: u64,
    /// The occurrence at the point.
    pub what: PointKind<S>,
}

/// The sender of a request: the index of the process in the order, and the ordinal of its queue pair.
pub(super) type Sender = (u32, u32);

impl Point<RequestReceiver> {
    /// Parses a line of a process's record.
    pub fn written_down(line: &str) -> Option<Point<RequestReceiver>> {
        let (at_ns, rest) = line.split_once(' ')?;
        let what = parse(rest, |address, qpn| {
            Some(RequestReceiver { address: address.parse::<IpAddr>().ok()?, qpn: qpn.parse().ok()? })
        })?;
        Some(Point { at_ns: at_ns.parse().ok()?, what })
    }
}

fn parse<S>(text: &str, sender: impl FnOnce(&str, &str) -> Option<S>) -> Option<PointKind<S>> {
    let mut words = text.split(' ');
    let (first, second, third) = (words.next()?, words.next()?, words.next());
    if words.next().is_some() {
        return None;
    }
    if first == "*" {
        return sender(second, third?).map(PointKind::Arrival);
    }
    let caller = first.parse().ok().filter(|_| third.is_none())?;
    Some(match second.strip_prefix('-') {
        Some(call) => PointKind::Idle { caller, call: call.to_owned() },
        None => PointKind::Call { caller, call: second.to_owned() },
    })
}

/// The order of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    /// The tag of each process.
    pub(super) tags: Vec<String>,
    /// The points of all processes in their order, each with the index of its process.
    pub(super) points: Vec<(u32, Point<Sender>)>,
}

/// Returns the text of an order: the tags of its processes, and its points, each with the index of its
/// process.
pub fn text_of(tags: &[String], points: &[(u32, Point<(u32, u32)>)]) -> String {
    let mut text = String::new();
    for tag in tags {
        let _ = writeln!(text, "process {tag}");
    }
    for (process, Point { at_ns, what }) in points.iter().take(MAX_POINTS as usize) {
        let _ = match what {
            PointKind::Call { caller, call } => writeln!(text, "{at_ns} {process} {caller} {call}"),
            PointKind::Idle { caller, call } => writeln!(text, "{at_ns} {process} {caller} -{call}"),
            PointKind::Arrival((sender, ordinal)) => {
                writeln!(text, "{at_ns} {process} * {sender} {}", Ordinal(*ordinal))
            }
        };
    }
    text
}

impl Schedule {
    /// Parses the text of an order; `None` if it is damaged.
    pub(super) fn parse(text: &str) -> Option<Schedule> {
        let mut schedule = Schedule::default();
        for line in text.lines() {
            if let Some(tag) = line.strip_prefix("process ") {
                schedule.tags.push(tag.to_owned());
                continue;
            }
            let (at_ns, rest) = line.split_once(' ')?;
            let (process, rest) = rest.split_once(' ')?;
            let what = parse(rest, |sender, ordinal| {
                let Ordinal(ordinal) = ordinal.parse().ok()?;
                Some((sender.parse().ok()?, ordinal))
            })?;
            let process: u32 =
                process.parse().ok().filter(|index| (*index as usize) < schedule.tags.len())?;
            schedule.points.push((process, Point { at_ns: at_ns.parse().ok()?, what }));
        }
        let fits = schedule.tags.len() <= MAX_PROCESSES && schedule.points.len() <= MAX_POINTS as usize;
        fits.then_some(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let named = |name: &str| name.parse().expect("a thread");
        let call = |caller, call: &str| PointKind::Call { caller: named(caller), call: call.to_owned() };
        let points = vec![
            (0, Point { at_ns: 5, what: call("main", "ibv_create_qp") }),
            (
                1,
                Point {
                    at_ns: 6,
                    what: PointKind::Idle { caller: named("2.0"), call: "ibv_poll_cq".to_owned() },
                },
            ),
            (1, Point { at_ns: 9, what: PointKind::Arrival((0, 3)) }),
        ];
        let tags = vec!["one".to_owned(), "an other".to_owned()];
        let read = Schedule::parse(&text_of(&tags, &points));
        assert_eq!(read, Some(Schedule { tags, points }));
    }

    #[test]
    fn lines_of_processes_are_understood() {
        let stream = RequestReceiver { address: IpAddr::from([127, 0, 0, 1]), qpn: 4660 };
        let point = Point::written_down("17 * 127.0.0.1 4660");
        assert_eq!(point, Some(Point { at_ns: 17, what: PointKind::Arrival(stream) }));
        let call = PointKind::Call { caller: Caller::Unnamed(1), call: "ibv_post_send".to_owned() };
        assert_eq!(Point::written_down("18 ~1 ibv_post_send"), Some(Point { at_ns: 18, what: call }));
        for damaged in
            ["", "17", "17 *", "17 * 1", "x 1 a", "17 1", "17 ~70000 a", "17 1 a b", "1 * 1.1.1.1 x"]
        {
            assert_eq!(Point::written_down(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_damaged_order_is_refused() {
        for damaged in ["1 0 0 a\n", "process a\n1 1 0 a\n", "process a\n1 0 0\n", "process a\nx\n"] {
            assert_eq!(Schedule::parse(damaged), None, "{damaged:?}");
        }
    }
}
