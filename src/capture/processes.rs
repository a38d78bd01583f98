//! What captures tell, as processes of a timeline: an address is a process, and has the queue pairs that
//! packets name.

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

use pumice_device::trace::{Moment, MomentKind, Packet, Process, QueuePair, TraceHeader};
use pumice_transport::types::QpType;
use pumice_transport::wire::{Service, Syndrome};

use super::homes::{Home, Seen, homes};
use super::messages::Messages;
use super::pairs::Pairs;
use super::plan::{Sighting, all_sightings};

/// Packets of all captures of a timeline: some 200 bytes each.
const MAX_PACKETS: usize = 4_000_000;
/// Queue pairs of an address. Beyond them, packets of others are those of queue pair 0.
const MAX_QUEUE_PAIRS: usize = 1 << 16;
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

/// The processes of captures: their names, and what is in them.
///
/// # Errors
/// A sentence about the capture of this place: it cannot be read, or holds no packet of RoCE.
pub(crate) fn processes(captures: Vec<(String, impl Read)>) -> Result<Vec<Process>, (String, String)> {
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
    let pairs = Pairs::of(&all);
    let processes = homes(&all).into_iter().filter_map(|home| {
        let name = names.get(home.capture)?;
        Some(process(&home, name, all.get(home.capture)?, &pairs))
    });
    Ok(processes.collect())
}

fn process(home: &Home, name: &str, seen: &[Sighting], pairs: &Pairs) -> Process {
    let first_ns = seen.iter().map(|one| one.time_ns).min().unwrap_or(0);
    let header = TraceHeader {
        monotonic_base_ns: first_ns,
        wall_base_ns: first_ns,
        // Each capture has a clock of its own.
        boot: format!("capture {}", home.capture),
        program: home.address.to_string(),
        tag: name.chars().map(|c| if c.is_control() { '?' } else { c }).collect(),
        addresses: vec![home.address],
        ..TraceHeader::default()
    };
    let mut process = Process { header, span_ns: (u64::MAX, 0), ..Process::default() };
    let (mut builders, mut places) = (Vec::<Builder>::new(), HashMap::new());
    for one in seen {
        let Some(what) = home.seen(one) else { continue };
        let at_ns = one.time_ns.saturating_sub(first_ns).min(MAX_SPAN_NS);
        process.span_ns = (process.span_ns.0.min(at_ns), process.span_ns.1.max(at_ns));
        let sender = pairs.sender(one);
        let own = if what == Seen::Sent { sender.unwrap_or(0) } else { one.qpn };
        let own = if builders.len() < MAX_QUEUE_PAIRS || places.contains_key(&own) { own } else { 0 };
        let place = *places.entry(own).or_insert(builders.len());
        if place == builders.len() {
            let qp = QueuePair {
                ordinal: place as u32,
                qpn: own,
                service: service(one).to_owned(),
                ..QueuePair::default()
            };
            builders.push(Builder { qp, ..Builder::default() });
        }
        if let Some(builder) = builders.get_mut(place) {
            builder.take(at_ns, what, one, sender);
        }
    }
    let whole =
        builders.into_iter().map(|builder| QueuePair { messages: builder.messages.finish(), ..builder.qp });
    Process { queue_pairs: whole.collect(), ..process }
}

/// The name that verbs have for a service.
fn service(one: &Sighting) -> &'static str {
    match one.info.service {
        Service::Rc => QpType::Rc.name(),
        Service::Uc => QpType::Uc.name(),
        Service::Ud => QpType::Ud.name(),
        Service::Xrc => "XRC",
        _ => "",
    }
}

impl Builder {
    fn take(&mut self, at_ns: u64, what: Seen, one: &Sighting, sender: Option<u32>) {
        let is_sent = what == Seen::Sent;
        let is_connected = one.info.service != Service::Ud;
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
        if is_sent && one.info.is_request {
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
