//! What the links of devices do, in virtual time: exact times, rates, drops and marks.

mod kit;

use std::net::IpAddr;

use kit::{Connection, Node, address_vector, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::HcaConfig;
use pumice_device::opening::Opening;
use pumice_device::port::{EcnMarking, FabricConfig, Link, LinkDirection};
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

/// A byte each nanosecond.
const BYTE_A_NANOSECOND: LinkDirection =
    LinkDirection { rate_bits_per_second: Some(8_000_000_000), ..LinkDirection::NONE };
/// A request with 4096 bytes on the wire, without RETH: Ethernet, IP, UDP, BTH, payload, ICRC.
const PACKET_BYTES: u64 = 18 + 20 + 8 + 12 + 4096 + 4;
const RETH_BYTES: u64 = 16;
const MIB: usize = 1 << 20;

/// A network that adds nothing.
fn world() -> World {
    World::new(FabricConfig { delay_ns: 0, receive_buffer_bytes: 64 << 20, ..FabricConfig::default() })
}

fn node(world: &mut World, ip: &str, link: Option<Link>) -> Node {
    let address: IpAddr = ip.parse().unwrap();
    let gid = GidEntry::new(address, "sim", 0, Mtu::Mtu4096);
    let opening = Opening { link, ..Opening::new(HcaConfig::new(ip, vec![gid])) };
    Node::on(opening.in_world(world).unwrap(), address, MIB, 256)
}

fn pair(links: &[Option<Link>; 2], qp_type: QpType) -> (World, Node, Qpn, Node, Qpn) {
    let mut world = world();
    let [a, b] =
        [("10.0.0.1", links[0]), ("10.0.0.2", links[1])].map(|(ip, link)| node(&mut world, ip, link));
    let (qa, qb) = (a.create_qp(qp_type), b.create_qp(qp_type));
    let connection = Connection { mtu: Mtu::Mtu4096, timeout: 20, ..Connection::default() };
    connect(&a, qa, &b, qb, qp_type == QpType::Rc, connection);
    (world, a, qa, b, qb)
}

fn write(a: &Node, qpn: Qpn, b: &Node, length: u32) {
    let request = SendRequest {
        sges: &[a.sge(0, length)],
        remote: b.target(0),
        ..SendRequest::new(1, SendOpcode::RdmaWrite)
    };
    a.hca.post_send(qpn, &request).unwrap();
}

/// How long a WRITE takes.
fn write_takes_ns(links: &[Option<Link>; 2], length: u32) -> (u64, Node) {
    let (mut world, a, qa, b, _) = pair(links, QpType::Rc);
    let start_ns = world.now_ns();
    write(&a, qa, &b, length);
    let mut done = Vec::new();
    assert!(world.run_until(10_000_000_000, || {
        done.extend(a.drain());
        !done.is_empty()
    }));
    assert_eq!(done[0].status, WcStatus::Success);
    assert_eq!(a.counter(Counter::RetransmittedPackets), 0);
    (world.now_ns() - start_ns, a)
}

#[test]
fn a_message_and_its_acknowledgement_pass_four_links() {
    let link = Link::both(LinkDirection { delay_ns: 200_000, ..LinkDirection::NONE });
    assert_eq!(write_takes_ns(&[Some(link), Some(link)], 8).0, 800_000);
    assert_eq!(write_takes_ns(&[Some(link), None], 8).0, 400_000);
    let one_way = Link { egress: link.egress, ..Link::default() };
    assert_eq!(write_takes_ns(&[Some(one_way), None], 8).0, 200_000);
    assert_eq!(write_takes_ns(&[None, None], 8).0, 0);
}

#[test]
fn a_long_message_takes_what_its_bytes_take_at_the_rate() {
    let wire_ns = 256 * PACKET_BYTES + RETH_BYTES;
    let egress = Link { egress: BYTE_A_NANOSECOND, ..Link::default() };
    let (took_ns, a) = write_takes_ns(&[Some(egress), None], MIB as u32);
    assert_eq!(took_ns, wire_ns, "the link is never idle");
    assert!(a.counter(Counter::LinkBusy) > 0 && a.counter(Counter::LinkQueued) >= 255);
    // The other way round it waits at the switch.
    let ingress = Link { ingress: BYTE_A_NANOSECOND, ..Link::default() };
    assert_eq!(write_takes_ns(&[None, Some(ingress)], MIB as u32).0, wire_ns);
    // A packet is stored and forwarded, and the second link is as slow with the first one as the first link.
    let both = [Some(egress), Some(ingress)];
    assert_eq!(write_takes_ns(&both, MIB as u32).0, wire_ns + PACKET_BYTES + RETH_BYTES);
}

#[test]
fn jitter_makes_a_message_late_by_no_more_than_it_says() {
    let way = LinkDirection { delay_ns: 10_000, jitter_ns: 5_000, ..LinkDirection::NONE };
    let link = Some(Link { egress: way, ..Link::default() });
    let took_ns = write_takes_ns(&[link, None], 8).0;
    assert!((10_000..=15_000).contains(&took_ns), "{took_ns}");
    assert_eq!(took_ns, write_takes_ns(&[link, None], 8).0, "each run draws the same");
}

/// INIT → RTR → RTS of a UC queue pair whose packets are ECN-capable.
fn connect_capable(a: &Node, a_qpn: Qpn, b: &Node, b_qpn: Qpn) {
    use AttributeMask as M;
    a.to_init(a_qpn);
    let attributes = QpAttributes {
        qp_state: QpState::Rtr as u32,
        address_vector: AddressVector { traffic_class: 0b10, ..address_vector(b.ip) },
        path_mtu: Mtu::Mtu4096 as u32,
        dest_qp_num: b_qpn.value(),
        rq_psn: 0x10,
        ..QpAttributes::default()
    };
    let mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    a.hca.modify_qp(a_qpn, &attributes, mask).unwrap();
    a.to_rts(a_qpn, false, Connection::default());
}

#[test]
fn a_burst_fills_the_queue_of_the_switch() {
    let ecn = Some(EcnMarking::Above(16_384));
    let ingress = LinkDirection { queue_bytes: Some(32_768), ecn, ..BYTE_A_NANOSECOND };
    let mut world = world();
    let a = node(&mut world, "10.0.0.1", None);
    let b = node(&mut world, "10.0.0.2", Some(Link { ingress, ..Link::default() }));
    let (qa, qb) = (a.create_qp(QpType::Uc), b.create_qp(QpType::Uc));
    connect_capable(&a, qa, &b, qb);
    connect_capable(&b, qb, &a, qa);
    for k in 0..16 {
        b.post_recv(qb, k, 0, 4096);
        a.send(qa, k, 0, 4096);
    }
    world.run_for(1_000_000);
    // At one moment 7 packets of 4158 bytes fit; before the 5th, 6th and 7th there are more than 16384 bytes.
    let counters = [Counter::LinkQueued, Counter::LinkDropped, Counter::LinkMarked, Counter::LinkBusy];
    assert_eq!(counters.map(|counter| b.counter(counter)), [6, 9, 3, 0]);
    assert_eq!((b.counter(Counter::RxPackets), b.counter(Counter::RxCongestionMarked)), (7, 3));
    assert_eq!(b.drain().len(), 7);
}
