//! What the links of devices do, in virtual time: exact times, rates, drops and marks.

mod kit;

use std::net::IpAddr;

use kit::{Connection, Node, address_vector, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::faults::FaultPlan;
use pumice_device::hca::HcaConfig;
use pumice_device::opening::Opening;
use pumice_device::port::{
    EcnMarking, FabricConfig, Link, LinkDirection, SwitchLink, SwitchQueues, Topology,
};
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

/// How long each of some WRITEs of this length takes by a plan of the writer.
fn planned_takes_ns(lines: &[&str], length: u32, count: usize) -> Vec<u64> {
    let mut world = world();
    let lines = lines.iter().fold(FaultPlan::seeded(1), |plan, line| plan.with_line(line).unwrap());
    let faulty = |world: &mut World, ip: &str, faults: FaultPlan| {
        let address: IpAddr = ip.parse().unwrap();
        let gid = GidEntry::new(address, "sim", 0, Mtu::Mtu4096);
        let opening = Opening { faults, ..Opening::new(HcaConfig::new(ip, vec![gid])) };
        Node::on(opening.in_world(world).unwrap(), address, MIB, 256)
    };
    let a = faulty(&mut world, "10.0.0.1", lines);
    let b = faulty(&mut world, "10.0.0.2", FaultPlan::new());
    let (qa, qb) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
    connect(&a, qa, &b, qb, true, Connection { mtu: Mtu::Mtu4096, timeout: 20, ..Connection::default() });
    (0..count)
        .map(|_| {
            let start_ns = world.now_ns();
            write(&a, qa, &b, length);
            let mut done = Vec::new();
            assert!(world.run_until(10_000_000_000, || {
                done.extend(a.drain());
                !done.is_empty()
            }));
            assert_eq!(done[0].status, WcStatus::Success);
            assert_eq!(a.counter(Counter::RetransmittedPackets), 0);
            world.now_ns() - start_ns
        })
        .collect()
}

#[test]
fn a_plan_changes_the_delay_of_a_link_and_restores_it() {
    let takes = |change: &str| {
        let change = format!("event name=change kind=link {change} qp=0 message=1");
        planned_takes_ns(&[&change, "event kind=link-restore qp=0 message=3"], 8, 4)
    };
    assert_eq!(takes("delay=100us"), [0, 200_000, 200_000, 0]);
    assert_eq!(takes("delay=100us way=egress"), [0, 100_000, 100_000, 0]);
    assert_eq!(takes("delay=70us way=ingress"), [0, 70_000, 70_000, 0]);
    // A change for a time is over by itself.
    assert_eq!(takes("delay=100us time=150us"), [0, 200_000, 0, 0]);
    let lasting = "event name=lasting kind=link delay=10us way=egress qp=0 message=1";
    let passing = "event name=passing kind=link delay=30us way=egress time=20us qp=0 message=2";
    assert_eq!(planned_takes_ns(&[lasting, passing], 8, 4), [0, 10_000, 30_000, 10_000]);
}

#[test]
fn a_plan_changes_the_rate_of_a_link_and_restores_it() {
    let wire_ns = 256 * PACKET_BYTES + RETH_BYTES;
    let lines = [
        "event name=slow kind=link rate=8Gbit way=egress qp=0 message=1",
        "event name=slower kind=link rate=4Gbit way=egress qp=0 message=2",
        "event kind=link-restore qp=0 message=3",
    ];
    assert_eq!(planned_takes_ns(&lines, MIB as u32, 4), [0, wire_ns, 2 * wire_ns, 0]);
    let at = "event kind=link rate=8Gbit way=egress after=\"time 1ms\"";
    assert_eq!(planned_takes_ns(&[at], MIB as u32, 1), [0], "not before its time");
}

#[test]
fn a_queue_and_its_marks_come_while_the_device_runs() {
    let mut world = world();
    let a = node(&mut world, "10.0.0.1", None);
    let faults = FaultPlan::seeded(1);
    let faults =
        faults.with_line("event kind=link way=ingress rate=8Gbit queue=32KiB ecn=16KiB after=\"time 1ms\"");
    let address: IpAddr = "10.0.0.2".parse().unwrap();
    let gid = GidEntry::new(address, "sim", 0, Mtu::Mtu4096);
    let opening = Opening { faults: faults.unwrap(), ..Opening::new(HcaConfig::new("10.0.0.2", vec![gid])) };
    let b = Node::on(opening.in_world(&mut world).unwrap(), address, MIB, 256);
    let (qa, qb) = (a.create_qp(QpType::Uc), b.create_qp(QpType::Uc));
    connect_capable(&a, qa, &b, qb);
    connect_capable(&b, qb, &a, qa);
    let burst = |world: &mut World| {
        for k in 0..16 {
            b.post_recv(qb, k, 0, 4096);
            a.send(qa, k, 0, 4096);
        }
        world.run_for(1_500_000);
        a.drain();
        let counters = [Counter::LinkQueued, Counter::LinkDropped, Counter::LinkMarked, Counter::LinkBusy];
        (counters.map(|counter| b.counter(counter)), b.drain().len())
    };
    assert_eq!(burst(&mut world), ([0; 4], 16));
    // As with a queue from the beginning.
    assert_eq!(burst(&mut world), ([6, 9, 3, 0], 7));
}

/// Three senders send bursts of UC messages to one receiver: what it gets, and what the queue in front of it
/// marked and lost.
fn incast(world: &mut World, links: &[Option<Link>; 2]) -> (u64, Node) {
    const MESSAGES: u64 = 16;
    let receiver = node(world, "10.0.0.9", links[1]);
    for sender in 1..=3 {
        let a = node(world, &format!("10.0.0.{sender}"), links[0]);
        let (qa, qb) = (a.create_qp(QpType::Uc), receiver.create_qp(QpType::Uc));
        connect_capable(&a, qa, &receiver, qb);
        connect_capable(&receiver, qb, &a, qa);
        for k in 0..MESSAGES {
            receiver.post_recv(qb, k, 0, 4096);
            a.send(qa, k, 0, 4096);
        }
        // Its packets leave, though it is not looked at any more.
        std::mem::forget(a);
    }
    world.run_for(10_000_000);
    (receiver.drain().len() as u64, receiver)
}

#[test]
fn an_ingress_link_is_the_port_of_a_star_that_leads_to_its_device() {
    let (queue_bytes, mark_bytes) = (32 << 10, 16 << 10);
    let ecn = Some(EcnMarking::Ramp { min_bytes: mark_bytes, max_bytes: mark_bytes, most_ppm: 1_000_000 });
    let ingress = LinkDirection { queue_bytes: Some(queue_bytes), ecn, ..BYTE_A_NANOSECOND };
    let of_sender = Link { egress: BYTE_A_NANOSECOND, ..Link::default() };
    let of_receiver = Link { ingress, ..Link::default() };
    let (by_links, receiver) = incast(&mut world(), &[Some(of_sender), Some(of_receiver)]);
    let [dropped, marked] = [Counter::LinkDropped, Counter::LinkMarked].map(|each| receiver.counter(each));

    let queues = SwitchQueues { queue_bytes, buffer_bytes: None, ecn, pause: None };
    let star = Topology { queues, ..Topology::star(4, SwitchLink { rate_mbps: 8_000, delay_ns: 0 }) };
    let config =
        FabricConfig { topology: Some(star), receive_buffer_bytes: 64 << 20, ..FabricConfig::default() };
    let mut world = World::new(config);
    let (by_star, _receiver) = incast(&mut world, &[None, None]);
    let queues = world.fabric().queues();
    let queue = queues.iter().find(|queue| queue.name == "leaf 0 to host 0").unwrap();

    assert_eq!((by_links + dropped, by_star + queue.dropped), (48, 48), "each arrives or is lost");
    assert!(dropped > 15 && marked > 10, "{dropped} {marked}");
    // The star counts a packet until its last bit has left, so it has room for one packet less.
    let differ = [(dropped, queue.dropped), (marked, queue.marked)];
    assert!(differ.iter().all(|(link, star)| link.abs_diff(*star) <= 2), "{differ:?}");
}
