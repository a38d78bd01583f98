//! XRC: the initiator's and the target's half.

use crate::prelude::*;

const SRQN: u32 = 0x55;
const SRQ_CQ: u32 = 700;
const SRQ_PD: u32 = 8;

/// A target in a domain with one SRQ, whose memory is in a domain of its own.
fn target() -> Rung {
    let mut rung = Setup::new(QpType::XrcTarget).build();
    rung.host.xrc_srqs.insert(SRQN, XrcSrq { xrcd: XRCD, pd: SRQ_PD, cq: SRQ_CQ, ..XrcSrq::default() });
    rung.host.xrc_srqs.insert(SRQN + 1, XrcSrq { xrcd: XRCD + 1, ..XrcSrq::default() });
    rung.host.memory.region(TARGET).pd = SRQ_PD;
    rung.host.memory.region(BUFFER).pd = SRQ_PD;
    rung
}

#[test]
fn statement_47_every_request_packet_names_the_srq() {
    let mut rung = Setup::new(QpType::XrcInitiator).build();
    let sges = [Sge { address: BUFFER_BASE, length: 600, lkey: BUFFER }];
    rung.post(&SendRequest { xrc_srqn: SRQN, ..request(1, SendOpcode::Send, &sges) });
    rung.post(&SendRequest { xrc_srqn: SRQN + 1, ..request(2, SendOpcode::RdmaRead, &sges) });
    let data = pattern(600);
    let expected = [
        xrc(op::SEND_FIRST, SRQN).psn(SQ_PSN).payload(&data[..256]),
        xrc(op::SEND_MIDDLE, SRQN).psn(SQ_PSN + 1).payload(&data[256..512]),
        xrc(op::SEND_LAST, SRQN).psn(SQ_PSN + 2).payload(&data[512..]).ack_req(),
        xrc(op::READ_REQUEST, SRQN + 1).psn(SQ_PSN + 3).reth(TARGET_BASE, RKEY, 600).ack_req(),
    ];
    assert_eq!(rung.requests(), expected);
    rung.receive(&ack(SQ_PSN + 2, 1).over_xrc());
    for (operation, psn, bytes) in
        [(op::READ_FIRST, 3, 256), (op::READ_MIDDLE, 4, 256), (op::READ_LAST, 5, 88)]
    {
        rung.receive(&read_response(operation, SQ_PSN + psn, 2, &vec![1; bytes]).over_xrc());
    }
    assert_eq!(rung.host.take_sends(), successes(&[1, 2]));
}

#[test]
fn statement_47_the_target_answers_without_xrceth_and_completes_on_the_srqs_queue() {
    let mut rung = target();
    rung.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 1024, BUFFER);
    rung.target()[..4].copy_from_slice(b"data");
    rung.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN).payload(&[7; 256]));
    let last = xrc(op::SEND_LAST, SRQN).psn(RQ_PSN + 1).payload(b"end").ack_req();
    assert_eq!(rung.answer(&last), ack(RQ_PSN + 1, 1).over_xrc());
    let done = rung.host.recvs_done[0];
    assert_eq!((done.cq, done.wc.wr_id, done.wc.qp_num), (SRQ_CQ, 1, LOCAL.value()));
    assert_eq!(done.wc.byte_len, 259);
    let read = xrc(op::READ_REQUEST, SRQN).psn(RQ_PSN + 2).reth(TARGET_BASE, RKEY, 4);
    assert_eq!(rung.answer(&read), read_response(op::READ_ONLY, RQ_PSN + 2, 2, b"data").over_xrc());
    let add = xrc(op::FETCH_ADD, SRQN).psn(RQ_PSN + 3).atomic(TARGET_BASE + 8, RKEY, 1, 0);
    assert_eq!(rung.answer(&add), atomic_ack(RQ_PSN + 3, 3, 0).over_xrc());
    let write = xrc(op::WRITE_ONLY, SRQN).psn(RQ_PSN + 4).reth(TARGET_BASE, RKEY, 4).payload(b"more");
    assert_eq!(rung.answer(&write.ack_req()), ack(RQ_PSN + 4, 4).over_xrc());
    assert_eq!(rung.target()[..4], *b"more");
}

#[test]
fn an_srq_that_is_unknown_or_elsewhere_is_refused() {
    for srqn in [SRQN + 1, SRQN + 2] {
        for packet in [
            xrc(op::SEND_ONLY, srqn).payload(b"x"),
            xrc(op::READ_REQUEST, srqn).reth(TARGET_BASE, RKEY, 4),
            xrc(op::WRITE_ONLY, srqn).reth(TARGET_BASE, RKEY, 1).payload(b"x"),
            xrc(op::FETCH_ADD, srqn).atomic(TARGET_BASE, RKEY, 1, 0),
        ] {
            let mut rung = target();
            rung.assert_refused(&packet.psn(RQ_PSN), NAK_XRC);
            let expected = [AsyncEventType::QpAccessErr, AsyncEventType::QpLastWqeReached];
            assert_eq!(rung.host.events, expected);
        }
    }
    let mut rung = Setup::new(QpType::XrcInitiator).build();
    rung.post_send(1, 4);
    rung.requests();
    rung.receive(&nak(NAK_XRC, SQ_PSN, 0).over_xrc());
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::RemInvRdReqErr)]);
}

#[test]
fn an_empty_srq_is_not_ready_and_the_dying_target_leaves_it_alone() {
    let mut rung = target();
    let send = xrc(op::SEND_ONLY, SRQN).psn(RQ_PSN).payload(b"x").ack_req();
    assert_eq!(rung.answer(&send), rnr(12, RQ_PSN, 0).over_xrc());
    rung.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 64, BUFFER);
    rung.host.post_xrc_recv(SRQN, 2, BUFFER_BASE, 1024, BUFFER);
    rung.host.post_xrc_recv(SRQN, 3, BUFFER_BASE, 64, BUFFER);
    assert_eq!(rung.answer(&send), ack(RQ_PSN, 1).over_xrc());
    rung.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN + 1).payload(&[1; 256]));
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::Success), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.xrc_srqs[&SRQN].receives.len(), 1);
    assert_eq!(rung.host.events, [AsyncEventType::QpLastWqeReached]);
}

#[test]
fn memory_of_another_domain_is_out_of_reach() {
    let mut rung = target();
    rung.host.memory.region(TARGET).pd = CONTEXT.pd;
    let write = xrc(op::WRITE_ONLY, SRQN).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 1).payload(b"x");
    rung.assert_refused(&write, NAK_ACCESS);
}

#[test]
fn each_half_hears_its_own_direction_only() {
    let mut rung = target();
    rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN));
    rung.receive(&ack(SQ_PSN, 1).over_xrc());
    assert_eq!(rung.host.counter(Counter::RxWrongService), 2);
    let refused = PostError::WrongOpcode { opcode: SendOpcode::Send, qp_type: QpType::XrcTarget };
    assert_eq!(rung.try_post(&request(1, SendOpcode::Send, &[])), Err(refused));
    let mut rung = Setup::new(QpType::XrcInitiator).build();
    rung.receive(&xrc(op::SEND_ONLY, SRQN).psn(RQ_PSN));
    assert_eq!(rung.host.counter(Counter::RxWrongService), 1);
    assert_eq!(rung.responses(), []);
}

#[test]
fn an_initiator_in_error_flushes_its_sends_and_no_receive_queue() {
    let mut rung = Setup::new(QpType::XrcInitiator).build();
    rung.post_recv(9, 4);
    rung.post_send(1, 4);
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.take_recvs(), [], "it has no receive queue of its own");
    assert_eq!(rung.host.events, []);
}

#[test]
fn the_packets_of_a_message_name_one_srq() {
    for last in [xrc(op::SEND_LAST, SRQN + 2), xrc(op::SEND_LAST, SRQN + 1)] {
        let mut rung = target();
        rung.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 1024, BUFFER);
        rung.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN).payload(&[7; 256]));
        rung.receive(&last.psn(RQ_PSN + 1).payload(b"x"));
        assert_eq!(rung.responses(), [nak(NAK_INVALID, RQ_PSN + 1, 0).over_xrc()]);
        assert_eq!(rung.host.recvs_done[0].wc.status, WcStatus::RemInvReqErr);
    }
}

/// A queue pair of OFED 1.x: what it asks for and what it answers do not get in each other's way.
#[test]
fn a_duplex_queue_pair_is_initiator_and_target() {
    let mut rung = Setup::new(QpType::XrcDuplex).build();
    rung.host.xrc_srqs.insert(SRQN, XrcSrq { xrcd: XRCD, pd: SRQ_PD, cq: SRQ_CQ, ..XrcSrq::default() });
    rung.host.post_xrc_recv(SRQN, 9, BUFFER_BASE, 1024, BUFFER);
    let sges = [Sge { address: BUFFER_BASE, length: 8, lkey: BUFFER }];
    rung.post(&SendRequest { xrc_srqn: 0x77, ..request(1, SendOpcode::Send, &sges) });
    assert_eq!(rung.requests(), [xrc(op::SEND_ONLY, 0x77).psn(SQ_PSN).payload(&pattern(8)).ack_req()]);
    rung.host.memory.region(BUFFER).pd = SRQ_PD;
    let incoming = xrc(op::SEND_ONLY, SRQN).psn(RQ_PSN).payload(b"incoming").ack_req();
    assert_eq!(rung.answer(&incoming), ack(RQ_PSN, 1).over_xrc());
    let done = rung.host.recvs_done[0];
    assert_eq!((done.cq, done.wc.wr_id, done.wc.byte_len), (SRQ_CQ, 9, 8));
    rung.receive(&ack(SQ_PSN, 1).over_xrc());
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    // What it cannot receive fails both halves.
    rung.host.memory.region(BUFFER).pd = CONTEXT.pd;
    rung.post(&SendRequest { xrc_srqn: 0x77, ..request(2, SendOpcode::Send, &sges) });
    assert_eq!(rung.requests().len(), 1);
    rung.receive(&xrc(op::SEND_ONLY, SRQN + 1).psn(RQ_PSN + 1).payload(b"?").ack_req());
    assert_eq!(rung.qp.state(), QpState::Err);
    assert_eq!(rung.host.take_sends(), [(2, WcStatus::WrFlushErr)]);
    let events = [AsyncEventType::QpAccessErr, AsyncEventType::QpLastWqeReached];
    assert_eq!(rung.host.events, events);
}
