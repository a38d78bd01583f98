//! Errors: one failing request, everything behind it flushed. And the table of errors, row by row.

use crate::prelude::*;
use pumice_transport::types::CqUse;

#[test]
fn statement_30_the_first_failure_has_its_status_and_the_rest_is_flushed_in_order() {
    for (syndrome, status) in [
        (NAK_INVALID, WcStatus::RemInvReqErr),
        (NAK_ACCESS, WcStatus::RemAccessErr),
        (NAK_OPERATION, WcStatus::RemOpErr),
        (NAK_XRC, WcStatus::RemInvRdReqErr),
    ] {
        let mut rung = Rung::rc();
        (20..23).for_each(|wr_id| rung.post_recv(wr_id, 64));
        let sges = [Sge { address: BUFFER_BASE, length: 600, lkey: BUFFER }];
        for wr_id in 0..6 {
            let request = request(wr_id, SendOpcode::RdmaWrite, &sges);
            rung.post(&if wr_id % 2 == 1 { unsignaled(request) } else { request });
        }
        rung.requests();
        // Request 3 fails at its second packet; 0 to 2 are acknowledged by the NAK.
        rung.receive(&nak(syndrome, SQ_PSN + 10, 3));
        let expected = [
            (0, WcStatus::Success),
            (2, WcStatus::Success),
            (3, status),
            (4, WcStatus::WrFlushErr),
            (5, WcStatus::WrFlushErr),
        ];
        let released: u32 = rung.host.sends_done.iter().map(|done| done.released).sum();
        assert_eq!(released, 6);
        assert_eq!(rung.host.take_sends(), expected);
        let flushed = [20, 21, 22].map(|wr_id| (wr_id, WcStatus::WrFlushErr));
        assert_eq!(rung.host.take_recvs(), flushed);
        assert_eq!(rung.state(), QpState::Err);
        assert_eq!(rung.requests(), []);
        assert_eq!(rung.host.events, []);
    }
}

#[test]
fn in_error_posts_are_flushed_and_packets_are_dropped() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.requests();
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_sends(), [(1, WcStatus::WrFlushErr)]);
    rung.post_send(2, 4);
    rung.post(&unsignaled(request(3, SendOpcode::Send, &[])));
    assert_eq!(rung.host.take_sends(), [(2, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)]);
    rung.post_recv(4, 64);
    rung.qp.flush_posted_receives(&mut rung.host);
    assert_eq!(rung.host.take_recvs(), [(4, WcStatus::WrFlushErr)]);
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.answers(&rc(op::SEND_ONLY).psn(RQ_PSN).ack_req()), []);
    assert_eq!(rung.requests(), []);
    assert_eq!(rung.qp.deadline_ns(), None);
    assert_eq!((rung.host.take_sends(), rung.host.take_recvs()), (vec![], vec![]));
    assert_eq!(rung.host.counter(Counter::RxWrongState), 2);
}

#[test]
fn a_partly_received_send_is_flushed_with_the_rest() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 1024);
    rung.post_recv(2, 1024);
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&[1; 256]));
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)]);
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.take_recvs(), []);
}

#[test]
fn on_an_srq_only_the_receive_in_use_is_flushed_and_the_last_one_is_announced() {
    let mut rung = Setup { has_srq: true, ..Setup::new(QpType::Rc) }.build();
    rung.post_recv(1, 1024);
    rung.post_recv(2, 1024);
    rung.receive(&rc(op::SEND_FIRST).psn(RQ_PSN).payload(&[1; 256]));
    rung.assert_refused(&rc(op::WRITE_MIDDLE).psn(RQ_PSN + 1).payload(&[1; 256]), NAK_INVALID);
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(rung.host.receives.len(), 1);
    assert_eq!(rung.host.events, [AsyncEventType::QpLastWqeReached]);
    rung.enter(QpState::Err).unwrap();
    assert_eq!(rung.host.events.len(), 1, "once");
}

#[test]
fn reset_forgets_everything_without_a_word() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.requests();
    rung.enter(QpState::Reset).unwrap();
    assert_eq!((rung.host.take_sends(), rung.host.events.len()), (vec![], 0));
    assert_eq!(rung.qp.deadline_ns(), None);
    let refused = PostError::WrongState { state: QpState::Reset };
    assert_eq!(rung.try_post(&request(1, SendOpcode::Send, &[])), Err(refused));
    rung.climb();
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.host.take_sends(), []);
    rung.post_send(2, 4);
    assert_eq!(rung.requests()[0].psn, SQ_PSN);
    rung.receive(&ack(SQ_PSN, 1));
    assert_eq!(rung.host.take_sends(), successes(&[2]));
}

#[test]
fn a_gather_error_is_a_protection_error_and_nothing_of_the_packet_leaves() {
    let outside = BUFFER_BASE + REGION_BYTES as u64 - 2;
    for (address, lkey, pd) in
        [(BUFFER_BASE, 99, CONTEXT.pd), (outside, BUFFER, CONTEXT.pd), (BUFFER_BASE, BUFFER, 9)]
    {
        for opcode in [SendOpcode::Send, SendOpcode::RdmaWrite] {
            let mut rung = Rung::rc();
            rung.host.memory.region(BUFFER).pd = pd;
            rung.post(&request(1, opcode, &[Sge { address, length: 4, lkey }]));
            rung.post_send(2, 4);
            assert_eq!(rung.requests(), []);
            assert_eq!(rung.sink.abandoned, 1);
            let expected = [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)];
            assert_eq!(rung.host.take_sends(), expected);
            assert_eq!(rung.state(), QpState::Err);
        }
    }
}

#[test]
fn every_refusal_is_explained_to_the_operator() {
    let mut rung = Rung::rc();
    let write = rc(op::WRITE_ONLY).psn(RQ_PSN).reth(TARGET_BASE, 0xbad, 4).payload(b"evil");
    rung.assert_refused(&write, NAK_ACCESS);
    assert!(matches!(rung.host.causes[..], [Cause::RequestRefused { syndrome: Some(NAK_ACCESS), .. }]));
    let mut rung = Rung::rc();
    rung.post_send(9, 4);
    rung.requests();
    rung.receive(&nak(NAK_ACCESS, SQ_PSN, 0));
    let [Cause::SendFailed(failed)] = rung.host.causes[..] else { panic!("no cause") };
    assert_eq!((failed.status, failed.wr_id, failed.psn.value()), (WcStatus::RemAccessErr, 9, SQ_PSN));
}

#[test]
fn a_completion_that_cannot_be_written_ends_the_queue_pair() {
    let mut rung = Rung::rc();
    rung.post_recv(1, 64);
    rung.post_send(2, 4);
    let overrun = Cause::CqOverrun { cq: 7, depth: 4, completes: CqUse::Both };
    rung.qp.enter_error(Some(overrun), &mut rung.host);
    assert_eq!(rung.state(), QpState::Err);
    assert_eq!(rung.host.take_sends(), [(2, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.take_recvs(), [(1, WcStatus::WrFlushErr)]);
    assert_eq!(rung.host.causes, [overrun]);
}

#[test]
fn from_error_the_way_leads_through_reset_only() {
    let mut rung = Rung::rc();
    rung.enter(QpState::Err).unwrap();
    for next in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd, QpState::Sqe] {
        let refused = rung.enter(next).unwrap_err();
        assert_eq!(refused.errno_name(), "EINVAL", "{refused}");
    }
    rung.enter(QpState::Reset).unwrap();
    assert!(rung.enter(QpState::Err).is_err(), "RESET to ERR");
    rung.climb();
    assert_eq!(rung.state(), QpState::Rts);
}

#[test]
fn a_reset_says_how_many_requests_it_drops_that_were_to_complete() {
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.post_send(2, 4);
    rung.enter(QpState::Reset).unwrap();
    assert_eq!(rung.host.causes, [Cause::DroppedByReset { requests: 2 }]);
    assert!(rung.host.take_sends().is_empty());
    let said = rung.host.causes[0].to_string();
    assert!(said.contains("2 requests were dropped by ibv_modify_qp to RESET"), "{said}");
    // What has completed, or was flushed, is not dropped.
    let mut rung = Rung::rc();
    rung.post_send(1, 4);
    rung.enter(QpState::Err).unwrap();
    rung.host.causes.clear();
    rung.enter(QpState::Reset).unwrap();
    assert_eq!(rung.host.causes, []);
}
