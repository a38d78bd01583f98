//! Derives a fault plan from captures: rules that repeat what the network did to packets.

mod datagrams;
mod rules;
mod sides;
mod walk;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::outcome::{CommandError, CommandResult, Outcome};

use datagrams::{Datagrams, QpOrdinals};
use rules::FaultRules;
pub(crate) use rules::TransitFault;
use sides::{CaptureSides, MAX_PACKETS, sightings, streams};

#[cfg(test)]
pub(super) use sides::DatagramInfo;
pub(super) use sides::{Sighting, all_sightings};

/// Prints the plan of one capture, or of a capture at the sender and one at the receiver.
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
    let sides = CaptureSides::of(&captures);
    let mut rules = FaultRules::default();
    for source in sides.sources() {
        let streams = streams(&sides, source);
        for stream in &streams {
            walk::walk(&sides, stream, &mut rules);
        }
    }
    head(files, &sides, out).and_then(|()| rules.write(out)).map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

/// The recording of a device of a process.
pub(crate) struct RecordedCapture<'a> {
    pub(crate) tag: &'a str,
    /// Name of the device, if the process had several.
    pub(crate) device: Option<&'a str>,
    /// Capture of the device, which has the direction of each packet.
    pub(crate) packets: &'a Path,
    /// Notes about its queue pairs; further queue pairs are numbered in the order in which they first sent.
    pub(crate) queue_pairs: String,
}

/// Returns what the network did to each device's packets, as lines of a report in which `rule` did it.
///
/// # Errors
/// A capture cannot be read.
pub(crate) fn faults_in_transit(
    devices: Vec<RecordedCapture<'_>>,
    rule: &str,
) -> Result<Vec<TransitFault>, CommandError> {
    let mut captures = Vec::new();
    let mut packets = 0;
    for (index, device) in devices.into_iter().enumerate() {
        let name = device.packets.display();
        // Opening a pipe would wait for its other end.
        if !device.packets.is_file() {
            return Err(CommandError::Failed(format!("{name} cannot be read: it is no file")));
        }
        let mut seen = read(device.packets)?;
        seen.iter_mut().for_each(|one| one.capture = index);
        packets += seen.len();
        if packets > MAX_PACKETS {
            return Err(CommandError::Failed(format!(
                "{name}: the record has more than {MAX_PACKETS} packets: record a shorter run"
            )));
        }
        captures.push((device, seen));
    }
    let arrived = |one: &&Sighting| one.is_outbound == Some(false);
    let all = || captures.iter().flat_map(|(_, seen)| seen);
    let (arrivals, of_datagrams): (Vec<Sighting>, Vec<Sighting>) =
        all().filter(arrived).cloned().partition(|one| one.datagram.is_none());
    let network = Datagrams::of(all(), &of_datagrams);
    let known = ReceiverIndex::of(&captures);
    let mut lines = Vec::new();
    for (device, seen) in &captures {
        let sent: Vec<Sighting> = seen.iter().filter(|one| one.is_outbound == Some(true)).cloned().collect();
        let ordinals = QpOrdinals::of(&sent, &device.queue_pairs);
        let (own, own_datagrams): (Vec<Sighting>, Vec<Sighting>) =
            sent.into_iter().partition(|one| one.datagram.is_none());
        let sources: HashSet<IpAddr> = own.iter().map(|one| one.source).collect();
        let concerns = |one: &&Sighting| sources.contains(&one.source) || sources.contains(&one.destination);
        let both = [own, arrivals.iter().filter(concerns).cloned().collect()];
        let sides = CaptureSides::of(&both);
        let mut rules = FaultRules::default();
        for source in sides.sources() {
            for mut stream in streams(&sides, source) {
                stream.ordinal = ordinals.of_connected(stream.destination, stream.qpn);
                stream.own_qpn = ordinals.qpn(stream.ordinal);
                if !known.have(stream.destination, stream.qpn) {
                    // Arrivals from this address belong to another process that has the same address.
                    stream.outcomes = None;
                }
                walk::walk(&sides, &stream, &mut rules);
            }
        }
        network.walk(&own_datagrams, &ordinals, &mut rules);
        lines.extend(rules.lines(rule, device.tag, device.device));
    }
    Ok(lines)
}

/// The queue pairs of the recorded devices. Packets to other queue pairs arrive where nothing was captured.
#[derive(Default)]
struct ReceiverIndex {
    /// Queue pairs at which something arrived.
    reached: HashSet<(IpAddr, u32)>,
    /// Indices of the devices that have an address.
    devices: HashMap<IpAddr, Vec<usize>>,
    /// Queue pairs that each device created.
    made: Vec<HashSet<u32>>,
}

impl ReceiverIndex {
    fn of(captures: &[(RecordedCapture<'_>, Vec<Sighting>)]) -> ReceiverIndex {
        let mut all = ReceiverIndex::default();
        for (index, (device, seen)) in captures.iter().enumerate() {
            let mut addresses = HashSet::new();
            for one in seen {
                match one.is_outbound {
                    Some(true) => addresses.insert(one.source),
                    Some(false) => {
                        all.reached.insert((one.destination, one.qpn)) | addresses.insert(one.destination)
                    }
                    None => false,
                };
            }
            for address in addresses {
                all.devices.entry(address).or_default().push(index);
            }
            all.made.push(device.queue_pairs.lines().filter_map(datagrams::made_in).collect());
        }
        all
    }

    fn have(&self, address: IpAddr, qpn: u32) -> bool {
        let made = |index: &usize| self.made.get(*index).is_some_and(|made| made.contains(&qpn));
        self.reached.contains(&(address, qpn))
            || self.devices.get(&address).is_some_and(|indices| indices.iter().any(made))
    }
}

fn read(file: &Path) -> Result<Vec<Sighting>, CommandError> {
    let name = file.display();
    let input = File::open(file)
        .map_err(|error| CommandError::Failed(format!("{name} cannot be opened: {error}")))?;
    sightings(input).map_err(|what| CommandError::Failed(format!("{name} cannot be read: {what}")))
}

/// Writes the head of the plan, with its assumptions.
fn head(files: &[&PathBuf], sides: &CaptureSides<'_>, out: &mut dyn Write) -> std::io::Result<()> {
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
