//! SRQs, windows and XRC.

use pumice_device::hca::SrqSetup;
use pumice_device::memory::WindowType;
use pumice_device::objects::srq::SrqChange;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::Connection;
use crate::kit::scene::Scene;

/// The limit fires once when fewer are left, and is disarmed then; a queue pair that fails says
/// LAST_WQE_REACHED once and leaves the SRQ's requests to the others.
#[test]
fn statement_44_an_srq_limit_fires_once_and_requests_outlive_queue_pairs() {
    let mut scene = Scene::new();
    let setup = SrqSetup { pd: scene.b.pd, max_wr: 16, max_sge: 1, cookie: 3, xrc: None, tags: None };
    let srq = scene.b.hca.create_srq(&setup).unwrap();
    let mut init = scene.b.qp_init(QpType::Rc);
    init.srq = Some(srq);
    let pairs = [0, 1].map(|_| {
        let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
        scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
        (qa, qb)
    });
    for wr_id in 0..6 {
        scene.b.hca.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[scene.b.sge(0, 64)] }).unwrap();
    }
    let limit = |scene: &Scene| scene.b.hca.query_srq(srq).unwrap().limit;
    scene.b.hca.modify_srq(srq, SrqChange { limit: Some(5), max_wr: None }).unwrap();
    scene.a.send(pairs[0].0, 1, 0, 8);
    scene.settle();
    assert_eq!((scene.b.event_types(), limit(&scene)), (vec![], 5), "5 are left: not below");
    scene.a.send(pairs[1].0, 2, 0, 8);
    scene.a.send(pairs[1].0, 3, 0, 8);
    scene.settle();
    assert_eq!((scene.b.event_types(), limit(&scene)), (vec![AsyncEventType::SrqLimitReached], 0));
    // Armed again: once again.
    scene.b.hca.modify_srq(srq, SrqChange { limit: Some(3), max_wr: None }).unwrap();
    scene.a.send(pairs[0].0, 4, 0, 8);
    scene.settle();
    assert_eq!(scene.b.event_types(), [AsyncEventType::SrqLimitReached]);
    scene.b.drain();
    scene.b.move_to(pairs[0].1, QpState::Err);
    scene.b.move_to(pairs[0].1, QpState::Err);
    scene.settle();
    assert_eq!(scene.b.event_types(), [AsyncEventType::QpLastWqeReached], "once");
    assert!(scene.b.drain().is_empty(), "the SRQ is not flushed");
    scene.a.send(pairs[1].0, 5, 0, 8);
    scene.settle();
    assert_eq!(scene.b.outcomes(), [(4, WcStatus::Success)]);
}

/// The request that a dying queue pair is filling is flushed; the others of the SRQ stay.
#[test]
fn statement_44_only_the_request_in_use_goes_with_its_queue_pair() {
    let mut scene = Scene::new();
    let setup = SrqSetup { pd: scene.b.pd, max_wr: 16, max_sge: 1, cookie: 3, xrc: None, tags: None };
    let srq = scene.b.hca.create_srq(&setup).unwrap();
    let mut init = scene.b.qp_init(QpType::Rc);
    init.srq = Some(srq);
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
    scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
    for wr_id in 0..2 {
        scene.b.hca.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[scene.b.sge(0, 1 << 20)] }).unwrap();
    }
    // Longer than the window, so that it is under way when the queue pair fails.
    scene.a.send(qa, 1, 0, 900_000);
    scene.run(3_000);
    scene.b.move_to(qb, QpState::Err);
    assert_eq!(scene.b.outcomes(), [(0, WcStatus::WrFlushErr)]);
    assert_eq!(scene.b.event_types().last(), Some(&AsyncEventType::QpLastWqeReached));
    scene.b.hca.destroy_qp(qb).unwrap();
    scene.b.hca.destroy_srq(srq).unwrap();
}

struct Windows {
    scene: Scene,
    /// A second pair, whose `b` end is of the same domain.
    other: (Qpn, Qpn),
}

impl Windows {
    fn new() -> Windows {
        let scene = Scene::new();
        let other = scene.another_pair(QpType::Rc);
        Windows { scene, other }
    }

    fn bind(&mut self, qpn: Qpn, window_rkey: u32, length: u64) -> (u32, WcStatus) {
        let scene = &mut self.scene;
        let new_rkey = window_rkey & !0xff | (window_rkey.wrapping_add(1)) & 0xff;
        let bind = WindowBind {
            window_rkey,
            new_rkey,
            region_lkey: scene.b.lkey,
            address: scene.b.target(0).address,
            length,
            access: Access::REMOTE_WRITE,
        };
        let request = SendRequest { bind: Some(bind), ..SendRequest::new(70, SendOpcode::BindWindow) };
        scene.b.hca.post_send(qpn, &request).unwrap();
        scene.settle();
        (new_rkey, scene.b.drain()[0].status)
    }

    /// A WRITE by `qpn` of `a` under a key of `b`.
    fn write(&mut self, qpn: Qpn, rkey: u32) -> WcStatus {
        let scene = &mut self.scene;
        let remote = RemoteTarget { rkey, ..scene.b.target(0) };
        let sges = [scene.a.sge(0, 8)];
        let request = SendRequest { remote, sges: &sges, ..SendRequest::new(1, SendOpcode::RdmaWrite) };
        scene.a.hca.post_send(qpn, &request).unwrap();
        scene.settle();
        let status = scene.a.drain()[0].status;
        scene.b.drain();
        status
    }
}

/// A window of type 2 is for the queue pair that it was bound on; the peer of another one is refused.
#[test]
fn statement_46_a_type_2_window_is_for_its_queue_pair_only() {
    let mut windows = Windows::new();
    let window = windows.scene.b.hca.alloc_mw(windows.scene.b.pd, WindowType::Type2).unwrap();
    let (rkey, status) = windows.bind(windows.scene.qb, window.rkey, 64);
    assert_eq!(status, WcStatus::Success);
    assert_eq!(windows.write(windows.scene.qa, rkey), WcStatus::Success);
    assert_eq!(windows.write(windows.other.0, rkey), WcStatus::RemAccessErr);
}

/// SEND with invalidate kills the key of a window of type 2.
#[test]
fn statement_46_after_send_with_invalidate_the_key_is_dead() {
    let mut windows = Windows::new();
    let window = windows.scene.b.hca.alloc_mw(windows.scene.b.pd, WindowType::Type2).unwrap();
    let (rkey, _) = windows.bind(windows.scene.qb, window.rkey, 64);
    let scene = &mut windows.scene;
    scene.b.post_recv(scene.qb, 9, 0, 8);
    scene.post(&SendRequest { invalidate_rkey: rkey, ..SendRequest::new(2, SendOpcode::SendWithInvalidate) });
    scene.settle();
    assert_eq!(
        (scene.a.outcomes(), scene.b.drain()[0].invalidated_rkey),
        (vec![(2, WcStatus::Success)], rkey)
    );
    // Free again: it can be bound, under another key.
    let (next, status) = windows.bind(windows.scene.qb, rkey, 64);
    assert_eq!(status, WcStatus::Success);
    assert_eq!(windows.write(windows.scene.qa, next), WcStatus::Success);
    assert_eq!(windows.write(windows.scene.qa, rkey), WcStatus::RemAccessErr);
}

/// Binding a window of type 1 to nothing kills its key; any queue pair of the domain can use one that is
/// bound.
#[test]
fn statement_46_a_type_1_window_bound_to_nothing_opens_nothing() {
    let mut windows = Windows::new();
    let window = windows.scene.b.hca.alloc_mw(windows.scene.b.pd, WindowType::Type1).unwrap();
    let (rkey, _) = windows.bind(windows.scene.qb, window.rkey, 64);
    assert_eq!(windows.write(windows.other.0, rkey), WcStatus::Success);
    // Rebinding without unbinding is legal for type 1, and the old key dies.
    let (second, status) = windows.bind(windows.scene.qb, rkey, 32);
    assert_eq!(status, WcStatus::Success);
    assert_eq!(windows.write(windows.other.0, second), WcStatus::Success);
    let (third, status) = windows.bind(windows.scene.qb, second, 0);
    assert_eq!(status, WcStatus::Success);
    assert_eq!(windows.write(windows.scene.qa, third), WcStatus::RemAccessErr);
    assert_eq!(windows.write(windows.other.0, second), WcStatus::RemAccessErr);
}

/// A region with a bound window cannot be deregistered.
#[test]
fn statement_46_a_region_with_a_bound_window_stays() {
    let mut windows = Windows::new();
    let window = windows.scene.b.hca.alloc_mw(windows.scene.b.pd, WindowType::Type1).unwrap();
    windows.bind(windows.scene.qb, window.rkey, 64);
    let b = &windows.scene.b;
    assert_eq!(b.hca.dereg_mr(b.region).unwrap_err().errno(), libc::EBUSY);
    b.hca.dealloc_mw(window.handle).unwrap();
    b.hca.dereg_mr(b.region).unwrap();
}

/// A message to an XRC SRQ completes on the SRQ's queue with the target's number.
#[test]
fn statement_47_a_completion_on_the_srqs_queue_names_the_target() {
    let mut scene = Scene::new();
    let xrcd = scene.b.hca.open_xrcd().unwrap();
    let (cq, _channel) = scene.b.cq_with_channel(16);
    let setup = SrqSetup {
        pd: scene.b.pd,
        max_wr: 8,
        max_sge: 1,
        cookie: 0,
        xrc: Some((xrcd, cq.handle())),
        tags: None,
    };
    let srq = scene.b.hca.create_srq(&setup).unwrap();
    let number = scene.b.hca.srq_number(srq).unwrap();
    let mut init = scene.a.qp_init(QpType::XrcInitiator);
    init.recv_cq = None;
    let initiator = scene.a.hca.create_qp(&init).unwrap().0;
    let mut init = scene.b.qp_init(QpType::XrcTarget);
    (init.pd, init.send_cq, init.recv_cq, init.xrcd) = (None, None, None, Some(xrcd));
    let target = scene.b.hca.create_qp(&init).unwrap().0;
    scene.connect_pair(QpType::XrcInitiator, initiator, target, Connection::default());
    let sges = [scene.b.sge(0, 8192)];
    scene.b.hca.post_srq_recv(srq, &RecvRequest { wr_id: 4, sges: &sges }).unwrap();
    // Three packets: each names the SRQ, or the message would not arrive.
    let sges = [scene.a.sge(0, 3000)];
    let request = SendRequest { xrc_srqn: number, sges: &sges, ..SendRequest::new(1, SendOpcode::Send) };
    scene.a.hca.post_send(initiator, &request).unwrap();
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(1, WcStatus::Success)]);
    let got = crate::kit::drain(&cq)[0];
    assert_eq!((got.wr_id, got.byte_len, got.qp_num), (4, 3000, target.value()));
}
