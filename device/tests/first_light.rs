//! Two HCAs in virtual time: one of each operation.

use std::net::IpAddr;
use std::sync::Arc;

use pumice_device::hca::{CqSetup, Hca, QpInit};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::table::Handle;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

struct Side {
    hca: Arc<Hca>,
    pd: Handle,
    cq: Arc<CompletionQueue>,
    qpn: Qpn,
    memory: Vec<u8>,
    lkey: u32,
    rkey: u32,
}

fn side(world: &mut World, address: &str) -> Side {
    let hca = world.add_hca(address.parse().unwrap()).unwrap();
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(CqSetup { depth: 64, ..CqSetup::default() }).unwrap();
    let capacity = QpCapacity {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 64,
    };
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
    let memory = vec![0u8; 1 << 20];
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let address = memory.as_ptr() as u64;
    // SAFETY: the memory outlives the region in these tests.
    let keys = unsafe { hca.reg_mr(pd, address, memory.len() as u64, address, all) }.unwrap();
    Side { hca, pd, cq, qpn, memory, lkey: keys.lkey, rkey: keys.rkey }
}

fn connect(side: &Side, peer_qpn: Qpn, peer: &str) {
    use AttributeMask as M;
    let dgid = Gid::from(peer.parse::<IpAddr>().unwrap());
    let mut a =
        QpAttributes { qp_state: QpState::Init as u32, port_num: 1, access: 15, ..QpAttributes::default() };
    side.hca.modify_qp(side.qpn, &a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS).unwrap();
    a.qp_state = QpState::Rtr as u32;
    a.address_vector = AddressVector { is_global: true, dgid, port_num: 1, ..AddressVector::default() };
    a.path_mtu = Mtu::Mtu1024 as u32;
    a.dest_qp_num = peer_qpn.value();
    a.rq_psn = 0xff_fff0;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 12;
    let rtr =
        M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    side.hca.modify_qp(side.qpn, &a, rtr).unwrap();
    a.qp_state = QpState::Rts as u32;
    a.sq_psn = 0xff_fff0;
    a.timeout = 14;
    a.retry_cnt = 7;
    a.rnr_retry = 7;
    a.max_rd_atomic = 4;
    let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    side.hca.modify_qp(side.qpn, &a, rts).unwrap();
}

#[test]
fn send_write_read_and_atomic_arrive() {
    let mut world = World::new(FabricConfig { delay_ns: 1000, ..FabricConfig::default() });
    let mut a = side(&mut world, "10.0.0.1");
    let b = side(&mut world, "10.0.0.2");
    connect(&a, b.qpn, "10.0.0.2");
    connect(&b, a.qpn, "10.0.0.1");
    let _ = (a.pd, b.rkey);
    for (i, byte) in a.memory.iter_mut().enumerate() {
        *byte = (i * 7 + i / 256) as u8;
    }
    let at = |side: &Side, offset: usize, length: u32| Sge {
        address: side.memory.as_ptr() as u64 + offset as u64,
        length,
        lkey: side.lkey,
    };
    b.hca.post_recv(b.qpn, &RecvRequest { wr_id: 77, sges: &[at(&b, 0, 5000)] }).unwrap();
    let send = SendRequest { sges: &[at(&a, 0, 4099)], ..SendRequest::new(1, SendOpcode::Send) };
    a.hca.post_send(a.qpn, &send).unwrap();
    let remote = RemoteTarget { address: b.memory.as_ptr() as u64 + 100_000, rkey: b.rkey };
    let write =
        SendRequest { sges: &[at(&a, 0, 300_000)], remote, ..SendRequest::new(2, SendOpcode::RdmaWrite) };
    a.hca.post_send(a.qpn, &write).unwrap();
    let read = SendRequest {
        sges: &[at(&a, 500_000, 200_001)],
        remote,
        ..SendRequest::new(3, SendOpcode::RdmaRead)
    };
    a.hca.post_send(a.qpn, &read).unwrap();
    let target = RemoteTarget { address: b.memory.as_ptr() as u64 + 900_000, rkey: b.rkey };
    let add = SendRequest {
        sges: &[at(&a, 800_000, 8)],
        remote: target,
        atomic: Some(AtomicOperation::FetchAdd { add: 5 }),
        ..SendRequest::new(4, SendOpcode::FetchAdd)
    };
    a.hca.post_send(a.qpn, &add).unwrap();
    let mut done = Vec::new();
    let cq = Arc::clone(&a.cq);
    assert!(world.run_until(10_000_000_000, || {
        let mut wc = [WorkCompletion::default(); 8];
        let n = cq.poll(&mut wc);
        done.extend_from_slice(&wc[..n]);
        done.len() == 4
    }));
    for (i, wc) in done.iter().enumerate() {
        assert_eq!((wc.wr_id, wc.status), (i as u64 + 1, WcStatus::Success));
    }
    let mut wc = [WorkCompletion::default(); 8];
    assert_eq!(b.cq.poll(&mut wc), 1);
    assert_eq!((wc[0].wr_id, wc[0].byte_len, wc[0].status), (77, 4099, WcStatus::Success));
    assert!(b.memory[..4099] == a.memory[..4099]);
    assert!(b.memory[100_000..400_000] == a.memory[..300_000]);
    assert!(a.memory[500_000..700_001] == a.memory[..200_001]);
    assert_eq!(&b.memory[900_000..900_008], &5u64.to_ne_bytes());
    assert_eq!(&a.memory[800_000..800_008], &0u64.to_ne_bytes());
}
