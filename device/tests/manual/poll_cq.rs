//! ibv_poll_cq(3).

use pumice_device::event::async_event::AsyncElement;
use pumice_device::hca::CqSetup;
use pumice_device::memory::WindowType;
use pumice_transport::types::*;

use crate::kit::scene::{Scene, outcomes};
use crate::kit::{Connection, drain};

/// The caller asks for a number of completions and gets that many, the oldest; or all, if there are fewer.
#[test]
fn poll_cq_gives_the_first_num_entries_or_all_there_are() {
    let mut scene = Scene::new();
    for wr_id in 1..=5 {
        scene.write(wr_id, 8);
    }
    scene.settle();
    let mut out = [WorkCompletion::default(); 8];
    assert_eq!(scene.a.hca.poll_cq(&scene.a.cq, &mut out[..0]), 0);
    assert_eq!(scene.a.hca.poll_cq(&scene.a.cq, &mut out[..2]), 2);
    assert_eq!([out[0].wr_id, out[1].wr_id], [1, 2]);
    assert_eq!(out[2], WorkCompletion::default(), "nothing is written behind what was asked for");
    assert_eq!(scene.a.hca.poll_cq(&scene.a.cq, &mut out), 3);
    assert_eq!([out[0].wr_id, out[1].wr_id, out[2].wr_id], [3, 4, 5]);
    assert_eq!(scene.a.hca.poll_cq(&scene.a.cq, &mut out), 0);
}

/// A completion that was polled has left the queue for good.
#[test]
fn poll_cq_takes_each_completion_away() {
    let mut scene = Scene::new();
    let mut seen = Vec::new();
    for round in 0..3 {
        for wr_id in 0..4 {
            scene.write(round * 10 + wr_id, 8);
        }
        scene.settle();
        let before = scene.a.cq.len();
        let mut one = [WorkCompletion::default()];
        while scene.a.hca.poll_cq(&scene.a.cq, &mut one) == 1 {
            seen.push(one[0].wr_id);
        }
        assert_eq!((before, scene.a.cq.len()), (4, 0));
    }
    assert_eq!(seen, [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23], "once each");
}

/// Every field of a successful completion describes the work request.
#[test]
fn poll_cq_describes_the_work_request() {
    let mut scene = Scene::new();
    scene.b.post_recv(scene.qb, 77, 0, 64);
    scene.post(&SendRequest {
        imm_data: [1, 2, 3, 4],
        sges: &[scene.a.sge(0, 33)],
        ..SendRequest::new(5, SendOpcode::SendWithImm)
    });
    scene.settle();
    let sent = scene.a.drain()[0];
    assert_eq!((sent.wr_id, sent.status, sent.opcode), (5, WcStatus::Success, WcOpcode::Send));
    assert_eq!((sent.qp_num, sent.vendor_err, sent.flags), (scene.qa.value(), 0, WcFlags::empty()));
    let got = scene.b.drain()[0];
    assert_eq!((got.wr_id, got.status, got.opcode), (77, WcStatus::Success, WcOpcode::Recv));
    assert_eq!((got.qp_num, got.byte_len, got.imm_data), (scene.qb.value(), 33, [1, 2, 3, 4]));
    assert_eq!((got.slid, got.sl, got.dlid_path_bits, got.pkey_index), (0, 0, 0, 0), "RoCE has no LIDs");
}

/// The opcode of each kind of request, with the length of what came back.
#[test]
fn poll_cq_names_each_operation() {
    let mut scene = Scene::new();
    let (a, b) = (&scene.a, &scene.b);
    let eight = [a.sge(0, 8)];
    let requests = [
        (SendOpcode::RdmaWrite, WcOpcode::RdmaWrite),
        (SendOpcode::RdmaRead, WcOpcode::RdmaRead),
        (SendOpcode::FetchAdd, WcOpcode::FetchAdd),
        (SendOpcode::CompareSwap, WcOpcode::CompareSwap),
        (SendOpcode::AtomicWrite, WcOpcode::AtomicWrite),
        (SendOpcode::RdmaWriteWithImm, WcOpcode::RdmaWrite),
    ];
    b.post_recv(scene.qb, 1, 512, 8);
    for (index, (opcode, _)) in requests.iter().enumerate() {
        let atomic = match opcode {
            SendOpcode::FetchAdd => Some(AtomicOperation::FetchAdd { add: 1 }),
            _ => Some(AtomicOperation::CompareSwap { compare: 0, swap: 0 }),
        };
        let request =
            SendRequest { sges: &eight, remote: b.target(64), atomic, ..SendRequest::new(0, *opcode) };
        a.hca.post_send(scene.qa, &SendRequest { wr_id: index as u64, ..request }).unwrap();
    }
    scene.settle();
    let seen: Vec<_> = scene.a.drain().iter().map(|wc| (wc.opcode, wc.byte_len)).collect();
    assert_eq!(seen, requests.map(|(_, opcode)| (opcode, 8)));
    let got = scene.b.drain()[0];
    assert_eq!((got.opcode, got.byte_len), (WcOpcode::RecvRdmaWithImm, 8));
}

/// The GRH flag is for datagrams only, and so is the sender's number.
#[test]
fn poll_cq_flags_a_grh_on_datagrams_only() {
    let mut scene = Scene::of(QpType::Ud);
    scene.b.post_recv(scene.qb, 1, 0, 64);
    scene.post(&SendRequest {
        sges: &[scene.a.sge(0, 8)],
        ud: Some(scene.destination(0x1111_1111)),
        ..SendRequest::new(1, SendOpcode::Send)
    });
    scene.settle();
    let datagram = scene.b.drain()[0];
    assert!(datagram.flags.contains(WcFlags::GRH));
    assert_eq!((datagram.src_qp, datagram.byte_len), (scene.qa.value(), 48));
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut scene = Scene::of(qp_type);
        scene.b.post_recv(scene.qb, 1, 0, 64);
        scene.send(1, 8);
        scene.settle();
        assert_eq!(scene.b.drain()[0].flags, WcFlags::empty(), "{}", qp_type.name());
    }
}

/// Immediate data is valid exactly when its flag says so.
#[test]
fn poll_cq_flags_immediate_data() {
    for (opcode, flags) in [
        (SendOpcode::Send, WcFlags::empty()),
        (SendOpcode::SendWithImm, WcFlags::WITH_IMM),
        (SendOpcode::RdmaWriteWithImm, WcFlags::WITH_IMM),
    ] {
        let mut scene = Scene::new();
        scene.b.post_recv(scene.qb, 1, 0, 64);
        let imm_data = [0xde, 0xad, 0xbe, 0xef];
        let request = SendRequest { imm_data, remote: scene.b.target(0), ..SendRequest::new(1, opcode) };
        scene.post(&request);
        scene.settle();
        let got = scene.b.drain()[0];
        assert_eq!(got.flags, flags, "{}", opcode.name());
        if !flags.is_empty() {
            assert_eq!(got.imm_data, imm_data);
        }
    }
}

/// An invalidated key is flagged, and never together with immediate data.
#[test]
fn poll_cq_flags_an_invalidated_key_and_then_no_immediate_data() {
    let mut scene = Scene::new();
    let window = scene.b.hca.alloc_mw(scene.b.pd, WindowType::Type2).unwrap();
    let new_rkey = window.rkey ^ 1;
    let bind = WindowBind {
        window_rkey: window.rkey,
        new_rkey,
        region_lkey: scene.b.lkey,
        address: scene.b.target(0).address,
        length: 64,
        access: Access::REMOTE_WRITE,
    };
    let request = SendRequest { bind: Some(bind), ..SendRequest::new(2, SendOpcode::BindWindow) };
    scene.b.hca.post_send(scene.qb, &request).unwrap();
    scene.b.post_recv(scene.qb, 1, 0, 64);
    scene.settle();
    assert_eq!(scene.b.drain()[0].opcode, WcOpcode::BindWindow);
    scene.post(&SendRequest {
        invalidate_rkey: new_rkey,
        ..SendRequest::new(1, SendOpcode::SendWithInvalidate)
    });
    scene.settle();
    let got = scene.b.drain()[0];
    assert_eq!((got.flags, got.invalidated_rkey), (WcFlags::WITH_INV, new_rkey));
}

/// After a failure wr_id, status, qp_num and vendor_err are what counts: they are right for the failed
/// request and for those flushed behind it, on both sides.
#[test]
fn poll_cq_gives_wr_id_status_qp_num_and_vendor_err_of_failures() {
    let mut scene = Scene::new();
    scene.b.post_recv(scene.qb, 31, 0, 4);
    scene.b.post_recv(scene.qb, 32, 0, 4);
    scene.send(21, 64);
    scene.send(22, 4);
    scene.settle();
    let essence = |wc: &WorkCompletion| (wc.wr_id, wc.status, wc.qp_num, wc.vendor_err);
    let sent: Vec<_> = scene.a.drain().iter().map(essence).collect();
    let (qa, qb) = (scene.qa.value(), scene.qb.value());
    assert_eq!(sent, [(21, WcStatus::RemInvReqErr, qa, 0), (22, WcStatus::WrFlushErr, qa, 0)]);
    let got: Vec<_> = scene.b.drain().iter().map(essence).collect();
    assert_eq!(got, [(31, WcStatus::LocLenErr, qb, 0), (32, WcStatus::WrFlushErr, qb, 0)]);
}

/// A program that lets a queue overrun gets one CQ_ERR, and the queue is of no more use: its queue pairs go
/// to ERR with QP_FATAL, nothing is added, resizing does not repair it, and only what was in it before can be
/// polled.
#[test]
fn poll_cq_overrun_raises_cq_err_once_and_ends_the_queue() {
    let mut scene = Scene::new();
    let small = scene.a.hca.create_cq(CqSetup { depth: 3, cookie: 9, ..CqSetup::default() }).unwrap();
    let other = scene.a.hca.create_cq(CqSetup { depth: 16, cookie: 8, ..CqSetup::default() }).unwrap();
    let depth = u64::from(small.depth());
    let mut init = scene.a.qp_init(QpType::Rc);
    (init.send_cq, init.recv_cq, init.cookie) = (Some(small.handle()), Some(other.handle()), 71);
    let qa = scene.a.hca.create_qp(&init).unwrap().0;
    let qb = scene.b.create_qp(QpType::Rc);
    scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
    scene.qa = qa;
    scene.a.post_recv(qa, 500, 0, 8);
    for wr_id in 0..depth + 4 {
        scene.write(wr_id, 8);
    }
    scene.settle();
    let fatal = AsyncElement::Qp { qpn: qa.value(), cookie: 71 };
    assert_eq!(
        scene.a.events(),
        [(AsyncEventType::CqErr, AsyncElement::Cq { cookie: 9 }), (AsyncEventType::QpFatal, fatal)]
    );
    assert_eq!(scene.a.state(qa), QpState::Err);
    assert_eq!(outcomes(&other), [(500, WcStatus::WrFlushErr)], "the other queue still hears of the flush");
    assert!(small.is_failed());
    let held: Vec<u64> = drain(&small).iter().map(|wc| wc.wr_id).collect();
    assert_eq!(held, (0..depth).collect::<Vec<_>>());
    scene.a.hca.resize_cq(small.handle(), 64).unwrap();
    scene.a.move_to(qa, QpState::Reset);
    scene.b.move_to(qb, QpState::Reset);
    scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
    scene.write(90, 8);
    scene.settle();
    assert!(drain(&small).is_empty() && small.is_failed());
    let after = scene.a.events();
    assert_eq!(
        after,
        [(AsyncEventType::QpFatal, fatal)],
        "a queue pair that is used again fails again, without CQ_ERR"
    );
    // A fresh queue pair on a fresh queue is not touched.
    let (qa, _) = scene.another_pair(QpType::Rc);
    scene.qa = qa;
    scene.write(91, 8);
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(91, WcStatus::Success)]);
}

/// A consumer that keeps up never sees an overrun, however small its queue.
#[test]
fn poll_cq_at_the_rate_of_completions_prevents_overrun() {
    let mut scene = Scene::new();
    let small = scene.a.hca.create_cq(CqSetup { depth: 1, ..CqSetup::default() }).unwrap();
    let mut init = scene.a.qp_init(QpType::Rc);
    init.send_cq = Some(small.handle());
    let qa = scene.a.hca.create_qp(&init).unwrap().0;
    let qb = scene.b.create_qp(QpType::Rc);
    scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
    scene.qa = qa;
    for wr_id in 0..100 {
        scene.write(wr_id, 8);
        scene.settle();
        assert_eq!(outcomes(&small), [(wr_id, WcStatus::Success)]);
    }
    assert!(!small.is_failed() && scene.a.events().is_empty());
}
