use super::*;
use pumice_transport::wire::{Opcode, OpcodeInfo};

const US_NS: u64 = 1_000;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

/// Returns the opcode of an RC SEND Only.
fn info() -> &'static OpcodeInfo {
    Opcode::from_byte(0x04).info().expect("an opcode")
}

/// Returns a packet from 10.0.0.1 to 10.0.0.2, with this PSN at this microsecond.
fn packet(psn: u32, at_us: u64) -> Sighting {
    Sighting {
        capture: 0,
        time_ns: at_us * US_NS,
        source: address(1),
        destination: address(2),
        qpn: 17,
        psn,
        info: info(),
        payload_bytes: 8,
        memory: None,
        answer: None,
        is_damaged: false,
        is_lost: false,
        is_planned: false,
        is_outbound: None,
        datagram: None,
    }
}

fn seen(out: bool, packets: &[Sighting]) -> Vec<Sighting> {
    packets.iter().map(|one| Sighting { is_outbound: Some(out), ..one.clone() }).collect()
}

/// Returns the outcomes of packets that were sent, given those that arrived.
fn became(sent: &[Sighting], arrived: &[Sighting]) -> Vec<PacketOutcome> {
    let captures = [seen(true, sent), seen(false, arrived)];
    let sides = CaptureSides::of(&captures);
    assert!(sides.know_directions() && sides.have_arrivals());
    let mut streams = streams(&sides, address(1));
    assert_eq!(streams.len(), 1);
    streams.remove(0).outcomes.expect("both sides")
}

/// Returns the indices of the arrivals.
fn arrived_at(outcomes: &[PacketOutcome]) -> Vec<Option<usize>> {
    outcomes.iter().map(|outcome| outcome.arrived_at).collect()
}

#[test]
fn what_did_not_arrive_is_found_although_the_clocks_differ() {
    let sent = [packet(0, 10), packet(1, 20), packet(2, 30)];
    // The clock of the receiver is the same, or an hour ahead.
    for base_us in [0, 3_600_000_000] {
        let arrived = [packet(0, base_us), packet(2, base_us + 20)];
        assert_eq!(arrived_at(&became(&sent, &arrived)), [Some(0), None, Some(1)]);
    }
}

#[test]
fn of_two_transmissions_the_nearer_one_arrived() {
    let sent = [packet(0, 0), packet(1, 10), packet(1, 5_000), packet(2, 5_010)];
    let arrived = [packet(0, 100), packet(1, 5_100), packet(2, 5_110)];
    assert_eq!(arrived_at(&became(&sent, &arrived)), [Some(0), None, Some(1), Some(2)]);
    // Both arrived: the first is matched with the first, although the second is nearer.
    let arrived = [packet(0, 100), packet(1, 5_050), packet(1, 5_100), packet(2, 5_110)];
    assert_eq!(arrived_at(&became(&sent, &arrived)), [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn what_arrived_more_often_than_it_was_sent_was_doubled() {
    let sent = [packet(0, 0), packet(1, 10)];
    let arrived = [packet(0, 5), packet(0, 6), packet(0, 7), packet(1, 15)];
    let outcomes = became(&sent, &arrived);
    assert_eq!((outcomes[0].copies, outcomes[1].copies), (2, 0));
    assert_eq!(arrived_at(&outcomes), [Some(0), Some(3)]);
    // The count of copies saturates.
    let many: Vec<Sighting> = (0..1_000).map(|at| packet(0, at)).collect();
    assert_eq!(became(&sent, &many)[0].copies, u8::MAX);
}

#[test]
fn overtaken_and_damaged_packets_are_known() {
    let sent = [packet(0, 0), packet(1, 1), packet(2, 2), packet(3, 3)];
    let broken = Sighting { is_damaged: true, ..packet(3, 14) };
    let outcomes = became(&sent, &[packet(1, 11), packet(2, 12), packet(0, 13), broken]);
    let overtaken: Vec<u16> = outcomes.iter().map(|outcome| outcome.overtaken_by).collect();
    assert_eq!(overtaken, [2, 0, 0, 0]);
    assert_eq!(
        outcomes.iter().map(|outcome| outcome.is_damaged).collect::<Vec<_>>(),
        [false, false, false, true]
    );
}

#[test]
fn what_the_plan_lost_is_no_transmission_that_can_arrive() {
    let lost = Sighting { is_lost: true, ..packet(0, 0) };
    let outcomes = became(&[lost, packet(0, 1_000)], &[packet(0, 1)]);
    assert_eq!(arrived_at(&outcomes), [None, Some(0)]);
}

#[test]
fn packets_to_different_processes_do_not_overtake_each_other() {
    let sent = [packet(0, 0), packet(1, 1)];
    let at = |capture, one: Sighting| Sighting { capture, ..one };
    let overtaken = |captures: [usize; 2]| {
        let [first, second] = captures;
        let arrived = [at(first, packet(1, 5)), at(second, packet(0, 5))];
        became(&sent, &arrived).iter().map(|outcome| outcome.overtaken_by).collect::<Vec<_>>()
    };
    assert_eq!(overtaken([1, 1]), [1, 0]);
    assert_eq!(overtaken([1, 2]), [0, 0]);
}

#[test]
fn a_packet_that_one_process_hands_on_to_another_is_no_copy() {
    let at = |capture| Sighting { capture, ..packet(0, 5) };
    let copies = |captures: [usize; 2]| became(&[packet(0, 0)], &captures.map(at))[0].copies;
    assert_eq!((copies([1, 1]), copies([1, 2])), (1, 0));
}

#[test]
fn what_was_never_sent_and_arrives_is_nobodys() {
    let other = Sighting { payload_bytes: 9, ..packet(0, 5) };
    let outcomes = became(&[packet(0, 0)], &[packet(7, 4), other]);
    assert_eq!(outcomes, [PacketOutcome::default()]);
}

#[test]
fn without_directions_the_capture_with_more_is_the_senders() {
    let long = vec![packet(0, 0), packet(1, 1), packet(2, 2)];
    let short = vec![packet(0, 10), packet(2, 12)];
    for captures in [[long.clone(), short.clone()], [short, long]] {
        let sides = CaptureSides::of(&captures);
        assert!(!sides.know_directions() && sides.have_arrivals());
        assert_eq!((sides.sent(address(1)).len(), sides.arrived(address(1)).len()), (3, 2));
        let outcomes = streams(&sides, address(1)).remove(0).outcomes.expect("both sides");
        assert_eq!(arrived_at(&outcomes), [Some(0), None, Some(1)]);
    }
    // A single capture shows no arrivals.
    let alone = [vec![packet(0, 0)]];
    let sides = CaptureSides::of(&alone);
    assert!(!sides.have_arrivals() && streams(&sides, address(1))[0].outcomes.is_none());
}

#[test]
fn streams_are_distinguished_by_queue_pair_and_peer() {
    let other = Sighting { qpn: 18, ..packet(0, 1) };
    let elsewhere = Sighting { destination: address(3), ..packet(0, 2) };
    let captures = [
        seen(true, &[packet(0, 0), other.clone(), elsewhere]),
        // Only the packet of the other queue pair arrived, with the same PSN.
        seen(false, &[other]),
    ];
    let sides = CaptureSides::of(&captures);
    let streams = streams(&sides, address(1));
    let ordinals: Vec<(u32, u32)> = streams.iter().map(|stream| (stream.qpn, stream.ordinal)).collect();
    assert_eq!(ordinals, [(17, 0), (18, 1), (17, 2)]);
    let arrived = |stream: &PacketStream<'_>| arrived_at(stream.outcomes.as_deref().expect("both sides"));
    assert_eq!(streams.iter().map(arrived).collect::<Vec<_>>(), [[None], [Some(0)], [None]]);
}

/// The captures come from no device: they have times of any size and order, the same packet over and over,
/// directions that change, or no packets.
#[test]
fn hostile_captures_are_paired_without_a_panic_and_every_arrival_is_counted_once() {
    let mut state = 7_u64;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for _ in 0..200 {
        let mut capture = || -> Vec<Sighting> {
            let count = below(40);
            let one = |_| Sighting {
                time_ns: [0, u64::MAX, 1 << 63, below(100)][below(4) as usize],
                source: address(below(2) as u8),
                destination: address(below(2) as u8),
                qpn: below(2) as u32,
                psn: [0, 1, 0xff_ffff, u32::MAX][below(4) as usize],
                payload_bytes: [0, 8, usize::MAX][below(3) as usize],
                answer: (below(2) == 0).then_some((below(3) as u8, u32::MAX)),
                is_damaged: below(2) == 0,
                is_lost: below(4) == 0,
                is_outbound: [None, Some(true), Some(false)][below(3) as usize],
                ..packet(0, 0)
            };
            (0..count).map(one).collect()
        };
        let captures = [capture(), capture(), Vec::new(), capture()];
        let sides = CaptureSides::of(&captures);
        let sources: Vec<IpAddr> = sides.sources().collect();
        for source in sources {
            for stream in streams(&sides, source) {
                let Some(outcomes) = &stream.outcomes else { continue };
                assert_eq!(outcomes.len(), stream.sent.len());
                let mut taken: Vec<usize> = arrived_at(outcomes).into_iter().flatten().collect();
                let count = taken.len();
                taken.sort_unstable();
                taken.dedup();
                assert_eq!(taken.len(), count, "no arrival is of two packets");
                assert!(taken.iter().all(|index| *index < sides.arrived(source).len()));
            }
        }
    }
    let nothing: [Vec<Sighting>; 0] = [];
    assert_eq!(CaptureSides::of(&nothing).sources().count(), 0);
    assert!(CaptureSides::of(&nothing).have_arrivals(), "of no address");
}
