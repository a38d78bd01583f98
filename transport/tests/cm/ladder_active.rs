//! The active side: from `connect` to ESTABLISHED, and every way it can fail.

use pumice_transport::cm::{
    CmConfig, CmError, CmEvent, CmState, ConnectParams, IgnoredMad, QpParameters, RejectParams,
    UnansweredMessage,
};
use pumice_transport::mad::{
    CmMessage, CommId, Mra, MraOf, PrivateData, PrivateDataTooLong, Rej, RejectReason, Rejected, Rep,
    TransportType,
};
use pumice_transport::types::Mtu;
use pumice_transport::wire::{Psn, Qpn};

use crate::kit::*;

#[test]
fn times_are_those_of_linux() {
    assert_eq!((REQ_NS, RESPONSE_NS), (4_608_000_000, 4_096_000_000));
}

#[test]
fn connects() {
    let mut bench = Bench::req_sent();
    assert_eq!(bench.state(OURS), Some(CmState::ReqSent));
    bench.receive(CmMessage::Rep(rep())).unwrap();
    assert_eq!(bench.event(), CmEvent::ConnectResponse { id: OURS, reply: Box::new(rep()) });
    assert_eq!(bench.state(OURS), Some(CmState::RepReceived));
    assert_eq!(bench.cm.poll_timeout(), None);
    let expected = QpParameters {
        transport: TransportType::Rc,
        local: gid(US),
        remote: gid(PEER),
        flow_label: 0x12345,
        traffic_class: 0,
        hop_limit: 64,
        sl: 0,
        pkey: 0xffff,
        path_mtu: Mtu::Mtu1024,
        dest_qpn: PEER_QPN,
        rq_psn: Some(Psn::new(0x111)),
        sq_psn: Psn::new(0x222),
        max_dest_rd_atomic: 5,
        max_rd_atomic: 3,
        timeout: 17,
        retry_count: 7,
        rnr_retry_count: 4,
    };
    assert_eq!(bench.cm.qp_parameters(OURS), Some(&expected));
    bench.cm.send_rtu(OURS, b"go").unwrap();
    let CmMessage::Rtu(rtu) = bench.sent_one() else { panic!("an RTU") };
    assert_eq!((rtu.local_id, rtu.remote_id, &rtu.private_data[..3]), (OURS, THEIRS, &b"go\0"[..]));
    assert_eq!(bench.state(OURS), Some(CmState::Established));
    bench.quiet();
}

/// Statement 53: what a request says, field by field.
#[test]
fn a_request_says_what_linux_says() {
    let mut bench = Bench::new();
    bench.cm.connect(&connect(b""), 0).unwrap();
    let CmMessage::Req(req) = bench.sent_one() else { panic!("a REQ") };
    assert_eq!(req.alternate, Default::default());
    assert_eq!(
        (req.primary.local_lid, req.primary.remote_lid, req.primary.subnet_local),
        (0xffff, 0xffff, false)
    );
    assert_eq!((req.primary.local_ack_timeout, req.max_cm_retries, req.pkey), (17, 15, 0xffff));

    let mut on_link = connect(b"");
    on_link.path.route.hop_limit = 1;
    bench.cm.connect(&on_link, 0).unwrap();
    let CmMessage::Req(req) = bench.sent_one() else { panic!("a REQ") };
    assert_eq!((req.primary.local_lid, req.primary.remote_lid, req.primary.subnet_local), (0, 0, true));

    let mut xrc = connect(b"");
    xrc.transport = TransportType::Xrc;
    xrc.srq = true;
    let id = bench.cm.connect(&xrc, 0).unwrap();
    let CmMessage::Req(req) = bench.sent_one() else { panic!("a REQ") };
    assert_eq!((req.responder_resources, req.retry_count, req.rnr_retry_count, req.srq), (0, 0, 0, false));
    // The target's number is in the EE context's place.
    bench.receive(CmMessage::Rep(Rep { remote_id: id, local_eecn: 0x99, ..rep() })).unwrap();
    assert_eq!(bench.cm.qp_parameters(id).unwrap().dest_qpn, Qpn::new(0x99));
}

#[test]
fn an_unanswered_request_is_sent_16_times_and_given_up() {
    let mut bench = Bench::req_sent();
    let mut again = None;
    for _ in 0..15 {
        bench.wait_exactly(REQ_NS);
        let sent = bench.sent_one();
        assert_eq!(*again.get_or_insert(sent), sent);
    }
    bench.wait_exactly(REQ_NS);
    assert_eq!(bench.event(), CmEvent::Unreachable { id: OURS, unanswered: UnansweredMessage::Req });
    assert_eq!(bench.state(OURS), Some(CmState::Idle));
    bench.quiet();
    // Too late: the peer that replies is told.
    assert_eq!(bench.receive(CmMessage::Rep(rep())), Err(IgnoredMad::WrongState(CmState::Idle)));
    assert_eq!(bench.sent_one(), CmMessage::Rej(our_rej(OURS, Rejected::Rep, RejectReason::INVALID_COMM_ID)));
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.assert_gone();
}

#[test]
fn an_mra_buys_time() {
    let mut bench = Bench::req_sent();
    bench.wait(SECOND_NS);
    let mra = CmMessage::Mra(mra(MraOf::Req));
    bench.receive(mra).unwrap();
    assert_eq!(bench.event(), CmEvent::MraReceived { id: OURS, service_timeout: 24 });
    assert_eq!(bench.state(OURS), Some(CmState::MraReqReceived));
    assert_eq!(bench.receive(mra), Err(IgnoredMad::Duplicate));
    // 24 is 65.536 s; the ACK timeout, 17, is 0.512 s.
    bench.wait_exactly(66_048_000_000);
    assert!(matches!(bench.sent_one(), CmMessage::Req(_)));
    bench.receive(CmMessage::Rep(rep())).unwrap();
    assert!(matches!(bench.event(), CmEvent::ConnectResponse { .. }));
}

#[test]
fn an_mra_of_something_else_changes_nothing() {
    let mut bench = Bench::req_sent();
    assert_eq!(bench.receive(CmMessage::Mra(mra(MraOf::Rep))), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.receive(CmMessage::Mra(mra(MraOf::Lap))), Err(IgnoredMad::UnknownId));
    let stranger = Mra { remote_id: CommId(1), ..mra(MraOf::Req) };
    assert_eq!(bench.receive(CmMessage::Mra(stranger)), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.state(OURS), Some(CmState::ReqSent));
}

#[test]
fn a_rejection_of_the_request_ends_it() {
    for reason in [RejectReason::CONSUMER, RejectReason::INVALID_SERVICE_ID, RejectReason(999)] {
        let mut bench = Bench::req_sent();
        let rej = rej(Rejected::Req, reason);
        bench.receive(CmMessage::Rej(rej)).unwrap();
        assert_eq!(bench.event(), CmEvent::Rejected { id: OURS, rejection: Box::new(rej) });
        assert_eq!(bench.state(OURS), Some(CmState::Idle));
        assert_eq!(bench.receive(CmMessage::Rej(rej)), Err(IgnoredMad::WrongState(CmState::Idle)));
        bench.quiet();
        bench.cm.destroy(OURS, bench.now_ns).unwrap();
        bench.assert_gone();
    }
}

#[test]
fn a_rejection_may_carry_the_id_that_an_mra_told() {
    let mut bench = Bench::req_sent();
    bench.receive(CmMessage::Mra(mra(MraOf::Req))).unwrap();
    bench.events();
    let rej = Rej { local_id: THEIRS, ..rej(Rejected::Req, RejectReason::CONSUMER) };
    bench.receive(CmMessage::Rej(rej)).unwrap();
    assert!(matches!(bench.event(), CmEvent::Rejected { .. }));
}

#[test]
fn a_stale_connection_waits_before_its_queue_pair_can_be_used() {
    let mut bench = Bench::req_sent();
    bench.receive(CmMessage::Rej(rej(Rejected::Req, RejectReason::STALE_CONNECTION))).unwrap();
    assert!(matches!(bench.event(), CmEvent::Rejected { .. }));
    assert_eq!(bench.state(OURS), Some(CmState::Timewait));
    bench.wait_exactly(512_000_000);
    assert_eq!(bench.event(), CmEvent::TimewaitExit { id: OURS });
    assert_eq!(bench.state(OURS), Some(CmState::Idle));
}

#[test]
fn a_repeated_reply_gets_the_rtu_again() {
    let mut bench = Bench::rep_received();
    bench.cm.send_rtu(OURS, b"same").unwrap();
    let rtu = bench.sent_one();
    for _ in 0..3 {
        assert_eq!(bench.receive(CmMessage::Rep(rep())), Err(IgnoredMad::Duplicate));
        assert_eq!(bench.sent_one(), rtu);
    }
    assert_eq!(bench.events(), []);
}

#[test]
fn a_reply_repeated_too_early_is_answered_with_an_mra() {
    let mut bench = Bench::rep_received();
    for _ in 0..2 {
        assert_eq!(bench.receive(CmMessage::Rep(rep())), Err(IgnoredMad::Duplicate));
        let CmMessage::Mra(mra) = bench.sent_one() else { panic!("an MRA") };
        assert_eq!(
            (mra.local_id, mra.remote_id, mra.of, mra.service_timeout),
            (OURS, THEIRS, MraOf::Rep, 24)
        );
    }
    assert_eq!(bench.state(OURS), Some(CmState::MraRepSent));
    bench.cm.send_rtu(OURS, &[]).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Rtu(our_rtu()));
}

#[test]
fn without_mras_silence() {
    let mut bench = Bench::with(CmConfig { mra_service_timeout: None, ..CmConfig::new(OUR_GUID) });
    bench.cm.connect(&connect(b""), 0).unwrap();
    bench.sent();
    bench.receive(CmMessage::Rep(rep())).unwrap();
    bench.events();
    assert_eq!(bench.receive(CmMessage::Rep(rep())), Err(IgnoredMad::Duplicate));
    bench.quiet();
    bench.cm.mra(OURS, 20, b"wait").unwrap();
    let CmMessage::Mra(mra) = bench.sent_one() else { panic!("an MRA") };
    assert_eq!((mra.of, mra.service_timeout, &mra.private_data[..4]), (MraOf::Rep, 20, &b"wait"[..]));
}

#[test]
fn a_reply_can_be_rejected() {
    let mut bench = Bench::rep_received();
    let params =
        RejectParams { reason: RejectReason::CONSUMER, info: b"info", private_data: b"changed my mind" };
    bench.cm.reject(OURS, &params, bench.now_ns).unwrap();
    let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
    assert_eq!((rej.local_id, rej.remote_id, rej.rejected), (OURS, THEIRS, Rejected::Rep));
    assert_eq!((rej.info_length, &rej.info[..4]), (4, &b"info"[..]));
    assert_eq!(&rej.private_data[..15], b"changed my mind");
    assert_eq!(bench.state(OURS), Some(CmState::Idle));
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.assert_gone();
}

#[test]
fn a_reply_for_no_connection_is_rejected() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive(CmMessage::Rep(rep())), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.sent_one(), CmMessage::Rej(our_rej(OURS, Rejected::Rep, RejectReason::INVALID_COMM_ID)));
    bench.assert_gone();
}

#[test]
fn a_reply_from_elsewhere_does_not_connect() {
    let mut bench = Bench::req_sent();
    let mut elsewhere = route();
    elsewhere.remote = gid([10, 0, 0, 66]);
    assert_eq!(bench.receive_from(&elsewhere, CmMessage::Rep(rep())), Err(IgnoredMad::UnknownId));
    assert!(bench.cm.poll_transmit().is_some(), "it is rejected");
    assert_eq!(bench.state(OURS), Some(CmState::ReqSent));
    let rej = rej(Rejected::Req, RejectReason::CONSUMER);
    assert_eq!(bench.receive_from(&elsewhere, CmMessage::Rej(rej)), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.state(OURS), Some(CmState::ReqSent));
}

#[test]
fn a_reply_with_a_queue_pair_that_is_connected_is_stale() {
    let mut bench = Bench::established();
    let second = bench.cm.connect(&connect(b""), bench.now_ns).unwrap();
    bench.sent();
    let reply = Rep { remote_id: second, local_id: CommId(0x77), ..rep() };
    assert_eq!(bench.receive(CmMessage::Rep(reply)), Err(IgnoredMad::Stale));
    let sent = bench.sent();
    // Perhaps the peer has started again: it is asked about the old connection.
    assert!(
        matches!(sent[0], CmMessage::Dreq(dreq) if dreq.local_id == OURS && dreq.remote_qpn == Qpn::new(0))
    );
    let CmMessage::Rej(rej) = sent[1] else { panic!("a REJ") };
    assert_eq!((rej.reason, rej.rejected), (RejectReason::STALE_CONNECTION, Rejected::Rep));
    // The same communication id again is no second connection either.
    let reply = Rep { remote_id: second, local_qpn: Qpn::new(0x23), ..rep() };
    assert_eq!(bench.receive(CmMessage::Rep(reply)), Err(IgnoredMad::Duplicate));
    assert_eq!(bench.state(second), Some(CmState::ReqSent));
    assert_eq!(bench.state(OURS), Some(CmState::Established));
}

#[test]
fn giving_up_a_request_says_so_with_our_guid() {
    let mut bench = Bench::req_sent();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    let CmMessage::Rej(rej) = bench.sent_one() else { panic!("a REJ") };
    assert_eq!((rej.local_id, rej.remote_id, rej.reason), (OURS, CommId::NONE, RejectReason::TIMEOUT));
    assert_eq!((rej.timeout_ca_guid(), rej.info_length), (Some(OUR_GUID), 8));
    bench.assert_gone();
}

#[test]
fn values_that_do_not_fit_are_refused_and_cost_nothing() {
    let mut bench = Bench::new();
    let too_long = [1; 93];
    type Change = fn(&mut ConnectParams<'_>);
    let wrong: [(Change, &str); 8] = [
        (|p| p.retry_count = 8, "retry count"),
        (|p| p.rnr_retry_count = 8, "RNR retry count"),
        (|p| p.max_cm_retries = 16, "CM retries"),
        (|p| p.remote_response_timeout = 32, "remote CM response timeout"),
        (|p| p.local_response_timeout = 32, "local CM response timeout"),
        (|p| p.path.packet_life_time = 32, "packet life time"),
        (|p| p.path.packet_rate = 64, "packet rate"),
        (|p| p.path.sl = 16, "service level"),
    ];
    for (change, name) in wrong {
        let mut params = connect(b"");
        change(&mut params);
        let error = bench.cm.connect(&params, 0).unwrap_err();
        assert!(matches!(error, CmError::OutOfRange { field, .. } if field == name), "{error}");
    }
    let error = bench.cm.connect(&connect(&too_long), 0).unwrap_err();
    assert_eq!(error, CmError::PrivateData(PrivateDataTooLong { length_bytes: 93, limit_bytes: 92 }));
    let mut params = connect(b"");
    params.transport = TransportType::Rd;
    assert_eq!(bench.cm.connect(&params, 0), Err(CmError::Transport));
    bench.quiet();
    assert!(bench.cm.is_empty());
}

#[test]
fn calls_in_the_wrong_state_are_refused() {
    let mut bench = Bench::req_sent();
    let wrong = |result: Result<(), CmError>, state: CmState| {
        assert!(
            matches!(result, Err(CmError::WrongState { id: OURS, state: s, .. }) if s == state),
            "{result:?}"
        );
    };
    wrong(bench.cm.send_rtu(OURS, &[]), CmState::ReqSent);
    wrong(bench.cm.establish(OURS), CmState::ReqSent);
    wrong(bench.cm.disconnect(OURS, &[], 0), CmState::ReqSent);
    wrong(bench.cm.mra(OURS, 20, &[]), CmState::ReqSent);
    assert_eq!(bench.cm.send_rtu(CommId(3), &[]), Err(CmError::UnknownId(CommId(3))));
    assert!(matches!(bench.cm.send_rtu(OURS, &[0; 225]), Err(CmError::PrivateData(_))));
    let mut bench = Bench::established();
    wrong(bench.cm.send_rtu(OURS, &[]), CmState::Established);
    let reject = RejectParams::consumer(&[]);
    wrong(bench.cm.reject(OURS, &reject, 0), CmState::Established);
    assert_eq!(PrivateData::<0>::NONE, PrivateData::new(&[]).unwrap());
}
