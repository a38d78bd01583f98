//! Draining the send queue.

use crate::prelude::*;

fn drain(rung: &mut Rung, notify: bool) {
    let attributes = QpAttributes { en_sqd_async_notify: notify, ..rung.attributes() };
    let mask = if notify { AttributeMask::EN_SQD_ASYNC_NOTIFY } else { AttributeMask::empty() };
    rung.modify(QpState::Sqd, mask, &attributes).unwrap();
}

#[test]
fn statement_45_started_messages_finish_and_new_ones_are_held() {
    let mut rung = Setup { window_limit_packets: 4, ..Setup::new(QpType::Rc) }.build();
    rung.post_send(1, 6 * 256);
    rung.post_send(2, 4);
    assert_eq!(rung.requests().len(), 4);
    drain(&mut rung, true);
    assert!(rung.qp.is_draining() && rung.qp.query().sq_draining);
    rung.post_send(3, 4);
    rung.receive(&ack(SQ_PSN + 3, 0));
    assert_eq!(rung.requests().len(), 2, "the rest of the first message and nothing else");
    assert_eq!(rung.host.events, []);
    rung.wait_for_deadline();
    assert_eq!(rung.requests().len(), 2, "retries included");
    rung.receive(&ack(SQ_PSN + 5, 1));
    assert_eq!(rung.host.take_sends(), successes(&[1]));
    assert_eq!(rung.host.events, [AsyncEventType::SqDrained]);
    assert!(!rung.qp.is_draining() && !rung.qp.query().sq_draining);
    assert_eq!(rung.requests(), []);
    rung.enter(QpState::Rts).unwrap();
    assert_eq!(rung.requests().len(), 2);
    rung.receive(&ack(SQ_PSN + 7, 3));
    assert_eq!(rung.host.take_sends(), successes(&[2, 3]));
    assert_eq!(rung.host.events.len(), 1);
}

#[test]
fn statement_45_the_event_comes_only_if_asked_for_and_at_once_if_idle() {
    let mut rung = Rung::rc();
    drain(&mut rung, true);
    assert_eq!(rung.host.events, [AsyncEventType::SqDrained]);
    rung.enter(QpState::Rts).unwrap();
    drain(&mut rung, false);
    assert_eq!(rung.host.events.len(), 1);
}

#[test]
fn while_draining_only_error_and_reset_are_reached() {
    let draining = || {
        let mut rung = Rung::rc();
        rung.post_send(1, 4);
        rung.requests();
        drain(&mut rung, true);
        rung
    };
    for next in [QpState::Rts, QpState::Sqd] {
        let mut rung = draining();
        let before = rung.qp.query();
        let attributes = QpAttributes { min_rnr_timer: 1, ..rung.attributes() };
        let refused = rung.modify(next, AttributeMask::MIN_RNR_TIMER, &attributes).unwrap_err();
        assert_eq!(refused.errno_name(), "EINVAL", "{refused}");
        assert_eq!(rung.qp.query(), before, "a failing modify changes nothing");
        rung.receive(&ack(SQ_PSN, 1));
        rung.enter(next).unwrap();
    }
    let mut rung = draining();
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.events, [], "an error is no drained queue");
    draining().enter(QpState::Reset).unwrap();
}

#[test]
fn the_receiving_side_goes_on() {
    let mut rung = Rung::rc();
    drain(&mut rung, false);
    rung.post_recv(1, 64);
    assert_eq!(rung.answer(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req()), ack(RQ_PSN, 1));
    let read = rc(op::READ_REQUEST).psn(RQ_PSN + 1).reth(TARGET_BASE, RKEY, 4);
    assert_eq!(rung.answers(&read).len(), 1);
}

#[test]
fn a_started_read_drains_too() {
    let mut rung = Rung::rc();
    rung.post_read(1, 300);
    rung.requests();
    drain(&mut rung, true);
    rung.receive(&read_response(op::READ_FIRST, SQ_PSN, 1, &[1; 256]));
    assert_eq!(rung.host.events, []);
    rung.receive(&read_response(op::READ_LAST, SQ_PSN + 1, 1, &[1; 44]));
    assert_eq!(rung.host.events, [AsyncEventType::SqDrained]);
}

/// A queue pair that stops at bad signatures, and the L_Key of data that has one.
fn suspicious() -> (Rung, u32) {
    let mut rung = Rung::rc();
    rung.qp.stop_at_bad_signature();
    rung.host.region(9, 0x90_0000, 4096, Access::LOCAL_WRITE);
    rung.host.bad_signatures.push(9);
    (rung, 9)
}

/// A SEND of 4 bytes from a region.
fn send_from(rung: &mut Rung, wr_id: u64, lkey: u32, flags: SendFlags) {
    let address = if lkey == BUFFER { BUFFER_BASE } else { 0x90_0000 };
    let sges = [Sge { address, length: 4, lkey }];
    rung.post(&SendRequest { flags, ..request(wr_id, SendOpcode::Send, &sges) });
}

#[test]
fn data_that_does_not_fit_its_signature_stops_the_queue_before_the_next_fence() {
    let (mut rung, bad) = suspicious();
    send_from(&mut rung, 1, BUFFER, SendFlags::SIGNALED);
    send_from(&mut rung, 2, bad, SendFlags::empty());
    send_from(&mut rung, 3, BUFFER, SendFlags::SIGNALED);
    send_from(&mut rung, 4, BUFFER, SendFlags::SIGNALED | SendFlags::FENCE);
    assert_eq!(rung.requests().len(), 3, "the fence waits for what is known of the data before it");
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!((rung.qp.state(), rung.qp.cancel_sends(4)), (QpState::Rts, None));
    rung.receive(&ack(SQ_PSN + 1, 2));
    assert_eq!(
        (rung.qp.state(), rung.host.events.len()),
        (QpState::Sqd, 0),
        "what has begun comes to its end"
    );
    assert_eq!(rung.qp.cancel_sends(4), None, "it still drains");
    rung.receive(&ack(SQ_PSN + 2, 3));
    assert_eq!(rung.host.take_sends(), successes(&[1, 3]));
    assert_eq!(rung.host.events, [AsyncEventType::SqDrained]);
    assert_eq!(rung.requests(), []);
}

#[test]
fn what_is_cancelled_sends_nothing_and_completes() {
    let (mut rung, bad) = suspicious();
    send_from(&mut rung, 1, bad, SendFlags::empty());
    rung.requests();
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.host.events, [AsyncEventType::SqDrained]);
    // Posted while it stands: one of three packets is cancelled with another, and the numbers close up.
    for wr_id in [7, 5, 7, 6] {
        rung.post_send(wr_id, if wr_id == 7 { 3 * 256 } else { 4 });
    }
    assert_eq!(rung.qp.cancel_sends(7), Some(2));
    assert_eq!(rung.qp.cancel_sends(8), Some(0));
    rung.enter(QpState::Rts).unwrap();
    let psns: Vec<u32> = rung.requests().iter().map(|literal| literal.psn).collect();
    assert_eq!(psns, [SQ_PSN + 1, SQ_PSN + 2]);
    rung.receive(&ack(SQ_PSN + 2, 3));
    let done = std::mem::take(&mut rung.host.sends_done);
    let seen: Vec<_> = done.iter().map(|done| (done.wc.wr_id, done.wc.opcode, done.wc.status)).collect();
    let success = |wr_id| (wr_id, WcOpcode::Send, WcStatus::Success);
    assert_eq!(seen, [7, 5, 7, 6].map(success));
    assert_eq!(rung.host.events.len(), 1);
}

#[test]
fn bad_data_does_not_stop_a_queue_that_was_not_made_for_it() {
    let mut rung = Rung::rc();
    rung.host.bad_signatures.push(BUFFER);
    rung.post_send(1, 4);
    rung.requests();
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!((rung.qp.state(), rung.host.events.len()), (QpState::Rts, 0));
    assert_eq!(rung.qp.cancel_sends(1), None);
}
