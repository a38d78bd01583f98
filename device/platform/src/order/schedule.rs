//! The order of all points of a run, as text: the records of processes, and the input of a replay.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::caller::Caller;
use crate::ordinal::Ordinal;

/// The extension of the file in which a process records its order.
pub(super) const ORDER: &str = "order";
/// The file of a replay with the order that it imposes.
pub const SCHEDULE: &str = "order";
/// Most processes of an order.
pub const MAX_PROCESSES: usize = 1024;
/// Most points of an order.
pub(super) const MAX_POINTS: u32 = 1 << 20;
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
