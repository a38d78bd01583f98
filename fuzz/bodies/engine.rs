//! Any bytes as packets from the peer of RC and UC queue pairs that receive: nothing panics, no receive
//! completes twice, and nothing is written behind the memory that is open.

use pumice_transport::types::{Access, QpState, QpType};

use super::scene::{FuzzScene, packets};

const RECEIVES: u64 = 4;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let mut scene = FuzzScene::new(rights);
    let qps = [QpType::Rc, QpType::Uc].map(|kind| scene.queue_pair(&scene.init(kind), QpState::Rtr));
    for (qpn, first) in qps.into_iter().zip([0, RECEIVES]) {
        (first..first + RECEIVES).for_each(|wr_id| scene.post_recv(qpn, wr_id, 1024, 1024));
    }
    let mut completed = Vec::new();
    for packet in packets(bytes) {
        // The service's lowest bit says which of the two.
        let qpn = qps[usize::from(packet.first().is_some_and(|opcode| opcode & 0x20 != 0))];
        scene.inject(qpn, packet);
        completed.extend(scene.completions().iter().map(|completion| completion.wr_id));
    }
    completed.sort_unstable();
    let count = completed.len();
    completed.dedup();
    assert_eq!(count, completed.len(), "a receive completed twice");
    assert!(completed.iter().all(|wr_id| *wr_id < 2 * RECEIVES));
    scene.answers();
    count
}
