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
    rung.qp.transmit_responses(rung.now_ns, &mut rung.host, &mut rung.sink);
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

/// DCQCN at 1 Gbit/s: a packet of 318 bytes on the link takes 2544 ns.
fn paced() -> Congestion {
    let parameters = DcqcnParameters { line_rate: 1_000, ..DcqcnParameters::PAPER };
    Congestion::dcqcn(parameters, NotificationParameters { min_time_between_cnps: 4, cnp_dscp: 46 })
}

fn paced_rung() -> Rung {
    Setup { congestion: paced(), ..Setup::new(QpType::Rc) }.build()
}

#[test]
fn with_dcqcn_each_packet_has_its_time() {
    let mut rung = paced_rung();
    let start_ns = rung.now_ns;
    // Middle packets: BTH, 256 bytes, ICRC; the first has a RETH of 16 bytes as well.
    rung.post_op(1, SendOpcode::RdmaWrite, 4 * 256);
    assert_eq!(rung.requests().len(), 1);
    assert!(!rung.qp.wants_to_send());
    let first_ns = (318 + 16) * 8;
    assert_eq!(rung.qp.deadline_ns(), Some(start_ns + first_ns));
    assert_eq!(rung.requests(), [], "it is too early");
    for next_ns in [first_ns, 2544, 2544] {
        assert_eq!(rung.wait_for_deadline(), Some(next_ns));
        assert!(rung.qp.wants_to_send());
        assert_eq!(rung.requests().len(), 1);
    }
    assert!(rung.qp.deadline_ns().is_some_and(|at_ns| at_ns > rung.now_ns + 60_000_000), "the timer only");
}

#[test]
fn packets_that_may_be_slowed_down_ask_to_be_marked_and_cnps_do_not() {
    let mut rung = paced_rung();
    rung.post_send(1, 4);
    rung.qp.transmit_requests(rung.now_ns, &mut rung.host, &mut rung.sink);
    assert_eq!(rung.sink.sent[0].path.traffic_class & 3, 0b10);
    rung.sink.take();
    rung.post_recv(1, 64);
    rung.receive_marked(&rc(op::SEND_ONLY).psn(RQ_PSN), MARKED);
    rung.qp.transmit_responses(rung.now_ns, &mut rung.host, &mut rung.sink);
    assert_eq!(rung.sink.sent[0].path.traffic_class, 46 << 2);
    let mut plain = Rung::rc();
    plain.post_send(1, 4);
    plain.qp.transmit_requests(plain.now_ns, &mut plain.host, &mut plain.sink);
    assert_eq!(plain.sink.sent[0].path.traffic_class & 3, 0);
}

#[test]
fn the_interval_between_cnps_is_a_parameter() {
    let mut rung = paced_rung();
    for k in 0..3 {
        rung.post_recv(u64::from(k), 64);
        rung.receive_marked(&rc(op::SEND_ONLY).psn(RQ_PSN + k), MARKED);
        rung.now_ns += 2_000;
    }
    rung.responses();
    assert_eq!(rung.host.counter(Counter::TxCnp), 1, "one that is owed answers all marks until it leaves");
    assert_eq!(rung.responses(), []);
    rung.post_recv(9, 64);
    rung.now_ns += 4_000;
    rung.receive_marked(&rc(op::SEND_ONLY).psn(RQ_PSN + 3), MARKED);
    assert_eq!(rung.responses()[0], cnp());
}

#[test]
fn a_cnp_lowers_the_rate_and_leaves_the_window() {
    let mut rung = paced_rung();
    rung.receive(&cnp());
    assert_eq!(rung.host.counter(Counter::RxCnp), 1);
    assert_eq!(rung.qp.statistics().window_packets, 64);
    assert_eq!(rung.qp.statistics().rate_bits_per_second, Some(500_000_000));
    rung.post_op(1, SendOpcode::RdmaWrite, 3 * 256);
    assert_eq!(rung.requests().len(), 1);
    assert_eq!(rung.wait_for_deadline(), Some((318 + 16) * 16));
    assert_eq!(rung.requests().len(), 1);
    assert_eq!(rung.wait_for_deadline(), Some(2544 * 2));
}

#[test]
fn answers_to_reads_have_the_same_rate_and_acknowledgements_none() {
    let mut rung = paced_rung();
    let read = |psn, length| rc(op::READ_REQUEST).psn(psn).reth(TARGET_BASE, RKEY, length);
    rung.receive(&read(RQ_PSN, 3 * 256));
    assert_eq!(rung.responses().len(), 1);
    assert_eq!(rung.qp.response_urgency(), Urgency::None, "nothing may leave");
    for answers in [1, 1] {
        rung.wait_for_deadline();
        assert_eq!(rung.qp.response_urgency(), Urgency::Data);
        assert_eq!(rung.responses().len(), answers);
    }
    rung.post_recv(1, 64);
    assert_eq!(rung.answers(&rc(op::SEND_ONLY).psn(RQ_PSN + 3).ack_req()), [ack(RQ_PSN + 3, 2)]);
}

#[test]
fn requests_and_answers_to_reads_take_turns() {
    let mut rung = paced_rung();
    rung.post_op(1, SendOpcode::RdmaWrite, 20 * 256);
    rung.receive(&rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 8 * 256));
    let (mut requests, mut answers) = (rung.requests().len(), rung.responses().len());
    for _ in 0..14 {
        rung.wait_for_deadline();
        requests += rung.requests().len();
        answers += rung.responses().len();
        // As the engine does: a side that gave way asks again.
        requests += rung.requests().len();
    }
    assert!((6..=9).contains(&requests) && (6..=9).contains(&answers), "{requests} and {answers}");
}

#[test]
fn what_was_missed_by_a_late_wake_up_leaves_at_once_up_to_the_burst() {
    let parameters = DcqcnParameters { line_rate: 1_000, max_burst_bytes: 3 * 318, ..DcqcnParameters::PAPER };
    let congestion = Congestion::dcqcn(parameters, NotificationParameters::default());
    let mut rung = Setup { congestion, ..Setup::new(QpType::Rc) }.build();
    rung.post_op(1, SendOpcode::RdmaWrite, 20 * 256);
    rung.requests();
    rung.wait(1_000_000);
    assert_eq!(rung.requests().len(), 4, "three that are late, and the one that is due");
}
