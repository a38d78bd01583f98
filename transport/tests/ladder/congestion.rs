//! Congestion notification.

use crate::prelude::*;

const MARKED: u8 = 0b11;

#[test]
fn statement_51_a_cnp_changes_neither_psn_nor_state() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.post_send(1, 4);
    rung.requests();
    let before = rung.qp.query();
    assert_eq!(rung.answers(&cnp()), []);
    assert_eq!(rung.qp.query(), before);
    assert_eq!(rung.host.counter(Counter::RxCnp), 1);
    assert_eq!((rung.host.take_sends(), rung.host.take_recvs()), (vec![], vec![]));
    assert_eq!(rung.answer(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req()), ack(RQ_PSN, 1));
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}

#[test]
fn cnps_narrow_the_window_but_never_close_it() {
    let mut rung = Rung::rc();
    for _ in 0..100 {
        rung.receive(&cnp());
        rung.now_ns += 100_000;
    }
    rung.post_op(1, SendOpcode::RdmaWrite, 64 * 256);
    let sent = rung.requests();
    assert!((1..64).contains(&sent.len()), "{} packets", sent.len());
    assert!(sent.last().is_some_and(|literal| literal.ack_req));
}

#[test]
fn a_marked_packet_is_answered_by_one_cnp_per_interval() {
    let mut rung = Rung::rc();
    (0..4).for_each(|k| rung.post_recv(k, 64));
    let send = |k| rc(op::SEND_ONLY).psn(RQ_PSN + k);
    rung.receive_marked(&send(0), MARKED);
    rung.receive_marked(&send(1), MARKED);
    assert_eq!(rung.qp.response_urgency(), Urgency::Acknowledgement);
    rung.qp.transmit_responses(&mut rung.host, &mut rung.sink);
    assert_eq!(rung.sink.sent[0].path.traffic_class & 0xfc, 0xc0, "DSCP 48");
    assert_eq!(rung.responses(), [cnp()]);
    rung.now_ns += 50_000;
    rung.receive_marked(&send(2), MARKED);
    assert_eq!(rung.responses(), [cnp()]);
    rung.receive_marked(&send(3), 0b10);
    assert_eq!(rung.responses(), []);
    assert_eq!(rung.host.counter(Counter::RxCongestionMarked), 3);
    assert_eq!(rung.host.counter(Counter::TxCnp), 2);
}
