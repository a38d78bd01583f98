//! The order of calls and arrivals of a run, put together from what its processes have written down.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::Path;

use pumice_device::ground::order::{
    MAX_PROCESSES, PROGRESS, Point, SCHEDULE, Stream, What, points_done, text_of,
};
use pumice_device::ground::ordinal::Ordinal;
use pumice_device::outside::output_file::write_private;
use serde::Serialize;

use crate::run::record::Recorded;

/// Processes whose first departure is told.
const TOLD: usize = 5;
/// Bytes of a departure.
const MAX_BYTES: u64 = 4096;

/// The order of a run.
pub(super) struct Order {
    tags: Vec<String>,
    points: Vec<(u32, Point<(u32, u32)>)>,
    /// Why none is imposed.
    left_out: Option<&'static str>,
}

/// That of a recorded run.
///
/// # Errors
/// What cannot be read, and what is damaged.
pub(super) fn of(processes: &[Recorded]) -> Result<Order, String> {
    let nothing = |left_out| Ok(Order { tags: Vec::new(), points: Vec::new(), left_out });
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
    // Of processes with one tag the first that does something is the first.
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
                // What comes from elsewhere has no name, and comes when it comes.
                What::Arrival(stream) => What::Arrival(*senders.get(stream)?),
                What::Call { caller, call } => What::Call { caller: *caller, call: call.clone() },
                What::Idle { caller, call } => What::Idle { caller: *caller, call: call.clone() },
            };
            Some((index, Point { at_ns: *at_ns, what }))
        });
        points.extend(named);
    }
    points.sort_by_key(|(_, point)| point.at_ns);
    let tags = known.iter().map(|(_, process, _)| process.tag.clone()).collect();
    Ok(Order { tags, points, left_out: None })
}

/// The queue pair that a line says one to be connected to, and the ordinal of that one.
fn connected(line: &str) -> Option<(Stream, u32)> {
    let mut words = line.strip_prefix("connected ")?.split(' ');
    let Ordinal(ordinal) = words.next()?.parse().ok()?;
    let address: IpAddr = words.next()?.parse().ok()?;
    Some((Stream { address, qpn: words.next()?.parse().ok()? }, ordinal))
}

impl Order {
    /// Has the processes of a replay impose it, whose folder this is.
    pub(super) fn impose(&self, folder: &Path) -> io::Result<()> {
        // An empty one as well: a replay notes no order of its own.
        write_private(&folder.join(SCHEDULE), text_of(&self.tags, &self.points).as_bytes())
    }

    /// What came of it.
    pub(super) fn had(&self, folder: &Path) -> Had {
        let departures = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| {
            let path = entry.ok()?.path();
            path.extension().filter(|extension| *extension == "departed")?;
            let about = fs::metadata(&path).ok().filter(|about| about.is_file() && about.len() <= MAX_BYTES);
            about.and_then(|_| fs::read_to_string(&path).ok())
        });
        let mut departures: Vec<String> = departures.collect();
        departures.sort();
        let is_counted = |(_, point): &&(u32, Point<(u32, u32)>)| !matches!(point.what, What::Idle { .. });
        let points = self.points.iter().filter(is_counted).count();
        // What cannot be read was not written: no process came so far.
        let done = fs::read(folder.join(PROGRESS)).map_or(0, |bytes| points_done(&bytes));
        Had { points, in_order: done.min(points as u64), departures, left_out: self.left_out }
    }
}

/// What came of an order.
#[derive(Debug, Default, Serialize)]
pub(super) struct Had {
    /// Calls and arrivals of the record.
    points: usize,
    /// How many of them came in its order.
    in_order: u64,
    /// Where it could not be had, a sentence for each process.
    departures: Vec<String>,
    /// Why none is imposed.
    left_out: Option<&'static str>,
}

impl Had {
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if let Some(why) = self.left_out {
            return writeln!(out, "the order of arrivals is not imposed: {why}");
        }
        if self.points > 0 {
            let Had { points, in_order, .. } = self;
            writeln!(out, "{in_order} of {points} calls and arrivals came in the recorded order")?;
        }
        for departure in self.departures.iter().take(TOLD) {
            writeln!(out, "the order is another one: {departure}")?;
        }
        Ok(())
    }
}
