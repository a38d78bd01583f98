//! Any bytes as datagrams for UD queue pairs, one of them in a multicast group: nothing panics, a datagram
//! fills one receive, says a length that fits it, and writes nothing behind it.

use std::net::IpAddr;

use pumice_transport::types::{Access, Gid, QpState, QpType, WcStatus};

use super::scene::{FuzzScene, MEMORY_BYTES, packets};

const RECEIVES: usize = 8;
/// Bytes of each receive, the GRH's 40 included; no receive owns the other bytes of its share.
const RECEIVE_BYTES: usize = 300;
const SHARE_BYTES: usize = MEMORY_BYTES / RECEIVES;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut scene = FuzzScene::new(Access::empty());
    assert!(scene.memory.write(0, &[0xee; MEMORY_BYTES]));
    let qpn = scene.queue_pair(&scene.init(QpType::Ud), QpState::Rts);
    let _ = scene.hca.attach_mcast(qpn, Gid::from(IpAddr::from([239, 1, 2, 3])));
    for number in 0..RECEIVES {
        scene.post_recv(qpn, number as u64, (number * SHARE_BYTES) as u64, RECEIVE_BYTES as u32);
    }
    let mut used = [false; RECEIVES];
    for packet in packets(bytes) {
        scene.inject(qpn, packet);
        for completion in scene.completions() {
            let number = usize::try_from(completion.wr_id).unwrap();
            assert!(!std::mem::replace(&mut used[number], true), "receive {number} completed twice");
            assert!(completion.status != WcStatus::Success || completion.byte_len <= RECEIVE_BYTES as u32);
        }
    }
    assert_eq!(scene.answers(), 0, "datagrams are not answered");
    for number in 0..RECEIVES {
        let behind = scene.bytes(number * SHARE_BYTES + RECEIVE_BYTES, SHARE_BYTES - RECEIVE_BYTES);
        assert!(behind.iter().all(|byte| *byte == 0xee), "receive {number} was written beyond its end");
    }
    used.iter().filter(|used| **used).count()
}
