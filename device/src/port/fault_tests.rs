use super::*;
use crate::faults::Fault;
use crate::port::{Fabric, FabricConfig, PacketCost, Peer, SimPort};
use pumice_transport::path::{Flow, ROCE_PORT};
use pumice_transport::wire::icrc::{self, Verdict};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;

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
    fn receive(&mut self, _now_ns: u64, _handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        false
    }
    fn limits(&self, _peer: Peer) -> PortLimits {
        let packet_cost = PacketCost::UDP_SOCKET;
        PortLimits { max_segments: 4, max_batch_bytes: 65_507, receive_buffer_bytes: 1 << 20, packet_cost }
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

fn send(port: &mut impl Port, now_ns: u64, bytes: &[u8]) -> Result<(), TransmitError> {
    port.transmit(now_ns, &GsoBatch { path: &path(), segment_bytes: 20, bytes })
}

/// The first byte of every packet of every batch.
fn batches(tape: &Tape) -> Vec<Vec<u8>> {
    tape.batches.iter().map(|(size, bytes)| bytes.chunks(*size).map(|p| p[0]).collect()).collect()
}

fn faulty(plan: FaultPlan) -> FaultPort<Tape> {
    FaultPort::new(Tape::default(), &plan, Arc::default())
}

/// Something that happens to every packet.
fn always(fault: Fault) -> FaultPort<Tape> {
    faulty(FaultPlan::new().by_chance(1_000_000, fault))
}

#[test]
fn without_faults_batches_pass_whole() {
    let mut port = faulty(FaultPlan::new());
    send(&mut port, 0, &packets(0..4, true)).unwrap();
    assert_eq!(port.inner().batches, [(20, packets(0..4, true))]);
    assert_eq!(port.next_event_ns(), None);
}

#[test]
fn certain_faults_happen_to_everything() {
    let mut port = always(Fault::Drop);
    send(&mut port, 0, &packets(0..4, true)).unwrap();
    assert!(port.inner().batches.is_empty());
    assert_eq!((port.stats().sent, port.stats().dropped), (4, 4));

    let mut port = always(Fault::Duplicate);
    send(&mut port, 0, &packets(0..3, true)).unwrap();
    assert_eq!(batches(port.inner()), [vec![0, 0, 1, 1], vec![2, 2]], "batches of at most four");

    let mut port = always(Fault::FlipAnyBit);
    send(&mut port, 0, &packets(0..3, true)).unwrap();
    let (before, after) = (packets(0..3, true), port.inner().batches[0].1.clone());
    for (before, after) in before.chunks(20).zip(after.chunks(20)) {
        let flipped: u32 = before.iter().zip(after).map(|(b, a)| (b ^ a).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
}

#[test]
fn a_held_packet_leaves_after_the_next_or_when_its_time_is_over() {
    let mut port = always(Fault::Swap { within_ns: 1_000_000 });
    send(&mut port, 0, &packets(0..3, true)).unwrap();
    assert_eq!(batches(port.inner()), [vec![1, 0]], "2 is held again");
    assert_eq!(port.next_event_ns(), Some(1_000_000));
    port.receive(999_999, &mut |_| ());
    assert_eq!(port.inner().batches.len(), 1);
    port.receive(1_000_000, &mut |_| ());
    assert_eq!(batches(port.inner()), [vec![1, 0], vec![2]]);
    assert_eq!(port.next_event_ns(), None);
}

#[test]
fn packets_that_move_keep_a_right_or_wrong_icrc() {
    for seed in 0..20 {
        let plan = FaultPlan::seeded(seed)
            .by_chance(200_000, Fault::Drop)
            .by_chance(200_000, Fault::Duplicate)
            .by_chance(200_000, Fault::Delay { ns: 500_000 })
            .by_chance(200_000, Fault::Swap { within_ns: 1_000_000 });
        let mut port = faulty(plan);
        let mut bytes = packets(0..12, true);
        bytes[3 * 20 + 16] ^= 0xff; // packet 3 was never right
        send(&mut port, 0, &bytes).unwrap();
        port.receive(1_000_000, &mut |_| ());
        for (segment_bytes, bytes) in &port.inner().batches {
            for (index, packet) in bytes.chunks(*segment_bytes).enumerate() {
                let exact = icrc::verify(&path().flow, index as u16, packet) == Verdict::Exact;
                assert_eq!(exact, packet[0] != 3, "seed {seed}, packet {}", packet[0]);
            }
        }
    }
}

#[test]
fn a_busy_port_below_is_asked_again_with_the_same_fate() {
    let plan = FaultPlan::seeded(3).by_chance(400_000, Fault::Drop).by_chance(300_000, Fault::Duplicate);
    let mut patient = faulty(plan.clone());
    let mut busy = faulty(plan);
    busy.inner.busy_after = Some(0);
    assert_eq!(send(&mut busy, 0, &packets(0..12, true)), Err(TransmitError::Busy));
    assert_eq!(busy.stats(), FaultStats::default());
    // One run goes through; the rest waits in the port.
    busy.inner.busy_after = Some(1);
    send(&mut busy, 0, &packets(0..12, true)).unwrap();
    assert_eq!(busy.inner().batches.len(), 1);
    assert_eq!(busy.next_event_ns(), Some(BUSY_RETRY_NS));
    assert_eq!(send(&mut busy, 0, &packets(0..1, true)), Err(TransmitError::Busy));
    busy.inner.busy_after = None;
    busy.receive(BUSY_RETRY_NS, &mut |_| ());
    send(&mut patient, 0, &packets(0..12, true)).unwrap();
    assert!(patient.inner().batches.len() > 1);
    assert_eq!(busy.inner().batches, patient.inner().batches);
    assert_eq!(busy.stats(), patient.stats());
}

#[test]
fn it_works_around_a_simulated_port() {
    let fabric = Fabric::new(FabricConfig::default());
    let plan = FaultPlan::seeded(1).by_chance(100_000, Fault::Drop);
    let mut a: FaultPort<SimPort> = FaultPort::new(fabric.attach(&[A]), &plan, Arc::default());
    let mut b = fabric.attach(&[B]);
    for step in 0..1_000 {
        send(&mut a, step * 100, &packets(0..4, false)).unwrap();
    }
    let mut arrived = 0;
    while b.receive(1_000_000, &mut |_| arrived += 1) {}
    assert_eq!(arrived, 4_000 - a.stats().dropped);
    assert!((300..500).contains(&a.stats().dropped), "{:?}", a.stats());
}

#[test]
fn what_is_late_comes_after_its_time_and_in_the_order_of_release() {
    let plan = FaultPlan::new()
        .at(A, B, 0, Fault::Delay { ns: 300 })
        .at(A, B, 2, Fault::Delay { ns: 200 })
        .at(A, B, 3, Fault::Truncate(12))
        .at(A, B, 4, Fault::MarkCongestion);
    let mut port = faulty(plan);
    send(&mut port, 0, &packets(0..5, true)).unwrap();
    let lengths: Vec<usize> = port.inner().batches.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, [20 + 12, 20], "1, and 3 cut short; then 4, which is marked");
    assert_eq!(port.next_event_ns(), Some(200));
    port.receive(300, &mut |_| ());
    assert_eq!(batches(port.inner())[2..], [vec![2], vec![0]]);
    assert_eq!(port.next_event_ns(), None);
    let stats = port.stats();
    assert_eq!((stats.sent, stats.reordered, stats.truncated, stats.marked), (5, 2, 1, 1));
}

#[test]
fn subscribers_hear_of_every_packet_that_a_fault_meets() {
    use crate::event::Subscriber;
    use crate::ground::clock::Clock;
    use std::sync::Mutex;

    struct Heard(Arc<Mutex<Vec<(Fate, u8)>>>);
    impl Subscriber for Heard {
        fn topics(&self) -> Topics {
            Topics::FAULTS
        }
        fn hear(&self, _at_ns: u64, event: &Event<'_>) {
            let Event::FaultApplied { fate, packet, .. } = event else { panic!("{event:?}") };
            self.0.lock().unwrap().push((**fate, packet[0]));
        }
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let subscribers = Subscribers::new(vec![Box::new(Heard(Arc::clone(&heard)))], Clock::monotonic());
    let plan = FaultPlan::new().at(A, B, 1, Fault::Drop).at(A, B, 3, Fault::Duplicate);
    let mut port = FaultPort::new(Tape::default(), &plan, Arc::new(subscribers));
    send(&mut port, 0, &packets(0..5, true)).unwrap();
    let expected =
        [(Fate { lost: true, ..Fate::default() }, 1), (Fate { doubled: true, ..Fate::default() }, 3)];
    assert_eq!(*heard.lock().unwrap(), expected);
}
