//! Writes a timeline for Perfetto: as Chrome trace JSON, or in Perfetto's own format.
//!
//! A process of the timeline is a process in Perfetto, with one track for the events of no queue pair. Each
//! queue pair has as many tracks as its work requests need in order not to overlap, one for its packets and
//! one for the rest.

mod chrome;
mod pftrace;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Write};

use pumice_device::trace::{
    Message, PacketIndex, Receive, Timeline, TimelineProcess, TracedPacket, TracedQueuePair,
};
use serde_json::json;

use super::slices::{self, Slice, SpanLanes, packet_kind, packet_name};
use chrome::Chrome;
use pftrace::{ArrowEnd, Pftrace, TraceSink, Track};

/// Length of a packet in the drawing, in ns, so that an arrow can begin at it.
const PACKET_NS: u64 = 1000;
/// Track of the events of no queue pair.
const PROCESS_TRACK: u64 = 1;

/// Writes the timeline as Chrome trace JSON.
///
/// # Errors
/// It cannot be written.
pub(super) fn write_json(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    write(timeline, &mut Chrome::begin(out)?)
}

/// Writes the timeline in Perfetto's own format.
///
/// # Errors
/// It cannot be written.
pub(super) fn write_pftrace(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    write(timeline, &mut Pftrace::begin(out))
}

fn write(timeline: &Timeline, out: &mut dyn TraceSink) -> io::Result<()> {
    let mut ends = HashMap::new();
    for (number, arrow) in timeline.arrows.iter().enumerate() {
        // A packet that was duplicated has one arrow, to its first arrival.
        let (id, from) = (number as u64, key(arrow.from));
        if let Entry::Vacant(entry) = ends.entry(from) {
            entry.insert(ArrowEnd { id, begins: true });
            ends.insert(key(arrow.to), ArrowEnd { id, begins: false });
        }
    }
    for (index, process) in timeline.processes.iter().enumerate() {
        let pid = index as u64 + 1;
        let header = &process.header;
        out.process(pid, &format!("{} {} ({})", header.program, header.process, header.tag))?;
        moments(out, process, pid)?;
        let mut next = Track { process: pid, index: PROCESS_TRACK + 1 };
        for (queue_pair, qp) in process.queue_pairs.iter().enumerate() {
            next = requests(out, qp, next)?;
            let location = PacketIndex { process: index, queue_pair, packet: 0 };
            next = packets(out, qp, next, location, &ends)?;
            pftrace::of_queue_pair(out, qp, pid)?;
        }
        pftrace::of_completion_queues(out, process, pid)?;
    }
    out.finish(&timeline.remarks)
}

const fn key(location: PacketIndex) -> (usize, usize, usize) {
    (location.process, location.queue_pair, location.packet)
}

/// The arrow that begins or ends at a packet.
type ArrowEnds = HashMap<(usize, usize, usize), ArrowEnd>;

/// Returns the title of a queue pair.
fn title(qp: &TracedQueuePair) -> String {
    let peer = qp.peer.map_or_else(String::new, |(address, qpn)| format!(" to {address} QP {qpn:#x}"));
    format!("QP {:#x} {}{peer}", qp.qpn, qp.service)
}

/// Writes the events of no queue pair.
fn moments(out: &mut dyn TraceSink, process: &TimelineProcess, pid: u64) -> io::Result<()> {
    if process.moments.is_empty() {
        return Ok(());
    }
    let track = Track { process: pid, index: PROCESS_TRACK };
    out.track(track, "connections, calls and events")?;
    let mut moments = process.moments.iter();
    moments.try_for_each(|event| out.mark(track, event.kind.name(), &event.text, event.at_ns))
}

/// Writes the work requests of a queue pair, from this track on; returns the next free track.
fn requests(out: &mut dyn TraceSink, qp: &TracedQueuePair, track: Track) -> io::Result<Track> {
    let name = format!("{}: send requests", title(qp));
    let starts = |message: &Message| message.posted_ns;
    let track = beside(out, (&name, "send"), &qp.messages, (starts, slices::of_message), track)?;
    let name = format!("{}: receive requests", title(qp));
    let starts = |receive: &Receive| receive.posted_ns.unwrap_or(receive.end.at_ns);
    beside(out, (&name, "receive"), &qp.receives, (starts, slices::of_receive), track)
}

/// Writes requests as spans with their parts, on as many tracks as they need. The spans of a request are made
/// when they are written, because those of all requests would take a hundred times the memory of their trace.
fn beside<R>(
    out: &mut dyn TraceSink,
    (name, category): (&str, &str),
    requests: &[R],
    (starts_ns, spans): (impl Fn(&R) -> u64, impl Fn(&R) -> Vec<Slice>),
    first: Track,
) -> io::Result<Track> {
    let mut in_order: Vec<&R> = requests.iter().collect();
    in_order.sort_by_key(|request| starts_ns(request));
    let mut lanes = SpanLanes::default();
    for request in in_order {
        let slices = spans(request);
        let [outer, parts @ ..] = slices.as_slice() else { continue };
        let known = lanes.count();
        let track = after(first, lanes.take(outer.start_ns, outer.end_ns));
        if lanes.count() > known {
            out.track(track, name)?;
        }
        out.span(track, category, outer, parts)?;
    }
    Ok(after(first, lanes.count()))
}

fn after(track: Track, count: usize) -> Track {
    Track { index: track.index + count as u64, ..track }
}

/// Writes the packets of a queue pair with their arrows, and its other events; returns the next free track.
fn packets(
    out: &mut dyn TraceSink,
    qp: &TracedQueuePair,
    first: Track,
    location: PacketIndex,
    ends: &ArrowEnds,
) -> io::Result<Track> {
    for (is_sent, track, name) in
        [(true, first, "packets sent"), (false, after(first, 1), "packets received")]
    {
        out.track(track, &format!("{}: {name}", title(qp)))?;
        let of_direction = qp.packets.iter().enumerate().filter(|(_, packet)| packet.is_sent == is_sent);
        let mut of_direction = of_direction.peekable();
        while let Some((number, packet)) = of_direction.next() {
            let next_ns = of_direction.peek().map_or(u64::MAX, |(_, next)| next.at_ns);
            let end_ns = next_ns.min(packet.at_ns.saturating_add(PACKET_NS)).max(packet.at_ns);
            let arrow = ends.get(&key(PacketIndex { packet: number, ..location })).copied();
            out.packet(track, &packet_slice(qp, packet, end_ns, arrow.is_some()), arrow)?;
        }
    }
    let mut moments = qp.moments.iter();
    moments.try_for_each(|event| out.mark(first, event.kind.name(), &event.text, event.at_ns))?;
    Ok(after(first, 2))
}

fn packet_slice(qp: &TracedQueuePair, packet: &TracedPacket, end_ns: u64, has_arrow: bool) -> Slice {
    let opcode = packet_name(packet_kind(&qp.service, packet.opcode));
    let again = if packet.transmission > 1 { format!(" ({}x)", packet.transmission) } else { String::new() };
    let fate = match (packet.is_lost, packet.is_dropped) {
        (true, _) => " lost",
        (_, true) => " dropped",
        _ => "",
    };
    let path = packet.path.and_then(|path| qp.paths.get(path as usize));
    let mut about = json!({"psn": packet.psn, "bytes": packet.length});
    if let Some(about) = about.as_object_mut() {
        if packet.is_sent {
            about.insert("message".to_owned(), json!(packet.message));
            about.insert("transmission".to_owned(), json!(packet.transmission));
            about.insert("to_qp".to_owned(), json!(format!("{:#x}", packet.other_qpn)));
        }
        if let Some((from, to)) = path {
            about.insert("way".to_owned(), json!(format!("{from} to {to}")));
        }
        if !has_arrow {
            let other = if packet.is_sent { "arrival" } else { "departure" };
            let known = if packet.is_lost { "none: a fault plan lost it" } else { "not in these traces" };
            about.insert(other.to_owned(), json!(known));
        }
    }
    let name = format!("{opcode} PSN {}{again}{fate}", packet.psn);
    Slice { start_ns: packet.at_ns, end_ns, name, about }
}
