//! What captures tell, as processes of a timeline: an address is a process, and has the queue pairs that
//! packets name.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::net::IpAddr;

use pumice_device::trace::{Moment, MomentKind, Packet, QueuePair, TimelineProcess, TraceHeader};
use pumice_transport::wire::Syndrome;

use super::homes::{Home, Seen, homes};
use super::messages::Messages;
use super::pairs::Pairs;
use super::plan::{Sighting, all_sightings};

/// Packets of all captures of a timeline: some 200 bytes each.
const MAX_PACKETS: usize = 4_000_000;
/// Addresses of all captures, and their queue pairs: each queue pair is compared with all others.
const MAX_ADDRESSES: usize = 1024;
const MAX_QUEUE_PAIRS: usize = 1 << 14;
/// How long a capture may take: 146 years. Times beyond are damage.
const MAX_SPAN_NS: u64 = 1 << 62;
/// Bytes of a packet beside its headers: the ICRC.
const ICRC_BYTES: usize = 4;

/// A queue pair that is being put together.
#[derive(Debug, Default)]
struct Builder {
    qp: QueuePair,
    messages: Messages,
    ways: HashMap<(IpAddr, IpAddr), u32>,
}

/// An address that is being put together.
#[derive(Debug)]
struct ProcessBuilder {
    home: Home,
    process: TimelineProcess,
    builders: Vec<Builder>,
    /// Indices of queue pairs in `builders` by their numbers.
    indices: HashMap<u32, usize>,
}

/// The processes of captures: their names, and what is in them.
///
/// # Errors
/// A sentence about the capture of this name: it cannot be read, or holds no packet of RoCE.
pub(crate) fn processes(
    captures: Vec<(String, impl Read)>,
) -> Result<Vec<TimelineProcess>, (String, String)> {
    let (mut names, mut all, mut room) = (Vec::new(), Vec::new(), MAX_PACKETS);
    for (name, input) in captures {
        let seen = match all_sightings(input, room) {
            Ok(seen) if seen.is_empty() => return Err((name, "it holds no RoCE packet".to_owned())),
            Ok(seen) => seen,
            Err(why) => return Err((name, why)),
        };
        room = room.saturating_sub(seen.len());
        names.push(name);
        all.push(seen);
    }
    let homes = homes(&all);
    if homes.len() > MAX_ADDRESSES {
        let name = names.pop().unwrap_or_default();
        return Err((name, format!("there are packets of more than {MAX_ADDRESSES} addresses: filter it")));
    }
    let pairs = Pairs::of(&all);
    let (mut processes, mut queue_pairs) = (Vec::new(), 0);
    for (capture, (name, seen)) in names.into_iter().zip(&all).enumerate() {
        let first_ns = seen.iter().map(|one| one.time_ns).min().unwrap_or(0);
        let mut here = BTreeMap::new();
        for home in homes.iter().filter(|home| home.capture == capture) {
            here.insert(home.address, ProcessBuilder::new(*home, header(home, &name, first_ns)));
        }
        for one in seen {
            let at_ns = one.time_ns.saturating_sub(first_ns).min(MAX_SPAN_NS);
            let other = (one.destination != one.source).then_some(one.destination);
            for address in [Some(one.source), other].into_iter().flatten() {
                let Some(builder) = here.get_mut(&address) else { continue };
                queue_pairs += usize::from(builder.take(at_ns, one, pairs.sender(one)));
            }
            if queue_pairs > MAX_QUEUE_PAIRS {
                return Err((name, format!("there are more than {MAX_QUEUE_PAIRS} queue pairs: filter it")));
            }
        }
        processes.extend(here.into_values().map(ProcessBuilder::finish));
    }
    Ok(processes)
}

/// What a trace of this address would say of itself.
fn header(home: &Home, name: &str, first_ns: u64) -> TraceHeader {
    TraceHeader {
        monotonic_base_ns: first_ns,
        wall_base_ns: first_ns,
        // Each capture has a clock of its own.
        boot: format!("capture {}", home.capture),
        program: home.address.to_string(),
        tag: name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        addresses: vec![home.address],
        ..TraceHeader::default()
    }
}

impl ProcessBuilder {
    fn new(home: Home, header: TraceHeader) -> ProcessBuilder {
        let process = TimelineProcess { header, span_ns: (u64::MAX, 0), ..TimelineProcess::default() };
        ProcessBuilder { home, process, builders: Vec::new(), indices: HashMap::new() }
    }

    /// A packet of this capture. True if it is the first one of a queue pair.
    fn take(&mut self, at_ns: u64, one: &Sighting, sender: Option<u32>) -> bool {
        let Some(what) = self.home.seen(one) else { return false };
        let span = &mut self.process.span_ns;
        *span = (span.0.min(at_ns), span.1.max(at_ns));
        let own = if what == Seen::Sent { sender.unwrap_or(0) } else { one.qpn };
        let index = *self.indices.entry(own).or_insert(self.builders.len());
        let is_new = index == self.builders.len();
        if is_new {
            let service = service(one).to_owned();
            let qp = QueuePair { ordinal: index as u32, qpn: own, service, ..QueuePair::default() };
            self.builders.push(Builder { qp, ..Builder::default() });
        }
        if let Some(builder) = self.builders.get_mut(index) {
            builder.take(at_ns, what, one, sender);
        }
        is_new
    }

    fn finish(self) -> TimelineProcess {
        let whole = |builder: Builder| QueuePair { messages: builder.messages.finish(), ..builder.qp };
        TimelineProcess { queue_pairs: self.builders.into_iter().map(whole).collect(), ..self.process }
    }
}

/// The name that verbs have for a service.
fn service(one: &Sighting) -> &'static str {
    match one.numbered() {
        Some(service) => service,
        None if one.info.service.has_messages() => one.info.service.name(),
        None => "",
    }
}

impl Builder {
    fn take(&mut self, at_ns: u64, what: Seen, one: &Sighting, sender: Option<u32>) {
        let is_sent = what == Seen::Sent;
        let is_connected = !one.info.service.is_datagram();
        let other = if is_sent { (one.destination, Some(one.qpn)) } else { (one.source, sender) };
        if let (true, (address, Some(qpn))) = (is_connected, other) {
            self.qp.peer = Some((address, qpn));
        }
        let next = self.ways.len() as u32;
        let way = *self.ways.entry((one.source, one.destination)).or_insert(next);
        if way == next {
            self.qp.ways.push((one.source, one.destination));
        }
        let (mut message, mut transmission, side) = (0, 1, u8::from(!one.info.is_request));
        // A datagram of SRD or DC is a part of a message.
        if is_sent && one.info.is_request && one.numbered().is_none() {
            (message, transmission) = self.messages.sent(at_ns, one);
        } else if !is_sent && !one.info.is_request {
            self.messages.answered(at_ns, one);
            self.refused(at_ns, one);
        }
        let length = one.info.header_bytes + one.payload_bytes + ICRC_BYTES;
        self.qp.packets.push(Packet {
            at_ns,
            is_sent,
            is_lost: one.is_lost,
            is_dropped: !is_sent && one.is_damaged,
            side,
            opcode: one.info.opcode.byte(),
            psn: one.psn,
            length: length as u32,
            transmission,
            message,
            other_qpn: match (is_sent, is_connected) {
                (true, _) => one.qpn,
                (false, true) => 0,
                (false, false) => sender.unwrap_or(0),
            },
            way: Some(way),
        });
    }

    /// A NAK is a moment of the queue pair that gets it.
    fn refused(&mut self, at_ns: u64, one: &Sighting) {
        let Some((byte, _)) = one.answer else { return };
        let text = match Syndrome::from_byte(byte) {
            Syndrome::RnrNak { .. } => {
                self.qp.rnr_naks_ns.push(at_ns);
                format!("an RNR NAK came for PSN {}", one.psn)
            }
            Syndrome::Nak(code) => format!("a NAK came for PSN {}: {code:?}", one.psn),
            _ => return,
        };
        self.qp.moments.push(Moment { at_ns, kind: MomentKind::Refusal, text });
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
