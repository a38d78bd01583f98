//! Packets that have broken other implementations.

use crate::prelude::*;

#[test]
fn bytes_that_are_no_packet_are_no_packet() {
    let mut rung = Rung::rc();
    let flow = flow_from_peer();
    let send = rc(op::SEND_ONLY).psn(RQ_PSN).payload(b"x").bytes(LOCAL);
    for length in 0..19 {
        // 16 bytes are BTH and ICRC, and three more the pad that is announced.
        assert!(!rung.receive_bytes(&send[..length], &flow, 0), "{length} bytes");
    }
    let with = |at: usize, value: u8| {
        let mut bytes = send.clone();
        bytes[at] = value;
        bytes
    };
    for opcode in [0xff, 0x15, 0x18, 0x1b, 0x1e, 0x40, 0x80, 0x82, 0xb5, 0xbc, 0xbd, 0xc0] {
        assert!(!rung.receive_bytes(&with(0, opcode), &flow, 0), "opcode {opcode:#x}");
    }
    assert!(!rung.receive_bytes(&rc(op::READ_REQUEST).bytes(LOCAL), &flow, 0), "READ without RETH");
    assert!(!rung.receive_bytes(&rc(op::ACK).bytes(LOCAL), &flow, 0), "ACK without AETH");
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn a_pad_longer_than_the_payload_is_no_packet() {
    let mut rung = Rung::rc();
    let mut bytes = rc(op::SEND_ONLY).psn(RQ_PSN).bytes(LOCAL);
    for pad in 1..4 {
        bytes[1] = pad << 4;
        assert!(!rung.receive_bytes(&bytes, &flow_from_peer(), 0));
    }
}

#[test]
fn a_pad_that_does_not_round_the_payload_is_no_packet() {
    for pad in [0, 1, 2, 3] {
        let mut rung = Rung::rc();
        let mut bytes = rc(op::SEND_ONLY).psn(RQ_PSN).payload(&[1; 8]).bytes(LOCAL);
        bytes[1] = pad << 4;
        bytes.insert(20, 0);
        assert!(!rung.receive_bytes(&bytes, &flow_from_peer(), 0), "9 bytes with pad {pad}");
    }
}

#[test]
fn an_atomic_write_without_its_eight_bytes_is_no_packet() {
    let mut rung = Rung::rc();
    for payload in [&[][..], &[1; 4], &[1; 7], &[1; 12]] {
        let bytes = rc(op::ATOMIC_WRITE).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 0).payload(payload).bytes(LOCAL);
        assert!(!rung.receive_bytes(&bytes, &flow_from_peer(), 0), "{} bytes", payload.len());
    }
    let bytes = rc(op::ATOMIC_WRITE).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 0).payload(&[1; 8]);
    rung.assert_refused(&bytes, NAK_INVALID);
    assert_eq!(rung.target()[..16], [0; 16]);
}

#[test]
fn addresses_that_wrap_are_access_errors() {
    for (address, length) in
        [(u64::MAX, 1), (u64::MAX - 3, 8), (u64::MAX - 255, 256), (0, 8), (TARGET_BASE - 1, 2)]
    {
        let payload = vec![1; length as usize];
        let packets = [
            rc(op::READ_REQUEST).reth(address, RKEY, length),
            rc(op::READ_REQUEST).reth(address, RKEY, 1 << 31),
            rc(op::WRITE_ONLY).reth(address, RKEY, length).payload(&payload),
            rc(op::FLUSH).feth(1, 0).reth(address, RKEY, length),
        ];
        for packet in packets {
            Rung::rc().assert_refused(&packet.psn(RQ_PSN), NAK_ACCESS);
        }
    }
    let aligned = u64::MAX - 7;
    Rung::rc().assert_refused(&rc(op::FETCH_ADD).psn(RQ_PSN).atomic(aligned, RKEY, 1, 0), NAK_ACCESS);
    let store = rc(op::ATOMIC_WRITE).psn(RQ_PSN).reth(aligned, RKEY, 8).payload(&[1; 8]);
    Rung::rc().assert_refused(&store, NAK_ACCESS);
}

#[test]
fn a_write_past_its_first_packet_stays_inside_what_was_checked() {
    let mut rung = Rung::rc();
    let end = TARGET_BASE + REGION_BYTES as u64 - 300;
    rung.receive(&rc(op::WRITE_FIRST).psn(RQ_PSN).reth(end, RKEY, 300).payload(&[1; 256]));
    let last = rc(op::WRITE_LAST).psn(RQ_PSN + 1).payload(&[1; 256]);
    rung.assert_refused(&last, NAK_INVALID);
    // And the region may be gone by then.
    let mut rung = Rung::rc();
    rung.receive(&rc(op::WRITE_FIRST).psn(RQ_PSN).reth(end, RKEY, 300).payload(&[1; 256]));
    rung.host.memory.deregister(TARGET);
    rung.assert_refused(&rc(op::WRITE_LAST).psn(RQ_PSN + 1).payload(&[1; 44]), NAK_ACCESS);
}

#[test]
fn answers_to_nothing_are_ignored() {
    let mut rung = Rung::rc();
    for psn in [SQ_PSN - 1, SQ_PSN, SQ_PSN + 1, 0, 0xff_ffff, SQ_PSN + (1 << 23)] {
        for syndrome in 0..=0xff {
            rung.receive(&rc(op::ACK).psn(psn).aeth(syndrome, 0));
        }
        rung.receive(&read_response(op::READ_ONLY, psn, 0, &[1; 4]));
        rung.receive(&read_response(op::READ_MIDDLE, psn, 0, &[1; 256]));
        rung.receive(&atomic_ack(psn, 0, 1));
    }
    assert_eq!(rung.state(), QpState::Rts);
    assert_eq!(rung.host.sends_done, []);
    assert_eq!(rung.qp.deadline_ns(), None);
    rung.post_send(1, 4);
    assert_eq!(rung.requests().len(), 1);
}

#[test]
fn a_read_answered_beyond_its_end_writes_nothing_more() {
    let mut rung = Rung::rc();
    let sges = [Sge { address: BUFFER_BASE, length: 256, lkey: BUFFER }];
    rung.post(&request(1, SendOpcode::RdmaRead, &sges));
    rung.post_send(2, 4);
    rung.requests();
    let before = rung.buffer()[256..].to_vec();
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[9; 256]));
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN + 1, 1, &[9; 256]));
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 1, 1, &[9; 256]));
    assert_eq!(rung.buffer()[256..], before);
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn an_rnr_nak_then_a_sequence_nak_of_a_peer_that_sends_both() {
    let mut rung = Setup { rnr_retry: 7, retry_cnt: 1, ..Setup::new(QpType::Rc) }.build();
    (0..3).for_each(|k| rung.post_send(k, 4));
    for _ in 0..10 {
        assert_eq!(rung.requests().len(), 3);
        rung.receive(&rnr(1, SQ_PSN, 0));
        rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
        rung.receive(&nak(NAK_SEQUENCE, SQ_PSN, 0));
        rung.wait(10_000);
    }
    assert_eq!(rung.host.sends_done, []);
}

#[test]
fn reset_under_traffic() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 4096);
    rung.post_read(1, 1000);
    rung.requests();
    rung.receive_all(&[
        rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 1000),
        rc(op::SEND_FIRST).psn(RQ_PSN + 4).payload(&[1; 256]),
        read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]),
    ]);
    rung.enter(QpState::Reset).unwrap();
    assert_eq!(rung.responses(), []);
    assert_eq!(rung.requests(), []);
    rung.receive_all(&[
        rc(op::SEND_LAST).psn(RQ_PSN + 5).payload(&[1; 4]).ack_req(),
        read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[1; 256]),
        nak(NAK_ACCESS, SQ_PSN, 0),
    ]);
    rung.wait(u64::MAX / 4);
    assert_eq!((rung.responses(), rung.requests()), (vec![], vec![]));
    assert_eq!((rung.host.sends_done.len(), rung.host.recvs_done.len(), rung.host.events.len()), (0, 0, 0));
    rung.climb();
    // What was on its way belongs to the past.
    rung.receive(&rc(op::SEND_LAST).psn(RQ_PSN + 5).payload(&[1; 4]).ack_req());
    assert_eq!(rung.responses(), [nak(NAK_SEQUENCE, RQ_PSN, 0)]);
    rung.receive(&read_response(op::READ_MIDDLE, SQ_PSN + 1, 1, &[1; 256]));
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn a_peer_that_never_reads_its_answers_fills_a_bounded_queue() {
    let bound = 4 + 8 + 1;
    let mut rung = Rung::rc();
    let mut psn = RQ_PSN;
    // READs, each of one packet: as many as it was granted.
    for _ in 0..4 {
        rung.receive(&rc(op::READ_REQUEST).psn(psn).reth(TARGET_BASE, RKEY, 4));
        psn = rung.qp.query().rq_psn;
    }
    // Gaps, duplicates and missing receives in turns.
    for k in 0..1000 {
        rung.receive(&rc(op::SEND_ONLY).psn(psn + 1 + k % 7).ack_req());
        rung.receive(&rc(op::SEND_ONLY).psn(psn).ack_req());
        rung.receive(&rc(op::SEND_ONLY).psn(psn - 1 - k % 3).ack_req());
        rung.receive(&rc(op::READ_REQUEST).psn(psn - 1 - k % 4).reth(TARGET_BASE, RKEY, 4));
    }
    let waiting = rung.responses().len();
    assert!(waiting <= bound + 1, "{waiting} answers were kept");
    assert_eq!(rung.state(), QpState::Rts);
    // More than that end the connection.
    for _ in 0..1000 {
        rung.receive(&rc(op::READ_REQUEST).psn(psn).reth(TARGET_BASE, RKEY, 4));
        psn = rung.qp.query().rq_psn;
    }
    assert_eq!(rung.state(), QpState::Err);
    assert!(rung.responses().len() <= bound);
}

#[test]
fn pieces_of_a_repeated_read_fill_a_bounded_queue() {
    let mut rung = Rung::rc();
    let length = 200 * 256;
    rung.receive(&rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, length));
    assert_eq!(rung.responses().len(), 200);
    for k in (0..200).rev() {
        let address = TARGET_BASE + u64::from(k) * 256;
        rung.receive(&rc(op::READ_REQUEST).psn(RQ_PSN + k).reth(address, RKEY, 256));
    }
    let waiting = rung.responses().len();
    assert!((1..=13).contains(&waiting), "{waiting} answers were kept");
}

#[test]
fn a_flood_of_naks_keeps_one() {
    let mut rung = Rung::rc();
    for _ in 0..1000 {
        rung.receive(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req());
    }
    assert_eq!(rung.responses(), [rnr(12, RQ_PSN, 0)]);
}

#[test]
fn a_read_of_two_gigabytes_is_served_packet_by_packet() {
    // Nothing is prepared ahead: what is queued is the request.
    let mut rung = Rung::rc();
    rung.host.memory.region(TARGET).bytes = vec![0; 1 << 20];
    let read = rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 1 << 20);
    rung.sink.room = Some(3);
    assert_eq!(rung.answers(&read).len(), 3);
    assert_eq!(rung.qp.query().rq_psn, RQ_PSN + (1 << 12));
}
