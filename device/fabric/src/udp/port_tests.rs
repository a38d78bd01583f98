use std::time::Duration;

use pumice_platform::outside::system_call::wait_readable;
use pumice_transport::wire::{ProcessIndex, icrc};

use super::*;

const SOME_PEER: Peer = Peer { address: IpAddr::V4(Ipv4Addr::LOCALHOST), process: ProcessIndex::new(1) };
const WAIT: Option<Duration> = Some(Duration::from_secs(5));

fn open(address: &str) -> UdpPort {
    UdpPort::bind(&UdpConfig { port: 0, ..UdpConfig::new(address.parse().unwrap()) }).unwrap()
}

/// Containers often have no IPv6; what needs it is then not tested, and says so.
fn has_ipv6() -> bool {
    let has = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("not tested: this host has no IPv6");
    }
    has
}

fn path(from: &UdpPort, source: &str, to: &UdpPort, destination: &str) -> Path {
    let flow = Flow {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        source_port: from.port(),
        destination_port: to.port(),
    };
    Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 }
}

/// What a `ReceivedBatch` said, owned.
#[derive(Debug, PartialEq, Eq)]
struct Arrived {
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

fn take(port: &mut UdpPort) -> Arrived {
    let mut arrived = None;
    while arrived.is_none() {
        let readable = wait_readable(&port.descriptors(), None, WAIT).unwrap();
        assert!(readable, "nothing arrived");
        port.receive(0, &mut |r| {
            arrived = Some(Arrived {
                flow: r.flow,
                traffic_class: r.traffic_class,
                hop_limit: r.hop_limit,
                segment_bytes: r.segment_bytes,
                bytes: r.bytes.to_vec(),
            });
        });
    }
    arrived.unwrap()
}

fn round_trip(path: &Path, from: &mut UdpPort, to: &mut UdpPort) {
    let bytes: Vec<u8> = (0..15 * 4128 - 100).map(|i| (i % 251) as u8).collect();
    from.transmit(0, &GsoBatch::new(path, 4128, &bytes)).unwrap();
    let mut arrived = take(to);
    assert_eq!(arrived.flow, path.flow);
    assert_eq!((arrived.segment_bytes, arrived.hop_limit), (4128, 64));
    // A kernel may deliver a batch in pieces; the bytes are the same.
    while arrived.bytes.len() < bytes.len() {
        arrived.bytes.extend(take(to).bytes);
    }
    assert_eq!(arrived.bytes, bytes);
    from.transmit(0, &GsoBatch::new(path, 24, &bytes[..24])).unwrap();
    let single = take(to);
    assert_eq!((single.segment_bytes, single.bytes.as_slice()), (24, &bytes[..24]));
    assert!(!to.receive(0, &mut |_| panic!("nothing more was sent")));
}

#[test]
fn batches_cross_between_two_ipv4_addresses() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
    let there = path(&a, "127.0.0.1", &b, "127.0.0.2");
    round_trip(&there, &mut a, &mut b);
    let back = path(&b, "127.0.0.2", &a, "127.0.0.1");
    round_trip(&back, &mut b, &mut a);
    assert_eq!(a.counters(), UdpCounters::default());
}

#[test]
fn a_second_udp_port_is_received_from_beside_the_first() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
    b.listen_also(0).unwrap();
    let second = b.second.as_ref().unwrap().1;
    b.listen_also(0).unwrap();
    assert_eq!((b.descriptors().len(), b.second.as_ref().unwrap().1), (2, second), "once is enough");
    let first = path(&a, "127.0.0.1", &b, "127.0.0.2");
    let mut other = first.clone();
    other.flow.destination_port = second;
    for round in 0..3 {
        a.transmit(0, &GsoBatch::new(&first, 24, &[round; 24])).unwrap();
        a.transmit(0, &GsoBatch::new(&other, 28, &[round; 28])).unwrap();
        let mut came = [take(&mut b), take(&mut b)];
        came.sort_by_key(|arrived| arrived.bytes.len());
        assert_eq!(came[0].flow, first.flow);
        assert_eq!((came[1].flow, came[1].bytes.as_slice()), (other.flow, &[round; 28][..]));
        assert!(!b.receive(0, &mut |_| panic!("nothing more was sent")));
    }
}

#[test]
fn what_is_longer_than_the_buffer_is_dropped_and_counted() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
    let counters = Arc::new(Counters::new());
    Port::observe(&mut b, &counters);
    b.buffer.truncate(64);
    let there = path(&a, "127.0.0.1", &b, "127.0.0.2");
    a.transmit(0, &GsoBatch::new(&there, 68, &[1; 68])).unwrap();
    assert!(wait_readable(&b.descriptors(), None, WAIT).unwrap());
    assert!(b.receive(0, &mut |_| panic!("a part of a packet is none")));
    assert_eq!((b.counters().truncated, counters.value(Counter::RxTruncated)), (1, 1));
    a.transmit(0, &GsoBatch::new(&there, 64, &[2; 64])).unwrap();
    assert_eq!(take(&mut b).bytes, [2; 64]);
}

#[test]
fn batches_cross_over_ipv6() {
    if !has_ipv6() {
        return;
    }
    let (mut a, mut b) = (open("::1"), open("::1"));
    let there = path(&a, "::1", &b, "::1");
    round_trip(&there, &mut a, &mut b);
}

#[test]
fn the_dual_stack_wildcard_sends_from_the_path_and_sees_where_packets_went() {
    if !has_ipv6() {
        return;
    }
    let (mut any, mut v4, mut v6) = (open("::"), open("127.0.0.2"), open("::1"));
    let to_v4 = path(&any, "127.0.0.9", &v4, "127.0.0.2");
    round_trip(&to_v4, &mut any, &mut v4);
    let from_v4 = path(&v4, "127.0.0.2", &any, "127.0.0.7");
    round_trip(&from_v4, &mut v4, &mut any);
    let to_v6 = path(&any, "::1", &v6, "::1");
    round_trip(&to_v6, &mut any, &mut v6);
    let from_v6 = path(&v6, "::1", &any, "::1");
    round_trip(&from_v6, &mut v6, &mut any);
}

#[test]
fn the_ipv4_wildcard_sees_where_packets_went() {
    let (mut any, mut one) = (open("0.0.0.0"), open("127.0.0.2"));
    let there = path(&one, "127.0.0.2", &any, "127.0.0.3");
    round_trip(&there, &mut one, &mut any);
    let back = path(&any, "127.0.0.3", &one, "127.0.0.2");
    round_trip(&back, &mut any, &mut one);
}

#[test]
fn traffic_class_and_hop_limit_travel_with_each_send() {
    for address in ["127.0.0.1", "::1"] {
        if address == "::1" && !has_ipv6() {
            continue;
        }
        let (mut a, mut b) = (open(address), open(address));
        for (traffic_class, hop_limit, arrives_with) in
            [(0x02, 64, 64), (0xc2, 1, 1), (0, 255, 255), (0, 0, 64)]
        {
            let marked = Path { traffic_class, hop_limit, ..path(&a, address, &b, address) };
            a.transmit(0, &GsoBatch::new(&marked, 20, &[7; 50])).unwrap();
            let arrived = take(&mut b);
            assert_eq!(
                (arrived.traffic_class, arrived.hop_limit),
                (traffic_class, arrives_with),
                "{address}"
            );
            assert_eq!((arrived.segment_bytes, arrived.bytes.len()), (20, 50));
        }
    }
}

#[test]
fn two_processes_of_one_user_share_a_port_only_when_both_ask() {
    let shared = |port| UdpConfig { port, reuse_port: true, ..UdpConfig::new("127.0.0.1".parse().unwrap()) };
    let first = UdpPort::bind(&shared(0)).unwrap();
    let second = UdpPort::bind(&shared(first.port())).unwrap();
    assert_eq!(second.port(), first.port());
    let alone = UdpConfig { reuse_port: false, ..shared(first.port()) };
    let error = UdpPort::bind(&alone).unwrap_err().to_string();
    assert!(error.contains(&format!("UDP port {} on 127.0.0.1 is taken", first.port())), "{error}");
}

#[test]
fn paths_that_are_not_the_ports_are_refused() {
    let (mut a, b) = (open("127.0.0.1"), open("127.0.0.2"));
    let right = path(&a, "127.0.0.1", &b, "127.0.0.2");
    let mut wrong_port = right.clone();
    wrong_port.flow.source_port = 1;
    let mut wrong_source = right.clone();
    wrong_source.flow.source = "127.0.0.5".parse().unwrap();
    let mut mixed = right.clone();
    mixed.flow.destination = "::1".parse().unwrap();
    let mut send = |path: &Path, bytes: usize| a.transmit(0, &GsoBatch::new(path, 1024, &vec![0; bytes]));
    assert_eq!(send(&wrong_port, 8), Err(TransmitError::Refused(libc::EADDRNOTAVAIL)));
    assert_eq!(send(&wrong_source, 8), Err(TransmitError::Refused(libc::EADDRNOTAVAIL)));
    assert_eq!(send(&mixed, 8), Err(TransmitError::Refused(libc::EAFNOSUPPORT)));
    let limit_bytes = MAX_BATCH_BYTES;
    assert_eq!(send(&right, 70_000), Err(TransmitError::TooLong { bytes: 70_000, limit_bytes }));
    assert_eq!(send(&right, 0), Ok(()));
    assert_eq!(send(&right, 2000), Ok(()));
}

#[test]
fn a_peer_that_has_not_taken_what_was_sent_to_it_is_starved() {
    let open = |address: &str, port| {
        UdpPort::bind(&UdpConfig { port, ..UdpConfig::new(address.parse().unwrap()) }).unwrap()
    };
    let mut a = open("127.0.0.1", 0);
    let mut b = open("127.0.0.2", a.port());
    let peer = Peer { address: b.address(), process: ProcessIndex::NONE };
    let ask = |a: &mut UdpPort| a.group().expect("it is exclusive").peer_progress(0, peer, 0);
    assert_eq!(ask(&mut a), PeerProgress::Unknown);
    let path = path(&a, "127.0.0.1", &b, "127.0.0.2");
    a.transmit(0, &GsoBatch::new(&path, 8, &[1; 8])).unwrap();
    assert_eq!(ask(&mut a), PeerProgress::Starved);
    take(&mut b);
    assert_eq!(ask(&mut a), PeerProgress::Unknown);
}

/// Two packets of one path with their ICRCs.
fn sealed(flow: &Flow) -> Vec<u8> {
    let mut bytes = vec![7; 2 * 64];
    bytes.chunks_mut(64).enumerate().for_each(|(index, packet)| icrc::seal(flow, index as u16, packet));
    bytes
}

#[test]
fn packets_leave_from_the_source_port_of_their_flow() {
    let mut pairs = vec![(open("127.0.0.1"), open("127.0.0.2"), ["127.0.0.1", "127.0.0.2"])];
    pairs.push((open("0.0.0.0"), open("127.0.0.2"), ["127.0.0.3", "127.0.0.2"]));
    if has_ipv6() {
        pairs.push((open("::1"), open("::1"), ["::1", "::1"]));
        pairs.push((open("::"), open("::1"), ["::1", "::1"]));
    }
    for (mut a, mut b, [source, destination]) in pairs {
        let mut path = path(&a, source, &b, destination);
        path.flow.source_port = 0xc123;
        path.flow.source_port = a.source_port(0, &path.flow);
        assert!(source_port::is_computed(path.flow.source_port), "{path:?}");
        let marked = Path { traffic_class: 0x62, hop_limit: 9, ..path.clone() };
        for path in [&path, &marked] {
            let bytes = sealed(&path.flow);
            a.transmit(0, &GsoBatch::new(path, 64, &bytes)).unwrap();
            let arrived = take(&mut b);
            assert_eq!((arrived.flow, arrived.traffic_class), (path.flow, path.traffic_class));
            assert_eq!((arrived.hop_limit, &arrived.bytes[..64]), (path.hop_limit, &bytes[..64]));
        }
        // What comes to such a port is dropped by the kernel, and wakes no thread.
        let mut back = self::path(&b, destination, &a, source);
        back.flow.destination_port = path.flow.source_port;
        b.transmit(0, &GsoBatch::new(&back, 64, &[1; 64])).unwrap();
        assert!(!wait_readable(&a.descriptors(), None, Some(Duration::ZERO)).unwrap());
    }
}

#[test]
fn a_group_is_sent_to_from_the_roce_port() {
    let mut a = open("127.0.0.1");
    let b = open("127.0.0.2");
    let mut path = path(&a, "127.0.0.1", &b, "239.1.2.3");
    path.flow.source_port = 0xc123;
    assert_eq!(a.source_port(0, &path.flow), a.port());
}

#[test]
fn a_source_port_that_another_program_has_taken_since_is_left_for_the_roce_port() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
    a.senders = Senders::new(65_536).limited(1);
    let [mut first, mut second] = [0xc200, 0xc300].map(|source_port| {
        let path = path(&a, "127.0.0.1", &b, "127.0.0.2");
        Path { flow: Flow { source_port, ..path.flow }, ..path }
    });
    first.flow.source_port = a.source_port(0, &first.flow);
    // It has sent nothing yet, and another program takes the port.
    second.flow.source_port = a.source_port(0, &second.flow);
    assert_ne!(first.flow.source_port, second.flow.source_port);
    let _thief = std::net::UdpSocket::bind(("127.0.0.1", first.flow.source_port)).unwrap();
    let bytes = sealed(&first.flow);
    a.transmit(0, &GsoBatch::new(&first, 64, &bytes)).unwrap();
    let arrived = take(&mut b);
    let flow = Flow { source_port: a.port(), ..first.flow };
    assert_eq!(arrived.flow, flow);
    assert_eq!(arrived.bytes, sealed(&flow)[..arrived.bytes.len()], "with the ICRCs of its new flow");
    assert_eq!(a.counters().source_ports_lost, 1);
}

#[test]
fn limits_are_read_back_from_the_system() {
    let port = open("127.0.0.1");
    let limits = port.limits(SOME_PEER);
    assert!(limits.max_segments >= 64 && limits.max_batch_bytes == MAX_BATCH_BYTES, "{limits:?}");
    assert_eq!(limits.receive_buffer_bytes, port.own.socket.recv_buffer_size().unwrap());
    assert_eq!(port.descriptors().len(), 1);
}

#[test]
fn empty_datagrams_are_counted_and_not_handed_on() {
    let mut port = open("127.0.0.1");
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[], ("127.0.0.1", port.port())).unwrap();
    assert!(wait_readable(&port.descriptors(), None, WAIT).unwrap());
    assert!(port.receive(0, &mut |_| panic!("handed on")));
    assert_eq!(port.counters().empty, 1);
}

#[test]
fn a_group_is_received_from_join_to_leave() {
    for (address, group) in [("127.0.0.1", "239.1.2.3"), ("::", "239.1.2.4"), ("0.0.0.0", "239.1.2.5")] {
        let group: IpAddr = group.parse().unwrap();
        let mut port = open(address);
        let mut to_group = path(&port, "127.0.0.1", &port, "127.0.0.1");
        to_group.flow.destination = group;
        let bytes = [5; 60];
        let batch = GsoBatch::new(&to_group, 24, &bytes);
        port.join(group).unwrap();
        port.join(group).unwrap();
        port.leave(group).unwrap();
        assert_eq!(port.descriptors().len(), 2);
        port.transmit(0, &batch).unwrap();
        let arrived = take(&mut port);
        assert_eq!((arrived.flow, arrived.bytes.len()), (to_group.flow, 60), "{address}");
        assert_eq!(arrived.hop_limit, 64, "{address}");
        assert!(!port.receive(0, &mut |r| panic!("a second copy: {r:?}")));
        port.leave(group).unwrap();
        assert_eq!(port.descriptors().len(), 1);
        assert!(port.leave(group).is_err());
        assert!(port.join("127.0.0.1".parse().unwrap()).is_err(), "not a group");
    }
}

#[test]
fn a_group_that_each_interface_has_is_joined_on_all() {
    let interfaces = pumice_platform::outside::interface::interfaces().unwrap();
    let with_ipv6 = |each: &&pumice_platform::outside::interface::Interface| {
        each.up && each.addresses.iter().any(|(own, _)| own.is_ipv6())
    };
    let count = interfaces.iter().filter(with_ipv6).count();
    if count == 0 {
        eprintln!("**** SKIPPED: this host has no IPv6 address");
        return;
    }
    for group in ["ff01:0:2:c985::1", "ff02::1:4791"] {
        let group: IpAddr = group.parse().unwrap();
        let mut port = open("::");
        port.join(group).unwrap();
        assert!(port.descriptors().len() > count, "{group}: {:?}", port.descriptors());
        // Each has its turn, and nothing has come to any.
        (0..2 * count).for_each(|_| assert!(!port.receive(0, &mut |_| panic!("nothing was sent"))));
        port.leave(group).unwrap();
        assert_eq!(port.descriptors().len(), 1);
    }
}

#[test]
fn without_segmentation_a_batch_goes_packet_by_packet() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
    a.limits.max_segments = 1;
    let there = path(&a, "127.0.0.1", &b, "127.0.0.2");
    let mut bytes: Vec<u8> = (0..100).collect();
    let mut alone = bytes.clone(); // the same packets with the ICRCs they have on their own
    for (index, (packet, alone)) in bytes.chunks_mut(40).zip(alone.chunks_mut(40)).enumerate() {
        icrc::seal(&there.flow, index as u16, packet);
        icrc::seal(&there.flow, 0, alone);
    }
    a.transmit(0, &GsoBatch::new(&there, 40, &bytes)).unwrap();
    let arrived: Vec<Vec<u8>> = (0..3).map(|_| take(&mut b).bytes).collect();
    assert_eq!(arrived, [&alone[..40], &alone[40..80], &alone[80..]]);
}

#[test]
fn a_kernel_that_refuses_to_cut_is_asked_only_once() {
    let (mut a, mut b) = (open("127.0.0.1"), open("127.0.0.2"));
    // Linux answers EINVAL to UDP_SEGMENT on a socket that sends no checksums.
    udp::set(a.as_raw_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let there = path(&a, "127.0.0.1", &b, "127.0.0.2");
    let mut bytes = [9; 120];
    for (index, packet) in bytes.chunks_mut(40).enumerate() {
        icrc::seal(&there.flow, index as u16, packet);
    }
    a.transmit(0, &GsoBatch::new(&there, 40, &bytes)).unwrap();
    for _ in 0..3 {
        let arrived = take(&mut b);
        assert_eq!(arrived.bytes.len(), 40);
        assert_eq!(icrc::compute(&there.flow, 0, &arrived.bytes[..36]).to_le_bytes(), arrived.bytes[36..]);
    }
    assert_eq!(a.limits(SOME_PEER).max_segments, 1);
    assert_eq!(a.counters(), UdpCounters::default());
}

#[test]
fn a_group_of_the_other_ip_version_is_refused_with_the_remedy() {
    for (own, group, remedy) in [("127.0.0.1", "ff01::1", "IPv4"), ("::1", "239.1.2.3", "IPv6")] {
        let own: IpAddr = own.parse().unwrap();
        let mut port = UdpPort::bind(&UdpConfig { port: 0, ..UdpConfig::new(own) }).unwrap();
        let error = port.join(group.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(&format!("{group} is of another IP version than {own}")), "{error}");
        assert!(error.contains(&format!("choose an {remedy} group")), "{error}");
    }
}
