//! Turns captures into processes of a timeline: each address becomes a process, with the queue pairs that
//! packets name.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::net::IpAddr;

use pumice_device::trace::{
    TimelineEvent, TimelineEventKind, TimelineProcess, TraceHeader, TracedPacket, TracedQueuePair,
};
use pumice_transport::wire::Syndrome;

use super::messages::MessageTracker;
use super::pairs::ConnectedPairs;
use super::plan::{Sighting, all_sightings};
use super::vantages::{SeenDirection, Vantage, vantages};

/// Maximum number of packets of all captures of a timeline; each takes some 200 bytes.
const MAX_PACKETS: usize = 4_000_000;
/// Maximum number of addresses of all captures, and of their queue pairs, because each queue pair is compared
/// with all others.
const MAX_ADDRESSES: usize = 1024;
const MAX_QUEUE_PAIRS: usize = 1 << 14;
/// Maximum duration of a capture, in ns: 146 years. Times beyond are damage.
const MAX_SPAN_NS: u64 = 1 << 62;
/// Length of the ICRC, in bytes: the part of a packet that is neither header nor payload.
const ICRC_BYTES: usize = 4;

/// A queue pair that is being built.
#[derive(Debug, Default)]
struct QueuePairBuilder {
    qp: TracedQueuePair,
    messages: MessageTracker,
    paths: HashMap<(IpAddr, IpAddr), u32>,
}

/// An address whose process is being built.
#[derive(Debug)]
struct ProcessBuilder {
    vantage: Vantage,
    process: TimelineProcess,
    builders: Vec<QueuePairBuilder>,
    /// Indices of queue pairs in `builders` by their numbers.
    indices: HashMap<u32, usize>,
}

/// Returns the processes of captures, given their names and contents.
///
/// # Errors
/// A sentence about the capture of this name: it cannot be read, or holds no RoCE packet.
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
    let vantages = vantages(&all);
    if vantages.len() > MAX_ADDRESSES {
        let name = names.pop().unwrap_or_default();
        return Err((name, format!("there are packets of more than {MAX_ADDRESSES} addresses: filter it")));
    }
    let pairs = ConnectedPairs::of(&all);
    let (mut processes, mut queue_pairs) = (Vec::new(), 0);
    for (capture, (name, seen)) in names.into_iter().zip(&all).enumerate() {
        let first_ns = seen.iter().map(|one| one.time_ns).min().unwrap_or(0);
        let mut here = BTreeMap::new();
        for vantage in vantages.iter().filter(|vantage| vantage.capture == capture) {
            here.insert(vantage.address, ProcessBuilder::new(*vantage, header(vantage, &name, first_ns)));
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

/// Returns the header that a trace of this address would have.
fn header(vantage: &Vantage, name: &str, first_ns: u64) -> TraceHeader {
    TraceHeader {
        monotonic_base_ns: first_ns,
        wall_base_ns: first_ns,
        // Each capture has a clock of its own.
        boot: format!("capture {}", vantage.capture),
        program: vantage.address.to_string(),
        tag: name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        addresses: vec![vantage.address],
        ..TraceHeader::default()
    }
}

impl ProcessBuilder {
    fn new(vantage: Vantage, header: TraceHeader) -> ProcessBuilder {
        let process = TimelineProcess { header, span_ns: (u64::MAX, 0), ..TimelineProcess::default() };
        ProcessBuilder { vantage, process, builders: Vec::new(), indices: HashMap::new() }
    }

    /// Adds a packet of this capture; returns true if it is the first one of a queue pair.
    fn take(&mut self, at_ns: u64, one: &Sighting, sender: Option<u32>) -> bool {
        let Some(what) = self.vantage.seen(one) else { return false };
        let span = &mut self.process.span_ns;
        *span = (span.0.min(at_ns), span.1.max(at_ns));
        let own = if what == SeenDirection::Sent { sender.unwrap_or(0) } else { one.qpn };
        let index = *self.indices.entry(own).or_insert(self.builders.len());
        let is_new = index == self.builders.len();
        if is_new {
            let service = service(one).to_owned();
            let qp =
                TracedQueuePair { ordinal: index as u32, qpn: own, service, ..TracedQueuePair::default() };
            self.builders.push(QueuePairBuilder { qp, ..QueuePairBuilder::default() });
        }
        if let Some(builder) = self.builders.get_mut(index) {
            builder.take(at_ns, what, one, sender);
        }
        is_new
    }

    fn finish(self) -> TimelineProcess {
        let finished =
            |builder: QueuePairBuilder| TracedQueuePair { messages: builder.messages.finish(), ..builder.qp };
        TimelineProcess { queue_pairs: self.builders.into_iter().map(finished).collect(), ..self.process }
    }
}

/// Returns the name that verbs use for a service.
fn service(one: &Sighting) -> &'static str {
    match one.numbered() {
        Some(service) => service,
        None if one.info.service.has_messages() => one.info.service.name(),
        None => "",
    }
}

impl QueuePairBuilder {
    fn take(&mut self, at_ns: u64, what: SeenDirection, one: &Sighting, sender: Option<u32>) {
        let is_sent = what == SeenDirection::Sent;
        let is_connected = !one.info.service.is_datagram();
        let other = if is_sent { (one.destination, Some(one.qpn)) } else { (one.source, sender) };
        if let (true, (address, Some(qpn))) = (is_connected, other) {
            self.qp.peer = Some((address, qpn));
        }
        let next = self.paths.len() as u32;
        let path = *self.paths.entry((one.source, one.destination)).or_insert(next);
        if path == next {
            self.qp.paths.push((one.source, one.destination));
        }
        let (mut message, mut transmission, side) = (0, 1, u8::from(!one.info.is_request));
        // A datagram of SRD or DC is only a part of a message.
        if is_sent && one.info.is_request && one.numbered().is_none() {
            (message, transmission) = self.messages.sent(at_ns, one);
        } else if !is_sent && !one.info.is_request {
            self.messages.answered(at_ns, one);
            self.refused(at_ns, one);
        }
        let length = one.info.header_bytes + one.payload_bytes + ICRC_BYTES;
        self.qp.packets.push(TracedPacket {
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
            path: Some(path),
        });
    }

    /// Adds a NAK as a moment of the queue pair that receives it.
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
        self.qp.moments.push(TimelineEvent { at_ns, kind: TimelineEventKind::Refusal, text });
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
