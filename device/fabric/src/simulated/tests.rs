use std::net::IpAddr;

use pumice_faults::{Fault, WirePlan};
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::wire::{ProcessIndex, icrc};

use super::*;
use pumice_faults::port::FaultPort;
use pumice_model::port::Port;
use pumice_model::port::batch::{GsoBatch, Peer, TransmitError};
use pumice_transport::types::Fate;

const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 0, 0, 9));

fn path(source: IpAddr, destination: IpAddr) -> Path {
    let flow = Flow { source, destination, source_port: 0xc001, destination_port: ROCE_PORT };
    Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

fn send(port: &mut SimPort, now_ns: u64, path: &Path, bytes: &[u8]) {
    port.transmit(now_ns, &GsoBatch::new(path, bytes.len(), bytes)).unwrap();
}

/// Numbers of the packets that arrived, and when, stepping from event to event.
fn arrivals(fabric: &Fabric, port: &mut SimPort) -> Vec<(u64, u8)> {
    let mut seen = Vec::new();
    while let Some(now_ns) = fabric.next_event_ns() {
        fabric.advance_to(now_ns);
        while port.receive(now_ns, &mut |r| seen.push((now_ns, r.bytes[0]))) {}
    }
    seen
}

fn numbers(fabric: &Fabric, port: &mut SimPort) -> Vec<u8> {
    arrivals(fabric, port).into_iter().map(|(_, number)| number).collect()
}

#[test]
fn batches_arrive_packet_by_packet_after_the_delay() {
    let fabric = Fabric::new(FabricConfig::default());
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    let path = Path { traffic_class: 0x68, hop_limit: 9, ..path(A, B) };
    let mut bytes: Vec<u8> = (0..58).collect();
    let mut alone = bytes.clone(); // the same packets with the ICRCs they have on their own
    for (index, (packet, alone)) in bytes.chunks_mut(20).zip(alone.chunks_mut(20)).enumerate() {
        icrc::seal(&path.flow, index as u16, packet);
        icrc::seal(&path.flow, 0, alone);
    }
    a.transmit(500, &GsoBatch::new(&path, 20, &bytes)).unwrap();
    assert!(!b.receive(1_499, &mut |_| panic!("too early")));
    assert_eq!(fabric.next_event_ns(), Some(1_500));
    let mut pieces = Vec::new();
    while b.receive(1_500, &mut |r| {
        assert_eq!((r.flow, r.traffic_class, r.hop_limit), (path.flow, 0x68, 9));
        assert_eq!(r.segment_bytes, r.bytes.len());
        pieces.push(r.bytes.to_vec());
    }) {}
    assert_eq!(pieces, [&alone[..20], &alone[20..40], &alone[40..]]);
    assert_eq!(fabric.next_event_ns(), None);
}

/// Everything goes wrong at once between two ports.
fn storm(seed: u64) -> (u64, FabricStats, Vec<(u64, u8)>) {
    let fabric = Fabric::new(FabricConfig {
        seed,
        jitter_ns: 700,
        rate_bits_per_second: Some(10_000_000_000),
        queue_bytes: 30_000,
        faults: WirePlan::seeded(seed)
            .by_chance(50_000, Fault::Drop)
            .by_chance(50_000, Fault::DUPLICATE)
            .by_chance(50_000, Fault::delay(10_000))
            .by_chance(50_000, Fault::FLIP)
            .by_chance(50_000, Fault::CUT),
        ecn_mark_queue_bytes: Some(10_000),
        ..FabricConfig::default()
    });
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    let path = Path { traffic_class: 2, ..path(A, B) };
    let mut seen = Vec::new();
    for step in 0..2_000u64 {
        let bytes: Vec<u8> = (0..3_000).map(|i| (step + i) as u8).collect();
        a.transmit(step * 2_000, &GsoBatch::new(&path, 1_000, &bytes)).unwrap();
        while b.receive(step * 2_000, &mut |r| seen.push((step, r.bytes[0]))) {}
    }
    seen.extend(arrivals(&fabric, &mut b));
    (fabric.digest(), fabric.stats(), seen)
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(storm(7), storm(7));
    assert_ne!(storm(7).0, storm(8).0);
    // Also the same on another machine and in a later version.
    assert_eq!(storm(7).0, STORM_7, "{:#x}", storm(7).0);
}

/// Changes only when the fabric's behaviour does: then seeds in old failure reports mean other runs.
const STORM_7: u64 = 0xb69f_560b_9a83_aa0e;

#[test]
fn every_packet_is_accounted_for_and_faults_come_as_often_as_asked() {
    let (_, stats, seen) = storm(3);
    assert_eq!(stats.sent, 6_000);
    assert_eq!(
        stats.sent + stats.duplicated,
        stats.delivered + stats.lost + stats.queue_drops + stats.receive_drops,
        "{stats:?}"
    );
    assert_eq!(stats.delivered, seen.len() as u64);
    assert!(stats.queue_drops > 0 && stats.marked > 0, "{stats:?}");
    let carried = stats.sent - stats.queue_drops;
    for count in [stats.lost, stats.duplicated, stats.reordered, stats.corrupted, stats.truncated] {
        assert!((carried * 3 / 100..carried * 7 / 100).contains(&count), "5 % of {carried}: {stats:?}");
    }
}

#[test]
fn a_link_delivers_at_its_rate_and_drops_what_does_not_fit() {
    // 1054 bytes of UDP payload are 1100 on the wire: 1.1 microseconds at 8 Gbit/s.
    let config = FabricConfig {
        rate_bits_per_second: Some(8_000_000_000),
        queue_bytes: 5_500,
        ecn_mark_queue_bytes: Some(3_000),
        ..FabricConfig::default()
    };
    let fabric = Fabric::new(config);
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    let path = Path { traffic_class: 1, ..path(A, B) };
    for number in 0..7u8 {
        send(&mut a, 0, &path, &[number; 1054]);
    }
    let mut marks = Vec::new();
    let mut times = Vec::new();
    while let Some(now) = fabric.next_event_ns() {
        while b.receive(now, &mut |r| {
            times.push((now, r.bytes[0]));
            marks.push(r.traffic_class & 3);
        }) {}
    }
    assert_eq!(times, [(2_100, 0), (3_200, 1), (4_300, 2), (5_400, 3), (6_500, 4)]);
    assert_eq!(marks, [1, 1, 1, 3, 3], "the queue was 3300 and 4400 bytes long for the last two");
    assert_eq!((fabric.stats().queue_drops, fabric.stats().marked), (2, 2));
}

#[test]
fn jitter_alone_keeps_the_order() {
    let fabric = Fabric::new(FabricConfig { jitter_ns: 50_000, ..FabricConfig::default() });
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    for number in 0..200 {
        send(&mut a, u64::from(number) * 10, &path(A, B), &[number; 30]);
    }
    assert_eq!(numbers(&fabric, &mut b), (0..200).collect::<Vec<u8>>());
}

#[test]
fn reordering_lets_later_packets_overtake() {
    let faults = WirePlan::seeded(5).by_chance(200_000, Fault::delay(10_000));
    let fabric = Fabric::new(FabricConfig { faults, ..FabricConfig::default() });
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    for number in 0..100 {
        send(&mut a, u64::from(number) * 1_000, &path(A, B), &[number; 30]);
    }
    let mut seen = numbers(&fabric, &mut b);
    assert!(seen.windows(2).any(|w| w[0] > w[1]), "{seen:?}");
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<u8>>(), "nothing is lost");
}

#[test]
fn a_script_names_its_packets() {
    let fabric = Fabric::new(FabricConfig::default());
    fabric.play(
        &WirePlan::new()
            .at(A, B, 1, Fault::Drop)
            .at(A, B, 2, Fault::delay(5))
            .at(A, B, 3, Fault::DUPLICATE)
            .at(A, B, 4, Fault::bit(1))
            .at(A, B, 5, Fault::Truncate { bytes: Some(0) })
            .at(B, A, 0, Fault::Mark),
    );
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    for number in 0..7 {
        send(&mut a, 0, &path(A, B), &[number; 30]);
    }
    assert_eq!(
        arrivals(&fabric, &mut b),
        [(1_000, 0), (1_000, 3), (1_000, 3), (1_000, 6), (1_000, 6), (1_005, 2)],
        "5 is taken and empty, 4 became 6"
    );
    send(&mut b, 0, &path(B, A), &[1; 30]);
    fabric.advance_to(2_000);
    assert!(a.receive(2_000, &mut |r| assert_eq!(r.traffic_class, 3)));
}

#[test]
fn ports_that_are_cut_off_hear_nothing_until_healed() {
    let fabric = Fabric::new(FabricConfig::default());
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    assert!(fabric.cut(A, B));
    assert!(!fabric.cut(A, GROUP), "no port has that address");
    send(&mut a, 0, &path(A, B), &[1]);
    assert!(fabric.heal(B, A));
    send(&mut a, 0, &path(A, B), &[2]);
    assert_eq!(numbers(&fabric, &mut b), [2]);
    assert_eq!(fabric.stats().cut_off, 1);
}

#[test]
fn groups_reach_their_members_only() {
    let fabric = Fabric::new(FabricConfig::default());
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    let mut c = fabric.attach(&["10.0.0.3".parse().unwrap()]);
    send(&mut a, 0, &path(A, GROUP), &[1]);
    a.join(GROUP).unwrap();
    b.join(GROUP).unwrap();
    send(&mut a, 0, &path(A, GROUP), &[2]);
    fabric.advance_to(1_000);
    for port in [&mut a, &mut b] {
        assert!(port.receive(1_000, &mut |r| assert_eq!((r.bytes, r.flow.destination), (&[2][..], GROUP))));
        assert!(!port.receive(1_000, &mut |_| ()));
    }
    assert!(!c.receive(1_000, &mut |_| ()));
    b.leave(GROUP).unwrap();
    assert!(b.leave(GROUP).is_err());
    assert!(b.join(B).is_err());
    assert_eq!(fabric.stats().unrouted, 1);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let fabric = Fabric::new(FabricConfig { link_mtu: 1_500, ..FabricConfig::default() });
    let mut a = fabric.attach(&[A]);
    let b = fabric.attach(&[B]);
    let mut try_send = |path: &Path, segment_bytes: usize, bytes: usize| {
        a.transmit(0, &GsoBatch::new(path, segment_bytes, &vec![0; bytes]))
    };
    assert_eq!(try_send(&path(B, A), 8, 8), Err(TransmitError::Refused(libc::EADDRNOTAVAIL)));
    assert_eq!(
        try_send(&path(A, B), 1_473, 1_473),
        Err(TransmitError::TooLong { bytes: 1_473, limit_bytes: 1_472 })
    );
    assert_eq!(try_send(&path(A, B), 1_472, 2_944), Ok(()));
    assert_eq!(try_send(&path(A, B), 1, 129), Err(TransmitError::TooLong { bytes: 129, limit_bytes: 128 }));
    drop(b);
    assert_eq!(try_send(&path(A, B), 8, 8), Ok(()), "the network does not tell");
    fabric.advance_to(10_000);
    assert_eq!((fabric.stats().unrouted, fabric.stats().receive_drops), (1, 2));
}

#[test]
fn a_full_receive_buffer_drops() {
    let fabric = Fabric::new(FabricConfig { receive_buffer_bytes: 3 * 8_456, ..FabricConfig::default() });
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    for number in 0..4 {
        send(&mut a, 0, &path(A, B), &[number; 4_128]);
    }
    fabric.advance_to(1_000);
    assert_eq!(fabric.stats().receive_drops, 1);
    assert!(b.receive(1_000, &mut |_| ()));
    send(&mut a, 1_000, &path(A, B), &[9; 4_128]);
    assert_eq!(numbers(&fabric, &mut b), [1, 2, 9]);
}

#[test]
fn with_back_pressure_senders_wait_for_a_stopped_port_and_its_death_ends_that() {
    let config = FabricConfig { receive_buffer_bytes: 256 << 10, back_pressure: true, ..Default::default() };
    let fabric = Fabric::new(config);
    let (mut a, mut b) = (fabric.attach(&[A]), fabric.attach(&[B]));
    let (path, peer) = (path(A, B), Peer { address: B, process: ProcessIndex::NONE });
    assert!(a.limits(peer).waits_for_room);
    assert!(fabric.stop(B));
    let batch = vec![7; a.limits(peer).max_batch_bytes];
    let admits = |a: &mut SimPort| a.group().unwrap().admits(0, peer);
    let mut sent = 0;
    while admits(&mut a) {
        a.transmit(0, &GsoBatch::new(&path, 256, &batch)).unwrap();
        sent += batch.len() as u64 / 256;
    }
    assert!(sent > 64, "more than one batch fits");
    assert_eq!(arrivals(&fabric, &mut b), [], "it is stopped");
    assert!(!admits(&mut a), "what has arrived is still there");
    assert!(fabric.resume(B));
    let mut taken = 0;
    while b.receive(10_000, &mut |_| taken += 1) {}
    assert_eq!(taken, sent);
    let stats = fabric.stats();
    assert_eq!((stats.receive_drops, stats.delivered, stats.back_pressured), (0, sent, 2));
    assert!(admits(&mut a));
    assert!(fabric.kill(B) && !fabric.kill(B) && !fabric.stop(B));
    for _ in 0..100 {
        assert!(admits(&mut a), "a dead process holds no sender up");
        a.transmit(20_000, &GsoBatch::new(&path, 256, &batch)).unwrap();
    }
    assert!(b.transmit(20_000, &GsoBatch::new(&self::path(B, A), 256, &batch)).is_err());
}

#[test]
fn a_port_of_faults_works_around_a_simulated_port() {
    let fabric = Fabric::new(FabricConfig::default());
    let mut a = FaultPort::new(fabric.attach(&[A]));
    let mut b = fabric.attach(&[B]);
    for step in 0..1_000 {
        let fates = [(step as u16 % 4, Fate::LOST)];
        let (path, bytes) = (path(A, B), [0; 80]);
        a.transmit(step * 100, &GsoBatch { fates: &fates, ..GsoBatch::new(&path, 20, &bytes) }).unwrap();
    }
    let mut arrived = 0;
    while b.receive(1_000_000, &mut |_| arrived += 1) {}
    assert_eq!((arrived, a.stats().dropped), (3_000, 1_000));
}
