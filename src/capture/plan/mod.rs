//! From captures to a fault plan: what the network did to packets becomes rules that do it again.

mod datagrams;
mod rules;
mod sides;
mod sighting;
mod walk;

use std::collections::HashSet;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::outcome::{CommandError, CommandResult, Outcome};

use datagrams::{Datagrams, Ordinals};
use rules::Rules;
use sides::{Sides, streams};
use sighting::sightings;

pub(super) use sighting::{Sighting, all_sightings};

/// Prints the plan of one capture, or of one of the sender's side and one of the receiver's side.
pub(super) fn print(files: &[&PathBuf], out: &mut dyn Write) -> CommandResult {
    let mut captures: Vec<Vec<Sighting>> = Vec::new();
    for file in files {
        let seen = read(file)?;
        captures.push(seen.into_iter().filter(|one| one.datagram.is_none()).collect());
    }
    if captures.iter().all(Vec::is_empty) {
        let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(CommandError::Failed(format!(
            "{}: there is no packet of a reliable or unreliable connection in it, so there is no plan in it",
            names.join(", ")
        )));
    }
    let sides = Sides::of(&captures);
    let mut rules = Rules::default();
    for source in sides.sources() {
        let streams = streams(&sides, source);
        for stream in &streams {
            walk::walk(&sides, stream, &mut rules);
        }
    }
    head(files, &sides, out).and_then(|()| rules.write(out)).map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

/// What is recorded of a process.
pub(crate) struct Captured<'a> {
    pub(crate) tag: &'a str,
    /// Its capture, which says the direction of each packet.
    pub(crate) packets: &'a Path,
    /// Its queue pairs; without them they are numbered in the order in which they are first seen sending.
    pub(crate) queue_pairs: Option<&'a Path>,
}

/// What the network did to each process's packets, as lines of a report in which `rule` did it.
///
/// # Errors
/// A capture cannot be read.
pub(crate) fn on_the_way(processes: &[Captured<'_>], rule: &str) -> Result<Vec<String>, CommandError> {
    let mut captures = Vec::new();
    for process in processes {
        let noted = process.queue_pairs.map(std::fs::read_to_string).and_then(Result::ok).unwrap_or_default();
        captures.push((process.tag, read(process.packets)?, noted));
    }
    let arrived = |one: &&Sighting| one.is_outbound == Some(false);
    let all = || captures.iter().flat_map(|(_, seen, _)| seen);
    let (arrivals, of_datagrams): (Vec<Sighting>, Vec<Sighting>) =
        all().filter(arrived).cloned().partition(|one| one.datagram.is_none());
    let network = Datagrams::of(all(), &of_datagrams);
    let known = receivers(&captures);
    let mut lines = Vec::new();
    for (tag, seen, noted) in &captures {
        let sent: Vec<Sighting> = seen.iter().filter(|one| one.is_outbound == Some(true)).cloned().collect();
        let ordinals = Ordinals::of(&sent, noted);
        let (own, own_datagrams): (Vec<Sighting>, Vec<Sighting>) =
            sent.into_iter().partition(|one| one.datagram.is_none());
        let both = [own, arrivals.clone()];
        let sides = Sides::of(&both);
        let mut rules = Rules::default();
        for source in sides.sources() {
            for mut stream in streams(&sides, source) {
                stream.ordinal = ordinals.of_connected(stream.destination, stream.qpn);
                stream.own_qpn = ordinals.qpn(stream.ordinal);
                if !known.contains(&(stream.destination, stream.qpn)) {
                    // What arrived from this address is of another process that has it.
                    stream.outcomes = None;
                }
                walk::walk(&sides, &stream, &mut rules);
            }
        }
        network.walk(&own_datagrams, &ordinals, &mut rules);
        lines.extend(rules.lines(rule, tag));
    }
    Ok(lines)
}

/// The queue pairs of the recorded processes: what is sent to others arrives where no capture is.
fn receivers(captures: &[(&str, Vec<Sighting>, String)]) -> HashSet<(IpAddr, u32)> {
    let mut known = HashSet::new();
    for (_, seen, noted) in captures {
        let mut addresses = HashSet::new();
        for one in seen {
            match one.is_outbound {
                Some(true) => addresses.insert(one.source),
                Some(false) => known.insert((one.destination, one.qpn)) | addresses.insert(one.destination),
                None => false,
            };
        }
        let made = || noted.lines().filter_map(datagrams::made_in);
        known.extend(addresses.iter().flat_map(|address| made().map(move |qpn| (*address, qpn))));
    }
    known
}

fn read(file: &Path) -> Result<Vec<Sighting>, CommandError> {
    let name = file.display();
    let input = File::open(file)
        .map_err(|error| CommandError::Failed(format!("{name} cannot be opened: {error}")))?;
    sightings(input).map_err(|what| CommandError::Failed(format!("{name} cannot be read: {what}")))
}

/// What had to be assumed.
fn head(files: &[&PathBuf], sides: &Sides<'_>, out: &mut dyn Write) -> std::io::Result<()> {
    let names: Vec<String> = files.iter().map(|file| format!("{:?}", file.display().to_string())).collect();
    writeln!(out, "# What the network did, from {}.", names.join(" and "))?;
    writeln!(out, "# Captures do not say everything. Assumed:")?;
    writeln!(
        out,
        "# * tag: a rule names the address of the receiver (peer) in place of the sending process."
    )?;
    writeln!(
        out,
        "# * qp: queue pairs of an address are numbered in the order in which they are first seen sending."
    )?;
    writeln!(out, "# * connection: each queue pair has one.")?;
    writeln!(out, "# * message, packet: the first request that is seen of a queue pair is its first.")?;
    writeln!(out, "# * answers belong to the queue pair in the other direction whose PSNs fit best.")?;
    if !sides.know_directions() {
        writeln!(out, "# * sides: an address sends in the capture that has more of its packets.")?;
    }
    if !sides.have_arrivals() {
        writeln!(out, "# * fates: a packet that was sent again was lost; only the sender's side is known.")?;
    }
    writeln!(
        out,
        "# Not looked at: datagrams, connection management, congestion notifications, NAKs but RNR NAKs."
    )?;
    writeln!(out, "# An ACK that a fault plan of pumice loses is never made, and is in no capture.")?;
    writeln!(out, "seed = 1")
}
