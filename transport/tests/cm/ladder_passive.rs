//! The passive side: from a REQ to ESTABLISHED, and every way it can fail.

use pumice_transport::cm::{
    AcceptParams, CmError, CmEvent, CmState, IgnoredMad, ListenParams, RejectParams, Served,
    UnansweredMessage,
};
use pumice_transport::mad::{
    CmMessage, CommId, Drep, Dreq, MraOf, PathFields, PrivateData, Rej, RejectReason, Rejected, Req,
    TransportType,
};
use pumice_transport::types::Mtu;
use pumice_transport::wire::{Psn, Qpn};

use crate::kit::*;

/// Statement 55: depths with their roles exchanged, and private data up to its room.
#[test]
fn accepts() {
    let (mut bench, listener) = Bench::listening();
    bench.receive(CmMessage::Req(req())).unwrap();
    let request = Box::new(req());
    assert_eq!(bench.event(), CmEvent::ConnectRequest { listener, id: OURS, route: route(), request });
    let qp = *bench.cm.qp_parameters(OURS).unwrap();
    assert_eq!((qp.local, qp.remote, qp.dest_qpn), (gid(US), gid(PEER), PEER_QPN));
    assert_eq!((qp.rq_psn, qp.sq_psn, qp.path_mtu), (None, Psn::new(0x222), Mtu::Mtu1024));
    assert_eq!((qp.max_dest_rd_atomic, qp.max_rd_atomic), (5, 3));
    assert_eq!((qp.timeout, qp.retry_count, qp.rnr_retry_count), (17, 6, 5));
    assert_eq!((qp.flow_label, qp.traffic_class, qp.hop_limit, qp.sl), (0x54321, 8, 63, 1));

    let accept = AcceptParams {
        responder_resources: 4,
        initiator_depth: 2,
        private_data: b"come in",
        ..AcceptParams::new(OUR_QPN, Psn::new(0x111))
    };
    bench.cm.accept(OURS, &accept, bench.now_ns).unwrap();
    let CmMessage::Rep(rep) = bench.sent_one() else { panic!("a REP") };
    assert_eq!((rep.local_id, rep.remote_id, rep.local_qpn), (OURS, THEIRS, OUR_QPN));
    assert_eq!((rep.starting_psn, rep.local_ca_guid, rep.local_eecn), (Psn::new(0x111), OUR_GUID, 0));
    assert_eq!((rep.responder_resources, rep.initiator_depth), (4, 2));
    assert_eq!((rep.target_ack_delay, rep.rnr_retry_count, rep.srq), (15, 7, false));
    assert_eq!(&rep.private_data[..8], b"come in\0");
    let qp = bench.cm.qp_parameters(OURS).unwrap();
    assert_eq!((qp.rq_psn, qp.max_dest_rd_atomic, qp.max_rd_atomic), (Some(Psn::new(0x111)), 4, 2));

    bench.receive(CmMessage::Rtu(rtu())).unwrap();
    let private_data = Box::new(rtu().private_data);
    assert_eq!(bench.event(), CmEvent::Established { id: OURS, private_data });
    assert_eq!(bench.state(OURS), Some(CmState::Established));
    assert_eq!(bench.cm.poll_timeout(), None);
    assert_eq!(bench.receive(CmMessage::Rtu(rtu())), Err(IgnoredMad::Duplicate));
    bench.quiet();
}

#[test]
fn an_xrc_target_says_its_number_twice() {
    let (mut bench, _) = Bench::listening();
    bench.receive(CmMessage::Req(Req { transport: TransportType::Xrc, ..req() })).unwrap();
    bench.cm.accept(OURS, &AcceptParams::new(OUR_QPN, Psn::new(1)), 0).unwrap();
    let CmMessage::Rep(rep) = bench.sent_one() else { panic!("a REP") };
    assert_eq!((rep.local_qpn, rep.local_eecn, rep.srq), (OUR_QPN, OUR_QPN.value(), true));
    assert_eq!((rep.initiator_depth, rep.flow_control), (0, false));
}

/// Statement 53: a REP is repeated until the RTU.
#[test]
fn the_reply_is_repeated_until_the_rtu_comes() {
    let mut bench = Bench::rep_sent();
    for _ in 0..15 {
        bench.wait_exactly(RESPONSE_NS);
        assert!(matches!(bench.sent_one(), CmMessage::Rep(_)));
    }
    bench.wait_exactly(RESPONSE_NS);
    assert_eq!(bench.event(), CmEvent::Unreachable { id: OURS, unanswered: UnansweredMessage::Rep });
    // If only its RTUs are lost, the peer thinks that it is connected.
    let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
    assert_eq!((rej.reason, rej.timeout_ca_guid()), (RejectReason::TIMEOUT, Some(OUR_GUID)));
    assert_eq!((rej.local_id, rej.remote_id), (OURS, THEIRS));
    assert_eq!(bench.state(OURS), Some(CmState::Idle));
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.quiet();
    bench.assert_gone();
}

#[test]
fn retries_are_those_that_the_request_asks_for() {
    let (mut bench, _) = Bench::listening();
    let quick = Req { max_cm_retries: 1, local_response_timeout: 8, ..req() };
    bench.receive(CmMessage::Req(quick)).unwrap();
    bench.events();
    bench.cm.accept(OURS, &AcceptParams::new(OUR_QPN, Psn::new(1)), bench.now_ns).unwrap();
    bench.sent();
    bench.wait_exactly(1_000_000);
    assert_eq!(bench.sent().len(), 1);
    bench.wait_exactly(1_000_000);
    assert!(matches!(bench.event(), CmEvent::Unreachable { .. }));
}

/// Statement 53: a repeated REQ makes no second connection.
#[test]
fn a_repeated_request_makes_no_second_connection() {
    let mut bench = Bench::req_received();
    // The consumer thinks about it: the peer is asked for time.
    for _ in 0..2 {
        assert_eq!(bench.receive(CmMessage::Req(req())), Err(IgnoredMad::Duplicate));
        let CmMessage::Mra(mra) = bench.sent_one() else { panic!("an MRA") };
        assert_eq!(
            (mra.local_id, mra.remote_id, mra.of, mra.service_timeout),
            (OURS, THEIRS, MraOf::Req, 24)
        );
        assert_eq!(bench.state(OURS), Some(CmState::MraReqSent));
    }
    // It was accepted: the reply again.
    bench.cm.accept(OURS, &AcceptParams::new(OUR_QPN, Psn::new(0x111)), bench.now_ns).unwrap();
    let rep = bench.sent_one();
    assert_eq!(bench.receive(CmMessage::Req(req())), Err(IgnoredMad::Duplicate));
    assert_eq!(bench.sent_one(), rep);
    // It is established: an old packet.
    bench.receive(CmMessage::Rtu(rtu())).unwrap();
    assert!(matches!(bench.event(), CmEvent::Established { .. }));
    assert_eq!(bench.receive(CmMessage::Req(req())), Err(IgnoredMad::Duplicate));
    bench.quiet();
    // It is over: stale.
    bench.receive(CmMessage::Dreq(dreq())).unwrap();
    bench.events();
    assert_eq!(bench.receive(CmMessage::Req(req())), Err(IgnoredMad::Duplicate));
    bench.quiet();
    bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
    bench.sent();
    assert_eq!(bench.receive(CmMessage::Req(req())), Err(IgnoredMad::Duplicate));
    assert_eq!(
        bench.sent_one(),
        CmMessage::Rej(our_rej(OURS, Rejected::Other, RejectReason::STALE_CONNECTION))
    );
    assert_eq!(bench.cm.connection_count(), 1);
}

#[test]
fn data_may_come_before_the_rtu() {
    let mut bench = Bench::rep_sent();
    bench.cm.establish(OURS).unwrap();
    assert!(matches!(bench.event(), CmEvent::Established { id: OURS, .. }));
    assert_eq!(bench.cm.poll_timeout(), None);
    bench.cm.establish(OURS).unwrap();
    assert_eq!(bench.receive(CmMessage::Rtu(rtu())), Err(IgnoredMad::Duplicate));
    bench.quiet();
}

#[test]
fn an_mra_of_the_reply_buys_time() {
    let mut bench = Bench::rep_sent();
    bench.receive(CmMessage::Mra(mra(MraOf::Rep))).unwrap();
    assert_eq!(bench.event(), CmEvent::MraReceived { id: OURS, service_timeout: 24 });
    bench.wait_exactly(66_048_000_000);
    assert!(matches!(bench.sent_one(), CmMessage::Rep(_)));
    bench.receive(CmMessage::Rtu(rtu())).unwrap();
    assert!(matches!(bench.event(), CmEvent::Established { .. }));
}

#[test]
fn a_request_can_be_rejected() {
    let mut bench = Bench::req_received();
    bench.cm.reject(OURS, &RejectParams::consumer(b"go away"), bench.now_ns).unwrap();
    let mut expected = our_rej(CommId::NONE, Rejected::Req, RejectReason::CONSUMER);
    expected.private_data = PrivateData::new(b"go away").unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Rej(expected));
    assert_eq!(bench.state(OURS), Some(CmState::Idle));
    let accept = AcceptParams::new(OUR_QPN, Psn::new(1));
    assert!(matches!(bench.cm.accept(OURS, &accept, 0), Err(CmError::WrongState { .. })));
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.quiet();
    bench.assert_gone();
    // After an MRA the peer knows our id.
    let mut bench = Bench::req_received();
    bench.cm.mra(OURS, 21, &[]).unwrap();
    bench.sent();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Rej(our_rej(OURS, Rejected::Req, RejectReason::CONSUMER)));
    bench.assert_gone();
}

#[test]
fn private_data_that_is_too_long_is_refused() {
    let mut bench = Bench::req_received();
    let accept = AcceptParams { private_data: &[1; 197], ..AcceptParams::new(OUR_QPN, Psn::new(1)) };
    assert!(matches!(bench.cm.accept(OURS, &accept, 0), Err(CmError::PrivateData(_))));
    let accept = AcceptParams { rnr_retry_count: 8, ..AcceptParams::new(OUR_QPN, Psn::new(1)) };
    assert!(matches!(bench.cm.accept(OURS, &accept, 0), Err(CmError::OutOfRange { .. })));
    let reject = RejectParams::consumer(&[1; 149]);
    assert!(matches!(bench.cm.reject(OURS, &reject, 0), Err(CmError::PrivateData(_))));
    let reject = RejectParams { info: &[1; 73], ..RejectParams::consumer(&[]) };
    assert!(matches!(bench.cm.reject(OURS, &reject, 0), Err(CmError::PrivateData(_))));
    assert!(matches!(bench.cm.mra(OURS, 1, &[1; 223]), Err(CmError::PrivateData(_))));
    assert!(matches!(bench.cm.mra(OURS, 32, &[]), Err(CmError::OutOfRange { .. })));
    assert_eq!(bench.state(OURS), Some(CmState::ReqReceived));
    bench.quiet();
}

#[test]
fn the_peer_may_reject_the_reply_or_give_up() {
    // It refuses the reply.
    let mut bench = Bench::rep_sent();
    bench.receive(CmMessage::Rej(rej(Rejected::Rep, RejectReason::CONSUMER))).unwrap();
    assert!(matches!(bench.event(), CmEvent::Rejected { id: OURS, .. }));
    assert_eq!(bench.state(OURS), Some(CmState::Idle));
    // It gives up its request, and knows no id of ours.
    for mut bench in [Bench::req_received(), Bench::rep_sent()] {
        let given_up = Rej {
            local_id: THEIRS,
            remote_id: CommId::NONE,
            rejected: Rejected::Other,
            info_length: 8,
            reason: RejectReason::TIMEOUT,
            info: PrivateData::new(&PEER_GUID.to_be_bytes()).unwrap(),
            private_data: PrivateData::NONE,
        };
        let of_another = Rej { info: PrivateData::new(&[9; 8]).unwrap(), ..given_up };
        assert_eq!(bench.receive(CmMessage::Rej(of_another)), Err(IgnoredMad::UnknownId));
        bench.receive(CmMessage::Rej(given_up)).unwrap();
        assert!(matches!(bench.event(), CmEvent::Rejected { id: OURS, .. }));
        assert_eq!(bench.cm.poll_timeout(), None);
        bench.cm.destroy(OURS, bench.now_ns).unwrap();
        bench.quiet();
        bench.assert_gone();
    }
}

#[test]
fn taking_back_a_reply() {
    let mut bench = Bench::rep_sent();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Rej(our_rej(OURS, Rejected::Other, RejectReason::CONSUMER)));
    assert_eq!(bench.state(OURS), None);
    bench.wait_exactly(512_000_000);
    bench.assert_gone();
}

#[test]
fn a_peer_that_disconnects_at_once_was_connected() {
    let mut bench = Bench::rep_sent();
    bench.receive(CmMessage::Dreq(dreq())).unwrap();
    assert!(matches!(bench.event(), CmEvent::DisconnectRequest { id: OURS, .. }));
    bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
}

#[test]
fn requests_that_make_no_sense_are_rejected() {
    let path = req().primary;
    let unspecified = PrivateData::new(&ip_header([0, 0, 0, 0], US)).unwrap();
    let group = PrivateData::new(&ip_header([224, 0, 0, 1], US)).unwrap();
    let cases = [
        (Req { service_id: pumice_transport::mad::ServiceId(3), ..req() }, RejectReason::INVALID_SERVICE_ID),
        (Req { transport: TransportType::Rd, ..req() }, RejectReason::INVALID_TRANSPORT_TYPE),
        (Req { transport: TransportType::Unknown(5), ..req() }, RejectReason::INVALID_TRANSPORT_TYPE),
        (Req { private_data: PrivateData::new(&[0x10]).unwrap(), ..req() }, RejectReason::CONSUMER),
        (Req { private_data: unspecified, ..req() }, RejectReason::CONSUMER),
        (Req { private_data: group, ..req() }, RejectReason::CONSUMER),
        (Req { primary: PathFields { remote_gid: gid([9; 4]), ..path }, ..req() }, RejectReason::INVALID_GID),
        (Req { path_mtu: 0, ..req() }, RejectReason::INVALID_MTU),
        (Req { path_mtu: 6, ..req() }, RejectReason::INVALID_MTU),
    ];
    let (mut bench, _) = Bench::listening();
    for (request, reason) in cases {
        assert!(bench.receive(CmMessage::Req(request)).is_err());
        let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
        assert_eq!((rej.local_id, rej.remote_id, rej.rejected), (CommId::NONE, THEIRS, Rejected::Req));
        assert_eq!(rej.reason, reason);
        bench.quiet();
    }
    assert_eq!(bench.cm.connection_count(), 0);
}

/// A peer that names both ends by GID (AF_IB) writes no header: the path of the request has the addresses.
#[test]
fn a_request_without_the_header_of_rdma_cm_is_one_by_gid() {
    let (mut bench, _) = Bench::listening();
    let said = PrivateData::new(&[0, 0, 1, 2]).unwrap();
    bench.receive(CmMessage::Req(Req { private_data: said, ..req() })).unwrap();
    let CmEvent::ConnectRequest { request, .. } = bench.event() else { panic!("a request") };
    assert_eq!(request.private_data, said);
}

/// As Linux: the consumer's code, because it is the listener that is of another type.
#[test]
fn a_request_for_another_transport_than_the_listeners_is_rejected() {
    use TransportType::{Rc, Uc, Xrc};
    let ask = |bench: &mut Bench, transport| bench.receive(CmMessage::Req(Req { transport, ..req() }));
    for served in [Rc, Uc, Xrc] {
        for wanted in [Rc, Uc, Xrc] {
            let mut bench = Bench::new();
            let served = Served::Connections(served);
            bench.cm.listen(&ListenParams { served, ..ListenParams::new(SERVICE, 8) }).unwrap();
            let outcome = ask(&mut bench, wanted);
            if served == Served::Connections(wanted) {
                assert_eq!(outcome, Ok(()));
                assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
                continue;
            }
            assert_eq!(outcome, Err(IgnoredMad::Refused));
            let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
            assert_eq!((rej.reason, rej.rejected), (RejectReason::CONSUMER, Rejected::Req));
            assert_eq!((rej.local_id, rej.remote_id), (CommId::NONE, THEIRS));
            bench.quiet();
            assert_eq!(bench.cm.connection_count(), 0);
        }
    }
    let mut bench = Bench::new();
    let served = Served::Datagrams;
    bench.cm.listen(&ListenParams { served, ..ListenParams::new(SERVICE, 8) }).unwrap();
    assert_eq!(ask(&mut bench, Rc), Err(IgnoredMad::Refused));
    assert!(matches!(bench.sent_one(), CmMessage::Rej(rej) if rej.reason == RejectReason::CONSUMER));
    let (mut anything, _) = Bench::listening();
    assert_eq!(ask(&mut anything, Uc), Ok(()));
}

/// The question whether the peer still has the connection: a DREQ for a queue pair that no connection has.
fn question() -> CmMessage {
    CmMessage::Dreq(Dreq { remote_qpn: Qpn::new(0), ..our_dreq() })
}

/// Statement 54: a REQ of a connected queue pair under a new id is rejected as stale.
#[test]
fn a_claim_that_a_connection_is_stale_is_checked_and_a_living_peer_keeps_it() {
    let mut bench = Bench::passive_established();
    let forged = |number: u32| Req { local_id: CommId(0x9abc_0002 + number), ..req() };
    assert_eq!(bench.receive(CmMessage::Req(forged(0))), Err(IgnoredMad::Stale));
    let sent = bench.sent();
    assert_eq!(sent[0], question());
    let CmMessage::Rej(rej) = sent[1] else { panic!("a REJ") };
    assert_eq!((rej.reason, rej.remote_id), (RejectReason::STALE_CONNECTION, forged(0).local_id));
    // Nothing has happened to the connection, and a flood of claims makes no flood of questions.
    for number in 1..100 {
        assert_eq!(bench.receive(CmMessage::Req(forged(number))), Err(IgnoredMad::Stale));
        assert!(matches!(bench.sent_one(), CmMessage::Rej(_)));
    }
    assert_eq!(bench.events(), []);
    assert_eq!((bench.state(OURS), bench.cm.poll_timeout()), (Some(CmState::Established), None));
    bench.wait(SECOND_NS / 10);
    assert_eq!(bench.receive(CmMessage::Req(forged(100))), Err(IgnoredMad::Stale));
    assert_eq!(bench.sent()[0], question());
    // The peer that has it ignores the question, because the number is not its queue pair's.
    let asked = Dreq { remote_qpn: Qpn::new(0), ..dreq() };
    assert_eq!(bench.receive(CmMessage::Dreq(asked)), Err(IgnoredMad::UnknownId));
    bench.quiet();
    assert_eq!(bench.state(OURS), Some(CmState::Established));
}

#[test]
fn a_connection_that_its_peer_confirms_to_have_forgotten_ends() {
    let mut bench = Bench::passive_established();
    // A confirmation that was not asked for ends nothing.
    let unasked = bench.receive(CmMessage::Drep(drep()));
    assert_eq!(unasked, Err(IgnoredMad::WrongState(CmState::Established)));
    let again = Req { local_id: CommId(0x9abc_0002), ..req() };
    assert_eq!(bench.receive(CmMessage::Req(again)), Err(IgnoredMad::Stale));
    bench.sent();
    // One that names another connection neither.
    let foreign = Drep { local_id: CommId(THEIRS.0 ^ 1), ..drep() };
    assert_eq!(bench.receive(CmMessage::Drep(foreign)), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.state(OURS), Some(CmState::Established));
    bench.receive(CmMessage::Drep(drep())).unwrap();
    assert!(matches!(bench.event(), CmEvent::DisconnectRequest { id: OURS, .. }));
    assert_eq!(bench.state(OURS), Some(CmState::DreqReceived));
    // The old connection is ending: the next attempt is believed.
    let third = Req { local_id: CommId(0x9abc_0003), ..req() };
    bench.receive(CmMessage::Req(third)).unwrap();
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    // The end of the old one takes nothing from the new one.
    bench.cm.disconnect(OURS, b"", bench.now_ns).unwrap();
    assert!(matches!(bench.sent_one(), CmMessage::Drep(_)));
    bench.wait(SECOND_NS);
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.events();
    let fourth = Req { local_id: CommId(0x9abc_0004), ..req() };
    assert_eq!(bench.receive(CmMessage::Req(fourth)), Err(IgnoredMad::Stale));
}

#[test]
fn a_request_under_way_is_not_ended_by_the_claim_that_its_peer_has_forgotten_it() {
    for mut bench in [Bench::req_received(), Bench::rep_sent()] {
        let state = bench.state(OURS);
        let again = Req { local_id: CommId(0x9abc_0002), ..req() };
        assert_eq!(bench.receive(CmMessage::Req(again)), Err(IgnoredMad::Stale));
        let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
        assert_eq!((rej.reason, rej.remote_id), (RejectReason::STALE_CONNECTION, again.local_id));
        assert_eq!(bench.events(), []);
        assert_eq!(bench.state(OURS), state);
    }
}

#[test]
fn giving_up_a_request_by_its_senders_id_alone_does_not_end_what_is_established() {
    let mut bench = Bench::passive_established();
    let given_up = Rej {
        local_id: THEIRS,
        remote_id: CommId::NONE,
        rejected: Rejected::Other,
        info_length: 8,
        reason: RejectReason::TIMEOUT,
        info: PrivateData::new(&PEER_GUID.to_be_bytes()).unwrap(),
        private_data: PrivateData::NONE,
    };
    assert_eq!(bench.receive(CmMessage::Rej(given_up)), Err(IgnoredMad::UnknownId));
    let guessed = Rej { remote_id: CommId(OURS.0 ^ 1), ..given_up };
    assert_eq!(bench.receive(CmMessage::Rej(guessed)), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.state(OURS), Some(CmState::Established));
    bench.receive(CmMessage::Rej(Rej { remote_id: OURS, ..given_up })).unwrap();
    assert_eq!(bench.state(OURS), Some(CmState::Timewait));
}

#[test]
fn the_same_numbers_at_another_peer_are_others() {
    let mut bench = Bench::passive_established();
    let mut elsewhere = route();
    elsewhere.remote = gid([10, 0, 0, 3]);
    bench.receive_from(&elsewhere, CmMessage::Req(req())).unwrap();
    assert!(matches!(bench.event(), CmEvent::ConnectRequest { .. }));
    let forged = Dreq { remote_qpn: OUR_QPN, ..dreq() };
    assert_eq!(bench.receive_from(&elsewhere, CmMessage::Dreq(forged)), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.state(OURS), Some(CmState::Established));
    assert_eq!(Qpn::new(0x22), PEER_QPN);
}
