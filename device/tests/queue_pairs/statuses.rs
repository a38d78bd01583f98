//! Every status that a completion can have here, provoked once under its name, with the states of both ends
//! and the events.

use pumice_device::memory::WindowType;
use pumice_transport::types::*;
use pumice_transport::wire::{Aeth, Headers, Reth};

use crate::kit::Connection;
use crate::kit::forger::{Forger, headers};
use crate::kit::scene::Scene;

const ERR: QpState = QpState::Err;

/// The first unsuccessful outcome of `a`, and the state of `a`.
fn failure(scene: &mut Scene) -> (u64, WcStatus, QpState) {
    scene.run(20_000_000_000);
    let outcomes = scene.a.outcomes();
    let first = outcomes.iter().find(|(_, status)| *status != WcStatus::Success).expect("something failed");
    (first.0, first.1, scene.a.state(scene.qa))
}

#[test]
fn status_0_success() {
    let mut scene = Scene::new();
    scene.write(1, 8);
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(1, WcStatus::Success)]);
}

/// A datagram beyond the port's MTU; the send side stops.
#[test]
fn status_1_loc_len_err_of_a_datagram_too_long() {
    let mut scene = Scene::of(QpType::Ud);
    let sges = [scene.a.sge(0, 4097)];
    let ud = Some(scene.destination(0x1111_1111));
    scene.post(&SendRequest { sges: &sges, ud, ..SendRequest::new(1, SendOpcode::Send) });
    assert_eq!(failure(&mut scene), (1, WcStatus::LocLenErr, QpState::Sqe));
}

/// A message that does not fit its receive, on RC and UC.
#[test]
fn status_1_loc_len_err_of_a_receive_too_short() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut scene = Scene::of(qp_type);
        scene.b.post_recv(scene.qb, 5, 0, 44);
        let sges = [scene.a.sge(0, 64)];
        scene.post(&SendRequest { sges: &sges, ..SendRequest::new(1, SendOpcode::Send) });
        scene.settle();
        assert_eq!(scene.b.outcomes(), [(5, WcStatus::LocLenErr)], "{}", qp_type.name());
        assert_eq!(scene.b.state(scene.qb), ERR);
    }
}

/// A datagram that does not fit its receive is dropped; the receive takes the next one that does.
#[test]
fn no_status_of_a_datagram_too_long_for_its_receive() {
    let mut scene = Scene::of(QpType::Ud);
    scene.b.post_recv(scene.qb, 5, 0, 64);
    for (wr_id, length) in [(1, 64), (2, 24)] {
        let sges = [scene.a.sge(0, length)];
        let ud = Some(scene.destination(0x1111_1111));
        scene.post(&SendRequest { sges: &sges, ud, ..SendRequest::new(wr_id, SendOpcode::Send) });
    }
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(scene.b.outcomes(), [(5, WcStatus::Success)]);
    assert_eq!(scene.b.state(scene.qb), QpState::Rts);
}

/// Invalidating what cannot be invalidated here: a region, or nothing.
#[test]
fn status_6_mw_bind_err_of_a_local_invalidate() {
    for region in [true, false] {
        let mut scene = Scene::new();
        let invalidate_rkey = if region { scene.a.rkey } else { 0xdead_0000 };
        scene.post(&SendRequest { invalidate_rkey, ..SendRequest::new(1, SendOpcode::LocalInvalidate) });
        assert_eq!(failure(&mut scene), (1, WcStatus::MwBindErr, ERR));
    }
}

/// A SEND that invalidates a key that is none: the receive says so, and the sender hears nothing.
#[test]
fn status_2_loc_qp_op_err_of_a_receive_with_a_key_to_invalidate() {
    let mut scene = Scene::new();
    scene.b.post_recv(scene.qb, 5, 0, 8);
    let invalidate_rkey = scene.b.rkey;
    scene.post(&SendRequest { invalidate_rkey, ..SendRequest::new(1, SendOpcode::SendWithInvalidate) });
    assert_eq!(failure(&mut scene), (1, WcStatus::RetryExcErr, ERR));
    assert_eq!((scene.b.outcomes(), scene.b.state(scene.qb)), (vec![(5, WcStatus::LocQpOpErr)], ERR));
}

/// A gather list with a key of nothing, beyond its region, of another domain.
#[test]
fn status_4_loc_prot_err_of_a_send() {
    let scene = Scene::new();
    let foreign_pd = scene.a.hca.alloc_pd().unwrap();
    let foreign = scene.a.memory.register(&scene.a.hca, foreign_pd, Access::LOCAL_WRITE);
    let (good, end) = (scene.a.sge(0, 8), scene.a.memory.address() + scene.a.memory.len() as u64);
    let cases = [
        Sge { lkey: 0xdead_0000, ..good },
        Sge { address: end - 4, ..good },
        Sge { address: good.address - 1, ..good },
        Sge { address: u64::MAX - 3, ..good },
        Sge { lkey: foreign.lkey, ..good },
    ];
    let mut scene = scene;
    for sge in cases {
        let (qa, qb) = scene.another_pair(QpType::Rc);
        (scene.qa, scene.qb) = (qa, qb);
        let request = SendRequest { sges: &[sge], ..SendRequest::new(1, SendOpcode::Send) };
        scene.post(&request);
        assert_eq!(failure(&mut scene), (1, WcStatus::LocProtErr, ERR), "{sge:?}");
    }
}

/// A READ into memory that may not be written here.
#[test]
fn status_4_loc_prot_err_of_a_read_into_read_only_memory() {
    for opcode in [SendOpcode::RdmaRead, SendOpcode::FetchAdd] {
        let mut scene = Scene::new();
        let read_only = scene.a.memory.register(&scene.a.hca, scene.a.pd, Access::empty());
        let sges = [Sge { lkey: read_only.lkey, ..scene.a.sge(0, 8) }];
        let atomic = Some(AtomicOperation::FetchAdd { add: 1 });
        let remote = scene.b.target(0);
        scene.post(&SendRequest { sges: &sges, remote, atomic, ..SendRequest::new(1, opcode) });
        assert_eq!(failure(&mut scene), (1, WcStatus::LocProtErr, ERR), "{}", opcode.name());
    }
}

/// A receive whose key is wrong: the sender hears of an operational error.
#[test]
fn status_4_loc_prot_err_of_a_receive() {
    let mut scene = Scene::new();
    let bad = [Sge { lkey: 0xdead_0000, ..scene.b.sge(0, 8) }];
    scene.b.hca.post_recv(scene.qb, &RecvRequest { wr_id: 5, sges: &bad }).unwrap();
    scene.send(1, 8);
    assert_eq!(failure(&mut scene), (1, WcStatus::RemOpErr, ERR));
    assert_eq!((scene.b.outcomes(), scene.b.state(scene.qb)), (vec![(5, WcStatus::LocProtErr)], ERR));
}

#[test]
fn status_5_wr_flush_err() {
    let mut scene = Scene::new();
    scene.a.post_recv(scene.qa, 5, 0, 8);
    scene.a.move_to(scene.qa, ERR);
    scene.write(1, 8);
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(5, WcStatus::WrFlushErr), (1, WcStatus::WrFlushErr)]);
}

/// Windows that cannot be bound: too large, of a region without the right, bound already (type 2).
#[test]
fn status_6_mw_bind_err() {
    for case in 0..4 {
        let mut scene = Scene::new();
        let window = scene.a.hca.alloc_mw(scene.a.pd, WindowType::Type2).unwrap();
        let plain = scene.a.memory.register(&scene.a.hca, scene.a.pd, Access::LOCAL_WRITE);
        let good = WindowBind {
            window_rkey: window.rkey,
            new_rkey: window.rkey ^ 1,
            region_lkey: scene.a.lkey,
            address: scene.a.memory.address(),
            length: 64,
            access: Access::REMOTE_WRITE,
        };
        let bind = match case {
            0 => WindowBind { length: 1 << 40, ..good },
            1 => WindowBind { region_lkey: plain.lkey, ..good },
            2 => WindowBind { region_lkey: 0xdead_0000, ..good },
            _ => {
                let first = SendRequest { bind: Some(good), ..SendRequest::new(0, SendOpcode::BindWindow) };
                scene.post(&first);
                WindowBind { window_rkey: good.new_rkey, new_rkey: good.new_rkey ^ 2, ..good }
            }
        };
        scene.post(&SendRequest { bind: Some(bind), ..SendRequest::new(1, SendOpcode::BindWindow) });
        assert_eq!(failure(&mut scene), (1, WcStatus::MwBindErr, ERR), "case {case}");
    }
}

/// A READ is answered with another length than it asked for.
#[test]
fn status_7_bad_resp_err() {
    const READ_RESPONSE_ONLY: u8 = 0x10;
    let mut scene = Scene::new();
    // Takes the peer's address, so that only forged answers come.
    let mut forger = Forger::new(&scene.world, "10.0.0.2", scene.a.ip);
    let sges = [scene.a.sge(0, 64)];
    let remote = scene.b.target(0);
    scene.post(&SendRequest { sges: &sges, remote, ..SendRequest::new(1, SendOpcode::RdmaRead) });
    let psn = Connection::default().psn_here;
    let answer =
        Headers { aeth: Some(Aeth { syndrome: 0x1f, msn: 1 }), ..headers(READ_RESPONSE_ONLY, scene.qa, psn) };
    let packet = forger.packet(&answer, &[1; 8]);
    forger.send(&mut scene.world, &packet);
    scene.settle();
    assert_eq!((scene.a.outcomes(), scene.a.state(scene.qa)), (vec![(1, WcStatus::BadRespErr)], ERR));
}

/// A request that the peer calls invalid: a READ that its queue pair does not allow; no receive is to blame,
/// so that the peer gets an event.
#[test]
fn status_9_rem_inv_req_err() {
    let mut scene = Scene::new();
    scene.b.move_to(scene.qb, QpState::Reset);
    scene.b.to_rtr(
        scene.qb,
        true,
        scene.a.ip,
        scene.qa,
        Connection { rd_atomic: 0, ..Connection::default() },
    );
    let sges = [scene.a.sge(0, 8)];
    let remote = scene.b.target(0);
    scene.post(&SendRequest { sges: &sges, remote, ..SendRequest::new(1, SendOpcode::RdmaRead) });
    assert_eq!(failure(&mut scene), (1, WcStatus::RemInvReqErr, ERR));
    assert_eq!(scene.b.state(scene.qb), ERR);
    assert!(scene.b.event_types().contains(&AsyncEventType::QpReqErr));
}

/// A SEND is broken off by another message: its receive is told.
#[test]
fn status_9_rem_inv_req_err_of_a_receive_in_progress() {
    const SEND_FIRST: u8 = 0x00;
    const WRITE_ONLY: u8 = 0x0a;
    let mut scene = Scene::new();
    let mut forger = Forger::new(&scene.world, "10.0.0.1", scene.b.ip);
    scene.b.post_recv(scene.qb, 5, 0, 4096);
    let psn = Connection::default().psn_there;
    let first = forger.packet(&headers(SEND_FIRST, scene.qb, psn), &[1; 1024]);
    let reth = Some(Reth { address: scene.b.target(0).address, rkey: scene.b.rkey, length: 8 });
    let write = forger.packet(&Headers { reth, ..headers(WRITE_ONLY, scene.qb, psn + 1) }, &[1; 8]);
    forger.send(&mut scene.world, &first);
    forger.send(&mut scene.world, &write);
    scene.settle();
    assert_eq!((scene.b.outcomes(), scene.b.state(scene.qb)), (vec![(5, WcStatus::RemInvReqErr)], ERR));
    assert!(!scene.b.event_types().contains(&AsyncEventType::QpReqErr), "the receive has been told");
}

/// A key that opens nothing to the peer: the peer's queue pair fails with an event.
#[test]
fn status_10_rem_access_err() {
    let mut scene = Scene::new();
    let sges = [scene.a.sge(0, 8)];
    let remote = RemoteTarget { rkey: 0xdead_0000, ..scene.b.target(0) };
    scene.post(&SendRequest { sges: &sges, remote, ..SendRequest::new(1, SendOpcode::RdmaWrite) });
    assert_eq!(failure(&mut scene), (1, WcStatus::RemAccessErr, ERR));
    assert_eq!(scene.b.state(scene.qb), ERR);
    assert!(scene.b.event_types().contains(&AsyncEventType::QpAccessErr));
}

#[test]
fn status_11_rem_op_err() {
    let mut scene = Scene::new();
    let beyond = [Sge { address: 0, ..scene.b.sge(0, 64) }];
    scene.b.hca.post_recv(scene.qb, &RecvRequest { wr_id: 5, sges: &beyond }).unwrap();
    scene.send(1, 8);
    assert_eq!(failure(&mut scene), (1, WcStatus::RemOpErr, ERR));
}

/// No peer answers.
#[test]
fn status_12_retry_exc_err() {
    let mut scene = Scene::new();
    scene.world.fabric().cut(scene.a.ip, scene.b.ip);
    scene.write(1, 8);
    assert_eq!(failure(&mut scene), (1, WcStatus::RetryExcErr, ERR));
    assert_eq!(scene.b.state(scene.qb), QpState::Rts, "the peer does not know");
}

/// The peer never has a receive.
#[test]
fn status_13_rnr_retry_exc_err() {
    let mut scene = Scene::new();
    scene.a.move_to(scene.qa, QpState::Reset);
    scene.b.move_to(scene.qb, QpState::Reset);
    scene.connect(Connection { rnr_retry: 2, ..Connection::default() });
    scene.send(1, 8);
    assert_eq!(failure(&mut scene), (1, WcStatus::RnrRetryExcErr, ERR));
    assert_eq!(scene.b.state(scene.qb), QpState::Rts, "the peer goes on");
}

/// An XRC request for an SRQ that does not exist in the target's domain.
#[test]
fn status_15_rem_inv_rd_req_err() {
    let mut scene = Scene::new();
    let mut init = scene.a.qp_init(QpType::XrcInitiator);
    init.recv_cq = None;
    scene.qa = scene.a.hca.create_qp(&init).unwrap().0;
    let mut init = scene.b.qp_init(QpType::XrcTarget);
    (init.pd, init.send_cq, init.recv_cq) = (None, None, None);
    init.xrcd = Some(scene.b.hca.open_xrcd().unwrap());
    scene.qb = scene.b.hca.create_qp(&init).unwrap().0;
    scene.connect_pair(QpType::XrcInitiator, scene.qa, scene.qb, Connection::default());
    let sges = [scene.a.sge(0, 8)];
    scene.post(&SendRequest { xrc_srqn: 0x4242, sges: &sges, ..SendRequest::new(1, SendOpcode::Send) });
    assert_eq!(failure(&mut scene), (1, WcStatus::RemInvRdReqErr, ERR));
    assert_eq!(scene.b.state(scene.qb), ERR);
    assert!(scene.b.event_types().contains(&AsyncEventType::QpAccessErr));
}
