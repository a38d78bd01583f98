//! The order of calls and arrivals of a run, merged from the orders that its processes recorded.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use pumice_device::outside::output_file::write_private;
use pumice_device::platform::order::{
    MAX_PROCESSES, PROGRESS, Point, PointKind, RequestReceiver, SCHEDULE, points_done, text_of,
};
use pumice_device::platform::ordinal::Ordinal;
use serde::Serialize;

use crate::run::record::RecordedProcess;

/// Maximum number of processes whose first departure is reported.
const MAX_SHOWN_DEPARTURES: usize = 5;
/// Maximum length of a departure, in bytes.
const MAX_BYTES: u64 = 4096;

/// The order of a run.
pub(super) struct RecordedOrder {
    tags: Vec<String>,
    points: Vec<(u32, Point<(u32, u32)>)>,
    /// Reason why no order is imposed.
    left_out: Option<&'static str>,
}

/// Reads the order of a recorded run.
///
/// # Errors
/// A sentence: a file cannot be read, or is damaged.
pub(super) fn of(processes: &[RecordedProcess]) -> Result<RecordedOrder, String> {
    let nothing = |left_out| Ok(RecordedOrder { tags: Vec::new(), points: Vec::new(), left_out });
    if processes.iter().filter(|process| process.exit_code.is_some()).count() > 1 {
        return nothing(Some("the record has several commands, which are replayed one by one"));
    }
    let mut known = Vec::new();
    for process in processes {
        let points = process.order()?;
        if let Some(first) = points.first() {
            known.push((first.at_ns, process, points));
        }
    }
    // Of processes with one tag, the first one is the first that does something.
    known.sort_by_key(|(at_ns, ..)| *at_ns);
    if known.len() > MAX_PROCESSES || known.iter().any(|(_, process, _)| process.tag.contains('\n')) {
        return nothing(Some("it has too many processes"));
    }
    let mut senders = HashMap::new();
    for (index, (_, process, _)) in (0_u32..).zip(&known) {
        for device in &process.devices {
            let noted = device.queue_pairs()?;
            senders.extend(noted.lines().filter_map(connected).map(|(to, ordinal)| (to, (index, ordinal))));
        }
    }
    let mut points: Vec<(u32, Point<(u32, u32)>)> = Vec::new();
    for (index, (_, _, own)) in (0_u32..).zip(&known) {
        let named = own.iter().filter_map(|Point { at_ns, what }| {
            let what = match what {
                // Packets from outside of the record have no name, and are not ordered.
                PointKind::Arrival(stream) => PointKind::Arrival(*senders.get(stream)?),
                PointKind::Call { caller, call } => PointKind::Call { caller: *caller, call: call.clone() },
                PointKind::Idle { caller, call } => PointKind::Idle { caller: *caller, call: call.clone() },
            };
            Some((index, Point { at_ns: *at_ns, what }))
        });
        points.extend(named);
    }
    points.sort_by_key(|(_, point)| point.at_ns);
    let tags = known.iter().map(|(_, process, _)| process.tag.clone()).collect();
    Ok(RecordedOrder { tags, points, left_out: None })
}

/// Parses a line about a connection: the peer's queue pair, and the ordinal of the own one.
fn connected(line: &str) -> Option<(RequestReceiver, u32)> {
    let mut words = line.strip_prefix("connected ")?.split(' ');
    let Ordinal(ordinal) = words.next()?.parse().ok()?;
    let address: IpAddr = words.next()?.parse().ok()?;
    Some((RequestReceiver { address, qpn: words.next()?.parse().ok()? }, ordinal))
}

impl RecordedOrder {
    /// Writes the order into this folder, for the processes of a replay to impose.
    pub(super) fn write_into(&self, folder: &Path) -> io::Result<()> {
        // An empty order is written as well, because a replay must not record an order of its own.
        write_private(&folder.join(SCHEDULE), text_of(&self.tags, &self.points).as_bytes())
    }

    /// Returns the result.
    pub(super) fn had(&self, folder: &Path) -> ReplayedOrder {
        let departures = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| {
            let path = entry.ok()?.path();
            path.extension().filter(|extension| *extension == "departed")?;
            let about = fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() <= MAX_BYTES);
            about.and_then(|_| fs::read_to_string(&path).ok())
        });
        let mut departures: Vec<String> = departures.collect();
        departures.sort();
        let is_counted =
            |(_, point): &&(u32, Point<(u32, u32)>)| !matches!(point.what, PointKind::Idle { .. });
        let points = self.points.iter().filter(is_counted).count();
        // A file that cannot be read was not written: no process came so far.
        let done = fs::read(folder.join(PROGRESS)).map_or(0, |bytes| points_done(&bytes));
        ReplayedOrder { points, in_order: done.min(points as u64), departures, left_out: self.left_out }
    }
}

/// The result of imposing an order.
#[derive(Debug, Default, Serialize)]
pub(super) struct ReplayedOrder {
    /// Number of calls and arrivals in the record.
    points: usize,
    /// Number of these that happened in the recorded order.
    in_order: u64,
    /// Departures from the order, a sentence for each process.
    departures: Vec<String>,
    /// Reason why no order is imposed.
    left_out: Option<&'static str>,
}

impl ReplayedOrder {
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(why) = self.left_out {
            return writeln!(out, "the order of arrivals is not imposed: {why}");
        }
        if self.points > 0 {
            let ReplayedOrder { points, in_order, .. } = self;
            writeln!(out, "{in_order} of {points} calls and arrivals came in the recorded order")?;
        }
        for departure in self.departures.iter().take(MAX_SHOWN_DEPARTURES) {
            writeln!(out, "the order is another one: {departure}")?;
        }
        Ok(())
    }
}
