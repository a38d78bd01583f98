//! An XRC target that several queue pairs take turns in being.

use pumice_transport::qp::{MessageSnapshot, ReplaySnapshot, TargetSnapshot};

use crate::prelude::*;

/// SRQs of one process and of another.
const SRQN: u32 = 0x55;
const OTHER: u32 = 0x66;
const PD: u32 = 8;

/// A process with an SRQ of this number.
fn process(srqn: u32) -> Rung {
    let mut rung = Setup::new(QpType::XrcTarget).build();
    rung.host.xrc_srqs.insert(srqn, XrcSrq { xrcd: XRCD, pd: PD, cq: RECV_CQ, ..XrcSrq::default() });
    rung.host.memory.region(TARGET).pd = PD;
    rung.host.memory.region(BUFFER).pd = PD;
    rung
}

fn written(rung: &Rung) -> TargetSnapshot {
    let mut snapshot = TargetSnapshot::default();
    rung.qp.export_target(&mut snapshot);
    snapshot
}

/// What `from` wrote down becomes `to`'s; a message in progress is `from`'s.
fn hand_over(from: &Rung, to: &mut Rung) {
    let mut snapshot = written(from);
    if let MessageSnapshot::Send { here, .. } = &mut snapshot.responder.message {
        *here = false;
    }
    to.qp.import_target(&snapshot, &mut to.host);
    assert_eq!(written(to), snapshot, "what is taken over is written down again as it was");
}

#[test]
fn another_goes_on_where_one_stopped() {
    let (mut a, mut b) = (process(SRQN), process(OTHER));
    a.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 64, BUFFER);
    let send = xrc(op::SEND_ONLY, SRQN).psn(RQ_PSN).payload(b"x").ack_req();
    assert_eq!(a.answer(&send), ack(RQ_PSN, 1).over_xrc());
    hand_over(&a, &mut b);
    // In sequence there; what went before is a duplicate there.
    b.target()[..4].copy_from_slice(b"data");
    assert_eq!(b.answer(&send), ack(RQ_PSN, 1).over_xrc());
    let read = xrc(op::READ_REQUEST, OTHER).psn(RQ_PSN + 1).reth(TARGET_BASE, RKEY, 4);
    assert_eq!(b.answer(&read), read_response(op::READ_ONLY, RQ_PSN + 1, 2, b"data").over_xrc());
    let add = xrc(op::FETCH_ADD, OTHER).psn(RQ_PSN + 2).atomic(TARGET_BASE + 8, RKEY, 1, 0);
    assert_eq!(b.answer(&add), atomic_ack(RQ_PSN + 2, 3, 0).over_xrc());
    // And back: the value of an atomic is remembered by all, its memory is not touched again.
    hand_over(&b, &mut a);
    assert_eq!(a.answer(&add), atomic_ack(RQ_PSN + 2, 3, 0).over_xrc());
    assert_eq!(a.target()[8], 0);
    a.host.post_xrc_recv(SRQN, 2, BUFFER_BASE, 64, BUFFER);
    let gap = xrc(op::SEND_ONLY, SRQN).psn(RQ_PSN + 4).payload(b"z").ack_req();
    assert_eq!(a.answer(&gap), nak(NAK_SEQUENCE, RQ_PSN + 3, 3).over_xrc());
    // One NAK for all of them.
    hand_over(&a, &mut b);
    b.receive(&gap);
    assert_eq!(b.responses(), []);
    b.target()[..4].copy_from_slice(b"more");
    assert_eq!(b.answer(&read), read_response(op::READ_ONLY, RQ_PSN + 1, 3, b"more").over_xrc());
}

#[test]
fn a_repeated_read_reads_only_what_the_named_srq_may() {
    let (mut a, mut b) = (process(SRQN), process(OTHER));
    let read = xrc(op::READ_REQUEST, SRQN).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4);
    a.answers(&read);
    hand_over(&a, &mut b);
    b.host.memory.region(TARGET).pd = PD + 1;
    let repeated = xrc(op::READ_REQUEST, OTHER).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4);
    for asked in [repeated, read] {
        b.receive(&asked);
        assert_eq!(b.responses(), []);
    }
    assert_eq!(b.host.counter(Counter::RxReplayMissed), 2);
}

#[test]
fn a_message_is_finished_where_it_was_begun() {
    let (mut a, mut b) = (process(SRQN), process(OTHER));
    a.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 1024, BUFFER);
    a.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN).payload(&[7; 256]));
    hand_over(&a, &mut b);
    // A duplicate there changes nothing of it.
    b.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN).payload(&[7; 256]));
    let mut back = written(&b);
    assert_eq!(back.responder.message, MessageSnapshot::Send { offset: 256, here: false });
    back.responder.message = MessageSnapshot::Send { offset: 1 << 30, here: true };
    a.qp.import_target(&back, &mut a.host);
    let last = xrc(op::SEND_LAST, SRQN).psn(RQ_PSN + 1).payload(b"end").ack_req();
    assert_eq!(a.answer(&last), ack(RQ_PSN + 1, 1).over_xrc());
    assert_eq!(a.host.recvs_done[0].wc.byte_len, 259, "its own progress is what counts");

    // Who has not begun it refuses to go on.
    let (mut a, mut b) = (process(SRQN), process(SRQN));
    a.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 1024, BUFFER);
    b.host.post_xrc_recv(SRQN, 2, BUFFER_BASE, 1024, BUFFER);
    a.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN).payload(&[7; 256]));
    hand_over(&a, &mut b);
    assert_eq!(b.answer(&last), nak(NAK_INVALID, RQ_PSN + 1, 0).over_xrc());
    assert_eq!(b.host.take_recvs(), []);
    // The one who began it flushes its receive, once, and raises no event: that was done.
    let failed = written(&b);
    assert_eq!(failed.state, QpState::Err);
    a.qp.import_target(&failed, &mut a.host);
    a.qp.import_target(&failed, &mut a.host);
    assert_eq!(a.host.take_recvs(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(a.host.events, []);
}

#[test]
fn what_was_before_a_reset_is_over() {
    let (mut a, mut b) = (process(SRQN), process(OTHER));
    a.host.post_xrc_recv(SRQN, 1, BUFFER_BASE, 1024, BUFFER);
    a.receive(&xrc(op::READ_REQUEST, SRQN).psn(RQ_PSN).reth(TARGET_BASE, RKEY, 4));
    a.receive(&xrc(op::SEND_FIRST, SRQN).psn(RQ_PSN + 1).payload(&[7; 256]));
    b.enter(QpState::Reset).unwrap();
    b.climb();
    let fresh = written(&b);
    assert_eq!(fresh.responder.replays, []);
    a.qp.import_target(&fresh, &mut a.host);
    assert_eq!((a.responses(), a.host.take_recvs()), (vec![], vec![]));
    a.host.post_xrc_recv(SRQN, 2, BUFFER_BASE, 1024, BUFFER);
    let send = xrc(op::SEND_ONLY, SRQN).psn(RQ_PSN).payload(b"x").ack_req();
    assert_eq!(a.answer(&send), ack(RQ_PSN, 1).over_xrc());
    assert_eq!(a.host.take_recvs(), [(2, WcStatus::Success)]);
}

#[test]
fn any_snapshot_is_safe() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..3000 {
        let mut rung = process(SRQN);
        for wr_id in 0..4 {
            rung.host.post_xrc_recv(SRQN, wr_id, BUFFER_BASE, 1024, BUFFER);
        }
        let mut snapshot = written(&rung);
        snapshot.state = QpState::ALL[(random() % 7) as usize];
        snapshot.epoch = (random() % 2) as u32;
        snapshot.attributes.path_mtu = random() as u32 % 8;
        snapshot.attributes.max_dest_rd_atomic = random() as u8;
        snapshot.attributes.dest_qp_num = random() as u32;
        if random() % 8 == 0 {
            snapshot.path = None;
        }
        snapshot.responder.expected_psn = RQ_PSN.wrapping_add(random() as u32 % 4);
        snapshot.responder.msn = random() as u32;
        snapshot.responder.message_srqn = Some(SRQN).filter(|_| random() % 2 == 0);
        let remaining = random() % 2000;
        snapshot.responder.message = match random() % 4 {
            0 => MessageSnapshot::None,
            1 => MessageSnapshot::Send { offset: random() % (1 << 31), here: random() % 2 == 0 },
            _ => MessageSnapshot::Write {
                rkey: RKEY,
                address: random(),
                remaining_bytes: remaining,
                total_bytes: remaining as u32,
            },
        };
        for _ in 0..random() % 5 {
            let psn = RQ_PSN.wrapping_sub(random() as u32 % 5) & 0xff_ffff;
            snapshot.responder.replays.push(match random() % 3 {
                0 => ReplaySnapshot::Read {
                    first_psn: psn,
                    count: random() as u32 % (1 << 23),
                    rkey: RKEY,
                    address: TARGET_BASE.wrapping_add(random() % 64),
                    length_bytes: random() as u32,
                },
                1 => ReplaySnapshot::Atomic { psn, original: random() },
                _ => ReplaySnapshot::Empty { psn },
            });
        }
        rung.qp.import_target(&snapshot, &mut rung.host);
        for _ in 0..6 {
            let psn = RQ_PSN.wrapping_sub(2).wrapping_add(random() as u32 % 8) & 0xff_ffff;
            let packet = match random() % 6 {
                0 => xrc(op::SEND_ONLY, SRQN).payload(b"x"),
                1 => xrc(op::SEND_MIDDLE, SRQN).payload(&[3; 256]),
                2 => xrc(op::WRITE_MIDDLE, SRQN).payload(&[3; 256]),
                3 => xrc(op::WRITE_LAST, SRQN).payload(b"end"),
                4 => xrc(op::READ_REQUEST, SRQN).reth(TARGET_BASE, RKEY, random() as u32 % 3000),
                _ => xrc(op::FETCH_ADD, SRQN).atomic(TARGET_BASE + 8, RKEY, 1, 0),
            };
            rung.receive(&packet.psn(psn).ack_req());
            rung.responses();
        }
        rung.qp.query();
        assert!(written(&rung).responder.expected_psn <= 0xff_ffff, "round {round}");
    }
}
