//! Switches by literal packets: ways, times, marks, pauses, losses.

use std::net::IpAddr;

use pumice_transport::path::{Flow, Path, ROCE_PORT};

use crate::{Fabric, FabricConfig, SimPort};
use pumice_model::network::EcnMarking;
use pumice_model::network::topology::{SwitchLink, SwitchPauses, SwitchQueues, Topology};
use pumice_model::port::Port;
use pumice_model::port::batch::GsoBatch;

/// 8 Gbit/s: a packet of 1000 bytes on the link takes a microsecond.
const LINK: SwitchLink = SwitchLink { rate_mbps: 8_000, delay_ns: 500 };
/// UDP payload of such a packet over IPv4.
const PAYLOAD: usize = 1_000 - 46;

fn address(host: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, 1 + host as u8])
}

fn path(from: usize, to: usize, source_port: u16) -> Path {
    let (source, destination) = (address(from), address(to));
    let flow = Flow { source, destination, source_port, destination_port: ROCE_PORT };
    Path { flow, traffic_class: 0b10, hop_limit: 64, flow_label: 0 }
}

fn network(topology: Topology) -> (Fabric, Vec<SimPort>) {
    assert_eq!(topology.check(), Ok(()));
    let hosts = usize::from(topology.hosts);
    let fabric = Fabric::new(FabricConfig { topology: Some(topology), ..FabricConfig::default() });
    let ports = (0..hosts).map(|host| fabric.attach(&[address(host)])).collect();
    (fabric, ports)
}

fn send(ports: &mut [SimPort], now_ns: u64, path: &Path, mark: u8) {
    let IpAddr::V4(source) = path.flow.source else { panic!("IPv4") };
    let port = &mut ports[usize::from(source.octets()[3]) - 1];
    port.transmit(now_ns, &GsoBatch::new(path, PAYLOAD, &[mark; PAYLOAD])).unwrap();
}

/// What arrives at a host from now on: time, first byte, ECN field.
fn arrivals(fabric: &Fabric, port: &mut SimPort) -> Vec<(u64, u8, u8)> {
    let mut seen = Vec::new();
    while let Some(now_ns) = fabric.next_event_ns() {
        while port.receive(now_ns, &mut |r| seen.push((now_ns, r.bytes[0], r.traffic_class & 3))) {}
    }
    seen
}

#[test]
fn packets_of_two_senders_share_the_link_to_their_receiver() {
    let (fabric, mut ports) = network(Topology::star(3, LINK));
    for (from, mark) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        send(&mut ports, 0, &path(from, 2, ROCE_PORT), mark);
    }
    // Each is sent in 1 us and takes 0.5 us to the switch, and the same again to the receiver.
    let times = [(3_000, 1, 2), (4_000, 2, 2), (5_000, 3, 2), (6_000, 4, 2)];
    assert_eq!(arrivals(&fabric, &mut ports[2]), times);
    let queues = fabric.queues();
    assert_eq!(queues.len(), 6);
    assert_eq!((queues[5].name.as_str(), queues[5].sent_bytes), ("leaf 0 to host 2", 4_000));
    // The second two join at the moment at which the first one has left.
    assert_eq!(queues[5].most_bytes, 4_000);
    assert_eq!((queues[0].most_bytes, queues[5].bytes), (2_000, 0));
}

#[test]
fn a_full_queue_loses_and_a_shared_buffer_too() {
    for buffer_bytes in [None, Some(10_000)] {
        let queue_bytes = if buffer_bytes.is_none() { 10_000 } else { 1 << 20 };
        let queues = SwitchQueues { queue_bytes, buffer_bytes, ecn: None, pause: None };
        let (fabric, mut ports) = network(Topology { queues, ..Topology::star(3, LINK) });
        for mark in 0..40 {
            send(&mut ports, 0, &path(usize::from(mark % 2), 2, ROCE_PORT), mark);
        }
        let arrived = arrivals(&fabric, &mut ports[2]).len() as u64;
        let stats = fabric.stats();
        assert!(stats.queue_drops > 0 && stats.pauses == 0, "{stats:?}");
        assert_eq!((arrived, stats.delivered), (40 - stats.queue_drops, arrived));
        assert_eq!(fabric.queues()[5].dropped, stats.queue_drops);
        assert!(fabric.queues()[5].most_bytes <= 10_000);
    }
}

#[test]
fn a_queue_above_the_ramp_marks_all_and_below_it_none() {
    let ecn = Some(EcnMarking::Ramp { min_bytes: 2_000, max_bytes: 2_999, most_ppm: 0 });
    let queues = SwitchQueues { queue_bytes: 1 << 20, buffer_bytes: None, ecn, pause: None };
    let (fabric, mut ports) = network(Topology { queues, ..Topology::star(3, LINK) });
    for mark in 0..10 {
        send(&mut ports, 0, &path(usize::from(mark % 2), 2, ROCE_PORT), mark);
    }
    let marked: Vec<bool> = arrivals(&fabric, &mut ports[2]).iter().map(|(.., ecn)| *ecn == 3).collect();
    // Two join for each one that leaves: with 0 and 1, 2 and 3, 3 and 4 thousand bytes in front of them.
    let expected = [false, false, false, true, true, true, true, true, true, true];
    assert_eq!(marked, expected);
    assert_eq!(fabric.stats().marked, 7);
}

#[test]
fn with_pauses_nothing_is_lost_and_the_queue_has_a_bound() {
    let pause = Some(SwitchPauses { xoff_bytes: 20_000, xon_bytes: 10_000 });
    let queues = SwitchQueues { queue_bytes: 100_000, buffer_bytes: None, ecn: None, pause };
    let (fabric, mut ports) = network(Topology { queues, ..Topology::star(4, LINK) });
    for number in 0..300 {
        send(&mut ports, 0, &path(number % 3, 3, ROCE_PORT), number as u8);
    }
    assert_eq!(arrivals(&fabric, &mut ports[3]).len(), 300);
    let stats = fabric.stats();
    assert!(stats.queue_drops == 0 && stats.pauses > 3, "{stats:?}");
    let most_bytes = fabric.queues()[7].most_bytes;
    // Beyond XOFF of each of three links: what is under way until the sender hears of it.
    assert!((50_000..=3 * 23_000).contains(&most_bytes), "{most_bytes}");
}

#[test]
fn two_tiers_have_a_way_between_all_hosts_and_a_flow_keeps_to_its_spine() {
    let text = "kind = \"two-tier\"\nhosts = 4\nleaves = 2\nspines = 2\n\
                [link]\nrate_mbps = 8000\ndelay_ns = 500\n[uplink]\nrate_mbps = 16000\ndelay_ns = 100\n\
                [switch]\nqueue_bytes = 100000\n";
    let topology = Topology::parse(text).unwrap();
    for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))) {
        let (fabric, mut ports) = network(topology.clone());
        send(&mut ports, 0, &path(from, to, ROCE_PORT), 7);
        // Over a spine: two links of 8 Gbit/s and two of 16 Gbit/s.
        let at_ns = if from / 2 == to / 2 { 3_000 } else { 1_500 + 600 + 600 + 1_500 };
        assert_eq!(arrivals(&fabric, &mut ports[to]), [(at_ns, 7, 2)], "{from} to {to}");
    }
    let (fabric, mut ports) = network(topology);
    for number in 0..200_u16 {
        send(&mut ports, u64::from(number) * 2_000, &path(0, 2, 50_000 + number % 10), 1);
    }
    arrivals(&fabric, &mut ports[2]);
    let queues = fabric.queues();
    let over = |name: &str| queues.iter().find(|queue| queue.name == name).unwrap().sent_bytes;
    let (one, other) = (over("leaf 0 to spine 0"), over("leaf 0 to spine 1"));
    // Ten flows of twenty packets.
    assert!(one % 20_000 == 0 && one > 0 && other > 0 && one + other == 200_000, "{one} and {other}");
}

#[test]
fn three_tiers_have_a_way_between_all_hosts_over_the_cores_of_a_spine() {
    let text = "kind = \"three-tier\"\nhosts = 8\nleaves = 4\npods = 2\nspines = 4\ncores = 4\n\
                [link]\nrate_mbps = 8000\ndelay_ns = 500\n[uplink]\nrate_mbps = 16000\ndelay_ns = 100\n\
                [corelink]\nrate_mbps = 32000\ndelay_ns = 50\n[switch]\nqueue_bytes = 100000\n";
    let topology = Topology::parse(text).unwrap();
    // Cables of hosts, of four leaves to two spines each, and of four spines to two cores each.
    assert_eq!(topology.link_count(), 2 * (8 + 8 + 8));
    for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))) {
        let (fabric, mut ports) = network(topology.clone());
        send(&mut ports, 0, &path(from, to, ROCE_PORT), 7);
        let at_ns = match (from / 2 == to / 2, from / 4 == to / 4) {
            (true, _) => 3_000,
            (false, true) => 1_500 + 600 + 600 + 1_500,
            // 1000 bytes take 250 ns at 32 Gbit/s.
            (false, false) => 1_500 + 600 + 300 + 300 + 600 + 1_500,
        };
        assert_eq!(arrivals(&fabric, &mut ports[to]), [(at_ns, 7, 2)], "{from} to {to}");
    }
    let (fabric, mut ports) = network(topology);
    for number in 0..400_u16 {
        send(&mut ports, u64::from(number) * 2_000, &path(0, 6, 50_000 + number % 40), 1);
    }
    arrivals(&fabric, &mut ports[6]);
    let queues = fabric.queues();
    let over = |name: &str| queues.iter().find(|queue| queue.name == name).unwrap().sent_bytes;
    // The second spine of a pod is connected to the last two cores, and a flow keeps to one of them.
    let by_core = [0, 1, 2, 3].map(|core: usize| {
        let down = over(&format!("core {core} to spine {}", 2 + core / 2));
        assert_eq!(over(&format!("spine {} to core {core}", core / 2)), down);
        down
    });
    assert!(by_core.iter().all(|bytes| *bytes > 0 && bytes % 10_000 == 0), "{by_core:?}");
    assert_eq!(by_core.iter().sum::<u64>(), 400_000);
    assert!(!queues.iter().any(|queue| queue.name == "spine 0 to core 2"));
}

#[test]
fn a_port_without_a_host_reaches_no_other() {
    let (fabric, mut ports) = network(Topology::star(2, LINK));
    ports.push(fabric.attach(&[address(2)]));
    send(&mut ports, 0, &path(2, 0, ROCE_PORT), 1);
    send(&mut ports, 0, &path(0, 2, ROCE_PORT), 1);
    assert_eq!((fabric.stats().unrouted, fabric.next_event_ns()), (2, None));
    let impossible = Topology { hosts: u16::MAX, ..Topology::star(2, LINK) };
    let fabric = Fabric::new(FabricConfig { topology: Some(impossible), ..FabricConfig::default() });
    let mut ports = vec![fabric.attach(&[address(0)])];
    send(&mut ports, 0, &path(0, 0, ROCE_PORT), 1);
    assert_eq!(fabric.stats().unrouted, 1);
}

#[test]
fn a_host_with_an_address_has_its_own_node_and_cable() {
    let text = "kind = \"star\"\nhosts = [\"10.0.0.2\", { address = \"10.0.0.1\", rate_mbps = 4000 }]\n\
                [link]\nrate_mbps = 8000\ndelay_ns = 500\n[switch]\nqueue_bytes = 100000\n";
    let (fabric, mut ports) = network(Topology::parse(text).unwrap());
    ports.push(fabric.attach(&[address(2)]));
    send(&mut ports, 0, &path(0, 1, ROCE_PORT), 7);
    // Two microseconds on its own cable.
    assert_eq!(arrivals(&fabric, &mut ports[1]), [(2_000 + 500 + 1_000 + 500, 7, 2)]);
    let names: Vec<String> = fabric.queues().into_iter().map(|queue| queue.name).collect();
    let expected = ["host 10.0.0.2 to leaf 0", "host 10.0.0.1 to leaf 0"];
    assert_eq!(names[..2], expected);
    assert_eq!((names[2].as_str(), fabric.queues()[1].packets), ("leaf 0 to host 10.0.0.2", 1));
    send(&mut ports, 9_000, &path(2, 0, ROCE_PORT), 1);
    assert_eq!(fabric.stats().unrouted, 1, "no host of the list");
}
