//! Devices with two ports, in virtual time.

mod kit;

use std::net::IpAddr;

use kit::planned::plan;
use kit::{Connection, Node};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::async_event::AsyncElement;
use pumice_device::faults::FaultPlan;
use pumice_device::hca::HcaConfig;
use pumice_device::opening::Opening;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const MILLISECOND_NS: u64 = 1_000_000;
const PATIENCE_NS: u64 = 60_000 * MILLISECOND_NS;

/// A device of two ports, of which the second has a shorter MTU and a partition of its own.
fn node(world: &mut World, last: u8, plan: &FaultPlan) -> (Node, [IpAddr; 2]) {
    let ips = [IpAddr::from([10, 0, 1, last]), IpAddr::from([10, 0, 2, last])];
    let gids = vec![
        GidEntry::new(ips[0], "sim", 0, Mtu::Mtu4096),
        GidEntry::new(ips[1], "sim", 0, Mtu::Mtu1024).at_port(2),
    ];
    let mut config = HcaConfig { second_port: Some(vec![0x8005]), ..HcaConfig::new("pumice0", gids) };
    config.limits.pkey_table_len = 2;
    let opening = Opening { faults: plan.clone(), tag: Some(ips[0].to_string()), ..Opening::new(config) };
    (Node::on(opening.in_world(world).unwrap(), ips[0], 1 << 16, 64), ips)
}

fn init(node: &Node, qpn: Qpn, port_num: u8, kind: AttributeMask) -> Result<(), String> {
    use AttributeMask as M;
    let attributes = QpAttributes {
        qp_state: QpState::Init as u32,
        port_num,
        access: 15,
        qkey: 0x1111_1111,
        ..QpAttributes::default()
    };
    let mask = M::STATE | M::PKEY_INDEX | M::PORT | kind;
    node.hca.modify_qp(qpn, &attributes, mask).map_err(|error| error.to_string())
}

/// INIT → RTR by a path of this port.
fn rtr(node: &Node, qpn: Qpn, port_num: u8, mtu: Mtu, peer: (IpAddr, Qpn)) -> Result<(), String> {
    use AttributeMask as M;
    let attributes = QpAttributes {
        qp_state: QpState::Rtr as u32,
        address_vector: AddressVector { port_num, ..kit::address_vector(peer.0) },
        path_mtu: mtu as u32,
        dest_qp_num: peer.1.value(),
        rq_psn: 0x10,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        ..QpAttributes::default()
    };
    let mask =
        M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    node.hca.modify_qp(qpn, &attributes, mask).map_err(|error| error.to_string())
}

/// Two connected queue pairs on a port of two devices.
fn connected(a: &Node, b: &Node, port_num: u8, ips: [IpAddr; 2]) -> (Qpn, Qpn) {
    let (mine, theirs) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
    for (node, qpn, peer) in [(a, mine, (ips[1], theirs)), (b, theirs, (ips[0], mine))] {
        init(node, qpn, port_num, AttributeMask::ACCESS_FLAGS).unwrap();
        rtr(node, qpn, port_num, Mtu::Mtu1024, peer).unwrap();
        let connection = Connection { timeout: 10, retry_cnt: 1, ..Connection::default() };
        node.to_rts(qpn, true, connection);
    }
    (mine, theirs)
}

fn write(a: &Node, qpn: Qpn, b: &Node) {
    let request = SendRequest {
        sges: &[a.sge(0, 100)],
        remote: b.target(0),
        flags: SendFlags::SIGNALED,
        ..SendRequest::new(1, SendOpcode::RdmaWrite)
    };
    a.hca.post_send(qpn, &request).unwrap();
}

fn status(world: &mut World, node: &Node) -> WcStatus {
    let mut done = Vec::new();
    assert!(world.run_until(PATIENCE_NS, || {
        done.extend(node.drain());
        !done.is_empty()
    }));
    done[0].status
}

#[test]
fn a_queue_pair_is_on_its_port_and_the_path_too() {
    let mut world = World::new(FabricConfig::default());
    let (a, own) = node(&mut world, 1, &FaultPlan::new());
    let (b, peer) = node(&mut world, 2, &FaultPlan::new());
    assert_eq!(a.hca.port_count(), 2);
    let [first, second] = [1, 2].map(|port_num| a.hca.port(port_num).unwrap());
    assert!(a.hca.port(3).is_none() && a.hca.port(0).is_none());
    assert_eq!((first.active_mtu(), second.active_mtu()), (Mtu::Mtu4096, Mtu::Mtu1024));
    assert_eq!((first.pkeys.pkey(0), second.pkeys.pkey(0)), (Ok(0xffff), Ok(0x8005)));
    assert_eq!((a.hca.gid(1, 0).unwrap().ip, a.hca.gid(2, 0).unwrap().ip), (own[0], own[1]));
    let kind = AttributeMask::ACCESS_FLAGS;
    let (mine, theirs) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
    for port_num in [0, 3] {
        let said = init(&a, mine, port_num, kind).unwrap_err();
        assert!(said.contains(&format!("port_num {port_num} outside 1…2")), "{said}");
    }
    init(&a, mine, 2, kind).unwrap();
    let said = rtr(&a, mine, 1, Mtu::Mtu1024, (peer[0], theirs)).unwrap_err();
    assert!(said.contains("ah_attr.port_num is 1, and the queue pair is on port 2"), "{said}");
    let said = rtr(&a, mine, 2, Mtu::Mtu2048, (peer[1], theirs)).unwrap_err();
    assert!(said.contains("path_mtu"), "{said}");
    rtr(&a, mine, 2, Mtu::Mtu1024, (peer[1], theirs)).unwrap();
    assert_eq!(a.hca.query_qp(mine).unwrap().port_num, 2);
}

#[test]
fn a_port_goes_down_and_the_other_one_goes_on() {
    let cut = plan(&["event kind=port-down port=2 time=400ms qp=0 message=1"]);
    let mut world = World::new(FabricConfig::default());
    let (a, own) = node(&mut world, 1, &cut);
    let (b, peer) = node(&mut world, 2, &FaultPlan::new());
    let [(one, _), (two, _)] = [0, 1].map(|port| connected(&a, &b, port as u8 + 1, [own[port], peer[port]]));
    for qpn in [one, two] {
        write(&a, qpn, &b);
        assert_eq!(status(&mut world, &a), WcStatus::Success);
    }
    // The event is at the second request of the first queue pair, which is on port 1 and goes on.
    write(&a, one, &b);
    assert_eq!(status(&mut world, &a), WcStatus::Success);
    let events = || -> Vec<_> {
        std::iter::from_fn(|| a.hca.async_events().try_event().map(|event| (event.event, event.element)))
            .filter(|(event, _)| matches!(event, AsyncEventType::PortErr | AsyncEventType::PortActive))
            .collect()
    };
    assert_eq!(events(), [(AsyncEventType::PortErr, AsyncElement::Port(2))]);
    assert!(a.hca.port(1).unwrap().is_active() && !a.hca.port(2).unwrap().is_active());
    write(&a, two, &b);
    assert_eq!(status(&mut world, &a), WcStatus::RetryExcErr);
    write(&a, one, &b);
    assert_eq!(status(&mut world, &a), WcStatus::Success);
    assert!(world.run_until(PATIENCE_NS, || a.hca.port(2).unwrap().is_active()));
    assert_eq!(events(), [(AsyncEventType::PortActive, AsyncElement::Port(2))]);
    let (again, _) = connected(&a, &b, 2, [own[1], peer[1]]);
    write(&a, again, &b);
    assert_eq!(status(&mut world, &a), WcStatus::Success);
}

#[test]
fn a_datagram_to_the_other_port_is_dropped_and_counted() {
    let mut world = World::new(FabricConfig::default());
    let (a, own) = node(&mut world, 1, &FaultPlan::new());
    let (b, peer) = node(&mut world, 2, &FaultPlan::new());
    let (mine, theirs) = (a.create_qp(QpType::Ud), b.create_qp(QpType::Ud));
    for (node, qpn, port_num) in [(&a, mine, 1), (&b, theirs, 2)] {
        init(node, qpn, port_num, AttributeMask::QKEY).unwrap();
        node.move_to(qpn, QpState::Rtr);
        let attributes = QpAttributes { qp_state: QpState::Rts as u32, ..QpAttributes::default() };
        let mask = AttributeMask::STATE | AttributeMask::SQ_PSN;
        node.hca.modify_qp(qpn, &attributes, mask).unwrap();
    }
    b.post_recv(theirs, 7, 0, 1024);
    let send = |port_num: u8, to: IpAddr| {
        let vector = AddressVector { port_num, ..kit::address_vector(to) };
        let (handle, path) = a.hca.create_ah(a.pd, &vector).unwrap();
        assert_eq!(path.flow.source, own[usize::from(port_num) - 1]);
        a.hca.destroy_ah(handle).unwrap();
        path
    };
    send(2, peer[1]);
    let path = send(1, peer[0]);
    let request = SendRequest {
        sges: &[a.sge(0, 100)],
        ud: Some(UdDestination { path, qpn: theirs, qkey: 0x1111_1111 }),
        flags: SendFlags::SIGNALED,
        ..SendRequest::new(1, SendOpcode::Send)
    };
    a.hca.post_send(mine, &request).unwrap();
    assert_eq!(status(&mut world, &a), WcStatus::Success);
    world.run_for(100 * MILLISECOND_NS);
    assert_eq!((b.counter(Counter::RxWrongAddress), b.drain().len()), (1, 0));
}
