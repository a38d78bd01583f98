//! A port behind a link.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::RawFd;
use std::sync::Arc;

use pumice_platform::clock::VirtualTime;
use pumice_transport::host::Counter;
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::wire::icrc::{self, IcrcVerdict};

use pumice_fabric::LinkPort;
use pumice_model::counters::Counters;
use pumice_model::network::{EcnMarking, Link, LinkDirection};
use pumice_model::port::batch::{GsoBatch, PacketCost, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::group::ProcessGroup;
use pumice_model::port::{Port, PortLayer};
use pumice_platform::clock::Clock;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// A packet of 954 bytes has 1000 on the wire: a microsecond.
const PACKET_BYTES: usize = 954;
const KILOBYTE_A_MICROSECOND: LinkDirection =
    LinkDirection { rate_bits_per_second: Some(8_000_000_000), ..LinkDirection::NONE };

fn path() -> Path {
    let flow = Flow { source: A, destination: B, source_port: 0xc001, destination_port: ROCE_PORT };
    Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

/// A port that remembers what it sends, and receives what is put into it.
#[derive(Default)]
struct Tape {
    sent: Vec<(u64, Vec<u8>)>,
    coming: Vec<(u8, Vec<u8>)>,
    is_busy: bool,
    has_no_route: bool,
    has_no_room: bool,
    waits_for_room: bool,
}

impl Port for Tape {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        if self.is_busy {
            return Err(TransmitError::Busy);
        }
        if self.has_no_route {
            return Err(TransmitError::Unreachable);
        }
        assert!(batch.has_icrc);
        self.sent.push((now_ns, batch.bytes.to_vec()));
        Ok(())
    }
    fn receive(&mut self, _now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        if self.coming.is_empty() {
            return false;
        }
        let (traffic_class, bytes) = self.coming.remove(0);
        let (flow, segment_bytes) = (path().flow, PACKET_BYTES);
        if !bytes.is_empty() {
            let (bytes, hop_limit) = (&*bytes, 64);
            handler(&ReceivedBatch { flow, traffic_class, hop_limit, segment_bytes, bytes, has_icrc: true });
        }
        true
    }
    fn limits(&self, _peer: Peer) -> PortLimits {
        PortLimits {
            max_segments: 4,
            max_batch_bytes: 65_507,
            receive_buffer_bytes: 1 << 20,
            packet_cost: PacketCost::UDP_SOCKET,
            needs_icrc: true,
            waits_for_room: self.waits_for_room,
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
    fn group(&mut self) -> Option<&mut dyn ProcessGroup> {
        Some(self)
    }
}

impl ProcessGroup for Tape {
    fn admits(&mut self, _now_ns: u64, _peer: Peer) -> bool {
        !self.has_no_room
    }
}

/// Packets with their number in each byte.
fn packets(numbers: std::ops::Range<u8>, sealed: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, number) in numbers.enumerate() {
        let mut packet = [number; PACKET_BYTES];
        if sealed {
            icrc::seal(&path().flow, index as u16, &mut packet);
        }
        bytes.extend(packet);
    }
    bytes
}

struct Scene {
    port: LinkPort<Tape>,
    counters: Arc<Counters>,
}

impl Scene {
    fn new(link: Link) -> Scene {
        Scene::with_time(link, true)
    }

    fn with_time(link: Link, is_virtual: bool) -> Scene {
        let clock = if is_virtual { Clock::Virtual(VirtualTime::default()) } else { Clock::monotonic() };
        let mut port = LinkPort::new(Tape::default(), link, &clock);
        let counters = Arc::new(Counters::new());
        port.observe(&counters);
        Scene { port, counters }
    }

    fn send(&mut self, now_ns: u64, numbers: std::ops::Range<u8>, sealed: bool) -> Result<(), TransmitError> {
        let (path, bytes) = (path(), packets(numbers, sealed));
        let has_icrc = sealed;
        self.port.transmit(now_ns, &GsoBatch { has_icrc, ..GsoBatch::new(&path, PACKET_BYTES, &bytes) })
    }

    /// When packets left, and their numbers, if all have a right ICRC.
    fn sent(&mut self) -> Vec<(u64, Vec<u8>)> {
        let batches = std::mem::take(&mut self.port.below_mut().sent);
        let numbers = |bytes: &[u8]| {
            let exact = |(index, packet): (usize, &[u8])| {
                assert_eq!(icrc::verify(&path().flow, index as u16, packet), IcrcVerdict::Exact);
                packet[0]
            };
            bytes.chunks(PACKET_BYTES).enumerate().map(exact).collect()
        };
        batches.into_iter().map(|(at_ns, bytes)| (at_ns, numbers(&bytes))).collect()
    }

    /// What arrives at this time: traffic class and numbers of each batch.
    fn receive(&mut self, now_ns: u64) -> Vec<(u8, Vec<u8>)> {
        let mut all = Vec::new();
        while self.port.receive(now_ns, &mut |received| {
            let number = |(index, packet): (usize, &[u8])| {
                assert_eq!(icrc::verify(&received.flow, index as u16, packet), IcrcVerdict::Exact);
                packet[0]
            };
            all.push((received.traffic_class, received.segments().enumerate().map(number).collect()));
        }) {}
        all
    }

    /// Lets time pass from event to event.
    fn run(&mut self) -> u64 {
        let mut now_ns = 0;
        while let Some(next_ns) = self.port.next_event_ns() {
            assert!(next_ns > now_ns, "{next_ns}");
            now_ns = next_ns;
            self.receive(now_ns);
        }
        now_ns
    }

    fn count(&self, counter: Counter) -> u64 {
        self.counters.value(counter)
    }
}

#[test]
fn packets_leave_at_the_rate_and_a_delay_later() {
    for sealed in [false, true] {
        let egress = LinkDirection { delay_ns: 5_000, ..KILOBYTE_A_MICROSECOND };
        let mut scene = Scene::new(Link { egress, ..Link::default() });
        scene.send(100, 0..3, sealed).unwrap();
        assert_eq!(scene.run(), 8_100);
        assert_eq!(scene.sent(), [(6_100, vec![0]), (7_100, vec![1]), (8_100, vec![2])]);
        assert_eq!((scene.count(Counter::LinkQueued), scene.count(Counter::LinkBusy)), (2, 0));
    }
}

#[test]
fn in_real_time_packets_that_are_due_soon_after_each_other_leave_together() {
    let mut scene = Scene::with_time(Link { egress: KILOBYTE_A_MICROSECOND, ..Link::default() }, false);
    assert!(!scene.port.limits(Peer { address: B, process: Default::default() }).needs_icrc);
    scene.send(0, 0..12, false).unwrap();
    assert_eq!(scene.port.next_event_ns(), Some(11_000));
    scene.receive(10_999);
    assert_eq!(scene.sent(), []);
    scene.receive(11_500);
    let together = [(11_500, vec![0, 1, 2, 3]), (11_500, vec![4, 5, 6, 7]), (11_500, vec![8, 9, 10])];
    assert_eq!(scene.sent(), together, "batches of four packets at most");
    assert_eq!(scene.port.next_event_ns(), Some(12_000));
    scene.receive(12_000);
    assert_eq!(scene.sent(), [(12_000, vec![11])]);
}

#[test]
fn the_device_waits_while_the_queue_is_full_and_loses_nothing() {
    let egress = LinkDirection { queue_bytes: Some(4_000), ..KILOBYTE_A_MICROSECOND };
    let mut scene = Scene::new(Link { egress, ..Link::default() });
    assert_eq!(scene.send(0, 0..3, true), Ok(()));
    assert_eq!(scene.send(0, 3..6, true), Ok(()), "there is room for the first byte");
    assert_eq!(scene.send(0, 6..9, true), Err(TransmitError::Busy));
    assert_eq!(scene.port.room_at_ns(), Some(4_000), "half of the queue is empty again");
    assert_eq!(scene.send(1_999, 6..9, true), Err(TransmitError::Busy));
    assert_eq!(scene.count(Counter::LinkBusy), 2);
    scene.receive(4_000);
    assert_eq!(scene.port.room_at_ns(), None);
    assert_eq!(scene.send(4_000, 6..9, true), Ok(()));
    assert_eq!(scene.run(), 9_000);
    let sent: Vec<u8> = scene.sent().into_iter().flat_map(|(_, numbers)| numbers).collect();
    assert_eq!(sent, (0..9).collect::<Vec<u8>>());
}

#[test]
fn what_the_port_below_does_not_take_waits_and_leaves_as_it_was_made() {
    let mut scene = Scene::new(Link { egress: KILOBYTE_A_MICROSECOND, ..Link::default() });
    scene.send(0, 0..3, true).unwrap();
    scene.receive(1_000);
    assert_eq!(scene.sent(), [(1_000, vec![0])]);
    scene.port.below_mut().is_busy = true;
    scene.receive(2_000);
    assert_eq!(scene.port.next_event_ns(), Some(102_000));
    scene.port.below_mut().is_busy = false;
    scene.receive(3_000);
    assert_eq!(scene.sent(), []);
    scene.receive(102_000);
    assert_eq!(scene.sent(), [(102_000, vec![1]), (102_000, vec![2])]);

    // A ring is asked whether it has room.
    scene.port.below_mut().waits_for_room = true;
    scene.port.below_mut().has_no_room = true;
    scene.send(200_000, 3..4, false).unwrap();
    scene.receive(201_000);
    assert_eq!((scene.sent(), scene.port.next_event_ns()), (vec![], Some(211_000)));
    scene.port.below_mut().has_no_room = false;
    scene.receive(211_000);
    assert_eq!(scene.sent(), [(211_000, vec![3])]);
}

#[test]
fn what_the_port_below_cannot_send_is_lost_and_counted() {
    let mut scene = Scene::new(Link { egress: KILOBYTE_A_MICROSECOND, ..Link::default() });
    scene.send(0, 0..3, true).unwrap();
    scene.port.below_mut().has_no_route = true;
    assert_eq!(scene.run(), 3_000);
    assert_eq!((scene.sent(), scene.count(Counter::TxDropped)), (vec![], 3));
}

#[test]
fn packets_arrive_when_they_have_passed_the_link() {
    let ingress = LinkDirection { delay_ns: 5_000, ..KILOBYTE_A_MICROSECOND };
    let mut scene = Scene::new(Link { ingress, ..Link::default() });
    scene.port.below_mut().coming = vec![(0, packets(0..2, true)), (0, packets(2..3, true))];
    assert_eq!(scene.receive(10), []);
    assert_eq!(scene.port.next_event_ns(), Some(6_010));
    assert_eq!(scene.receive(6_010), [(0, vec![0])]);
    assert_eq!(
        scene.receive(8_010),
        [(0, vec![1]), (0, vec![2])],
        "the index in a batch is that in the ICRC"
    );
    assert_eq!(scene.port.next_event_ns(), None);
    // What is no packet is taken from the port, and told.
    scene.port.below_mut().coming = vec![(0, Vec::new())];
    assert!(scene.port.receive(9_000, &mut |_| panic!("no packet came")));
}

#[test]
fn the_queue_of_the_switch_drops_what_does_not_fit_and_marks_what_is_capable() {
    let ecn = Some(EcnMarking::Above(1_000));
    let ingress = LinkDirection { queue_bytes: Some(4_500), ecn, ..KILOBYTE_A_MICROSECOND };
    let mut scene = Scene::new(Link { ingress, ..Link::default() });
    scene.port.below_mut().coming = vec![(0b10, packets(0..3, true)), (0, packets(3..6, true))];
    assert_eq!(scene.receive(0), []);
    let arrived = scene.receive(9_000);
    // 0 and 1 found up to 1000 bytes, 2 found 2000; 3 found 3000 and is not capable; 4 and 5 found it full.
    assert_eq!(arrived, [(0b10, vec![0, 1]), (0b11, vec![2]), (0, vec![3])]);
    let counters = [Counter::LinkQueued, Counter::LinkDropped, Counter::LinkMarked, Counter::LinkBusy];
    assert_eq!(counters.map(|counter| scene.count(counter)), [3, 2, 1, 0]);
}

#[test]
fn a_direction_that_does_nothing_passes_everything_at_once() {
    let mut scene = Scene::new(Link { ingress: KILOBYTE_A_MICROSECOND, ..Link::default() });
    assert!(scene.port.limits(Peer { address: B, process: Default::default() }).needs_icrc);
    scene.send(5, 0..4, true).unwrap();
    assert_eq!(scene.sent(), [(5, vec![0, 1, 2, 3])]);
    let mut scene = Scene::new(Link { egress: KILOBYTE_A_MICROSECOND, ..Link::default() });
    scene.port.below_mut().coming = vec![(7, packets(0..3, true))];
    assert_eq!(scene.receive(5), [(7, vec![0, 1, 2])]);
}

#[test]
fn a_device_that_closes_sends_what_waits() {
    let egress = LinkDirection { delay_ns: 1_000_000_000, ..LinkDirection::NONE };
    let mut scene = Scene::new(Link { egress, ..Link::default() });
    scene.send(0, 0..6, false).unwrap();
    scene.port.release(10);
    assert_eq!(scene.sent(), [(10, vec![0, 1, 2, 3]), (10, vec![4, 5])]);
    assert_eq!(scene.port.next_event_ns(), None);
    // A busy port is not asked for ever.
    scene.send(20, 0..1, false).unwrap();
    scene.port.below_mut().is_busy = true;
    scene.port.release(30);
    assert_eq!(scene.sent(), []);
}
