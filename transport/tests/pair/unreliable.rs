//! UC: over a link that loses and reorders, what arrives is whole, and nothing arrives that was not
//! sent.

use pumice_transport::types::{Access, Mtu, QpState, QpType, SendOpcode, SendRequest, Sge, WcStatus};

use crate::kit::pattern;
use crate::link::{Faults, Link, Random};
use crate::node::{Node, Terms};

const BASE: u64 = 0x1000;
const BYTES: u32 = 5 * 256;

#[test]
fn what_arrives_over_uc_is_whole() {
    for seed in 0..50 {
        let terms = Terms {
            qp_type: QpType::Uc,
            mtu: Mtu::Mtu256,
            psn: 0xff_fff0,
            window_limit_packets: 64,
            read_limit_packets: 64,
            rd_atomic: 0,
        };
        let mut random = Random(seed);
        let mut link = Link::new(Faults { loss: 50, duplication: 0, reordering: 20 }, random.next());
        let mut sender = Node::new(0, &terms);
        let mut receiver = Node::new(1, &terms);
        sender.host.region(1, BASE, 2 * BYTES as usize, Access::empty()).bytes = pattern(2 * BYTES as usize);
        receiver.host.region(1, BASE, 100 * BYTES as usize, Access::LOCAL_WRITE);
        let mut now_ns = 0;
        for number in 0..100u32 {
            let address = BASE + u64::from(number) * u64::from(BYTES);
            receiver.host.post_recv(number.into(), address, BYTES, 1);
            let sges = [Sge { address: BASE + u64::from(number), length: BYTES - number, lkey: 1 }];
            let imm_data = number.to_be_bytes();
            let wr_id = number.into();
            let request =
                SendRequest { sges: &sges, imm_data, ..SendRequest::new(wr_id, SendOpcode::SendWithImm) };
            sender.qp.post_send(&request, &mut sender.host).expect("room");
            sender.transmit(now_ns, &mut random, &mut link);
            now_ns += 1000;
            while let Some(frame) = link.arrival(now_ns) {
                receiver.receive(now_ns, &frame.bytes, &frame.flow, 0);
            }
        }
        while let Some(frame) = link.arrival(u64::MAX) {
            receiver.receive(now_ns, &frame.bytes, &frame.flow, 0);
        }
        let sent: Vec<_> = (0..100).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(sender.host.take_sends(), sent, "seed {seed}");
        let arrived = std::mem::take(&mut receiver.host.recvs_done);
        assert!((30..100).contains(&arrived.len()), "seed {seed}: {} arrived", arrived.len());
        for (done, wr_id) in arrived.iter().zip(0..) {
            assert_eq!((done.wc.wr_id, done.wc.status), (wr_id, WcStatus::Success), "seed {seed}");
            let number = u32::from_be_bytes(done.wc.imm_data) as usize;
            let length = BYTES as usize - number;
            assert_eq!(done.wc.byte_len as usize, length, "seed {seed}");
            let at = wr_id as usize * BYTES as usize;
            let bytes = &receiver.host.memory.region(1).bytes[at..at + length];
            assert!(bytes == &pattern(2 * BYTES as usize)[number..number + length], "seed {seed}");
        }
        assert_eq!(receiver.qp.state(), QpState::Rts);
    }
}
