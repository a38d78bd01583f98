//! States and their transitions.

use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::scene::Scene;
use crate::kit::{Connection, address_vector};

/// ERR can be reached from every state but RESET without attributes; a refused modify changes nothing.
#[test]
fn statement_31_err_from_every_state_but_reset_and_a_refusal_changes_nothing() {
    let scene = Scene::of(QpType::Ud);
    let to_err = QpAttributes { qp_state: QpState::Err as u32, ..QpAttributes::default() };
    let err = |qpn: Qpn| scene.a.hca.modify_qp(qpn, &to_err, AttributeMask::STATE);
    let fresh = || scene.a.create_qp(QpType::Ud);
    let qpn = fresh();
    assert_eq!(err(qpn).unwrap_err().errno(), libc::EINVAL, "from RESET");
    assert_eq!(scene.a.state(qpn), QpState::Reset);
    let init = fresh();
    scene.a.to_init(init);
    let rtr = fresh();
    scene.a.to_init(rtr);
    scene.a.move_to(rtr, QpState::Rtr);
    let [rts, sqd, sqe] = [(); 3].map(|()| {
        let qpn = fresh();
        scene.a.to_rts_datagram(qpn, 0);
        qpn
    });
    scene.a.move_to(sqd, QpState::Sqd);
    // A datagram beyond the MTU fails locally.
    let destination = scene.destination(0x1111_1111);
    let sges = [scene.a.sge(0, 9000)];
    let long = SendRequest { sges: &sges, ud: Some(destination), ..SendRequest::new(1, SendOpcode::Send) };
    scene.a.hca.post_send(sqe, &long).unwrap();
    for (qpn, state) in [
        (init, QpState::Init),
        (rtr, QpState::Rtr),
        (rts, QpState::Rts),
        (sqd, QpState::Sqd),
        (sqe, QpState::Sqe),
    ] {
        assert_eq!(scene.a.state(qpn), state);
        err(qpn).unwrap();
        assert_eq!(scene.a.state(qpn), QpState::Err, "from {}", state.name());
        err(qpn).unwrap();
    }
}

/// Every attribute is as before when one of several is wrong.
#[test]
fn statement_31_a_failing_modify_leaves_every_attribute() {
    let scene = Scene::new();
    let before = scene.a.hca.query_qp(scene.qa).unwrap();
    let wrong = QpAttributes {
        qp_state: QpState::Sqd as u32,
        address_vector: address_vector("10.9.9.9".parse().unwrap()),
        timeout: 3,
        retry_cnt: 8,
        min_rnr_timer: 4,
        ..QpAttributes::default()
    };
    scene.a.move_to(scene.qa, QpState::Sqd);
    use AttributeMask as M;
    for mask in [
        M::STATE | M::AV | M::TIMEOUT | M::MIN_RNR_TIMER | M::RETRY_CNT,
        M::STATE | M::TIMEOUT | M::QKEY,
        M::STATE | M::TIMEOUT | M::from_bits_retain(1 << 30),
    ] {
        assert!(scene.a.hca.modify_qp(scene.qa, &wrong, mask).is_err());
        let after = scene.a.hca.query_qp(scene.qa).unwrap();
        assert_eq!(
            (after.timeout, after.retry_cnt, after.min_rnr_timer, after.address_vector),
            (before.timeout, before.retry_cnt, before.min_rnr_timer, before.address_vector)
        );
    }
}

/// INIT to RTR of RC needs min_rnr_timer; the masks of RC are good for XRC initiators, whose surplus is
/// ignored.
#[test]
fn statement_32_rtr_needs_min_rnr_timer_and_rc_masks_serve_xrc() {
    use AttributeMask as M;
    let scene = Scene::new();
    let rtr = QpAttributes {
        qp_state: QpState::Rtr as u32,
        address_vector: address_vector(scene.b.ip),
        path_mtu: Mtu::Mtu1024 as u32,
        dest_qp_num: 0x77,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        ..QpAttributes::default()
    };
    let whole =
        M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let rc = scene.a.create_qp(QpType::Rc);
    scene.a.to_init(rc);
    let error = scene.a.hca.modify_qp(rc, &rtr, whole - M::MIN_RNR_TIMER).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    assert!(error.to_string().contains("min_rnr_timer"), "{error}");
    scene.a.hca.modify_qp(rc, &rtr, whole).unwrap();
    let mut init = scene.a.qp_init(QpType::XrcInitiator);
    init.recv_cq = None;
    let initiator = scene.a.hca.create_qp(&init).unwrap().0;
    scene.a.to_init(initiator);
    scene.a.hca.modify_qp(initiator, &rtr, whole).unwrap();
    scene.a.to_rts(initiator, true, Connection::default());
    assert_eq!(scene.a.state(initiator), QpState::Rts);
}

/// SQD: the message under way finishes, new ones are held, SQ_DRAINED comes once and if asked for, RTS goes
/// on.
#[test]
fn statement_45_sqd_finishes_holds_and_tells() {
    for notify in [true, false] {
        let mut scene = Scene::new();
        scene.write(1, 600_000);
        scene.write(2, 64);
        let attributes = QpAttributes {
            qp_state: QpState::Sqd as u32,
            en_sqd_async_notify: notify,
            ..QpAttributes::default()
        };
        let mask = AttributeMask::STATE | AttributeMask::EN_SQD_ASYNC_NOTIFY;
        scene.a.hca.modify_qp(scene.qa, &attributes, mask).unwrap();
        assert!(scene.a.hca.query_qp(scene.qa).unwrap().sq_draining);
        let early = QpAttributes { qp_state: QpState::Rts as u32, ..QpAttributes::default() };
        let error = scene.a.hca.modify_qp(scene.qa, &early, AttributeMask::STATE).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "still draining");
        scene.write(3, 64);
        scene.run(100_000_000);
        let expected = if notify { vec![AsyncEventType::SqDrained] } else { vec![] };
        assert_eq!(scene.a.event_types(), expected);
        assert!(!scene.a.hca.query_qp(scene.qa).unwrap().sq_draining);
        assert_eq!(scene.a.outcomes(), [(1, WcStatus::Success)]);
        // Receiving goes on.
        scene.a.post_recv(scene.qa, 7, 0, 8);
        scene.b.send(scene.qb, 8, 0, 8);
        scene.settle();
        assert_eq!(scene.a.outcomes(), [(7, WcStatus::Success)]);
        scene.a.move_to(scene.qa, QpState::Rts);
        scene.run(100_000_000);
        assert_eq!(scene.a.outcomes(), [(2, WcStatus::Success), (3, WcStatus::Success)]);
        assert_eq!(scene.a.event_types(), []);
    }
}

/// ERR while draining: everything is flushed, and nothing says that it drained.
#[test]
fn statement_45_err_while_draining_flushes_without_sq_drained() {
    let mut scene = Scene::new();
    scene.write(1, 600_000);
    scene.write(2, 64);
    let attributes =
        QpAttributes { qp_state: QpState::Sqd as u32, en_sqd_async_notify: true, ..QpAttributes::default() };
    let mask = AttributeMask::STATE | AttributeMask::EN_SQD_ASYNC_NOTIFY;
    scene.a.hca.modify_qp(scene.qa, &attributes, mask).unwrap();
    scene.a.move_to(scene.qa, QpState::Err);
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(scene.a.event_types(), []);
}
