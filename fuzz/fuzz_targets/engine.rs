//! Any bytes as packets from the peer of a device's queue pairs, with right ICRCs: nothing panics.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use pumice_device::driver::World;
use pumice_device::hca::{CqSetup, OwnedMemory, QpInit};
use pumice_device::port::{FabricConfig, Port, Train};
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::qp::{AttributeMask as M, QpAttributes};
use pumice_transport::types::{Access, AddressVector, Gid, Mtu, QpCapacity, QpState, QpType, RecvRequest};
use pumice_transport::wire::icrc;

// The bytes are a list of packets, each behind its length in two bytes.
fuzz_target!(|bytes: &[u8]| {
    let mut world = World::new(FabricConfig::default());
    let victim: IpAddr = [10, 0, 0, 1].into();
    let peer: IpAddr = [10, 0, 0, 9].into();
    let hca = world.add_hca(victim).unwrap();
    let pd = hca.alloc_pd().unwrap();
    let cq = hca.create_cq(CqSetup { depth: 64, ..CqSetup::default() }).unwrap();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = OwnedMemory::register(&hca, pd, 4096, 0x1000, rights).unwrap();
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
    for qp_type in [QpType::Rc, QpType::Uc] {
        let (qpn, _) = hca.create_qp(&QpInit { qp_type, ..init }).unwrap();
        let dgid = Gid::from(peer);
        let mut a = QpAttributes {
            qp_state: QpState::Init as u32,
            port_num: 1,
            access: 15,
            address_vector: AddressVector { is_global: true, dgid, port_num: 1, ..AddressVector::default() },
            path_mtu: Mtu::Mtu256 as u32,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            ..QpAttributes::default()
        };
        hca.modify_qp(qpn, &a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS).unwrap();
        a.qp_state = QpState::Rtr as u32;
        let mut mask = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        if qp_type == QpType::Rc {
            mask |= M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        }
        hca.modify_qp(qpn, &a, mask).unwrap();
        let sges = [memory.sge(0, 1024)];
        hca.post_recv(qpn, &RecvRequest { wr_id: 1, sges: &sges }).unwrap();
    }
    let flow = Flow { source: peer, destination: victim, source_port: 50_000, destination_port: ROCE_PORT };
    let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let mut port = world.fabric().attach(&[peer]);
    let mut rest = bytes;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)) % 1500;
        let (packet, behind) = behind.split_at(length.min(behind.len()));
        rest = behind;
        let mut packet = packet.to_vec();
        packet.extend_from_slice(&[0; 4]);
        icrc::seal(&flow, 0, &mut packet);
        let train = Train { path: &path, segment_bytes: packet.len(), bytes: &packet };
        let _ = port.transmit(world.now_ns(), &train);
        world.run_until(10_000, || false);
    }
});
