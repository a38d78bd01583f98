//! The spans of a work request, and overlapping spans arranged in lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pumice_device::trace::{Message, Receive};
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::types::{SendOpcode, WcStatus};
use pumice_transport::wire::Opcode;
use serde_json::{Value, json};

/// Assigns each span to the lowest lane in which it overlaps no other.
#[derive(Debug, Default)]
pub(super) struct SpanLanes {
    /// Times at which lanes become free, and the lanes.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
    free: BinaryHeap<Reverse<usize>>,
    count: usize,
}

impl SpanLanes {
    /// Returns the lane of a span. Spans must be given in the order of their beginnings.
    pub(super) fn take(&mut self, start_ns: u64, end_ns: u64) -> usize {
        while let Some(Reverse((until_ns, lane))) = self.busy.peek().copied() {
            if until_ns > start_ns {
                break;
            }
            self.busy.pop();
            self.free.push(Reverse(lane));
        }
        let lane = match self.free.pop() {
            Some(Reverse(lane)) => lane,
            None => {
                self.count += 1;
                self.count - 1
            }
        };
        // A span of no length still takes up its lane.
        self.busy.push(Reverse((end_ns.max(start_ns.saturating_add(1)), lane)));
        lane
    }

    /// Returns the number of lanes that were needed.
    pub(super) const fn count(&self) -> usize {
        self.count
    }
}

/// A span of time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slice {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) name: String,
    /// Details: an object of numbers, strings and Booleans, or null.
    pub(super) about: Value,
}

/// Returns the name of a status.
pub(super) fn status_name(status: u8) -> String {
    let known = WcStatus::ALL.into_iter().find(|known| *known as u8 == status);
    known.map_or_else(|| format!("status {status}"), |known| known.name().to_owned())
}

/// Returns the name of the operation of a send request.
fn opcode_name(opcode: u8) -> String {
    let known = SendOpcode::from_number(u32::from(opcode));
    known.map_or_else(|| format!("operation {opcode}"), |known| known.name().to_owned())
}

/// Services whose messages are sent as datagrams: a number that is no opcode, the services of queue pairs,
/// and the name of their datagrams.
const NUMBERED: [(u8, &[&str], &str); 2] =
    [(0xf0, &["SRD"], "SRD datagram"), (0xf1, &["DC", "DCI", "DCT"], "DC datagram")];

/// Reports whether a service has no packets of its own, but sends messages as datagrams.
pub(super) fn is_numbered(service: &str) -> bool {
    NUMBERED.iter().any(|(_, services, _)| services.contains(&service))
}

/// Returns the number under which a packet of a queue pair is listed: its opcode, or that of a service
/// without packets of its own.
pub(super) fn packet_kind(service: &str, opcode: u8) -> u8 {
    let own = NUMBERED.iter().find(|(_, services, _)| services.contains(&service));
    own.map_or(opcode, |(number, ..)| *number)
}

/// Returns the name of the packets that are listed under a number.
pub(super) fn packet_name(kind: u8) -> String {
    let own = NUMBERED.iter().find(|(number, ..)| *number == kind);
    let mrc = MrcOpcode::from_byte(kind).map(|opcode| opcode.info().name);
    let known = own.map(|(.., name)| *name).or(mrc);
    known.map_or_else(|| Opcode::from_byte(kind).to_string(), str::to_owned)
}

/// Converts a time to microseconds.
fn us(ns: u64) -> Value {
    json!(ns as f64 / 1000.0)
}

/// Returns the spans of a send request, the whole first. Parts lie within the whole, and do not overlap.
pub(super) fn of_message(message: &Message) -> Vec<Slice> {
    let since = |at_ns: Option<u64>| at_ns.map(|at_ns| us(at_ns.saturating_sub(message.posted_ns)));
    let end_ns = message.last_ns();
    let status = message.end.map(|end| status_name(end.status));
    let outer = Slice {
        start_ns: message.posted_ns,
        end_ns,
        name: match &status {
            Some(status) if status != WcStatus::Success.name() => {
                format!("{} {} B: {status}", opcode_name(message.opcode), message.bytes)
            }
            _ => format!("{} {} B", opcode_name(message.opcode), message.bytes),
        },
        about: json!({
            "wr_id": format!("{:#x}", message.wr_id),
            "message": message.number,
            "connection": message.connection,
            "status": status.unwrap_or_else(|| "not completed".to_owned()),
            "signaled": message.signaled,
            "bytes": message.bytes,
            "first_psn": message.psn,
            "packets": message.packets,
            "packets_sent": message.packets_sent,
            "transmissions": message.transmissions,
            "us_until_first_packet": since(message.first_packet_ns),
            "us_until_last_packet": since(message.last_packet_ns),
            "us_until_acknowledged": since(message.acknowledged_ns),
            "us_until_completed": since(message.end.map(|end| end.at_ns)),
            "us_until_polled": since(message.polled_ns),
        }),
    };
    let mut parts = SliceParts { at_ns: message.posted_ns, slices: vec![outer] };
    parts.until(message.first_packet_ns, "waits in the send queue");
    parts.until(message.last_packet_ns, "packets leave");
    parts.until(message.acknowledged_ns, "waits for the acknowledgement");
    parts.until(message.end.map(|end| end.at_ns), "waits for its completion");
    parts.until(message.polled_ns, "waits for the poll");
    parts.slices
}

/// Returns the spans of a receive request, the whole first.
pub(super) fn of_receive(receive: &Receive) -> Vec<Slice> {
    let start_ns = receive.posted_ns.unwrap_or(receive.end.at_ns);
    let end_ns = receive.polled_ns.unwrap_or(receive.end.at_ns).max(start_ns);
    let outer = Slice {
        start_ns,
        end_ns,
        name: format!("RECV {} B", receive.bytes),
        about: json!({
            "wr_id": format!("{:#x}", receive.wr_id),
            "status": status_name(receive.end.status),
            "bytes": receive.bytes,
        }),
    };
    let mut parts = SliceParts { at_ns: start_ns, slices: vec![outer] };
    parts.until(Some(receive.end.at_ns), "waits for a message");
    parts.until(receive.polled_ns, "waits for the poll");
    parts.slices
}

struct SliceParts {
    at_ns: u64,
    slices: Vec<Slice>,
}

impl SliceParts {
    /// Ends the next part here, if that is known and later than the one before.
    fn until(&mut self, end_ns: Option<u64>, name: &str) {
        let Some(end_ns) = end_ns.filter(|end_ns| *end_ns > self.at_ns) else { return };
        let (start_ns, name, about) = (self.at_ns, name.to_owned(), Value::Null);
        self.slices.push(Slice { start_ns, end_ns, name, about });
        self.at_ns = end_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_one_lane_do_not_overlap() {
        let spans = [(0, 10), (1, 3), (2, 5), (3, 4), (10, 11), (10, 10), (10, 12)];
        let mut lanes = SpanLanes::default();
        let given: Vec<usize> = spans.iter().map(|&(start, end)| lanes.take(start, end)).collect();
        assert_eq!(given, [0, 1, 2, 1, 0, 1, 2]);
        assert_eq!(lanes.count(), 3);
    }

    #[test]
    fn packets_of_services_without_opcodes_are_called_by_the_service() {
        let name = |service| packet_name(packet_kind(service, 0x64));
        assert_eq!(name("UD"), "UD_SEND_ONLY");
        assert_eq!(
            ["SRD", "DCI", "DCT", "DC"].map(name),
            ["SRD", "DC", "DC", "DC"].map(|of| format!("{of} datagram"))
        );
        for (number, ..) in NUMBERED {
            assert!(Opcode::from_byte(number).info().is_none(), "{number:#x} is the opcode of a packet");
        }
    }

    #[test]
    fn the_parts_of_a_request_lie_one_after_the_other_within_it() {
        let message = Message {
            posted_ns: 10,
            first_packet_ns: Some(20),
            last_packet_ns: Some(900),
            // The acknowledgement of the first transmission is late.
            acknowledged_ns: Some(800),
            polled_ns: Some(1000),
            ..Message::default()
        };
        let slices = of_message(&message);
        let parts: Vec<_> = slices.iter().map(|one| (one.start_ns, one.end_ns)).collect();
        assert_eq!(parts, [(10, 1000), (10, 20), (20, 900), (900, 1000)]);
    }
}
