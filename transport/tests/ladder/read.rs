//! RDMA READ from both sides.

use crate::prelude::*;

const MTU: usize = 256;

fn read(psn: u32, length: u32) -> Literal {
    rc(op::READ_REQUEST).psn(psn).reth(TARGET_BASE, RKEY, length)
}

#[test]
fn statement_17_middle_responses_have_no_aeth_and_all_others_count_this_read() {
    let mut rung = Rung::rc();
    rung.target()[..1000].copy_from_slice(&pattern(1000));
    rung.post_recv(1, 4);
    rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN));
    let data = pattern(1000);
    let expected = [
        read_response(op::READ_FIRST, RQ_PSN + 1, 2, &data[..256]),
        read_response(op::READ_MIDDLE, RQ_PSN + 2, 0, &data[256..512]),
        read_response(op::READ_MIDDLE, RQ_PSN + 3, 0, &data[512..768]),
        read_response(op::READ_LAST, RQ_PSN + 4, 2, &data[768..]),
    ];
    assert_eq!(rung.answers(&read(RQ_PSN + 1, 1000)), expected);
    assert_eq!(rung.answer(&read(RQ_PSN + 5, 3)), read_response(op::READ_ONLY, RQ_PSN + 5, 3, &data[..3]));
}

#[test]
fn statement_18_whole_packets_and_nothing() {
    let mut rung = Rung::rc();
    let mut psn = RQ_PSN;
    for (length, expected) in [
        (0, vec![(op::READ_ONLY, 0)]),
        (1, vec![(op::READ_ONLY, 1)]),
        (MTU, vec![(op::READ_ONLY, MTU)]),
        (MTU + 1, vec![(op::READ_FIRST, MTU), (op::READ_LAST, 1)]),
        (2 * MTU, vec![(op::READ_FIRST, MTU), (op::READ_LAST, MTU)]),
        (3 * MTU, vec![(op::READ_FIRST, MTU), (op::READ_MIDDLE, MTU), (op::READ_LAST, MTU)]),
    ] {
        let answers = rung.answers(&read(psn, length as u32));
        let shapes: Vec<_> = answers.iter().map(|answer| (answer.opcode, answer.payload.len())).collect();
        assert_eq!(shapes, expected, "{length} bytes");
        psn += expected.len() as u32;
        assert_eq!(rung.qp.query().rq_psn, psn);
    }
}

#[test]
fn a_requested_read_scatters_what_comes() {
    let mut rung = Rung::rc();
    rung.post_read(1, 0);
    rung.post_read(2, 2 * MTU as u32);
    let sent = rung.requests();
    assert_eq!(sent.iter().map(|literal| literal.psn).collect::<Vec<_>>(), [SQ_PSN, SQ_PSN + 1]);
    rung.receive_all(&[
        read_response(op::READ_ONLY, SQ_PSN, 1, &[]),
        read_response(op::READ_FIRST, SQ_PSN + 1, 2, &[7; MTU]),
    ]);
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 2, 2, &[8; MTU]));
    let wc = rung.host.sends_done[0].wc;
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (2, WcOpcode::RdmaRead, 512));
    assert_eq!(rung.buffer()[..512], [[7; MTU], [8; MTU]].concat());
}

#[test]
fn a_read_response_acknowledges_the_sends_before() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.post_op(2, SendOpcode::RdmaWrite, 4);
    rung.post_read(3, 4);
    rung.requests();
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN + 2, 3, &[1; 4]));
    assert_eq!(rung.host.take_sends(), successes(&[1, 2, 3]));
}

#[test]
fn malformed_responses_are_bad_responses() {
    let full = [1; MTU];
    let first = read_response(op::READ_FIRST, SQ_PSN, 1, &full);
    let cases = [
        (None, read_response(op::READ_MIDDLE, SQ_PSN, 1, &full)),
        (None, read_response(op::READ_LAST, SQ_PSN, 1, &full)),
        (None, read_response(op::READ_ONLY, SQ_PSN, 1, &full)),
        (None, read_response(op::READ_FIRST, SQ_PSN, 1, &full[..252])),
        (None, read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 260])),
        (None, atomic_ack(SQ_PSN, 1, 7)),
        (Some(&first), read_response(op::READ_FIRST, SQ_PSN + 1, 1, &full)),
        (Some(&first), read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[1; 44])),
        (Some(&first), read_response(op::READ_LAST, SQ_PSN + 1, 1, &[1; 43])),
        (Some(&first), read_response(op::READ_LAST, SQ_PSN + 1, 1, &[1; 45])),
        (Some(&first), read_response(op::READ_LAST, SQ_PSN + 1, 1, &[])),
    ];
    for (start, bad) in cases {
        let mut rung = Rung::rc();
        let before = rung.buffer().to_vec();
        rung.post_read(1, 300);
        rung.post_send(2, 4);
        rung.requests();
        start.into_iter().for_each(|start| rung.receive(start));
        rung.receive(&bad);
        let expected = [(1, WcStatus::BadRespErr), (2, WcStatus::WrFlushErr)];
        assert_eq!(rung.host.take_sends(), expected, "{bad:?}");
        assert_eq!(rung.state(), QpState::Err);
        assert_eq!(rung.buffer()[300..], before[300..], "{bad:?}");
    }
}

#[test]
fn a_read_into_a_buffer_that_cannot_be_written_is_a_protection_error() {
    for (lkey, access) in [(99, Access::LOCAL_WRITE), (BUFFER, Access::empty())] {
        let mut rung = Rung::rc();
        rung.host.memory.region(BUFFER).access = access;
        let sges = [Sge { address: BUFFER_BASE, length: 4, lkey }];
        rung.post(&request(1, SendOpcode::RdmaRead, &sges));
        rung.requests();
        rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[1; 4]));
        assert_eq!(rung.host.take_sends(), [(1, WcStatus::LocProtErr)]);
        assert_eq!(rung.state(), QpState::Err);
    }
}

#[test]
fn memory_that_goes_away_under_a_read_ends_the_connection() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 4);
    rung.receive(&read(RQ_PSN, 1024));
    rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN + 4).ack_req());
    rung.sink.room = Some(2);
    assert_eq!(rung.responses().len(), 2);
    rung.host.memory.deregister(TARGET);
    rung.sink.room = None;
    assert_eq!(rung.responses(), [nak(NAK_ACCESS, RQ_PSN + 2, 2)]);
    assert_eq!(rung.sink.abandoned, 1);
    assert_eq!(rung.state(), QpState::Err);
    assert_eq!(rung.host.events, [AsyncEventType::QpAccessErr]);
}

#[test]
fn a_long_read_is_asked_for_in_parts_and_again_in_the_same_parts() {
    let mut rung = Setup { window_limit_packets: 8, ..Setup::new(QpType::Rc) }.build();
    rung.post_read(1, 20 * 256);
    let part = |first: u32, packets: u32| {
        let address = TARGET_BASE + u64::from(first) * 256;
        rc(op::READ_REQUEST).psn(SQ_PSN + first).reth(address, RKEY, packets * 256).ack_req()
    };
    assert_eq!(rung.requests(), [part(0, 4), part(4, 4)], "all that may be under way");
    let response = |operation, k: u32| read_response(operation, SQ_PSN + k, 1, &[k as u8; 256]);
    rung.receive_all(&[
        response(op::READ_FIRST, 0),
        response(op::READ_MIDDLE, 1),
        response(op::READ_MIDDLE, 2),
    ]);
    let mut next = rung.requests();
    rung.wait_for_deadline();
    let again = rung.requests();
    assert_eq!(again[..2], [part(3, 1), part(4, 4)], "a part ends where it ended before");
    next.extend(again);
    for k in 3..20 {
        let operation = match k % 4 {
            3 if k == 3 => op::READ_ONLY,
            0 => op::READ_FIRST,
            3 => op::READ_LAST,
            _ => op::READ_MIDDLE,
        };
        rung.receive(&response(operation, k));
        next.extend(rung.requests());
    }
    assert!([8, 12, 16].iter().all(|first| next.contains(&part(*first, 4))), "{next:#?}");
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    let expected: Vec<u8> = (0..20u8).flat_map(|k| [k; 256]).collect();
    assert_eq!(rung.buffer()[..20 * 256], expected);
}

#[test]
fn the_parts_of_a_long_read_do_not_wait_for_each_other() {
    let mut rung = Setup { window_limit_packets: 8, ..Setup::new(QpType::Rc) }.build();
    rung.post_read(1, 8 * 256);
    rung.post_read(2, 8 * 256);
    assert_eq!(rung.requests().len(), 2, "the first READ fills the window");
    let operations = [op::READ_FIRST, op::READ_MIDDLE, op::READ_MIDDLE, op::READ_LAST];
    for (k, operation) in (0..).zip(operations) {
        assert_eq!(rung.requests(), []);
        rung.receive(&read_response(operation, SQ_PSN + k, 1, &[0; 256]));
    }
    let part =
        |first: u32| rc(op::READ_REQUEST).psn(SQ_PSN + first).reth(TARGET_BASE, RKEY, 4 * 256).ack_req();
    assert_eq!(rung.requests(), [part(8)], "the second READ leaves while responses to the first come");
}

#[test]
fn a_long_read_is_whole_if_one_request_alone_may_be_outstanding() {
    let mut rung = Setup { window_limit_packets: 8, max_rd_atomic: 1, ..Setup::new(QpType::Rc) }.build();
    rung.post_read(1, 20 * 256);
    let part = rc(op::READ_REQUEST).psn(SQ_PSN).reth(TARGET_BASE, RKEY, 8 * 256).ack_req();
    assert_eq!(rung.requests(), [part]);
}
