//! From which UDP port packets leave: flow labels and queue pair numbers choose it.

use std::net::IpAddr;

use pumice_device::port::Port;
use pumice_transport::path::ROCE_PORT;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::{Qpn, source_port};

use crate::kit::{Scene, address_vector};

const PEER: &str = "10.0.0.9";
const PEER_QPN: u32 = 0x77;

/// The source ports of what comes to a host that has no device, when `of_a` has sent to it.
fn ports_of(scene: &mut Scene, send: impl FnOnce(&Scene, IpAddr)) -> Vec<u16> {
    let peer: IpAddr = PEER.parse().unwrap();
    let mut port = scene.world.fabric().attach(&[peer]);
    send(scene, peer);
    scene.settle();
    let mut ports = Vec::new();
    while port.receive(scene.world.now_ns(), &mut |received| {
        assert_eq!(received.flow.destination_port, ROCE_PORT);
        ports.push(received.flow.source_port);
    }) {}
    ports
}

/// An RC queue pair of `a` that is connected to a queue pair which is not there.
fn connected(scene: &Scene, peer: IpAddr, flow_label: u32) -> Qpn {
    use AttributeMask as M;
    let qpn = scene.a.create_qp(QpType::Rc);
    let mut a = QpAttributes { qp_state: QpState::Init as u32, port_num: 1, ..QpAttributes::default() };
    scene.a.hca.modify_qp(qpn, &a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS).unwrap();
    a.qp_state = QpState::Rtr as u32;
    a.address_vector = AddressVector { flow_label, ..address_vector(peer) };
    a.path_mtu = Mtu::Mtu1024 as u32;
    a.dest_qp_num = PEER_QPN;
    let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC;
    scene.a.hca.modify_qp(qpn, &a, rtr | M::MIN_RNR_TIMER).unwrap();
    a.qp_state = QpState::Rts as u32;
    let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    scene.a.hca.modify_qp(qpn, &a, rts).unwrap();
    qpn
}

#[test]
fn a_connection_leaves_from_the_port_of_its_label_or_of_both_numbers() {
    let mut scene = Scene::new();
    let mut expected = Vec::new();
    let ports = ports_of(&mut scene, |scene, peer| {
        for flow_label in [0x1_2345, 0x5_4321, 0, 0] {
            let qpn = connected(scene, peer, flow_label);
            scene.a.send(qpn, 1, 0, 8);
            expected.push(source_port::of_connection(flow_label, qpn, Qpn::new(PEER_QPN)));
            assert_eq!(scene.a.hca.query_qp(qpn).unwrap().address_vector.flow_label, flow_label);
        }
    });
    assert_eq!(ports, expected);
    assert_eq!(ports[..2], [0xc000 | 0x2345 ^ 4, 0xc000 | 0x0321 ^ 0x15]);
    assert!(ports.iter().all(|port| *port >= 0xc000), "{ports:x?}");
}

#[test]
fn datagrams_leave_from_the_port_of_their_address_handles_label() {
    let mut scene = Scene::of(QpType::Ud);
    let ports = ports_of(&mut scene, |scene, peer| {
        for flow_label in [0, 0x1_2345] {
            let vector = AddressVector { flow_label, ..address_vector(peer) };
            let (_, path) = scene.a.hca.create_ah(scene.a.pd, &vector).unwrap();
            let to = UdDestination { path, qpn: Qpn::new(PEER_QPN), qkey: 0x1111_1111 };
            scene.post(&SendRequest {
                sges: &[scene.a.sge(0, 8)],
                ud: Some(to),
                ..SendRequest::new(1, SendOpcode::Send)
            });
        }
    });
    assert_eq!(ports, [0xc000, 0xc000 | 0x2345 ^ 4]);
}
