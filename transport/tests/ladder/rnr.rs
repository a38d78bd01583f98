//! Receiver not ready, from both sides.

use crate::prelude::*;

/// Waits in ns that the 32 timer codes ask for.
const WAITS_US: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680,
    10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

#[test]
fn statement_22_no_packet_leaves_before_the_time_of_the_code() {
    for (code, wait_us) in (0..).zip(WAITS_US) {
        let mut rung = Rung::rc();
        rung.post_send(1, 4);
        rung.requests();
        rung.receive(&rnr(code, SQ_PSN, 0));
        assert_eq!(rung.requests(), [], "code {code}");
        rung.wait(wait_us * 1000 - 1);
        assert_eq!(rung.requests(), [], "code {code} waited too short");
        assert_eq!(rung.qp.deadline_ns(), Some(rung.now_ns + 1), "code {code}");
        // Other packets and posts in the meantime do not end the wait.
        rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
        rung.post_send(2, 4);
        assert_eq!(rung.requests(), [], "code {code}");
        rung.wait(1);
        assert_eq!(rung.requests().len(), 2, "code {code}");
    }
}

#[test]
fn statement_23_rnr_retry_zero_fails_at_the_first_and_seven_never_does() {
    let mut rung = Setup { rnr_retry: 0, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    rung.post_send(2, 4);
    rung.requests();
    rung.host.listens_to_steps = true;
    rung.receive(&rnr(1, SQ_PSN, 0));
    let told = [
        "receive RnrNak { timer_code: 1 }  psn 1280",
        "receiver not ready  psn 1280  0 retries left",
        "state RTS to ERR",
    ];
    assert_eq!(rung.host.told, told);
    let expected = [(1, WcStatus::RnrRetryExcErr), (2, WcStatus::WrFlushErr)];
    assert_eq!(rung.host.take_sends(), expected);
    assert_eq!(rung.state(), QpState::Err);

    let mut rung = Setup { rnr_retry: 7, retry_cnt: 0, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    for _ in 0..100 {
        assert_eq!(rung.requests().len(), 1);
        rung.receive(&rnr(1, SQ_PSN, 0));
        rung.wait(10_000);
    }
    assert_eq!(rung.requests().len(), 1);
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}

#[test]
fn statement_23_rnr_naks_and_timeouts_count_apart() {
    let mut rung = Setup { rnr_retry: 2, retry_cnt: 1, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    for _ in 0..2 {
        rung.requests();
        rung.receive(&rnr(1, SQ_PSN, 0));
        rung.wait(10_000);
    }
    assert_eq!(rung.requests().len(), 1);
    rung.wait_for_deadline();
    assert_eq!(rung.requests().len(), 1, "the retry of the timeout is still there");
    rung.receive(&rnr(1, SQ_PSN, 0));
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::RnrRetryExcErr)]);
}

#[test]
fn the_transport_timer_stands_still_during_the_wait() {
    let mut rung = Setup { timeout: 1, retry_cnt: 0, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    rung.requests();
    rung.receive(&rnr(0, SQ_PSN, 0));
    rung.wait(655_360_000);
    assert_eq!(rung.host.take_sends(), []);
    assert_eq!(rung.requests().len(), 1);
}

#[test]
fn an_rnr_nak_acknowledges_what_is_before() {
    let mut rung = Rung::rc();
    (0..4).for_each(|k| rung.post_send(k, 4));
    let sent = rung.requests();
    rung.receive(&rnr(1, SQ_PSN + 2, 2));
    assert_eq!(rung.host.take_sends(), successes(&[0, 1]));
    rung.wait(10_000);
    assert_eq!(rung.requests(), sent[2..]);
}

#[test]
fn an_rnr_nak_followed_by_a_sequence_nak_still_waits() {
    let mut rung = Rung::rc();
    (0..3).for_each(|k| rung.post_send(k, 4));
    rung.requests();
    rung.receive(&rnr(10, SQ_PSN, 0));
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
    rung.wait(319_999);
    assert_eq!(rung.requests(), []);
    rung.wait(1);
    assert_eq!(rung.requests().len(), 3);
}

#[test]
fn without_a_receive_the_nak_carries_the_timer_and_suppresses_others() {
    let mut rung = Setup { min_rnr_timer: 19, ..Setup::new(QpType::Rc) }.build();
    let send = |psn| rc(op::SEND_ONLY).psn(psn).ack_req().payload(b"data");
    assert_eq!(rung.answer(&send(RQ_PSN)), rnr(19, RQ_PSN, 0));
    assert_eq!(rung.answers(&send(RQ_PSN + 1)), [], "the RNR NAK speaks for those behind");
    assert_eq!(rung.answer(&send(RQ_PSN)), rnr(19, RQ_PSN, 0));
    rung.post_recv(1, 64);
    assert_eq!(rung.answer(&send(RQ_PSN)), ack(RQ_PSN, 1));
    assert_eq!(rung.host.take_recvs(), successes(&[1]));
}

#[test]
fn statement_25_rnr_at_the_end_of_a_write_resends_only_the_end() {
    let data = pattern(600);
    let write = |operation, psn| rc(operation).psn(psn);
    let mut rung = Rung::rc();
    rung.receive_all(&[
        write(op::WRITE_FIRST, RQ_PSN).reth(TARGET_BASE, RKEY, 600).payload(&data[..256]),
        write(op::WRITE_MIDDLE, RQ_PSN + 1).payload(&data[256..512]),
    ]);
    let last = write(op::WRITE_LAST_IMM, RQ_PSN + 2).payload(&data[512..]).imm([1; 4]).ack_req();
    assert_eq!(rung.answer(&last), rnr(12, RQ_PSN + 2, 0));
    assert_eq!(rung.target()[..512], data[..512]);
    rung.post_recv(1, 0);
    assert_eq!(rung.answer(&last), ack(RQ_PSN + 2, 1));
    assert_eq!(rung.target()[..600], data);

    let mut rung = Rung::rc();
    rung.post_op(1, SendOpcode::RdmaWriteWithImm, 600);
    rung.post_send(2, 4);
    let sent = rung.requests();
    assert_eq!(sent.len(), 4);
    rung.receive(&rnr(1, SQ_PSN + 2, 0));
    rung.wait(10_000);
    assert_eq!(rung.requests(), sent[2..]);
}

#[test]
fn the_sequence_nak_for_packets_behind_a_refused_one_costs_nothing() {
    // rdma_rxe: RNR NAK for the first packet, sequence NAK for the second, and the wait is over before that
    // comes.
    let mut rung = Setup { rnr_retry: 7, retry_cnt: 1, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 600);
    for round in 0..20 {
        assert_eq!(rung.requests().len(), 3, "round {round}");
        rung.receive(&rnr(1, SQ_PSN, 0));
        rung.wait(10_000);
        assert_eq!(rung.requests().len(), 3, "round {round}");
        rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
        assert_eq!(rung.requests(), [], "round {round}: all is on its way already");
        rung.receive(&rnr(1, SQ_PSN, 0));
        rung.wait(10_000);
    }
    rung.requests();
    // A second one is about a packet that was lost.
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
    assert_eq!(rung.requests(), []);
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
    assert_eq!(rung.requests().len(), 3);
    rung.receive(&ack(SQ_PSN + 2, 1));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}
