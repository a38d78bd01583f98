//! What one poll leaves for the background thread.

use std::net::IpAddr;
use std::sync::Arc;

use crate::objects::completion_queue::CompletionQueue;
use pumice_fabric::FabricConfig;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::hca::{CqSetup, Hca, QpInit};
use crate::world::World;

fn side(world: &mut World, address: &str) -> (Arc<Hca>, Arc<CompletionQueue>, Qpn) {
    let hca = world.add_hca(address.parse().unwrap()).unwrap();
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(CqSetup { depth: 8, ..CqSetup::default() }).unwrap();
    let capacity =
        QpCapacity { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    let init = QpInit {
        qp_type: QpType::Rc,
        pd: Some(pd),
        send_cq: Some(cq.handle()),
        recv_cq: Some(cq.handle()),
        srq: None,
        xrcd: None,
        capacity,
        signal_all: false,
        cookie: 0,
    };
    let (qpn, _) = hca.create_qp(&init).unwrap();
    (hca, cq, qpn)
}

fn connect(hca: &Hca, qpn: Qpn, peer_qpn: Qpn, peer: &str) {
    use AttributeMask as M;
    let dgid = Gid::from(peer.parse::<IpAddr>().unwrap());
    let mut a = QpAttributes {
        qp_state: QpState::Init as u32,
        port_num: 1,
        address_vector: AddressVector { is_global: true, dgid, port_num: 1, ..AddressVector::default() },
        path_mtu: Mtu::Mtu1024 as u32,
        dest_qp_num: peer_qpn.value(),
        timeout: 20,
        ..QpAttributes::default()
    };
    hca.modify_qp(qpn, &a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS).unwrap();
    a.qp_state = QpState::Rtr as u32;
    let rtr =
        M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    hca.modify_qp(qpn, &a, rtr).unwrap();
    a.qp_state = QpState::Rts as u32;
    let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    hca.modify_qp(qpn, &a, rts).unwrap();
}

#[test]
fn a_poll_that_leaves_an_acknowledgement_wakes_the_sleeping_thread() {
    let mut world = World::new(FabricConfig::default());
    let (a, a_cq, a_qpn) = side(&mut world, "10.0.0.1");
    let (b, b_cq, b_qpn) = side(&mut world, "10.0.0.2");
    connect(&a, a_qpn, b_qpn, "10.0.0.2");
    connect(&b, b_qpn, a_qpn, "10.0.0.1");
    world.settle();
    b.post_recv(b_qpn, &RecvRequest { wr_id: 7, sges: &[] }).unwrap();
    a.post_send(a_qpn, &SendRequest::new(1, SendOpcode::Send)).unwrap();
    a.drive();
    // The thread sleeps until a packet comes, as it does when nothing has happened for a while. But the
    // application takes the packet, sees its completion, and does something else.
    b.core.handover.announce_sleep(u64::MAX);
    let mut wc = [WorkCompletion::default(); 2];
    for _ in 0..4 {
        if b.poll_cq(&b_cq, &mut wc) == 1 {
            break;
        }
        if let Some(next_ns) = world.fabric().next_event_ns() {
            world.pass_time(next_ns);
        }
    }
    assert_eq!((wc[0].wr_id, wc[0].status), (7, WcStatus::Success));
    assert_eq!(a_cq.poll(&mut wc), 0, "the acknowledgement waits for the application");
    assert_eq!(b.core.handover.sleeping_until_ns(), 0, "the thread is woken to send it");
    assert!(world.run_until(1_000_000, || a_cq.poll(&mut wc) == 1));
}
