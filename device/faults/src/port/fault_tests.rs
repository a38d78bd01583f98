use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

use crate::{Fault, WireFaults, WirePlan};
use pumice_transport::path::{Flow, ROCE_PORT};
use pumice_transport::types::Flips;
use pumice_transport::wire::icrc::{self, IcrcVerdict};

use super::*;
use pumice_model::port::batch::{PacketCost, Peer};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

fn path() -> Path {
    let flow = Flow { source: A, destination: B, source_port: 0xc001, destination_port: ROCE_PORT };
    Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

/// A port that remembers its batches and is busy when told to be.
#[derive(Default)]
struct Tape {
    batches: Vec<(usize, Vec<u8>)>,
    busy_after: Option<usize>,
}

impl Port for Tape {
    fn transmit(&mut self, _now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        if self.busy_after.is_some_and(|n| self.batches.len() >= n) {
            return Err(TransmitError::Busy);
        }
        self.batches.push((batch.segment_bytes, batch.bytes.to_vec()));
        Ok(())
    }
    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        false
    }
    fn limits(&self, _peer: Peer) -> PortLimits {
        let packet_cost = PacketCost::UDP_SOCKET;
        PortLimits {
            max_segments: 4,
            max_batch_bytes: 65_507,
            receive_buffer_bytes: 1 << 20,
            packet_cost,
            needs_icrc: true,
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

/// Packets of 20 bytes with their number in each byte, and right ICRCs if `sealed`.
fn packets(numbers: std::ops::Range<u8>, sealed: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, number) in numbers.enumerate() {
        let mut packet = [number; 20];
        if sealed {
            icrc::seal(&path().flow, index as u16, &mut packet);
        }
        bytes.extend(packet);
    }
    bytes
}

const NOTHING: Fate = Fate {
    lost: false,
    marked: false,
    copies: 0,
    behind_packets: 0,
    behind_ns: 0,
    delay_ns: 0,
    flips: None,
    kept_bytes: None,
    dscp: None,
    path_mark: None,
    refused: None,
    notified: false,
    halted: false,
    note: 0,
    rejected: None,
    unanswered: false,
};
const TWICE: Fate = Fate { copies: 1, ..NOTHING };

fn send(port: &mut impl Port, now_ns: u64, bytes: &[u8], fates: &[(u16, Fate)]) -> Result<(), TransmitError> {
    port.transmit(now_ns, &GsoBatch { fates, ..GsoBatch::new(&path(), 20, bytes) })
}

/// The first byte of every packet of every batch.
fn batches(tape: &Tape) -> Vec<Vec<u8>> {
    tape.batches.iter().map(|(size, bytes)| bytes.chunks(*size).map(|p| p[0]).collect()).collect()
}

fn faulty() -> FaultPort<Tape> {
    FaultPort::new(Tape::default())
}

/// A port that was given so many packets, to all of which the same happens.
fn always(count: u8, fate: Fate) -> FaultPort<Tape> {
    let mut port = faulty();
    let fates: Vec<(u16, Fate)> = (0..count).map(|index| (index.into(), fate)).collect();
    send(&mut port, 0, &packets(0..count, true), &fates).unwrap();
    port
}

/// Fates of twelve packets, by chance.
fn by_chance(seed: u64, faults: &[(u32, Fault)]) -> Vec<(u16, Fate)> {
    let plan = faults.iter().fold(WirePlan::seeded(seed), |plan, (ppm, fault)| plan.by_chance(*ppm, *fault));
    let mut faults = WireFaults::new(&plan);
    (0..12).map(|index| (index, faults.fate(A, B, index.into(), 20, 0))).collect()
}

#[test]
fn without_faults_batches_pass_whole() {
    let port = always(4, NOTHING);
    assert_eq!(port.inner().batches, [(20, packets(0..4, true))]);
    let mut port = faulty();
    send(&mut port, 0, &packets(0..4, true), &[]).unwrap();
    assert_eq!(port.inner().batches, [(20, packets(0..4, true))]);
    assert_eq!((port.next_event_ns(), port.stats().sent), (None, 4));
}

#[test]
fn certain_faults_happen_to_everything() {
    let port = always(4, Fate::LOST);
    assert!(port.inner().batches.is_empty());
    assert_eq!((port.stats().sent, port.stats().dropped), (4, 4));

    let port = always(3, TWICE);
    assert_eq!(batches(port.inner()), [vec![0, 0, 1, 1], vec![2, 2]], "batches of at most four");

    let flips = Some(Flips { count: 1, first: 77, sealed: false });
    let port = always(3, Fate { flips, ..NOTHING });
    let (before, after) = (packets(0..3, true), port.inner().batches[0].1.clone());
    for (before, after) in before.chunks(20).zip(after.chunks(20)) {
        let flipped: u32 = before.iter().zip(after).map(|(b, a)| (b ^ a).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
}

#[test]
fn a_held_packet_leaves_after_so_many_or_when_its_time_is_over() {
    let held = |behind_packets| Fate { behind_packets, behind_ns: 1_000_000, ..NOTHING };
    let mut port = faulty();
    send(&mut port, 0, &packets(0..6, true), &[(0, held(2)), (1, held(1)), (5, held(2))]).unwrap();
    assert_eq!(batches(port.inner()), [vec![2, 1, 3, 0], vec![4]], "5 is held");
    assert_eq!(port.next_event_ns(), Some(1_000_000));
    port.receive(999_999, &mut |_| ());
    assert_eq!(port.inner().batches.len(), 2);
    port.receive(1_000_000, &mut |_| ());
    assert_eq!(batches(port.inner())[2..], [vec![5]]);
    assert_eq!(port.next_event_ns(), None);
}

#[test]
fn packets_that_move_keep_a_right_or_wrong_icrc() {
    for seed in 0..20 {
        let reorder = Fault::Reorder { packets: 1, within_ns: 1_000_000 };
        let faults = [Fault::Drop, Fault::DUPLICATE, Fault::delay(500_000), reorder];
        let fates = by_chance(seed, &faults.map(|fault| (200_000, fault)));
        let mut port = faulty();
        let mut bytes = packets(0..12, true);
        bytes[3 * 20 + 16] ^= 0xff; // packet 3 was never right
        send(&mut port, 0, &bytes, &fates).unwrap();
        port.receive(1_000_000, &mut |_| ());
        for (segment_bytes, bytes) in &port.inner().batches {
            for (index, packet) in bytes.chunks(*segment_bytes).enumerate() {
                let exact = icrc::verify(&path().flow, index as u16, packet) == IcrcVerdict::Exact;
                assert_eq!(exact, packet[0] != 3, "seed {seed}, packet {}", packet[0]);
            }
        }
    }
}

#[test]
fn a_busy_port_below_is_asked_again_with_the_same_fate() {
    let fates = by_chance(3, &[(400_000, Fault::Drop), (300_000, Fault::DUPLICATE)]);
    let (mut patient, mut busy) = (faulty(), faulty());
    busy.inner.busy_after = Some(0);
    assert_eq!(send(&mut busy, 0, &packets(0..12, true), &fates), Err(TransmitError::Busy));
    assert_eq!(busy.stats(), FaultStats::default());
    // One run goes through; the rest waits in the port.
    busy.inner.busy_after = Some(1);
    send(&mut busy, 0, &packets(0..12, true), &fates).unwrap();
    assert_eq!(busy.inner().batches.len(), 1);
    assert_eq!(busy.next_event_ns(), Some(BUSY_RETRY_NS));
    assert_eq!(send(&mut busy, 0, &packets(0..1, true), &[]), Err(TransmitError::Busy));
    busy.inner.busy_after = None;
    busy.receive(BUSY_RETRY_NS, &mut |_| ());
    send(&mut patient, 0, &packets(0..12, true), &fates).unwrap();
    assert!(patient.inner().batches.len() > 1);
    assert_eq!(busy.inner().batches, patient.inner().batches);
    assert_eq!(busy.stats(), patient.stats());
}

#[test]
fn what_is_held_back_leaves_in_the_order_of_its_times_when_the_device_closes() {
    let late = |delay_ns| Fate { delay_ns, ..NOTHING };
    let behind = Fate { behind_packets: 9, behind_ns: 2_000_000, ..NOTHING };
    let mut port = faulty();
    send(&mut port, 0, &packets(0..4, true), &[(0, late(3_000_000)), (1, behind), (2, late(1_000_000))])
        .unwrap();
    assert_eq!(batches(port.inner()), [vec![3]]);
    port.release(0);
    assert_eq!(batches(port.inner()), [vec![3], vec![2], vec![1], vec![0]]);
    assert_eq!(port.next_event_ns(), None, "nothing is left");
    port.release(0);
    assert_eq!(batches(port.inner()).len(), 4, "each leaves once");
}

#[test]
fn what_is_late_comes_after_its_time_and_in_the_order_of_release() {
    let late = |delay_ns| Fate { delay_ns, ..NOTHING };
    let cut = Fate { kept_bytes: Some(12), ..NOTHING };
    let marked = Fate { marked: true, ..NOTHING };
    let mut port = faulty();
    let fates = [(0, late(300)), (2, late(200)), (3, cut), (4, marked)];
    send(&mut port, 0, &packets(0..5, true), &fates).unwrap();
    let lengths: Vec<usize> = port.inner().batches.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [20 + 12, 20], "1, and 3 cut short; then 4, which is marked");
    assert_eq!(port.next_event_ns(), Some(200));
    port.receive(300, &mut |_| ());
    assert_eq!(batches(port.inner())[2..], [vec![2], vec![0]]);
    assert_eq!(port.next_event_ns(), None);
    let stats = port.stats();
    assert_eq!((stats.sent, stats.reordered, stats.truncated, stats.marked), (5, 2, 1, 1));
}
