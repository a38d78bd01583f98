//! Any bytes as datagrams for a queue pair of SRD and for both ends of DC: nothing panics, no request and no
//! receive request ends twice, and no message is longer than its receive request.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_device::hca::{QpInit, SrqSetup};
use pumice_transport::path::Path;
use pumice_transport::types::{
    Access, AddressVector, DcDestination, QpState, QpType, RecvRequest, RemoteTarget, SendFlags, SendOpcode,
    SendRequest, UdDestination, VendorService, WcStatus,
};
use pumice_transport::wire::Qpn;

use super::scene::{FuzzScene, IOVA, Q_KEY, packets};

/// What targets of DC are asked with; seeds have it too.
const ACCESS_KEY: u64 = 0x5eed;
/// Behind BTH and DETH, where the header of the service begins.
const HEADER: usize = 20;
/// Where that says what the packet is, and which of two queue pairs of one number it belongs to.
const KIND: usize = HEADER + 4;
const EPOCH: usize = HEADER + 12;
/// In answers of an input, the epoch of what was sent is called so.
const EPOCH_PLACEHOLDER: [u8; 8] = [0xee; 8];
/// The first kinds of SRD and DC that are answers.
const FIRST_SRD_ANSWER: u8 = 6;
const FIRST_DC_ANSWER: u8 = 8;
const RECEIVES: u64 = 8;
const RECEIVE_BYTES: u32 = 200;
/// The first request's number; there are three of each service.
const FIRST_REQUEST: u64 = 100;
const REQUESTS: [SendOpcode; 3] = [SendOpcode::Send, SendOpcode::RdmaRead, SendOpcode::RdmaWrite];
const PEER: u32 = 0x22;

/// The queue pairs that packets are for.
struct NumberedTargets {
    srd: Qpn,
    initiator: Qpn,
    target: Qpn,
    /// Of what SRD and the initiator have sent.
    epochs: [[u8; 8]; 2],
}

impl NumberedTargets {
    /// Makes them; requests and receive requests of each are posted.
    fn new(scene: &mut FuzzScene) -> NumberedTargets {
        let hca = Arc::clone(&scene.hca);
        let dgid = scene.peer_gid();
        let to_peer = AddressVector { is_global: true, dgid, port_num: 1, ..AddressVector::default() };
        // It also opens memory to SRD.
        let (_, path) = hca.create_ah(scene.pd, &to_peer).unwrap();
        let srd = scene.queue_pair(&scene.init(QpType::Srd), QpState::Rts);
        let initiator = QpInit { recv_cq: None, ..scene.init(QpType::Dci) };
        let initiator = scene.queue_pair(&initiator, QpState::Rts);
        let srq = SrqSetup { pd: scene.pd, max_wr: 8, max_sge: 1, cookie: 0, xrc: None, tags: None };
        let srq = hca.create_srq(&srq).unwrap();
        let target = QpInit { srq: Some(srq), send_cq: None, ..scene.init(QpType::Dct) };
        let own = VendorService::DcTarget { access_key: ACCESS_KEY };
        let target = scene.own_queue_pair(&target, Some(own), QpState::Rtr);
        for wr_id in 0..RECEIVES {
            let sges = [scene.memory.sge(wr_id * 256, RECEIVE_BYTES)];
            let request = RecvRequest { wr_id, sges: &sges };
            match wr_id % 2 {
                0 => hca.post_recv(srd, &request).unwrap(),
                _ => hca.post_srq_recv(srq, &request).unwrap(),
            }
        }
        let epochs = [(srd, FIRST_REQUEST), (initiator, FIRST_REQUEST + 10)]
            .map(|(qpn, first)| NumberedTargets::post(scene, qpn, first, &path));
        NumberedTargets { srd, initiator, target, epochs }
    }

    /// Posts a request of each kind to the peer; the epoch that their packets have.
    fn post(scene: &mut FuzzScene, qpn: Qpn, first: u64, path: &Arc<Path>) -> [u8; 8] {
        for (wr_id, opcode) in (first..).zip(REQUESTS) {
            let sges = [scene.memory.sge(3072, 300)];
            let request = SendRequest {
                sges: &sges,
                flags: SendFlags::SIGNALED,
                ud: Some(UdDestination { path: Arc::clone(path), qpn: Qpn::new(PEER), qkey: Q_KEY }),
                dc: Some(DcDestination { access_key: ACCESS_KEY, stream: 0 }),
                remote: RemoteTarget { address: IOVA, rkey: 0x101 },
                ..SendRequest::new(wr_id, opcode)
            };
            scene.hca.post_send(qpn, &request).unwrap();
        }
        // As long as SRD may hold a message back.
        scene.world.run_until(200_000, || false);
        let sent = scene.sent();
        let epoch = sent.first().and_then(|packet| packet.get(EPOCH..)).and_then(|rest| rest.first_chunk());
        *epoch.expect("the first request leaves")
    }

    /// Which of them a packet is for. The epoch of an answer is put right.
    fn address(&self, packet: &mut [u8]) -> Qpn {
        let kind = packet.get(KIND).copied().unwrap_or(0);
        let is_dc = packet.get(HEADER..).is_some_and(|rest| rest.starts_with(b"DC 1"));
        let to = match is_dc {
            false => self.srd,
            true if kind < FIRST_DC_ANSWER => self.target,
            true => self.initiator,
        };
        let is_answer = if is_dc { to == self.initiator } else { kind >= FIRST_SRD_ANSWER };
        if let (true, Some(field)) = (is_answer, packet.get_mut(EPOCH..EPOCH + 8))
            && *field == EPOCH_PLACEHOLDER
        {
            field.copy_from_slice(&self.epochs[usize::from(is_dc)]);
        }
        to
    }
}

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut scene = FuzzScene::new(Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC);
    let victims = NumberedTargets::new(&mut scene);
    let mut ended = BTreeSet::new();
    let mut meant = 0;
    for packet in packets(bytes) {
        let mut packet = packet.to_vec();
        let to = victims.address(&mut packet);
        scene.inject(to, &packet);
        for completion in scene.completions() {
            let wr_id = completion.wr_id;
            assert!(ended.insert(wr_id), "{wr_id} ended twice");
            assert!(wr_id >= FIRST_REQUEST || completion.qp_num != victims.initiator.value());
            let is_received = wr_id < RECEIVES && completion.status == WcStatus::Success;
            assert!(!is_received || completion.byte_len <= RECEIVE_BYTES);
        }
        meant += scene.answers();
    }
    meant + ended.len()
}
