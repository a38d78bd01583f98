//! The responder: order, lengths, rights, receives.

use crate::prelude::*;

const MTU: usize = 256;

fn write(operation: u8, psn: u32) -> Literal {
    rc(operation).psn(psn)
}

#[test]
fn statement_05_replies_go_to_the_roce_port_whatever_the_source_port() {
    let mut rung = Rung::rc();
    for (step, source_port) in [(0, 0), (1, 1234)] {
        rung.post_recv(1, 64);
        let literal = rc(op::SEND_ONLY).psn(RQ_PSN + step).ack_req();
        let flow = pumice_transport::path::Flow { source_port, ..flow_from_peer() };
        assert!(rung.receive_bytes(&literal.bytes(LOCAL), &flow, 0));
        rung.qp.transmit_responses(rung.now_ns, &mut rung.host, &mut rung.sink);
        let sent = &rung.sink.sent[step as usize];
        assert_eq!(sent.path, path_to_peer());
        assert_eq!(sent.path.flow.destination_port, 4791);
    }
    rung.post_send(1, 5);
    rung.requests();
    assert!(rung.sink.sent.iter().all(|sent| sent.path.flow.source_port == 0xc011));
}

#[test]
fn statement_07_a_send_of_five_bytes_is_padded_with_three_that_do_not_count() {
    let mut rung = Rung::rc();
    rung.post_recv(7, 8);
    let mut bytes = rc(op::SEND_ONLY).psn(RQ_PSN).ack_req().payload(b"hello").bytes(LOCAL);
    assert_eq!(bytes.len(), 12 + 8 + 4);
    bytes[12 + 5..12 + 8].fill(0xee);
    assert!(rung.receive_bytes(&bytes, &flow_from_peer(), 0));
    assert_eq!(rung.responses(), [ack(RQ_PSN, 1)]);
    let done = rung.host.recvs_done[0];
    assert_eq!((done.wc.wr_id, done.wc.status, done.wc.byte_len), (7, WcStatus::Success, 5));
    assert_eq!(rung.buffer()[..8], [&b"hello"[..], &pattern(8)[5..]].concat());

    rung.post_send(1, 5);
    rung.qp.transmit_requests(rung.now_ns, &mut rung.host, &mut rung.sink);
    let sent = &rung.sink.sent[0].bytes;
    assert_eq!((sent[1] >> 4 & 3, &sent[17..20]), (3, &[0, 0, 0][..]));
}

#[test]
fn statement_08_packets_for_another_queue_pair_are_not_answered() {
    let send = rc(op::SEND_ONLY).psn(RQ_PSN).ack_req();
    let flow = flow_from_peer();
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    let elsewhere = "10.0.0.9".parse().unwrap();
    let mut version = send.bytes(LOCAL);
    version[1] |= 1;
    let foreign_service = uc(op::SEND_ONLY).psn(RQ_PSN).ack_req().bytes(LOCAL);
    let foreign_key = send.clone().pkey(0x8001).bytes(LOCAL);
    let no_key = send.clone().pkey(0x8000).bytes(LOCAL);
    let bytes = send.bytes(LOCAL);
    assert!(!rung.receive_bytes(&version, &flow, 0), "version 1 parsed");
    rung.receive_bytes(&foreign_service, &flow, 0);
    rung.receive_bytes(&foreign_key, &flow, 0);
    rung.receive_bytes(&no_key, &flow, 0);
    rung.receive_bytes(&bytes, &pumice_transport::path::Flow { source: elsewhere, ..flow }, 0);
    rung.receive_bytes(&bytes, &pumice_transport::path::Flow { destination: elsewhere, ..flow }, 0);
    assert_eq!(rung.responses(), []);
    assert_eq!(rung.host.recvs_done, []);
    assert_eq!(rung.host.counter(Counter::RxWrongService), 1);
    assert_eq!(rung.host.counter(Counter::RxBadPkey), 2);
    assert_eq!(rung.host.counter(Counter::RxWrongAddress), 2);
    // A limited member of the same partition is welcome.
    assert_eq!(rung.answer(&send.pkey(0x7fff)), ack(RQ_PSN, 1));
}

#[test]
fn statement_08_requests_need_a_receptive_state_and_responses_a_sending_one() {
    for (state, answered) in [(QpState::Init, false), (QpState::Rtr, true), (QpState::Rts, true)] {
        let mut rung = Setup { state, ..Setup::new(QpType::Rc) }.build();
        rung.post_recv(1, 64);
        let answers = rung.answers(&rc(op::SEND_ONLY).psn(if answered { RQ_PSN } else { 0 }).ack_req());
        assert_eq!(!answers.is_empty(), answered, "{state:?}");
        rung.receive(&ack(SQ_PSN, 1));
        let dropped = rung.host.counter(Counter::RxWrongState);
        assert_eq!(dropped, u64::from(!answered) + u64::from(state != QpState::Rts), "{state:?}");
    }
}

#[test]
fn statement_09_empty_writes_and_reads_need_no_key_but_the_right() {
    let empty_write = write(op::WRITE_ONLY, RQ_PSN).ack_req().reth(0, 0xdead, 0);
    let empty_read = rc(op::READ_REQUEST).psn(RQ_PSN + 1).reth(0, 0xdead, 0);
    let mut rung = Rung::rc();
    assert_eq!(rung.answer(&empty_write), ack(RQ_PSN, 1));
    assert_eq!(rung.answer(&empty_read), read_response(op::READ_ONLY, RQ_PSN + 1, 2, &[]));

    for refused in [empty_write, empty_read.psn(RQ_PSN)] {
        let mut rung = Setup { access: Access::REMOTE_ATOMIC, ..Setup::new(QpType::Rc) }.build();
        rung.assert_refused(&refused, NAK_INVALID);
        assert_eq!(rung.host.events, [AsyncEventType::QpReqErr]);
    }
}

#[test]
fn statement_10_a_right_of_the_queue_pair_and_one_of_the_region_have_different_naks() {
    let read = rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 16);
    let mut rung = Rung::rc();
    rung.host.memory.region(TARGET).access = Access::REMOTE_WRITE;
    rung.assert_refused(&read, NAK_ACCESS);
    assert_eq!(rung.host.events, [AsyncEventType::QpAccessErr]);

    let access = ALL_REMOTE - Access::REMOTE_READ;
    let mut rung = Setup { access, ..Setup::new(QpType::Rc) }.build();
    rung.assert_refused(&read, NAK_INVALID);
    assert_eq!(rung.host.events, [AsyncEventType::QpReqErr]);
}

#[test]
fn every_operation_is_gated_by_its_right() {
    let psn = RQ_PSN;
    let requests = [
        (Access::REMOTE_READ, rc(op::READ_REQUEST).reth(TARGET_BASE, RKEY, 8)),
        (Access::REMOTE_WRITE, rc(op::WRITE_ONLY).reth(TARGET_BASE, RKEY, 8).payload(&[1; 8]).ack_req()),
        (Access::REMOTE_WRITE, rc(op::ATOMIC_WRITE).reth(TARGET_BASE, RKEY, 8).payload(&[1; 8])),
        (Access::REMOTE_ATOMIC, rc(op::CMP_SWAP).atomic(TARGET_BASE, RKEY, 1, 0)),
        (Access::REMOTE_ATOMIC, rc(op::FETCH_ADD).atomic(TARGET_BASE, RKEY, 1, 0)),
        (Access::FLUSH_GLOBAL, rc(op::FLUSH).feth(1, 0).reth(TARGET_BASE, RKEY, 8)),
        (Access::FLUSH_PERSISTENT, rc(op::FLUSH).feth(3, 1).reth(0, RKEY, 0)),
    ];
    for (right, request) in requests {
        let request = request.psn(psn);
        let mut rung = Rung::rc();
        rung.answer(&request);
        assert_eq!(rung.state(), QpState::Rts, "{request:?}");
        let mut rung = Setup { access: ALL_REMOTE - right, ..Setup::new(QpType::Rc) }.build();
        rung.assert_refused(&request, NAK_INVALID);
        let mut rung = Rung::rc();
        rung.host.memory.region(TARGET).access -= right;
        rung.assert_refused(&request, NAK_ACCESS);
    }
}

#[test]
fn statement_26_only_the_end_of_a_write_with_immediate_takes_a_receive() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 0);
    rung.post_recv(2, 0);
    let data = pattern(MTU + 3);
    rung.receive_all(&[
        write(op::WRITE_ONLY, RQ_PSN).reth(TARGET_BASE, RKEY, 4).payload(&[9; 4]),
        write(op::WRITE_FIRST, RQ_PSN + 1).reth(TARGET_BASE, RKEY, MTU as u32 + 3).payload(&data[..MTU]),
    ]);
    assert_eq!(rung.host.receives.len(), 2);
    let last = write(op::WRITE_LAST_IMM, RQ_PSN + 2).payload(&data[MTU..]).imm([1, 2, 3, 4]).ack_req();
    assert_eq!(rung.answer(&last.solicited()), ack(RQ_PSN + 2, 2));
    assert_eq!(rung.host.receives.len(), 1);
    let done = rung.host.recvs_done[0];
    assert_eq!((done.wc.wr_id, done.wc.byte_len, done.wc.imm_data), (1, MTU as u32 + 3, [1, 2, 3, 4]));
    assert_eq!((done.wc.opcode, done.wc.flags), (WcOpcode::RecvRdmaWithImm, WcFlags::WITH_IMM));
    assert!(done.solicited);
    assert_eq!(rung.target()[..MTU + 3], data);
    let only = write(op::WRITE_ONLY_IMM, RQ_PSN + 3).reth(TARGET_BASE, RKEY, 2).imm([0; 4]).payload(b"ok");
    rung.receive(&only);
    assert_eq!(rung.host.receives.len(), 0);
    assert_eq!(rung.target()[..2], *b"ok");
}

#[test]
fn statement_29_a_send_longer_than_the_receive_kills_both_ends() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 4);
    rung.post_recv(2, 64);
    rung.post_send(9, 1);
    rung.assert_refused(&rc(op::SEND_ONLY).psn(RQ_PSN).payload(b"hello"), NAK_INVALID);
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.take_sends(), [(9, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.events, []);
    assert_eq!(rung.buffer()[..8], pattern(8));

    let mut rung = Rung::rc();
    rung.post_send(1, 5);
    rung.requests();
    rung.receive(&nak(NAK_INVALID, SQ_PSN, 0));
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(rung.state(), QpState::Err);
}

#[test]
fn statement_52_the_first_packet_in_rtr_is_served_and_raises_comm_est_once() {
    let mut rung = Setup { state: QpState::Rtr, ..Setup::new(QpType::Rc) }.build();
    rung.post_recv(1, 64);
    rung.post_recv(2, 64);
    assert_eq!(rung.answer(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req()), ack(RQ_PSN, 1));
    assert_eq!(rung.answer(&rc(op::SEND_ONLY).psn(RQ_PSN + 1).ack_req()), ack(RQ_PSN + 1, 2));
    assert_eq!(rung.host.events, [AsyncEventType::CommEst]);
    assert_eq!(rung.state(), QpState::Rtr);
    let read = rc(op::READ_REQUEST).psn(RQ_PSN + 2).reth(TARGET_BASE, RKEY, 4);
    assert_eq!(rung.answer(&read), read_response(op::READ_ONLY, RQ_PSN + 2, 3, &[0; 4]));
    assert_eq!(rung.host.take_recvs(), successes(&[1, 2]));
}

#[test]
fn a_send_of_many_packets_lands_in_one_receive_and_is_acknowledged_when_asked() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 4096);
    let data = pattern(2 * MTU + 1);
    assert_eq!(rung.answers(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&data[..MTU])), []);
    let middle = rc(op::SEND_MIDDLE).psn(RQ_PSN + 1).payload(&data[MTU..2 * MTU]).ack_req();
    assert_eq!(rung.answer(&middle), ack(RQ_PSN + 1, 0));
    let last = rc(op::SEND_LAST_IMM).psn(RQ_PSN + 2).payload(&data[2 * MTU..]).imm(*b"imm!").ack_req();
    assert_eq!(rung.answer(&last), ack(RQ_PSN + 2, 1));
    let wc = rung.host.recvs_done[0].wc;
    assert_eq!((wc.byte_len, wc.opcode, wc.flags), (513, WcOpcode::Recv, WcFlags::WITH_IMM));
    assert_eq!((wc.imm_data, wc.src_qp, wc.qp_num), (*b"imm!", PEER.value(), LOCAL.value()));
    assert_eq!(rung.buffer()[..513], data);
}

#[test]
fn acknowledgements_that_have_not_left_are_merged() {
    let mut rung = Rung::rc();
    for k in 0..5 {
        rung.post_recv(k.into(), 64);
        rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN + k).ack_req());
    }
    assert_eq!(rung.responses(), [ack(RQ_PSN + 4, 5)]);
}

#[test]
fn every_break_of_the_opcode_order_is_an_invalid_request() {
    let full = pattern(MTU);
    let send = |operation| rc(operation).payload(&full);
    let first_write = rc(op::WRITE_FIRST).reth(TARGET_BASE, RKEY, 1024).payload(&full);
    let started = [None, Some(send(op::SEND_FIRST)), Some(first_write.clone())];
    let continuing = [
        (send(op::SEND_MIDDLE), 1),
        (send(op::SEND_LAST), 1),
        (send(op::SEND_LAST_IMM).imm([0; 4]), 1),
        (send(op::SEND_LAST_INV).ieth(1), 1),
        (send(op::WRITE_MIDDLE), 2),
        (send(op::WRITE_LAST), 2),
        (send(op::WRITE_LAST_IMM).imm([0; 4]), 2),
        (send(op::SEND_FIRST), 0),
        (send(op::SEND_ONLY), 0),
        (send(op::SEND_ONLY_IMM).imm([0; 4]), 0),
        (send(op::SEND_ONLY_INV).ieth(1), 0),
        (first_write, 0),
        (send(op::WRITE_ONLY).reth(TARGET_BASE, RKEY, MTU as u32), 0),
        (send(op::WRITE_ONLY_IMM).reth(TARGET_BASE, RKEY, MTU as u32).imm([0; 4]), 0),
        (rc(op::READ_REQUEST).reth(TARGET_BASE, RKEY, 1), 0),
        (rc(op::FETCH_ADD).atomic(TARGET_BASE, RKEY, 1, 0), 0),
        (rc(op::CMP_SWAP).atomic(TARGET_BASE, RKEY, 1, 0), 0),
        (rc(op::FLUSH).feth(1, 0).reth(TARGET_BASE, RKEY, 1), 0),
        (rc(op::ATOMIC_WRITE).reth(TARGET_BASE, RKEY, 8).payload(&[0; 8]), 0),
    ];
    for (message, start) in started.iter().enumerate() {
        for (packet, legal_after) in &continuing {
            if message == *legal_after {
                continue;
            }
            let mut rung = Rung::rc();
            rung.post_recv(1, 1024);
            let mut psn = RQ_PSN;
            if let Some(start) = start {
                rung.receive(&start.clone().psn(psn));
                psn += 1;
            }
            rung.assert_refused(&packet.clone().psn(psn), NAK_INVALID);
            // A SEND in progress takes the blame, otherwise the queue pair does.
            let (status, events) = if message == 1 {
                (WcStatus::RemInvReqErr, vec![])
            } else {
                (WcStatus::WrFlushErr, vec![AsyncEventType::QpReqErr])
            };
            assert_eq!(rung.host.take_recvs(), [(1, status)], "{start:?} then {packet:?}");
            assert_eq!(rung.host.events, events, "{start:?} then {packet:?}");
        }
    }
}

#[test]
fn every_wrong_length_is_an_invalid_request() {
    let full = pattern(MTU);
    let long = pattern(MTU + 4);
    let first = rc(op::SEND_FIRST).payload(&full);
    let write_first = rc(op::WRITE_FIRST).reth(TARGET_BASE, RKEY, 2 * MTU as u32).payload(&full);
    let cases: [(Option<&Literal>, Literal); 15] = [
        (None, rc(op::SEND_FIRST).payload(&full[4..])),
        (None, rc(op::SEND_FIRST).payload(&long)),
        (None, rc(op::SEND_ONLY).payload(&long)),
        (Some(&first), rc(op::SEND_MIDDLE).payload(&full[1..])),
        (Some(&first), rc(op::SEND_LAST)),
        (Some(&first), rc(op::SEND_LAST).payload(&long)),
        (None, rc(op::WRITE_ONLY).reth(TARGET_BASE, RKEY, 5).payload(&full[..4])),
        (None, rc(op::WRITE_ONLY).reth(TARGET_BASE, RKEY, 3).payload(&full[..4])),
        (None, rc(op::WRITE_ONLY).reth(TARGET_BASE, RKEY, MTU as u32 + 4).payload(&long)),
        (None, rc(op::WRITE_FIRST).reth(TARGET_BASE, RKEY, MTU as u32).payload(&full)),
        (None, rc(op::WRITE_FIRST).reth(TARGET_BASE, RKEY, 0).payload(&full)),
        (Some(&write_first), rc(op::WRITE_MIDDLE).payload(&full)),
        (Some(&write_first), rc(op::WRITE_LAST).payload(&full[1..])),
        (Some(&write_first), rc(op::WRITE_LAST)),
        (None, rc(op::ATOMIC_WRITE).reth(TARGET_BASE, RKEY, 16).payload(&[0; 8])),
    ];
    for (start, packet) in cases {
        let mut rung = Rung::rc();
        rung.post_recv(1, 4096);
        let mut psn = RQ_PSN;
        if let Some(start) = start {
            rung.receive(&start.clone().psn(psn));
            psn += 1;
        }
        rung.assert_refused(&packet.psn(psn), NAK_INVALID);
    }
}

#[test]
fn the_whole_range_of_a_write_is_checked_at_its_first_packet() {
    let mut rung = Rung::rc();
    let end = TARGET_BASE + REGION_BYTES as u64;
    let first = rc(op::WRITE_FIRST).psn(RQ_PSN).reth(end - 300, RKEY, 301).payload(&pattern(MTU));
    rung.assert_refused(&first, NAK_ACCESS);
    assert!(rung.target().iter().all(|byte| *byte == 0), "bytes of a refused WRITE were stored");
    assert_eq!(rung.host.events, [AsyncEventType::QpAccessErr]);
}

#[test]
fn a_write_with_immediate_to_a_wrong_key_ends_the_receive_that_waits_for_it() {
    let packet = rc(op::WRITE_ONLY_IMM).psn(RQ_PSN).reth(TARGET_BASE, 0xbad, 2).imm([0; 4]).payload(b"no");
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.post_recv(2, 64);
    rung.assert_refused(&packet, NAK_ACCESS);
    assert_eq!(rung.host.events, []);
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::LocAccessErr), (2, WcStatus::WrFlushErr)]);
    // Without one there is only the queue pair to blame.
    let mut rung = Rung::rc();
    rung.assert_refused(&packet, NAK_ACCESS);
    assert_eq!(rung.host.events, [AsyncEventType::QpAccessErr]);
    assert_eq!(rung.host.take_recvs(), []);
}

#[test]
fn a_receive_buffer_with_a_wrong_key_is_an_operational_error() {
    for (lkey, right) in [(99, true), (BUFFER, false)] {
        let mut rung = Rung::rc();
        if !right {
            rung.host.memory.region(BUFFER).access = Access::empty();
        }
        rung.host.post_recv(1, BUFFER_BASE, 64, lkey);
        rung.assert_refused(&rc(op::SEND_ONLY).psn(RQ_PSN).payload(b"data"), NAK_OPERATION);
        assert_eq!(rung.host.take_recvs(), [(1, WcStatus::LocProtErr)]);
        assert_eq!(rung.host.events, []);
    }
}

#[test]
fn a_send_with_invalidate_kills_the_key_and_says_which() {
    use crate::kit::memory::{Bound, Window};
    let bound =
        Bound { qpn: LOCAL, lkey: TARGET, access: Access::REMOTE_WRITE, address: TARGET_BASE, length: 64 };
    let mut rung = Rung::rc();
    rung.host.memory.windows.push(Window { rkey: 0x5005, pd: CONTEXT.pd, bound: Some(bound) });
    rung.post_recv(1, 64);
    rung.post_recv(2, 64);
    let send = rc(op::SEND_ONLY_INV).ieth(0x5005).payload(b"bye").ack_req();
    assert_eq!(rung.answer(&send.clone().psn(RQ_PSN)), ack(RQ_PSN, 1));
    let wc = rung.host.recvs_done[0].wc;
    assert_eq!((wc.flags, wc.invalidated_rkey, wc.byte_len), (WcFlags::WITH_INV, 0x5005, 3));
}

/// IBTA 9.9.6.3, class J.
#[test]
fn a_failed_remote_invalidate_is_not_answered_and_ends_the_queue_pair() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.post_recv(2, 64);
    rung.post_recv(3, 64);
    rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN).payload(b"good").ack_req());
    rung.receive(&rc(op::SEND_ONLY_INV).psn(RQ_PSN + 1).ieth(0x5005).payload(b"bye").ack_req());
    assert_eq!(rung.responses(), [ack(RQ_PSN, 1)], "what came before is acknowledged, and no more");
    assert_eq!(rung.state(), QpState::Err);
    let expected = [(1, WcStatus::Success), (2, WcStatus::LocQpOpErr), (3, WcStatus::WrFlushErr)];
    assert_eq!(rung.host.take_recvs(), expected);
    assert_eq!(rung.host.events, []);
    assert!(matches!(rung.host.causes[..], [Cause::RequestRefused { syndrome: None, .. }]));
    // The requester repeats it, to no avail.
    rung.receive(&rc(op::SEND_ONLY_INV).psn(RQ_PSN + 1).ieth(0x5005).payload(b"bye").ack_req());
    assert_eq!(rung.responses(), []);
}

#[test]
fn what_was_asked_before_a_refused_request_is_still_answered() {
    let mut rung = Rung::rc();
    rung.target()[..4].copy_from_slice(b"data");
    rung.receive_all(&[
        rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4),
        rc(op::WRITE_ONLY).psn(RQ_PSN + 1).reth(TARGET_BASE, 0xbad, 4).payload(b"evil"),
    ]);
    assert_eq!(rung.state(), QpState::Err);
    let expected = [read_response(op::READ_ONLY, RQ_PSN, 1, b"data"), nak(NAK_ACCESS, RQ_PSN + 1, 1)];
    assert_eq!(rung.responses(), expected);
}
