//! A port behind an adapter that reads short messages from memory.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use pumice_model::performance::{Costs, PerformanceModel};
use pumice_model::port::batch::{PacketCost, Peer, PortLimits};
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::wire::{Bth, ICRC_BYTES};

use pumice_fabric::FetchPort;
use pumice_model::port::batch::{GsoBatch, ReceivedBatch, TransmitError};
use pumice_model::port::{Port, PortLayer};

const SEND_ONLY: u8 = 0x04;
const SEND_FIRST: u8 = 0x00;
const ACKNOWLEDGE: u8 = 0x11;
/// Length of the header of an acknowledgement behind its BTH, in bytes.
const AETH_BYTES: usize = 4;

/// A port that remembers when it sent what.
#[derive(Default)]
struct Tape(Vec<(u64, u8, usize)>);

impl Port for Tape {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.0.push((now_ns, batch.bytes[0], batch.bytes.len()));
        Ok(())
    }
    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        false
    }
    fn limits(&self, _peer: Peer) -> PortLimits {
        PortLimits {
            max_segments: 4,
            max_batch_bytes: 65_507,
            receive_buffer_bytes: 1 << 20,
            packet_cost: PacketCost::UDP_SOCKET,
            needs_icrc: false,
            waits_for_room: false,
        }
    }
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }
    fn join(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }
    fn leave(&mut self, _group: IpAddr) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a port of this model, and how long its adapter reads a message, in ns.
fn port() -> (FetchPort<Tape>, u64) {
    let model = PerformanceModel::built_in("connectx-7").expect("it is there");
    let costs = Costs::of(&model);
    let fetch_ns = costs.fetch_ns();
    (FetchPort::new(Tape::default(), costs), fetch_ns)
}

/// Sends a packet with this opcode and so many bytes behind its BTH, and returns its length.
fn send(port: &mut FetchPort<Tape>, now_ns: u64, opcode: u8, bytes: usize, is_fetched: bool) -> usize {
    let flow = Flow {
        source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
        destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
        source_port: 0xc001,
        destination_port: ROCE_PORT,
    };
    let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let mut packet = vec![0; Bth::LEN + bytes + ICRC_BYTES];
    packet[0] = opcode;
    let batch = GsoBatch { is_fetched, ..GsoBatch::new(&path, packet.len(), &packet) };
    port.transmit(now_ns, &batch).expect("there is room");
    packet.len()
}

/// Lets time pass from event to event, and returns what was sent.
fn sent(port: &mut FetchPort<Tape>) -> Vec<(u64, u8, usize)> {
    while let Some(next_ns) = port.next_event_ns() {
        port.receive(next_ns, &mut |_| {});
    }
    std::mem::take(&mut port.below_mut().0)
}

#[test]
fn a_short_message_that_its_request_does_not_carry_leaves_when_it_is_read() {
    let (mut port, fetch_ns) = port();
    assert_eq!(fetch_ns, 452, "the model's number");
    let bytes = send(&mut port, 1000, SEND_ONLY, 8, true);
    assert_eq!(port.held_until_ns(), Some(1000 + fetch_ns));
    assert_eq!(sent(&mut port), [(1000 + fetch_ns, SEND_ONLY, bytes)]);
    let inline = send(&mut port, 2000, SEND_ONLY, 8, false);
    assert_eq!(sent(&mut port), [(2000, SEND_ONLY, inline)]);
}

#[test]
fn what_no_request_carries_is_charged_where_it_arrives() {
    let (mut port, _) = port();
    for (opcode, bytes) in [(SEND_ONLY, 224), (SEND_FIRST, 8), (SEND_ONLY, 0)] {
        let length = send(&mut port, 1000, opcode, bytes, true);
        assert_eq!(sent(&mut port), [(1000, opcode, length)], "{bytes} bytes");
    }
}

#[test]
fn requests_stay_in_order_and_responses_pass() {
    let (mut port, fetch_ns) = port();
    let due_ns = 1000 + fetch_ns;
    let first = send(&mut port, 1000, SEND_ONLY, 8, true);
    let second = send(&mut port, 1100, SEND_ONLY, 16, false);
    let third = send(&mut port, 1200, SEND_ONLY, 12, true);
    let response = send(&mut port, 1300, ACKNOWLEDGE, AETH_BYTES, false);
    let expected = [
        (1300, ACKNOWLEDGE, response),
        (due_ns, SEND_ONLY, first),
        (due_ns, SEND_ONLY, second),
        (due_ns + 200, SEND_ONLY, third),
    ];
    assert_eq!(sent(&mut port), expected);
}

#[test]
fn what_is_held_leaves_when_the_device_closes() {
    let (mut port, _) = port();
    let bytes = send(&mut port, 1000, SEND_ONLY, 8, true);
    port.release(1001);
    assert_eq!(sent(&mut port), [(1001, SEND_ONLY, bytes)]);
}
