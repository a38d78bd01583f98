//! Any bytes as packets for an XRC target and as answers to an XRC initiator: nothing panics, and a request
//! that names no SRQ of the domain reaches no memory.

use pumice_device::hca::SrqSetup;
use pumice_transport::types::{Access, QpState, QpType, RecvRequest, SendOpcode, SendRequest};

use super::scene::{FuzzScene, IOVA, packets};

/// In an input the SRQ is called by this number.
const SRQ_PLACEHOLDER: [u8; 4] = [0, 0, 0, 1];
const RECEIVES: u64 = 4;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut scene = FuzzScene::new(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    let hca = std::sync::Arc::clone(&scene.hca);
    let domain = hca.open_xrcd().unwrap();
    let setup = SrqSetup {
        pd: scene.pd,
        max_wr: 8,
        max_sge: 1,
        cookie: 0,
        xrc: Some((domain, scene.cq.handle())),
        tags: None,
    };
    let srq = hca.create_srq(&setup).unwrap();
    let number = hca.srq_number(srq).unwrap().to_be_bytes();
    for wr_id in 0..RECEIVES {
        let sges = [scene.memory.sge(1024, 512)];
        hca.post_srq_recv(srq, &RecvRequest { wr_id, sges: &sges }).unwrap();
    }
    let target = pumice_device::hca::QpInit {
        pd: None,
        send_cq: None,
        recv_cq: None,
        xrcd: Some(domain),
        ..scene.init(QpType::XrcTarget)
    };
    let target = scene.queue_pair(&target, QpState::Rtr);
    let initiator = pumice_device::hca::QpInit { recv_cq: None, ..scene.init(QpType::XrcInitiator) };
    let initiator = scene.queue_pair(&initiator, QpState::Rts);
    for (wr_id, opcode) in
        [(100, SendOpcode::Send), (101, SendOpcode::RdmaRead), (102, SendOpcode::RdmaWrite)]
    {
        let sges = [scene.memory.sge(2048, 300)];
        let remote = pumice_transport::types::RemoteTarget { address: IOVA, rkey: 0x101 };
        let request = SendRequest { sges: &sges, remote, xrc_srqn: 1, ..SendRequest::new(wr_id, opcode) };
        let _ = hca.post_send(initiator, &request);
    }
    scene.world.run_until(10_000, || false);
    let mut completed = Vec::new();
    for packet in packets(bytes) {
        let mut packet = packet.to_vec();
        // Responses are from READ RESPONSE FIRST to ATOMIC ACKNOWLEDGE.
        let answer = packet.first().is_some_and(|opcode| (0x0d..=0x12).contains(&(opcode & 0x1f)));
        if let Some(field) = packet.get_mut(12..16)
            && *field == SRQ_PLACEHOLDER
        {
            field.copy_from_slice(&number);
        }
        scene.inject(if answer { initiator } else { target }, &packet);
        completed.extend(scene.completions().iter().map(|completion| completion.wr_id));
        scene.answers();
    }
    completed.sort_unstable();
    let count = completed.len();
    completed.dedup();
    assert_eq!(count, completed.len(), "a request completed twice");
    assert!(completed.iter().all(|wr_id| *wr_id < RECEIVES || (100..103).contains(wr_id)));
    count
}
