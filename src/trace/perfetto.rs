//! A timeline as Chrome trace JSON, which Perfetto reads.
//!
//! A process of the timeline is a process there, and has tracks, which the format calls threads: one for what
//! happened to no queue pair, and for each queue pair as many as its work requests need in order not to
//! overlap, one for its packets and one for the rest.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use pumice_device::trace::{Packet, Place, Process, QueuePair, Timeline};
use pumice_transport::wire::Opcode;
use serde_json::{Value, json};

use super::lanes::Lanes;
use super::slices::{self, Slice, us};

/// How long a packet is drawn, so that an arrow has something to begin at.
const PACKET_NS: u64 = 1000;
/// The track of what happened to no queue pair.
const PROCESS_TRACK: u64 = 1;

/// Writes events, one a line.
struct Events<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl Events<'_> {
    fn put(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if std::mem::take(&mut self.is_first) { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    fn name(&mut self, what: &str, pid: u64, tid: u64, name: &str) -> io::Result<()> {
        self.put(&json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}))
    }

    fn order(&mut self, pid: u64, tid: u64) -> io::Result<()> {
        let args = json!({"sort_index": tid});
        self.put(&json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": args}))
    }

    fn slice(&mut self, pid: u64, tid: u64, category: &str, slice: &Slice) -> io::Result<()> {
        let mut event = json!({
            "ph": "X", "pid": pid, "tid": tid, "cat": category, "name": slice.name,
            "ts": us(slice.start_ns), "dur": us(slice.end_ns.saturating_sub(slice.start_ns)),
        });
        if let (Some(fields), false) = (event.as_object_mut(), slice.about.is_null()) {
            fields.insert("args".to_owned(), slice.about.clone());
        }
        self.put(&event)
    }

    fn counter(&mut self, pid: u64, name: &str, at_ns: u64, value: i64) -> io::Result<()> {
        self.put(&json!({"ph": "C", "pid": pid, "name": name, "ts": us(at_ns), "args": {"value": value}}))
    }
}

/// Writes the timeline.
///
/// # Errors
/// It cannot be written.
pub(super) fn write(timeline: &Timeline, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\": \"ns\", \"traceEvents\": [")?;
    let mut events = Events { out, is_first: true };
    let mut ends = HashMap::new();
    for (number, arrow) in timeline.arrows.iter().enumerate() {
        // A packet that was doubled has one arrow: to its first arrival.
        let from = key(arrow.from);
        if let Entry::Vacant(entry) = ends.entry(from) {
            entry.insert((number, true));
            ends.insert(key(arrow.to), (number, false));
        }
    }
    for (place, process) in timeline.processes.iter().enumerate() {
        let pid = place as u64 + 1;
        let header = &process.header;
        let name = format!("{} {} ({})", header.program, header.process, header.tag);
        events.name("process_name", pid, 0, &name)?;
        moments(&mut events, process, pid)?;
        let mut tid = PROCESS_TRACK + 1;
        for (queue_pair, qp) in process.queue_pairs.iter().enumerate() {
            tid = requests(&mut events, qp, pid, tid)?;
            let place = Place { process: place, queue_pair, packet: 0 };
            tid = packets(&mut events, qp, (pid, tid), place, &ends)?;
            counters(&mut events, qp, pid)?;
        }
        completion_queues(&mut events, process, pid)?;
    }
    let remarks = json!({"writer": "pumice trace to-perfetto", "remarks": timeline.remarks});
    write!(out, "\n], \"otherData\": {remarks}}}\n")
}

const fn key(place: Place) -> (usize, usize, usize) {
    (place.process, place.queue_pair, place.packet)
}

/// The arrow that begins (true) or ends at a packet.
type Ends = HashMap<(usize, usize, usize), (usize, bool)>;

/// What a queue pair is called.
fn title(qp: &QueuePair) -> String {
    let peer = qp.peer.map_or_else(String::new, |(address, qpn)| format!(" to {address} QP {qpn:#x}"));
    format!("QP {:#x} {}{peer}", qp.qpn, qp.service)
}

/// What happened to no queue pair.
fn moments(events: &mut Events<'_>, process: &Process, pid: u64) -> io::Result<()> {
    if process.moments.is_empty() {
        return Ok(());
    }
    events.name("thread_name", pid, PROCESS_TRACK, "connections, calls and events")?;
    events.order(pid, PROCESS_TRACK)?;
    for moment in &process.moments {
        events.put(&json!({
            "ph": "i", "s": "t", "pid": pid, "tid": PROCESS_TRACK, "cat": moment.kind.name(),
            "name": moment.text, "ts": us(moment.at_ns),
        }))?;
    }
    Ok(())
}

/// The work requests of a queue pair, from this track on; the next free track.
fn requests(events: &mut Events<'_>, qp: &QueuePair, pid: u64, tid: u64) -> io::Result<u64> {
    let sends = qp.messages.iter().map(slices::of_message).collect();
    let tid = beside(events, (&format!("{}: send requests", title(qp)), "send"), sends, pid, tid)?;
    let receives = qp.receives.iter().map(slices::of_receive).collect();
    beside(events, (&format!("{}: receive requests", title(qp)), "receive"), receives, pid, tid)
}

/// Spans with their parts, on as many tracks as they need.
fn beside(
    events: &mut Events<'_>,
    (name, category): (&str, &str),
    mut spans: Vec<Vec<Slice>>,
    pid: u64,
    tid: u64,
) -> io::Result<u64> {
    spans.sort_by_key(|slices| slices.first().map_or(0, |whole| whole.start_ns));
    let mut lanes = Lanes::default();
    for slices in &spans {
        let Some(whole) = slices.first() else { continue };
        let lane = lanes.take(whole.start_ns, whole.end_ns) as u64;
        for slice in slices {
            events.slice(pid, tid + lane, category, slice)?;
        }
    }
    for lane in 0..lanes.count() as u64 {
        events.name("thread_name", pid, tid + lane, name)?;
        events.order(pid, tid + lane)?;
    }
    Ok(tid + lanes.count() as u64)
}

/// Packets of a queue pair with their arrows, and what happened besides; the next free track.
fn packets(
    events: &mut Events<'_>,
    qp: &QueuePair,
    (pid, tid): (u64, u64),
    place: Place,
    ends: &Ends,
) -> io::Result<u64> {
    for (is_sent, tid, name) in [(true, tid, "packets sent"), (false, tid + 1, "packets received")] {
        events.name("thread_name", pid, tid, &format!("{}: {name}", title(qp)))?;
        events.order(pid, tid)?;
        let of_direction = qp.packets.iter().enumerate().filter(|(_, packet)| packet.is_sent == is_sent);
        let mut of_direction = of_direction.peekable();
        while let Some((number, packet)) = of_direction.next() {
            let next_ns = of_direction.peek().map_or(u64::MAX, |(_, next)| next.at_ns);
            let end_ns = next_ns.min(packet.at_ns + PACKET_NS).max(packet.at_ns);
            let arrow = ends.get(&key(Place { packet: number, ..place })).copied();
            packet_slice(events, qp, packet, (pid, tid), end_ns, arrow)?;
        }
    }
    for moment in &qp.moments {
        events.put(&json!({
            "ph": "i", "s": "t", "pid": pid, "tid": tid, "cat": moment.kind.name(), "name": moment.text,
            "ts": us(moment.at_ns),
        }))?;
    }
    Ok(tid + 2)
}

fn packet_slice(
    events: &mut Events<'_>,
    qp: &QueuePair,
    packet: &Packet,
    (pid, tid): (u64, u64),
    end_ns: u64,
    arrow: Option<(usize, bool)>,
) -> io::Result<()> {
    let opcode = Opcode::from_byte(packet.opcode);
    let again = if packet.transmission > 1 { format!(" ({}x)", packet.transmission) } else { String::new() };
    let fate = match (packet.is_lost, packet.is_dropped) {
        (true, _) => " lost",
        (_, true) => " dropped",
        _ => "",
    };
    let way = packet.way.and_then(|way| qp.ways.get(way as usize));
    let mut about = json!({"psn": packet.psn, "bytes": packet.length});
    if let Some(about) = about.as_object_mut() {
        if packet.is_sent {
            about.insert("message".to_owned(), json!(packet.message));
            about.insert("transmission".to_owned(), json!(packet.transmission));
            about.insert("to_qp".to_owned(), json!(format!("{:#x}", packet.other_qpn)));
        }
        if let Some((from, to)) = way {
            about.insert("way".to_owned(), json!(format!("{from} to {to}")));
        }
        if arrow.is_none() {
            let other = if packet.is_sent { "arrival" } else { "departure" };
            let known = if packet.is_lost { "none: a fault plan lost it" } else { "not in these traces" };
            about.insert(other.to_owned(), json!(known));
        }
    }
    let name = format!("{opcode} PSN {}{again}{fate}", packet.psn);
    let slice = Slice { start_ns: packet.at_ns, end_ns, name, about };
    events.slice(pid, tid, "packet", &slice)?;
    let Some((id, begins)) = arrow else { return Ok(()) };
    let mut event = json!({
        "ph": if begins { "s" } else { "f" }, "pid": pid, "tid": tid, "cat": "packet", "name": "packet",
        "id": id, "ts": us(packet.at_ns),
    });
    if let (Some(fields), false) = (event.as_object_mut(), begins) {
        fields.insert("bp".to_owned(), json!("e"));
    }
    events.put(&event)
}

/// What a queue pair has under way, and what it has sent again.
fn counters(events: &mut Events<'_>, qp: &QueuePair, pid: u64) -> io::Result<()> {
    let mut steps = Vec::new();
    for message in &qp.messages {
        let over = message.acknowledged_ns.or(message.end.map(|end| end.at_ns));
        if let (Some(first), Some(over)) = (message.first_packet_ns, over) {
            steps.push((first, i64::from(message.bytes)));
            steps.push((over.max(first), -i64::from(message.bytes)));
        }
    }
    running(events, pid, &format!("QP {:#x}: bytes under way", qp.qpn), steps)?;
    let again = qp.packets.iter().filter(|packet| packet.is_sent && packet.transmission > 1);
    let again = again.map(|packet| (packet.at_ns, 1)).collect();
    running(events, pid, &format!("QP {:#x}: packets sent again", qp.qpn), again)
}

/// Completions that wait for the program.
fn completion_queues(events: &mut Events<'_>, process: &Process, pid: u64) -> io::Result<()> {
    let mut queues: BTreeMap<u32, Vec<(u64, i64)>> = BTreeMap::new();
    for qp in &process.queue_pairs {
        let sends = qp.messages.iter().filter_map(|one| Some((one.end?, one.polled_ns)));
        let receives = qp.receives.iter().map(|one| (one.end, one.polled_ns));
        for (end, polled_ns) in sends.chain(receives).filter(|(end, _)| end.has_completion) {
            let steps = queues.entry(end.cq).or_default();
            steps.push((end.at_ns, 1));
            steps.extend(polled_ns.map(|at_ns| (at_ns, -1)));
        }
    }
    for (cq, steps) in queues {
        running(events, pid, &format!("CQ {cq}: completions that wait"), steps)?;
    }
    Ok(())
}

/// A counter from its steps.
fn running(events: &mut Events<'_>, pid: u64, name: &str, mut steps: Vec<(u64, i64)>) -> io::Result<()> {
    steps.sort_unstable();
    let mut value = 0;
    for (at_ns, step) in steps {
        value += step;
        events.counter(pid, name, at_ns, value)?;
    }
    Ok(())
}
