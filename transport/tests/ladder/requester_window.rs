//! What the requester sends, and how much of it.

use crate::prelude::*;

#[test]
fn messages_are_cut_at_the_path_mtu() {
    for mtu in Mtu::ALL {
        let bytes = mtu.bytes();
        let mut rung = Setup { mtu, ..Setup::new(QpType::Rc) }.build();
        rung.post_op(1, SendOpcode::RdmaWriteWithImm, 2 * bytes as u32 + 1);
        let data = pattern(2 * bytes + 1);
        let expected = [
            rc(op::WRITE_FIRST)
                .psn(SQ_PSN)
                .reth(TARGET_BASE, RKEY, 2 * bytes as u32 + 1)
                .payload(&data[..bytes]),
            rc(op::WRITE_MIDDLE).psn(SQ_PSN + 1).payload(&data[bytes..2 * bytes]),
            rc(op::WRITE_LAST_IMM).psn(SQ_PSN + 2).imm([0; 4]).payload(&data[2 * bytes..]).ack_req(),
        ];
        assert_eq!(rung.requests(), expected);
        rung.receive(&ack(SQ_PSN + 2, 1));
        assert_eq!(rung.host.take_sends(), successes(&[1]));
    }
}

#[test]
fn every_operation_has_its_first_and_last_opcodes() {
    use SendOpcode::*;
    for (opcode, only, last) in [
        (Send, op::SEND_ONLY, op::SEND_LAST),
        (SendWithImm, op::SEND_ONLY_IMM, op::SEND_LAST_IMM),
        (SendWithInvalidate, op::SEND_ONLY_INV, op::SEND_LAST_INV),
        (RdmaWrite, op::WRITE_ONLY, op::WRITE_LAST),
        (RdmaWriteWithImm, op::WRITE_ONLY_IMM, op::WRITE_LAST_IMM),
    ] {
        let mut rung = Rung::rc();
        for (length, packets) in [(0, vec![only]), (256, vec![only]), (257, vec![last & 0xf8, last])] {
            rung.post_op(length.into(), opcode, length);
            let sent: Vec<_> = rung.requests().iter().map(|literal| literal.opcode).collect();
            assert_eq!(sent.len(), packets.len(), "{opcode:?} {length}");
            assert_eq!(sent.last(), packets.last(), "{opcode:?} {length}");
        }
    }
}

#[test]
fn immediate_key_and_solicited_bit_travel_in_the_last_packet() {
    let mut rung = Rung::rc();
    let sges = [Sge { address: BUFFER_BASE, length: 300, lkey: BUFFER }];
    let flags = SendFlags::SOLICITED | SendFlags::SIGNALED;
    let send = SendRequest { flags, imm_data: *b"IMM!", ..request(1, SendOpcode::SendWithImm, &sges) };
    rung.post(&send);
    let sent = rung.requests();
    assert!(!sent[0].solicited && sent[1].solicited);
    assert_eq!((sent[0].imm, sent[1].imm), (None, Some(*b"IMM!")));
    rung.post(&SendRequest { invalidate_rkey: 0x77, ..request(2, SendOpcode::SendWithInvalidate, &[]) });
    let expected = rc(op::SEND_ONLY_INV).psn(SQ_PSN + 2).ieth(0x77).ack_req();
    assert_eq!(rung.requests(), [expected]);
}

#[test]
fn the_window_is_never_exceeded_and_its_last_packet_asks_for_an_answer() {
    let mut rung = Setup { window_limit_packets: 16, ..Setup::new(QpType::Rc) }.build();
    rung.post_op(1, SendOpcode::RdmaWrite, 60 * 256);
    let mut highest = SQ_PSN;
    let mut sent = rung.requests();
    let mut packets = sent.len();
    while rung.host.sends_done.is_empty() {
        assert!(!sent.is_empty(), "stuck at {highest:#x}");
        assert!(rung.qp.in_flight() <= 16);
        let asked = sent.iter().rfind(|literal| literal.ack_req).expect("an AckReq in every burst");
        highest = asked.psn;
        rung.now_ns += 1000;
        rung.receive(&ack(highest, 0));
        sent = rung.requests();
        packets += sent.len();
    }
    assert_eq!((packets, highest), (60, SQ_PSN + 59));
    assert_eq!(rung.host.counter(Counter::RetransmittedPackets), 0);
}

#[test]
fn a_full_sink_stops_the_requester_where_it_is() {
    let mut rung = Rung::rc();
    rung.post_send(1, 1024);
    let mut psns = vec![];
    for _ in 0..4 {
        assert!(rung.qp.wants_to_send());
        rung.sink.room = Some(1);
        psns.extend(rung.requests().iter().map(|literal| literal.psn));
    }
    assert_eq!(psns, [0x500, 0x501, 0x502, 0x503]);
    assert!(!rung.qp.wants_to_send());
}

#[test]
fn statement_27_reads_in_flight_are_limited_and_nothing_overtakes() {
    let mut rung = Setup { max_rd_atomic: 1, ..Setup::new(QpType::Rc) }.build();
    rung.post_read(1, 4);
    rung.post_read(2, 4);
    rung.post_send(3, 4);
    assert_eq!(rung.requests().len(), 1);
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[1; 4]));
    let sent: Vec<_> = rung.requests().iter().map(|literal| literal.opcode).collect();
    assert_eq!(sent, [op::READ_REQUEST, op::SEND_ONLY]);
}

#[test]
fn statement_27_a_requester_of_depth_zero_has_one_read_in_flight_and_says_so_once() {
    let mut rung = Setup { max_rd_atomic: 0, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 4);
    assert_eq!(rung.host.causes, []);
    rung.post_read(2, 4);
    rung.post_read(3, 4);
    let said = [Cause::NoReadDepth { wr_id: 2, opcode: SendOpcode::RdmaRead }];
    assert_eq!(rung.host.causes, said);
    let opcodes = |sent: Vec<Literal>| sent.iter().map(|literal| literal.opcode).collect::<Vec<_>>();
    assert_eq!(opcodes(rung.requests()), [op::SEND_ONLY, op::READ_REQUEST]);
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN + 1, 2, &[1; 4]));
    assert_eq!(opcodes(rung.requests()), [op::READ_REQUEST]);
    assert_eq!(rung.host.take_sends(), successes(&[1, 2]));
    assert_eq!(rung.qp.query().max_rd_atomic, 0, "as the program has set it");
}

/// A peer of a greater depth: what it sends before it has answers is more than it was granted.
#[test]
fn statement_27_a_responder_refuses_requests_beyond_its_depth() {
    for (granted, kind) in [(1, 0), (2, 0), (4, 1), (16, 2)] {
        let mut rung = Setup { max_dest_rd_atomic: granted, ..Setup::new(QpType::Rc) }.build();
        let request = |k: u32| match kind {
            0 => rc(op::READ_REQUEST).psn(RQ_PSN + k).reth(TARGET_BASE, RKEY, 4),
            1 => rc(op::FETCH_ADD).psn(RQ_PSN + k).atomic(TARGET_BASE, RKEY, 1, 0),
            _ => rc(op::FLUSH).psn(RQ_PSN + k).feth(1, 0).reth(TARGET_BASE, RKEY, 8),
        };
        let granted = u32::from(granted);
        // As many as are granted, twice: the answers leave in between.
        for turn in 0..2 {
            let batch: Vec<_> = (0..granted).map(|k| request(turn * granted + k)).collect();
            rung.receive_all(&batch);
            assert_eq!(rung.responses().len(), granted as usize);
        }
        let batch: Vec<_> = (0..=granted).map(|k| request(2 * granted + k)).collect();
        rung.receive_all(&batch);
        assert_eq!(rung.state(), QpState::Err, "depth {granted}");
        let answers = rung.responses();
        let refusal = answers.last().and_then(|last| last.aeth).map(|(syndrome, _)| syndrome);
        assert_eq!(refusal, Some(NAK_INVALID), "depth {granted}");
    }
}

/// A request that the network doubled is answered twice; the peer knows of one.
#[test]
fn statement_27_answers_to_duplicates_do_not_count() {
    let mut rung = Setup { max_dest_rd_atomic: 2, ..Setup::new(QpType::Rc) }.build();
    let read = |k: u32| rc(op::READ_REQUEST).psn(RQ_PSN + k).reth(TARGET_BASE, RKEY, 4);
    rung.receive_all(&[read(0), read(1)]);
    assert_eq!(rung.responses().len(), 2);
    rung.receive_all(&[read(0), read(1), read(2), read(3)]);
    assert_eq!((rung.responses().len(), rung.state()), (4, QpState::Rts));
}

#[test]
fn statement_27_a_responder_of_depth_zero_refuses_reads() {
    for request in [
        rc(op::READ_REQUEST).reth(TARGET_BASE, RKEY, 4),
        rc(op::READ_REQUEST).reth(0, 0, 0),
        rc(op::FETCH_ADD).atomic(TARGET_BASE, RKEY, 1, 0),
    ] {
        let mut rung = Setup { max_dest_rd_atomic: 0, ..Setup::new(QpType::Rc) }.build();
        rung.assert_refused(&request.psn(RQ_PSN), NAK_INVALID);
        assert_eq!(rung.target()[..8], [0; 8]);
    }
}

#[test]
fn completions_come_for_signaled_requests_only_and_release_those_before() {
    let mut rung = Rung::rc();
    let sges = [Sge { address: BUFFER_BASE, length: 4, lkey: BUFFER }];
    for wr_id in 0..5 {
        let request = request(wr_id, SendOpcode::Send, &sges);
        rung.post(&if wr_id == 3 { request } else { unsignaled(request) });
    }
    rung.requests();
    rung.receive(&ack(SQ_PSN + 4, 5));
    assert_eq!(rung.host.sends_done.len(), 1);
    assert_eq!((rung.host.sends_done[0].wc.wr_id, rung.host.sends_done[0].released), (3, 4));

    let mut rung = Setup { signal_all: true, ..Setup::new(QpType::Rc) }.build();
    rung.post(&unsignaled(request(7, SendOpcode::Send, &sges)));
    rung.requests();
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.host.take_sends(), successes(&[7]));
}

#[test]
fn inline_data_is_sent_as_it_was_at_the_post() {
    let mut rung = Rung::rc();
    let mut data = *b"inline data";
    let wrong_key = [Sge { address: 1, length: 1, lkey: 99 }];
    let flags = SendFlags::INLINE | SendFlags::SIGNALED;
    rung.post(&SendRequest { flags, inline_data: &data, ..request(1, SendOpcode::Send, &wrong_key) });
    data.fill(0);
    assert_eq!(rung.requests()[0].payload, b"inline data");
    let long = [0; 257];
    let too_long = SendRequest { flags, inline_data: &long, ..request(1, SendOpcode::Send, &[]) };
    assert_eq!(rung.try_post(&too_long), Err(PostError::InlineTooLong { given: 257, allowed: 256 }));
    let read = SendRequest { flags, inline_data: &data, ..request(1, SendOpcode::RdmaRead, &[]) };
    let refused = PostError::InlineNotAllowed { opcode: SendOpcode::RdmaRead };
    assert_eq!(rung.try_post(&read), Err(refused));
}

#[test]
fn the_queue_is_bounded() {
    let mut rung = Rung::rc();
    for wr_id in 0..64 {
        rung.post_send(wr_id, 0);
    }
    let refused = rung.try_post(&request(64, SendOpcode::Send, &[]));
    assert_eq!(refused, Err(PostError::QueueFull { depth: 64, all_unsignaled: false }));
    rung.requests();
    rung.receive(&ack(SQ_PSN, 1));
    rung.post_send(64, 0);
}
