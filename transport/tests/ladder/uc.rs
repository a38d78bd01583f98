//! Unreliable connections.

use crate::prelude::*;

const MTU: usize = 256;

fn rung() -> Rung {
    Setup::new(QpType::Uc).build()
}

fn send(operation: u8, psn: u32, payload: &[u8]) -> Literal {
    uc(operation).psn(psn).payload(payload)
}

#[test]
fn statement_43_a_lost_middle_drops_that_message_only() {
    let mut rung = rung();
    rung.post_recv(1, 1024);
    let data = pattern(MTU);
    rung.receive_all(&[
        send(op::SEND_FIRST, RQ_PSN, &[9; MTU]),
        send(op::SEND_LAST, RQ_PSN + 2, b"lost its middle"),
        send(op::SEND_MIDDLE, RQ_PSN + 3, &data),
    ]);
    assert_eq!(rung.host.recvs_done, []);
    // The next message is taken at its PSN, into the same receive.
    rung.receive(&send(op::SEND_FIRST, RQ_PSN + 5, &data));
    rung.receive(&send(op::SEND_LAST_IMM, RQ_PSN + 6, b"end").imm([5; 4]).solicited().ack_req());
    let done = rung.host.recvs_done[0];
    assert_eq!((done.wc.wr_id, done.wc.byte_len, done.wc.imm_data), (1, 259, [5; 4]));
    assert!(done.solicited);
    assert_eq!(rung.host.recvs_done.len(), 1);
    assert_eq!(rung.buffer()[..259], [&data[..], b"end"].concat());
    assert_eq!(rung.responses(), [], "UC never answers");
    assert_eq!(rung.state(), QpState::Rts);
    assert_eq!(rung.host.events, []);
}

#[test]
fn statement_43_a_new_first_replaces_the_open_message_in_its_receive() {
    for has_srq in [false, true] {
        let mut rung = Setup { has_srq, ..Setup::new(QpType::Uc) }.build();
        rung.post_recv(1, 1024);
        rung.post_recv(2, 1024);
        rung.receive(&send(op::SEND_FIRST, RQ_PSN, &[9; MTU]));
        rung.receive(&send(op::SEND_ONLY, RQ_PSN + 1, b"new"));
        assert_eq!(rung.host.take_recvs(), successes(&[1]));
        assert_eq!(rung.host.receives.len(), 1);
    }
}

#[test]
fn an_old_psn_is_as_good_as_a_new_one() {
    let mut rung = rung();
    (0..3).for_each(|k| rung.post_recv(k, 64));
    for psn in [RQ_PSN + 50, RQ_PSN, RQ_PSN] {
        rung.receive(&send(op::SEND_ONLY, psn, b"x"));
        assert_eq!(rung.qp.query().rq_psn, psn + 1);
    }
    assert_eq!(rung.host.take_recvs(), successes(&[0, 1, 2]));
}

#[test]
fn what_rc_would_refuse_uc_drops_silently() {
    let full = [1; MTU];
    let write = |rkey, length| uc(op::WRITE_ONLY).reth(TARGET_BASE, rkey, length).payload(b"data");
    let first = send(op::SEND_FIRST, RQ_PSN, &full);
    let cases = [
        (None, uc(op::SEND_MIDDLE).payload(&full)),
        (None, uc(op::SEND_LAST).payload(&full)),
        (None, uc(op::WRITE_LAST).payload(&full)),
        (None, uc(op::SEND_FIRST).payload(&full[4..])),
        (None, uc(op::SEND_ONLY).payload(&[1; MTU + 4])),
        (None, write(0xbad, 4)),
        (None, write(RKEY, 5)),
        (None, write(RKEY, u32::MAX)),
        (None, uc(op::WRITE_FIRST).reth(TARGET_BASE, RKEY, u32::MAX).payload(&full)),
        (Some(&first), uc(op::SEND_LAST)),
        (Some(&first), uc(op::SEND_MIDDLE).payload(&full[1..])),
        (Some(&first), uc(op::WRITE_MIDDLE).payload(&full)),
    ];
    for (start, packet) in cases {
        let mut rung = rung();
        rung.post_recv(1, 1024);
        let mut psn = RQ_PSN;
        if let Some(start) = start {
            rung.receive(start);
            psn += 1;
        }
        rung.receive(&packet.clone().psn(psn));
        assert_eq!(rung.state(), QpState::Rts, "{packet:?}");
        assert_eq!((rung.host.recvs_done.len(), rung.host.events.len()), (0, 0), "{packet:?}");
        assert!(rung.target().iter().all(|byte| *byte == 0), "{packet:?}");
        // The rest of the broken message is dropped, the next message is taken.
        rung.receive(&send(op::SEND_LAST, psn + 1, b"rest"));
        assert_eq!(rung.host.recvs_done.len(), 0, "{packet:?}");
        rung.receive(&send(op::SEND_ONLY, psn + 2, b"next"));
        assert_eq!(rung.host.take_recvs(), successes(&[1]), "{packet:?}");
        assert_eq!(rung.responses(), []);
    }
}

#[test]
fn without_the_right_a_write_is_dropped() {
    let mut rung = Setup { access: Access::REMOTE_READ, ..Setup::new(QpType::Uc) }.build();
    rung.receive(&uc(op::WRITE_ONLY).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4).payload(b"data"));
    rung.receive(&uc(op::WRITE_ONLY).psn(RQ_PSN + 1).reth(0, 0, 0));
    assert_eq!(rung.target()[..4], [0; 4]);
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn a_missing_receive_drops_the_message_but_not_the_data_of_a_write() {
    let mut rung = rung();
    rung.receive(&send(op::SEND_FIRST, RQ_PSN, &[1; MTU]));
    rung.post_recv(1, 1024);
    rung.receive(&send(op::SEND_LAST, RQ_PSN + 1, b"too late"));
    assert_eq!(rung.host.recvs_done, []);
    rung.host.receives.clear();
    let write = uc(op::WRITE_ONLY_IMM).psn(RQ_PSN + 2).reth(TARGET_BASE, RKEY, 4).imm([0; 4]);
    rung.receive(&write.payload(b"data"));
    assert_eq!(rung.target()[..4], *b"data");
    assert_eq!(rung.host.recvs_done, []);
    assert_eq!(rung.host.counter(Counter::RxNoReceive), 2);
}

#[test]
fn a_short_receive_is_a_length_error_and_the_end() {
    let mut rung = rung();
    rung.post_recv(1, 4);
    rung.post_recv(2, 64);
    rung.receive(&send(op::SEND_ONLY, RQ_PSN, b"hello"));
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rung.state(), QpState::Err);
}

#[test]
fn writes_of_many_packets_land_where_they_should() {
    let mut rung = rung();
    let data = pattern(600);
    rung.post_recv(1, 0);
    rung.receive_all(&[
        uc(op::WRITE_FIRST).psn(RQ_PSN).reth(TARGET_BASE + 3, RKEY, 600).payload(&data[..256]),
        uc(op::WRITE_MIDDLE).psn(RQ_PSN + 1).payload(&data[256..512]),
        uc(op::WRITE_LAST_IMM).psn(RQ_PSN + 2).payload(&data[512..]).imm([7; 4]),
    ]);
    assert_eq!(rung.target()[3..603], data);
    let wc = rung.host.recvs_done[0].wc;
    assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RecvRdmaWithImm, 600));
}

#[test]
fn a_send_is_complete_when_it_is_handed_to_the_network() {
    let mut rung = rung();
    rung.post_send(1, 300);
    rung.post_op(2, SendOpcode::RdmaWrite, 4);
    let sent: Vec<_> = rung.requests().iter().map(|literal| (literal.opcode, literal.ack_req)).collect();
    assert_eq!(sent, [(0x20, false), (0x22, false), (0x2a, false)]);
    assert_eq!(rung.host.take_sends(), successes(&[1, 2]));
    assert_eq!(rung.qp.deadline_ns(), None);
}

#[test]
fn more_than_a_window_leaves_at_once() {
    let mut rung = rung();
    rung.post_send(1, 200 * MTU as u32);
    assert_eq!(rung.requests().len(), 200);
    assert_eq!(rung.host.take_sends(), successes(&[1]));
}

#[test]
fn operations_that_uc_does_not_have_are_refused_at_the_post() {
    let mut rung = rung();
    use SendOpcode::*;
    for opcode in [RdmaRead, CompareSwap, FetchAdd, SendWithInvalidate, Flush, AtomicWrite] {
        let refused = PostError::WrongOpcode { opcode, qp_type: QpType::Uc };
        assert_eq!(rung.try_post(&request(1, opcode, &[])), Err(refused));
    }
    for opcode in [RdmaRead, CompareSwap, FetchAdd, SendWithInvalidate, Flush, AtomicWrite] {
        let mut rung = self::rung();
        rung.post(&SendRequest { faults_complete: true, ..request(1, opcode, &[]) });
        rung.requests();
        assert_eq!(rung.host.take_sends(), [(1, WcStatus::LocQpOpErr)], "{}", opcode.name());
        assert_eq!(rung.state(), QpState::Sqe);
    }
    for operation in [op::READ_REQUEST, op::ACK, op::FETCH_ADD, op::SEND_ONLY_INV, 0x1c, 0x1d] {
        let bytes = uc(operation).bytes(LOCAL);
        let long = [&bytes[..12], &[0; 28], &bytes[12..]].concat();
        assert!(!rung.receive_bytes(&long, &flow_from_peer(), 0), "{operation:#x} exists on UC");
    }
}

#[test]
fn a_local_error_stops_the_send_side_only() {
    let mut rung = rung();
    rung.post_recv(7, 64);
    rung.post_send(1, 4);
    rung.post(&request(2, SendOpcode::Send, &[Sge { address: BUFFER_BASE, length: 4, lkey: 99 }]));
    rung.post_send(3, 4);
    assert_eq!(rung.requests().len(), 1);
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocProtErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(rung.host.take_sends(), expected);
    assert_eq!(rung.state(), QpState::Sqe);
    rung.post_send(4, 4);
    assert_eq!(rung.host.take_sends(), [(4, WcStatus::WrFlushErr)]);
    rung.receive(&send(op::SEND_ONLY, RQ_PSN, b"still heard"));
    assert_eq!(rung.host.take_recvs(), successes(&[7]));
    rung.enter(QpState::Rts).unwrap();
    rung.post_send(5, 4);
    assert_eq!(rung.requests().len(), 1);
    assert_eq!(rung.host.take_sends(), successes(&[5]));
}
