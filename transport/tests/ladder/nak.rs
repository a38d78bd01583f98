//! Sequence NAKs: one per gap.

use crate::prelude::*;

fn send(psn: u32) -> Literal {
    rc(op::SEND_ONLY).psn(psn).ack_req()
}

#[test]
fn statement_11_a_gap_is_answered_once_and_the_next_gap_again() {
    let mut rung = Rung::rc();
    (0..8).for_each(|k| rung.post_recv(k, 64));
    assert_eq!(rung.answer(&send(RQ_PSN + 1)), nak(NAK_SEQUENCE, RQ_PSN, 0));
    assert_eq!(rung.answers(&send(RQ_PSN + 2)), []);
    assert_eq!(rung.answers(&send(RQ_PSN + 3)), []);
    assert_eq!(rung.host.recvs_done, []);
    assert_eq!(rung.answer(&send(RQ_PSN)), ack(RQ_PSN, 1));
    assert_eq!(rung.answer(&send(RQ_PSN + 2)), nak(NAK_SEQUENCE, RQ_PSN + 1, 1));
    assert_eq!(rung.answers(&send(RQ_PSN + 3)), []);
    assert_eq!(rung.answer(&send(RQ_PSN + 1)), ack(RQ_PSN + 1, 2));
    assert_eq!(rung.host.counter(Counter::TxNakSequence), 2);
    assert_eq!(rung.host.counter(Counter::RxOutOfSequence), 5);
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn a_duplicate_does_not_reopen_the_gap() {
    let mut rung = Rung::rc();
    (0..8).for_each(|k| rung.post_recv(k, 64));
    rung.answer(&send(RQ_PSN));
    assert_eq!(rung.answer(&send(RQ_PSN + 2)), nak(NAK_SEQUENCE, RQ_PSN + 1, 1));
    assert_eq!(rung.answer(&send(RQ_PSN)), ack(RQ_PSN, 1));
    assert_eq!(rung.answers(&send(RQ_PSN + 2)), [], "the NAK is still outstanding");
}

#[test]
fn a_gap_does_not_lose_a_message_in_progress() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 1024);
    let data = pattern(600);
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&data[..256]));
    let last = rc(op::SEND_LAST).psn(RQ_PSN + 2).payload(&data[512..]).ack_req();
    assert_eq!(rung.answer(&last), nak(NAK_SEQUENCE, RQ_PSN + 1, 0));
    rung.receive(&rc(op::SEND_MIDDLE).psn(RQ_PSN + 1).payload(&data[256..512]));
    assert_eq!(rung.answer(&last), ack(RQ_PSN + 2, 1));
    assert_eq!(rung.buffer()[..600], data);
}

#[test]
fn the_order_of_opcodes_is_checked_on_the_expected_packet_only() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 1024);
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&pattern(256)));
    let early = rc(op::WRITE_ONLY).psn(RQ_PSN + 3).reth(TARGET_BASE, 0xbad, 4).payload(b"evil");
    assert_eq!(rung.answer(&early), nak(NAK_SEQUENCE, RQ_PSN + 1, 0));
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn a_sequence_nak_acknowledges_what_is_before_and_sends_the_rest_again() {
    let mut rung = Rung::rc();
    (0..4).for_each(|k| rung.post_send(k, 4));
    let sent = rung.requests();
    assert_eq!(sent.iter().map(|literal| literal.psn).collect::<Vec<_>>(), [0x500, 0x501, 0x502, 0x503]);
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN + 2, 2));
    assert_eq!(rung.host.take_sends(), successes(&[0, 1]));
    assert_eq!(rung.requests(), sent[2..]);
    // The same NAK again, before anything moved: it speaks of packets that were sent again since.
    rung.receive(&ack(SQ_PSN + 3, 4));
    assert_eq!(rung.host.take_sends(), successes(&[2, 3]));
}

#[test]
fn a_sequence_nak_in_the_middle_of_a_message_resends_from_there() {
    let mut rung = Rung::rc();
    rung.post_send(1, 1000);
    let sent = rung.requests();
    assert_eq!(
        sent.iter().map(|literal| literal.opcode).collect::<Vec<_>>(),
        [op::SEND_FIRST, op::SEND_MIDDLE, op::SEND_MIDDLE, op::SEND_LAST]
    );
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN + 2, 0));
    assert_eq!(rung.host.take_sends(), []);
    assert_eq!(rung.requests(), sent[2..]);
    assert_eq!(sent.iter().flat_map(|literal| literal.payload.clone()).collect::<Vec<_>>(), pattern(1000));
}

#[test]
fn sequence_naks_use_up_the_retries() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    for _ in 0..3 {
        assert_eq!(rung.requests().len(), 1);
        rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
        assert_eq!(rung.host.take_sends(), []);
    }
    assert_eq!(rung.requests().len(), 1);
    rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(rung.state(), QpState::Err);
}
