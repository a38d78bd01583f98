//! Atomics, ATOMIC WRITE and FLUSH.

use crate::prelude::*;

fn atomic_request<'a>(wr_id: u64, sges: &'a [Sge], operation: AtomicOperation) -> SendRequest<'a> {
    SendRequest { atomic: Some(operation), ..request(wr_id, operation.opcode(), sges) }
}

const EIGHT: [Sge; 1] = [Sge { address: BUFFER_BASE, length: 8, lkey: BUFFER }];

#[test]
fn atomics_are_executed_and_answered_with_the_original() {
    let mut rung = Rung::rc();
    rung.target()[8..16].copy_from_slice(&10u64.to_ne_bytes());
    let at = TARGET_BASE + 8;
    let add = rc(op::FETCH_ADD).psn(RQ_PSN).atomic(at, RKEY, u64::MAX, 0);
    assert_eq!(rung.answer(&add), atomic_ack(RQ_PSN, 1, 10));
    let missed = rc(op::CMP_SWAP).psn(RQ_PSN + 1).atomic(at, RKEY, 77, 10);
    assert_eq!(rung.answer(&missed), atomic_ack(RQ_PSN + 1, 2, 9));
    let hit = rc(op::CMP_SWAP).psn(RQ_PSN + 2).atomic(at, RKEY, 0x0102_0304_0506_0708, 9);
    assert_eq!(rung.answer(&hit), atomic_ack(RQ_PSN + 2, 3, 9));
    assert_eq!(rung.target()[8..16], 0x0102_0304_0506_0708u64.to_ne_bytes());
}

#[test]
fn requested_atomics_store_the_original_in_host_order() {
    let mut rung = Rung::rc();
    rung.post(&atomic_request(1, &EIGHT, AtomicOperation::CompareSwap { compare: 3, swap: 4 }));
    rung.post(&atomic_request(2, &EIGHT, AtomicOperation::FetchAdd { add: 5 }));
    let expected = [
        rc(op::CMP_SWAP).psn(SQ_PSN).atomic(TARGET_BASE, RKEY, 4, 3).ack_req(),
        rc(op::FETCH_ADD).psn(SQ_PSN + 1).atomic(TARGET_BASE, RKEY, 5, 0).ack_req(),
    ];
    assert_eq!(rung.requests(), expected);
    rung.receive(&atomic_ack(SQ_PSN, 1, 0x1122_3344_5566_7788));
    assert_eq!(rung.buffer()[..8], 0x1122_3344_5566_7788u64.to_ne_bytes());
    rung.receive(&atomic_ack(SQ_PSN + 1, 2, 6));
    assert_eq!(rung.buffer()[..8], 6u64.to_ne_bytes());
    let opcodes: Vec<_> = rung.host.sends_done.iter().map(|done| done.wc.opcode).collect();
    assert_eq!(opcodes, [WcOpcode::CompareSwap, WcOpcode::FetchAdd]);
}

#[test]
fn a_read_response_to_an_atomic_is_a_bad_response() {
    let mut rung = Rung::rc();
    rung.post(&atomic_request(1, &EIGHT, AtomicOperation::FetchAdd { add: 5 }));
    rung.requests();
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[0; 8]));
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::BadRespErr)]);
}

#[test]
fn a_lost_atomic_answer_is_asked_for_and_never_acknowledged_away() {
    let mut rung = Rung::rc();
    rung.post(&atomic_request(1, &EIGHT, AtomicOperation::FetchAdd { add: 5 }));
    rung.post_send(2, 4);
    let sent = rung.requests();
    rung.receive(&ack(SQ_PSN + 1, 2));
    assert_eq!(rung.host.take_sends(), []);
    assert_eq!(rung.requests(), sent);
    rung.receive_all(&[atomic_ack(SQ_PSN, 2, 1), ack(SQ_PSN + 1, 2)]);
    assert_eq!(rung.host.take_sends(), successes(&[1, 2]));
}

#[test]
fn statement_49_misaligned_atomics_are_invalid_requests() {
    for packet in [
        rc(op::FETCH_ADD).atomic(TARGET_BASE + 4, RKEY, 1, 0),
        rc(op::CMP_SWAP).atomic(TARGET_BASE + 1, RKEY, 1, 0),
        rc(op::ATOMIC_WRITE).reth(TARGET_BASE + 4, RKEY, 8).payload(&[1; 8]),
    ] {
        let mut rung = Rung::rc();
        rung.assert_refused(&packet.psn(RQ_PSN), NAK_INVALID);
        assert_eq!(rung.target()[..16], [0; 16]);
        assert_eq!(rung.host.events, [AsyncEventType::QpReqErr]);
    }
    let mut rung = Rung::rc();
    let mut request = atomic_request(1, &EIGHT, AtomicOperation::FetchAdd { add: 1 });
    request.remote.address += 4;
    let misaligned = PostError::Misaligned { address: TARGET_BASE + 4 };
    assert_eq!(rung.try_post(&request), Err(misaligned));
    let request = SendRequest { opcode: SendOpcode::AtomicWrite, ..request };
    assert_eq!(rung.try_post(&request), Err(misaligned));
    let four = [Sge { length: 4, ..EIGHT[0] }];
    let short = atomic_request(1, &four, AtomicOperation::FetchAdd { add: 1 });
    assert_eq!(rung.try_post(&short), Err(PostError::NotEightBytes { given: 4 }));
}

/// As adapters and rdma_rxe do it, which check such requests when they execute them.
#[test]
fn an_atomic_of_another_size_or_alignment_ends_as_its_completion() {
    let nine = [Sge { length: 9, ..EIGHT[0] }];
    for sges in [&nine[..], &[][..]] {
        let mut rung = Rung::rc();
        let request = atomic_request(2, sges, AtomicOperation::FetchAdd { add: 1 });
        rung.post_send(1, 4);
        rung.post(&SendRequest { faults_complete: true, ..request });
        rung.post_send(3, 4);
        assert_eq!(rung.requests().len(), 1, "only what comes before it leaves");
        assert_eq!(rung.host.take_sends(), []);
        rung.receive(&ack(SQ_PSN, 1));
        rung.requests();
        let flushed = (3, WcStatus::WrFlushErr);
        assert_eq!(rung.host.take_sends(), [(1, WcStatus::Success), (2, WcStatus::LocLenErr), flushed]);
        assert_eq!(rung.state(), QpState::Err);
    }
    // A misaligned one is the peer's to refuse.
    let mut rung = Rung::rc();
    let mut request = atomic_request(1, &EIGHT, AtomicOperation::FetchAdd { add: 1 });
    (request.remote.address, request.faults_complete) = (TARGET_BASE + 4, true);
    rung.post(&request);
    assert_eq!(rung.requests().len(), 1);
    rung.receive(&nak(NAK_INVALID, SQ_PSN, 0));
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::RemInvReqErr)]);
}

#[test]
fn statement_49_messages_end_at_two_gigabytes() {
    let mut rung = Rung::rc();
    let half = Sge { address: BUFFER_BASE, length: 1 << 30, lkey: BUFFER };
    let one = Sge { length: 1, ..half };
    let most = [half, half];
    let more = [half, half, one];
    for opcode in [SendOpcode::Send, SendOpcode::RdmaWrite, SendOpcode::RdmaRead] {
        let too_long = PostError::MessageTooLong { given: (1 << 31) + 1 };
        assert_eq!(rung.try_post(&request(1, opcode, &more)), Err(too_long));
    }
    rung.post(&request(1, SendOpcode::RdmaRead, &most));
    assert_eq!(rung.requests().len(), 2, "two parts may be under way");

    // On the wire: 2^31 is a length (too long for this region), more is nonsense.
    let read = |length| rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, length);
    Rung::rc().assert_refused(&read(1 << 31), NAK_ACCESS);
    Rung::rc().assert_refused(&read((1 << 31) + 1), NAK_INVALID);
    let write = |length| rc(op::WRITE_FIRST).psn(RQ_PSN).reth(TARGET_BASE, RKEY, length).payload(&[0; 256]);
    Rung::rc().assert_refused(&write(1 << 31), NAK_ACCESS);
    Rung::rc().assert_refused(&write(u32::MAX), NAK_INVALID);
}

#[test]
fn statement_50_atomic_write_and_flush_are_answered_by_an_empty_read_response() {
    let mut rung = Rung::rc();
    let store = rc(op::ATOMIC_WRITE).psn(RQ_PSN).reth(TARGET_BASE + 8, RKEY, 8).payload(b"ABCDEFGH");
    assert_eq!(rung.answer(&store), read_response(op::READ_ONLY, RQ_PSN, 1, &[]));
    assert_eq!(rung.target()[8..16], *b"ABCDEFGH", "payload bytes are memory bytes");
    let flush = rc(op::FLUSH).psn(RQ_PSN + 1).feth(1, 0).reth(TARGET_BASE, RKEY, 64);
    assert_eq!(rung.answer(&flush), read_response(op::READ_ONLY, RQ_PSN + 1, 2, &[]));
    let whole = rc(op::FLUSH).psn(RQ_PSN + 2).feth(3, 1).reth(u64::MAX, RKEY, u32::MAX >> 1);
    assert_eq!(rung.answer(&whole), read_response(op::READ_ONLY, RQ_PSN + 2, 3, &[]));
    let nothing = rc(op::FLUSH).psn(RQ_PSN + 3).feth(2, 0).reth(TARGET_BASE, RKEY, 0);
    assert_eq!(rung.answer(&nothing), read_response(op::READ_ONLY, RQ_PSN + 3, 4, &[]));
    let both = Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT;
    let expected = [
        Flushed { rkey: RKEY, range: Some((TARGET_BASE, 64)), access: Access::FLUSH_GLOBAL },
        Flushed { rkey: RKEY, range: None, access: both },
        Flushed { rkey: RKEY, range: Some((TARGET_BASE, 0)), access: Access::FLUSH_PERSISTENT },
    ];
    assert_eq!(rung.host.flushes, expected);
    // A repeated FLUSH is answered, not executed.
    assert_eq!(rung.answer(&flush), read_response(op::READ_ONLY, RQ_PSN + 1, 4, &[]));
    assert_eq!(rung.host.flushes.len(), 3);
}

#[test]
fn statement_50_flush_and_atomic_write_need_rights_keys_and_depth() {
    let flush = |psn| rc(op::FLUSH).psn(psn).feth(1, 0).reth(TARGET_BASE, RKEY, 8);
    let mut rung = Rung::rc();
    rung.host.memory.region(TARGET).access -= Access::FLUSH_GLOBAL;
    rung.assert_refused(&flush(RQ_PSN), NAK_ACCESS);
    let wrong_key = rc(op::FLUSH).psn(RQ_PSN).feth(1, 0).reth(TARGET_BASE, 0xbad, 0);
    Rung::rc().assert_refused(&wrong_key, NAK_ACCESS);
    Rung::rc().assert_refused(&rc(op::FLUSH).psn(RQ_PSN).feth(0, 0).reth(TARGET_BASE, RKEY, 8), NAK_INVALID);
    Rung::rc().assert_refused(&rc(op::FLUSH).psn(RQ_PSN).feth(1, 2).reth(TARGET_BASE, RKEY, 8), NAK_INVALID);
    let store = rc(op::ATOMIC_WRITE).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 8).payload(&[1; 8]);
    for refused in [flush(RQ_PSN), store] {
        let mut rung = Setup { max_dest_rd_atomic: 0, ..Setup::new(QpType::Rc) }.build();
        rung.assert_refused(&refused, NAK_INVALID);
    }
    // Depth 1: the second one takes the place of the first.
    let mut rung = Setup { max_dest_rd_atomic: 1, ..Setup::new(QpType::Rc) }.build();
    rung.answer(&flush(RQ_PSN));
    rung.answer(&flush(RQ_PSN + 1));
    assert_eq!(rung.answers(&flush(RQ_PSN)), []);
    assert_eq!(rung.answers(&flush(RQ_PSN + 1)).len(), 1);
}

#[test]
fn statement_50_the_requester_counts_them_like_reads() {
    let mut rung = Setup { max_rd_atomic: 1, ..Setup::new(QpType::Rc) }.build();
    let range = FlushRange { placement: 2, selectivity: 1, length: 99 };
    rung.post(&SendRequest { flush: Some(range), ..request(1, SendOpcode::Flush, &[]) });
    rung.post(&SendRequest {
        flags: SendFlags::INLINE | SendFlags::SIGNALED,
        inline_data: b"12345678",
        ..request(2, SendOpcode::AtomicWrite, &[])
    });
    assert_eq!(rung.requests(), [rc(op::FLUSH).psn(SQ_PSN).feth(2, 1).reth(TARGET_BASE, RKEY, 99).ack_req()]);
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN, 1, &[]));
    let store = rc(op::ATOMIC_WRITE).psn(SQ_PSN + 1).reth(TARGET_BASE, RKEY, 8).payload(b"12345678");
    assert_eq!(rung.requests(), [store.ack_req()]);
    rung.receive(&read_response(op::READ_ONLY, SQ_PSN + 1, 2, &[]));
    let done: Vec<_> = rung.host.sends_done.iter().map(|done| (done.wc.wr_id, done.wc.opcode)).collect();
    assert_eq!(done, [(1, WcOpcode::Flush), (2, WcOpcode::AtomicWrite)]);
}

#[test]
fn fields_that_an_operation_does_not_use_are_ignored() {
    let mut rung = Rung::rc();
    let range = FlushRange { placement: 1, selectivity: 0, length: 4000 };
    let write = request(1, SendOpcode::RdmaWrite, &EIGHT);
    rung.post(&SendRequest { flush: Some(range), ..write });
    let expected = rc(op::WRITE_ONLY).psn(SQ_PSN).reth(TARGET_BASE, RKEY, 8).payload(&pattern(8));
    assert_eq!(rung.requests(), [expected.ack_req()]);
}
