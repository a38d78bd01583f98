//! Requests that come twice.

use crate::prelude::*;

fn send(psn: u32) -> Literal {
    rc(op::SEND_ONLY).psn(psn).ack_req()
}

fn read(psn: u32, offset: u64, length: u32) -> Literal {
    rc(op::READ_REQUEST).psn(psn).reth(TARGET_BASE + offset, RKEY, length)
}

#[test]
fn statement_12_a_duplicate_send_is_acknowledged_and_nothing_else() {
    let mut rung = Rung::rc();
    (0..4).for_each(|k| rung.post_recv(k, 1024));
    let data = pattern(600);
    rung.answer(&send(RQ_PSN));
    rung.answer(&send(RQ_PSN + 1));
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN + 2).payload(&data[..256]));
    let receives = rung.host.receives.len();
    assert_eq!(rung.answer(&send(RQ_PSN)), ack(RQ_PSN + 2, 2), "newest PSN, MSN as it was");
    assert_eq!(rung.host.receives.len(), receives);
    assert_eq!(rung.host.recvs_done.len(), 2);
    // Asked for or not: the question may have been lost behind it.
    let part = rc(op::SEND_FIRST).psn(RQ_PSN + 2).payload(&data[..256]);
    assert_eq!(rung.answer(&part), ack(RQ_PSN + 2, 2), "the first packet again");
    assert_eq!(rung.host.counter(Counter::RxDuplicateRequest), 2);
    // The message in progress goes on.
    rung.receive(&rc(op::SEND_MIDDLE).psn(RQ_PSN + 3).payload(&data[256..512]));
    let last = rc(op::SEND_LAST).psn(RQ_PSN + 4).payload(&data[512..]).ack_req();
    assert_eq!(rung.answer(&last), ack(RQ_PSN + 4, 3));
    assert_eq!(rung.buffer()[..600], data);
}

#[test]
fn statement_12_a_duplicate_write_does_not_touch_memory() {
    let mut rung = Rung::rc();
    let write = rc(op::WRITE_ONLY).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4).payload(b"once").ack_req();
    rung.answer(&write);
    rung.target()[..4].copy_from_slice(b"mine");
    assert_eq!(rung.answer(&write), ack(RQ_PSN, 1));
    assert_eq!(rung.target()[..4], *b"mine");
    // Not even its key or length is looked at.
    let nonsense = rc(op::WRITE_MIDDLE).psn(RQ_PSN).payload(b"?").ack_req();
    assert_eq!(rung.answer(&nonsense), ack(RQ_PSN, 1));
}

#[test]
fn statement_13_duplicate_atomics_are_answered_with_the_first_result() {
    let mut rung = Rung::rc();
    rung.target()[..8].copy_from_slice(&100u64.to_ne_bytes());
    let add = rc(op::FETCH_ADD).psn(RQ_PSN).atomic(TARGET_BASE, RKEY, 5, 0);
    let swap = rc(op::CMP_SWAP).psn(RQ_PSN + 1).atomic(TARGET_BASE, RKEY, 7, 105);
    let store = rc(op::ATOMIC_WRITE).psn(RQ_PSN + 2).reth(TARGET_BASE, RKEY, 8).payload(&[3; 8]);
    let first = [
        atomic_ack(RQ_PSN, 1, 100),
        atomic_ack(RQ_PSN + 1, 2, 105),
        read_response(op::READ_ONLY, RQ_PSN + 2, 3, &[]),
    ];
    for (request, answer) in [add.clone(), swap.clone(), store.clone()].iter().zip(&first) {
        assert_eq!(rung.answer(request), *answer);
    }
    rung.target()[..8].copy_from_slice(&999u64.to_ne_bytes());
    for (request, answer) in [add, swap, store].iter().zip(first) {
        let again = rung.answer(request);
        assert_eq!(again, Literal { aeth: Some((ACK_SYNDROME, 3)), ..answer });
        assert_eq!(rung.target()[..8], 999u64.to_ne_bytes(), "executed twice: {request:?}");
    }
}

#[test]
fn statement_14_a_duplicate_read_may_ask_for_the_rest_and_sees_memory_as_it_is() {
    let mut rung = Rung::rc();
    rung.target()[..1024].copy_from_slice(&pattern(1024));
    assert_eq!(rung.answers(&read(RQ_PSN, 0, 1024)).len(), 4);
    rung.target()[600..700].fill(0xcc);
    let now = rung.target()[512..1024].to_vec();
    let again = rung.answers(&read(RQ_PSN + 2, 512, 512));
    assert_eq!(
        again,
        [
            read_response(op::READ_FIRST, RQ_PSN + 2, 1, &now[..256]),
            read_response(op::READ_LAST, RQ_PSN + 3, 1, &now[256..]),
        ]
    );
    let one = rung.answer(&read(RQ_PSN + 3, 768, 256));
    assert_eq!(one, read_response(op::READ_ONLY, RQ_PSN + 3, 1, &now[256..]));
    assert_eq!(rung.answers(&read(RQ_PSN, 0, 1024)).len(), 4, "and from the start");
}

#[test]
fn statement_14_a_duplicate_read_of_something_else_is_dropped() {
    let mut rung = Rung::rc();
    rung.answers(&read(RQ_PSN, 0, 1024));
    let others = [
        read(RQ_PSN + 2, 0, 512),
        read(RQ_PSN + 2, 512, 513),
        read(RQ_PSN, 4, 1020),
        read(RQ_PSN - 1, 0, 1024),
        rc(op::READ_REQUEST).psn(RQ_PSN).reth(TARGET_BASE, RKEY + 1, 1024),
        rc(op::READ_REQUEST).psn(RQ_PSN).reth(u64::MAX, RKEY, u32::MAX),
        rc(op::FETCH_ADD).psn(RQ_PSN).atomic(TARGET_BASE, RKEY, 1, 0),
    ];
    for (dropped, other) in (1..).zip(others) {
        assert_eq!(rung.answers(&other), [], "{other:?}");
        assert_eq!(rung.host.counter(Counter::RxReplayMissed), dropped, "{other:?}");
    }
    assert_eq!(rung.state(), QpState::Rts);
    assert_eq!(rung.target()[..8], [0; 8]);
}

#[test]
fn statement_15_a_duplicate_read_under_a_dead_key_is_dropped() {
    let mut rung = Rung::rc();
    rung.answer(&read(RQ_PSN, 0, 4));
    rung.host.memory.deregister(TARGET);
    assert_eq!(rung.answers(&read(RQ_PSN, 0, 4)), []);
    assert_eq!(rung.state(), QpState::Rts);
    assert_eq!(rung.host.events, []);
}

#[test]
fn statement_16_psns_wrap_and_half_the_circle_is_a_duplicate() {
    let mut rung = Setup { rq_psn: 0xff_fffe, ..Setup::new(QpType::Rc) }.build();
    rung.post_recv(1, 1024);
    let data = pattern(4 * 256);
    let operations = [op::SEND_FIRST, op::SEND_MIDDLE, op::SEND_MIDDLE, op::SEND_LAST];
    for (k, operation) in operations.into_iter().enumerate() {
        let psn = 0xff_fffe_u32.wrapping_add(k as u32) & 0xff_ffff;
        rung.receive(&rc(operation).psn(psn).payload(&data[k * 256..][..256]).ack_req());
    }
    assert_eq!(rung.responses(), [ack(1, 1)]);
    assert_eq!(rung.buffer()[..1024], data);
    // Expected is 2 now: 2^23 before is the oldest duplicate, one more is the newest of the future.
    assert_eq!(rung.answer(&send(2u32.wrapping_sub(1 << 23) & 0xff_ffff)), ack(1, 1));
    assert_eq!(rung.answer(&send(2 + (1 << 23) - 1)), nak(NAK_SEQUENCE, 2, 1));

    let mut rung = Setup { sq_psn: 0xff_fffe, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(5, 1024);
    let psns: Vec<_> = rung.requests().iter().map(|literal| literal.psn).collect();
    assert_eq!(psns, [0xff_fffe, 0xff_ffff, 0, 1]);
    rung.receive(&ack(0xff_ffff, 0));
    assert_eq!(rung.qp.in_flight(), 2);
    rung.receive(&ack(1, 1));
    assert_eq!(rung.host.take_sends(), successes(&[5]));
}

#[test]
fn upper_bits_of_the_psn_attributes_are_masked_off() {
    let mut rung = Setup { sq_psn: 0xab00_0005, rq_psn: 0xcd00_0006, ..Setup::new(QpType::Rc) }.build();
    rung.post_recv(1, 4);
    rung.post_send(1, 4);
    assert_eq!(rung.requests()[0].psn, 5);
    assert_eq!(rung.answer(&send(6)), ack(6, 1));
}

#[test]
fn the_oldest_replays_are_forgotten_beyond_the_granted_number() {
    let mut rung = Setup { max_dest_rd_atomic: 2, ..Setup::new(QpType::Rc) }.build();
    let add = |psn| rc(op::FETCH_ADD).psn(psn).atomic(TARGET_BASE, RKEY, 1, 0);
    for k in 0..3 {
        assert_eq!(rung.answer(&add(RQ_PSN + k)), atomic_ack(RQ_PSN + k, k + 1, k.into()));
    }
    assert_eq!(rung.answers(&add(RQ_PSN)), []);
    assert_eq!(rung.answer(&add(RQ_PSN + 1)), atomic_ack(RQ_PSN + 1, 3, 1));
    assert_eq!(rung.answer(&add(RQ_PSN + 2)), atomic_ack(RQ_PSN + 2, 3, 2));
}

#[test]
fn a_duplicate_loses_no_answer_that_waits_behind_it() {
    let mut rung = Rung::rc();
    rung.target()[..8].copy_from_slice(&pattern(8));
    let add = rc(op::FETCH_ADD).psn(RQ_PSN + 2).atomic(TARGET_BASE + 64, RKEY, 1, 0);
    rung.post_recv(1, 4);
    rung.receive_all(&[
        read(RQ_PSN, 0, 4),
        read(RQ_PSN + 1, 4, 4),
        add,
        send(RQ_PSN + 3),
        read(RQ_PSN, 0, 4),
    ]);
    let expected = [
        read_response(op::READ_ONLY, RQ_PSN, 4, &pattern(8)[..4]),
        read_response(op::READ_ONLY, RQ_PSN + 1, 2, &pattern(8)[4..]),
        atomic_ack(RQ_PSN + 2, 3, 0),
        ack(RQ_PSN + 3, 4),
    ];
    assert_eq!(rung.responses(), expected);
}

#[test]
fn a_repeated_read_replaces_its_own_stream_in_the_middle() {
    let mut rung = Rung::rc();
    rung.target()[..1024].copy_from_slice(&pattern(1024));
    rung.receive(&read(RQ_PSN, 0, 1024));
    rung.sink.room = Some(3);
    assert_eq!(rung.responses().len(), 3);
    rung.sink.room = None;
    let again = rung.answers(&read(RQ_PSN + 1, 256, 768));
    assert_eq!(again.iter().map(|literal| literal.psn).collect::<Vec<_>>(), [0x101, 0x102, 0x103]);
    assert_eq!(again[0].opcode, op::READ_FIRST);
}

#[test]
fn reset_forgets_every_replay() {
    let mut rung = Rung::rc();
    rung.answer(&rc(op::FETCH_ADD).psn(RQ_PSN).atomic(TARGET_BASE, RKEY, 1, 0));
    rung.enter(QpState::Reset).unwrap();
    rung.climb();
    rung.post_recv(1, 4);
    rung.answer(&send(RQ_PSN));
    assert_eq!(rung.answers(&rc(op::FETCH_ADD).psn(RQ_PSN).atomic(TARGET_BASE, RKEY, 1, 0)), []);
    assert_eq!(rung.host.counter(Counter::RxReplayMissed), 1);
}
