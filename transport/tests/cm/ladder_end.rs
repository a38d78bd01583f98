//! The end of a connection, wished and not.

use pumice_transport::cm::{CmError, CmEvent, CmState, IgnoredMad};
use pumice_transport::mad::{
    ApStatus, Apr, CmMessage, CommId, Drep, Dreq, Lap, Mad, MadError, PathFields, PrivateData, RejectReason,
    Rejected,
};
use pumice_transport::wire::Qpn;

use crate::kit::*;

/// Timewait: the ACK timeout, 17.
const TIMEWAIT_NS: u64 = 512_000_000;

#[test]
fn we_disconnect() {
    for mut bench in [Bench::established(), Bench::passive_established()] {
        bench.cm.disconnect(OURS, b"enough", bench.now_ns).unwrap();
        let CmMessage::Dreq(dreq) = bench.sent_one() else { panic!("a DREQ") };
        assert_eq!((dreq.local_id, dreq.remote_id, dreq.remote_qpn), (OURS, THEIRS, PEER_QPN));
        assert_eq!(&dreq.private_data[..7], b"enough\0");
        bench.receive(CmMessage::Drep(drep())).unwrap();
        let private_data = Some(Box::new(drep().private_data));
        assert_eq!(bench.event(), CmEvent::Disconnected { id: OURS, private_data, answered: true });
        assert_eq!(bench.receive(CmMessage::Drep(drep())), Err(IgnoredMad::Duplicate));
        bench.wait_exactly(TIMEWAIT_NS);
        assert_eq!(bench.event(), CmEvent::TimewaitExit { id: OURS });
        assert_eq!(bench.state(OURS), Some(CmState::Idle));
        bench.cm.destroy(OURS, bench.now_ns).unwrap();
        bench.quiet();
        bench.assert_gone();
    }
}

#[test]
fn the_peer_disconnects() {
    for mut bench in [Bench::established(), Bench::passive_established()] {
        bench.receive(CmMessage::Dreq(dreq())).unwrap();
        let private_data = Box::new(dreq().private_data);
        assert_eq!(bench.event(), CmEvent::DisconnectRequest { id: OURS, private_data });
        assert_eq!(bench.receive(CmMessage::Dreq(dreq())), Err(IgnoredMad::Duplicate));
        bench.quiet();
        bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
        assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
        // The DREP is lost.
        assert_eq!(bench.receive(CmMessage::Dreq(dreq())), Err(IgnoredMad::Duplicate));
        assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
        bench.wait_exactly(TIMEWAIT_NS);
        assert_eq!(bench.event(), CmEvent::TimewaitExit { id: OURS });
        // Even later.
        assert_eq!(bench.receive(CmMessage::Dreq(dreq())), Err(IgnoredMad::UnknownId));
        assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
    }
}

#[test]
fn an_unanswered_disconnection_is_complete_after_16_attempts() {
    let mut bench = Bench::passive_established();
    bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
    bench.sent();
    for _ in 0..15 {
        bench.wait_exactly(RESPONSE_NS);
        assert_eq!(bench.sent_one(), CmMessage::Dreq(our_dreq()));
    }
    bench.wait_exactly(RESPONSE_NS);
    assert_eq!(bench.event(), CmEvent::Disconnected { id: OURS, private_data: None, answered: false });
    assert_eq!(bench.state(OURS), Some(CmState::Timewait));
    // The peer comes back to disconnect as well.
    assert_eq!(bench.receive(CmMessage::Dreq(dreq())), Err(IgnoredMad::Duplicate));
    assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
}

#[test]
fn both_disconnect() {
    let mut bench = Bench::established();
    bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
    bench.sent();
    bench.receive(CmMessage::Dreq(dreq())).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
    assert_eq!(bench.event(), CmEvent::Disconnected { id: OURS, private_data: None, answered: true });
    assert_eq!(bench.receive(CmMessage::Drep(drep())), Err(IgnoredMad::Duplicate));
    bench.wait_exactly(TIMEWAIT_NS);
    assert_eq!(bench.event(), CmEvent::TimewaitExit { id: OURS });
}

/// Statement 54: an unknown DREQ is confirmed.
#[test]
fn a_disconnection_of_nothing_is_confirmed() {
    let mut bench = Bench::new();
    assert_eq!(bench.receive(CmMessage::Dreq(dreq())), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
    assert_eq!(bench.receive(CmMessage::Drep(drep())), Err(IgnoredMad::UnknownId));
    bench.quiet();
    bench.assert_gone();
}

/// Statement 54: a DREQ carries the peer's queue pair number.
#[test]
fn a_disconnection_must_name_the_queue_pair_and_both_ids() {
    let mut bench = Bench::established();
    let wrong_qp = Dreq { remote_qpn: Qpn::new(5), ..dreq() };
    assert_eq!(bench.receive(CmMessage::Dreq(wrong_qp)), Err(IgnoredMad::UnknownId));
    bench.quiet();
    let wrong_id = Dreq { local_id: CommId(5), ..dreq() };
    assert_eq!(bench.receive(CmMessage::Dreq(wrong_id)), Err(IgnoredMad::UnknownId));
    let expected = Drep { remote_id: CommId(5), ..our_drep() };
    assert_eq!(bench.sent_one(), CmMessage::Drep(expected));
    let wrong_drep = Drep { local_id: CommId(5), ..drep() };
    assert_eq!(bench.receive(CmMessage::Drep(wrong_drep)), Err(IgnoredMad::UnknownId));
    assert_eq!(bench.receive(CmMessage::Drep(drep())), Err(IgnoredMad::WrongState(CmState::Established)));
    assert_eq!(bench.state(OURS), Some(CmState::Established));
}

#[test]
fn the_peer_forgets_an_established_connection() {
    let mut bench = Bench::established();
    bench.receive(CmMessage::Rej(rej(Rejected::Other, RejectReason::TIMEOUT))).unwrap_err();
    let rej = pumice_transport::mad::Rej {
        info: PrivateData::new(&PEER_GUID.to_be_bytes()).unwrap(),
        ..rej(Rejected::Other, RejectReason::TIMEOUT)
    };
    bench.receive(CmMessage::Rej(rej)).unwrap();
    assert!(matches!(bench.event(), CmEvent::Rejected { id: OURS, .. }));
    assert_eq!(bench.state(OURS), Some(CmState::Timewait));
    assert_eq!(bench.receive(CmMessage::Rej(rej)), Err(IgnoredMad::WrongState(CmState::Timewait)));
}

#[test]
fn a_connection_that_was_given_up_is_still_disconnected() {
    let mut bench = Bench::established();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Dreq(our_dreq()));
    assert_eq!((bench.state(OURS), bench.cm.connection_count()), (None, 1));
    assert_eq!(bench.cm.destroy(OURS, 0), Err(CmError::UnknownId(OURS)));
    assert_eq!(bench.cm.disconnect(OURS, &[], 0), Err(CmError::UnknownId(OURS)));
    bench.wait_exactly(REQ_NS);
    assert_eq!(bench.sent_one(), CmMessage::Dreq(our_dreq()));
    bench.receive(CmMessage::Drep(drep())).unwrap();
    bench.quiet();
    bench.wait_exactly(TIMEWAIT_NS);
    bench.assert_gone();
}

#[test]
fn giving_up_in_the_middle_of_a_disconnection() {
    // The peer waits for our DREP.
    let mut bench = Bench::established();
    bench.receive(CmMessage::Dreq(dreq())).unwrap();
    // Its event was not taken: it goes with the connection.
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    assert_eq!(bench.events(), []);
    assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
    bench.wait_exactly(TIMEWAIT_NS);
    bench.assert_gone();
    // We are disconnecting, and so does the peer.
    let mut bench = Bench::established();
    bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.sent();
    bench.receive(CmMessage::Dreq(dreq())).unwrap();
    assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
    bench.wait_exactly(TIMEWAIT_NS);
    bench.assert_gone();
    // In timewait.
    let mut bench = Bench::established();
    bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
    bench.sent();
    bench.receive(CmMessage::Drep(drep())).unwrap();
    bench.events();
    bench.cm.destroy(OURS, bench.now_ns).unwrap();
    bench.wait_exactly(TIMEWAIT_NS);
    bench.assert_gone();
}

#[test]
fn every_message_in_every_state_changes_it_as_it_should_or_not_at_all() {
    let benches: [(CmState, fn() -> Bench); 11] = [
        (CmState::ReqSent, Bench::req_sent),
        (CmState::RepReceived, Bench::rep_received),
        (CmState::Established, Bench::established),
        (CmState::ReqReceived, Bench::req_received),
        (CmState::RepSent, Bench::rep_sent),
        (CmState::Established, Bench::passive_established),
        (CmState::DreqSent, || {
            let mut bench = Bench::established();
            bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
            bench.sent();
            bench
        }),
        (CmState::DreqReceived, || {
            let mut bench = Bench::established();
            bench.receive(CmMessage::Dreq(dreq())).unwrap();
            bench.events();
            bench
        }),
        (CmState::Timewait, || {
            let mut bench = Bench::established();
            bench.receive(CmMessage::Dreq(dreq())).unwrap();
            bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
            bench.sent();
            bench.events();
            bench
        }),
        (CmState::Idle, || {
            let mut bench = Bench::established();
            bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
            bench.receive(CmMessage::Drep(drep())).unwrap();
            bench.wait(TIMEWAIT_NS);
            bench.sent();
            bench.events();
            bench
        }),
        (CmState::MraReqReceived, || {
            let mut bench = Bench::req_sent();
            bench.receive(CmMessage::Mra(mra(pumice_transport::mad::MraOf::Req))).unwrap();
            bench.events();
            bench
        }),
    ];
    use CmState::*;
    let next = |state: CmState, message: &CmMessage| match (state, message) {
        (ReqSent | MraReqReceived, CmMessage::Rep(_)) => RepReceived,
        (ReqReceived, CmMessage::Req(_)) => MraReqSent,
        (RepReceived, CmMessage::Rep(_)) => MraRepSent,
        (RepSent, CmMessage::Rtu(_)) => Established,
        (RepSent | Established, CmMessage::Dreq(_)) => DreqReceived,
        (DreqSent, CmMessage::Dreq(_) | CmMessage::Drep(_)) => Timewait,
        (ReqSent | MraReqReceived, CmMessage::Rej(rej)) if rej.rejected == Rejected::Req => Idle,
        (RepSent, CmMessage::Rej(rej)) if rej.rejected != Rejected::Req => Idle,
        (RepReceived | Established | DreqSent, CmMessage::Rej(rej)) if rej.rejected != Rejected::Req => {
            Timewait
        }
        (ReqReceived, CmMessage::Rej(rej)) if rej.rejected != Rejected::Req => Idle,
        (ReqSent, CmMessage::Mra(mra)) if mra.of == pumice_transport::mad::MraOf::Req => MraReqReceived,
        (RepSent, CmMessage::Mra(mra)) if mra.of == pumice_transport::mad::MraOf::Rep => MraRepReceived,
        (state, _) => state,
    };
    let messages = [
        CmMessage::Req(req()),
        CmMessage::Rep(rep()),
        CmMessage::Rtu(rtu()),
        CmMessage::Dreq(dreq()),
        CmMessage::Drep(drep()),
        CmMessage::Rej(rej(Rejected::Req, RejectReason::CONSUMER)),
        CmMessage::Rej(rej(Rejected::Rep, RejectReason::CONSUMER)),
        CmMessage::Rej(rej(Rejected::Other, RejectReason::CONSUMER)),
        CmMessage::Mra(mra(pumice_transport::mad::MraOf::Req)),
        CmMessage::Mra(mra(pumice_transport::mad::MraOf::Rep)),
    ];
    for (state, make) in benches {
        for message in &messages {
            let mut bench = make();
            assert_eq!(bench.state(OURS), Some(state));
            let result = bench.receive(*message);
            assert_eq!(bench.state(OURS), Some(next(state, message)), "{state:?}: {message:?}: {result:?}");
            // In every case: once the consumer has gone, time ends it.
            bench.cm.destroy(OURS, bench.now_ns).unwrap();
            bench.events();
            for _ in 0..40 {
                bench.wait(RESPONSE_NS);
                bench.sent();
            }
            assert_eq!(bench.cm.connection_count(), 0, "{state:?}: {message:?}");
            bench.assert_gone();
        }
    }
}

#[test]
fn a_peer_that_died_disconnects_without_a_word() {
    for make in [Bench::established, Bench::passive_established] {
        let mut bench = make();
        assert_eq!(bench.cm.peer(OURS), Some((THEIRS, gid(PEER))));
        assert_eq!(bench.cm.established().collect::<Vec<_>>(), [OURS]);
        bench.cm.peer_died(OURS);
        assert!(matches!(bench.event(), CmEvent::DisconnectRequest { id: OURS, .. }));
        bench.cm.peer_died(OURS);
        bench.quiet();
        assert_eq!(bench.cm.established().count(), 0);
        bench.cm.disconnect(OURS, &[], bench.now_ns).unwrap();
        assert_eq!(bench.sent_one(), CmMessage::Drep(our_drep()));
        bench.cm.destroy(OURS, bench.now_ns).unwrap();
        bench.wait(TIMEWAIT_NS);
        bench.assert_gone();
    }
    // Others have timers of their own.
    let mut bench = Bench::rep_sent();
    bench.cm.peer_died(OURS);
    bench.quiet();
    assert_eq!(bench.state(OURS), Some(CmState::RepSent));
}

#[test]
fn an_alternate_path_is_answered_for_a_connection_that_is_known() {
    for mut bench in [Bench::established(), Bench::passive_established()] {
        let lap = Lap {
            local_id: THEIRS,
            remote_id: OURS,
            remote_qpn: Qpn::new(0x77),
            remote_response_timeout: 20,
            alternate: PathFields::default(),
            private_data: PrivateData::NONE,
        };
        let ignored = Err(IgnoredMad::Mad(MadError::AlternatePath));
        assert_eq!(bench.cm.handle_mad(&route(), &lap.emit(5), bench.now_ns), ignored);
        let out = bench.cm.poll_transmit().expect("an APR");
        let apr = Apr::of(&Mad::parse(&out.mad).unwrap()).expect("an APR");
        assert_eq!((apr.local_id, apr.remote_id, apr.status), (OURS, THEIRS, ApStatus::UNSUPPORTED));
        // Another process may have this one.
        let other = Lap { remote_id: CommId(0x55), ..lap };
        assert_eq!(bench.cm.handle_mad(&route(), &other.emit(6), bench.now_ns), ignored);
        assert_eq!(bench.cm.handle_mad(&route(), &apr.emit(6), bench.now_ns), ignored);
        bench.quiet();
    }
}
