//! Sizes: granted, full, given back.

use pumice_device::hca::HcaError;
use pumice_transport::types::*;

use crate::kit::scene::Scene;

/// What is granted is at least what was asked for, and is what `query_qp` says and what posting enforces.
#[test]
fn granted_sizes_are_reported_and_kept() {
    let scene = Scene::new();
    let asked =
        QpCapacity { max_send_wr: 3, max_recv_wr: 5, max_send_sge: 2, max_recv_sge: 1, max_inline_data: 17 };
    let mut init = scene.a.qp_init(QpType::Rc);
    init.capacity = asked;
    let (qpn, granted) = scene.a.hca.create_qp(&init).unwrap();
    assert!(granted.max_send_wr >= 3 && granted.max_recv_wr >= 5 && granted.max_inline_data >= 17);
    assert!(granted.max_send_sge >= 2 && granted.max_recv_sge >= 1);
    assert_eq!(scene.a.hca.query_qp(qpn).unwrap().cap, granted);
    let qb = scene.b.create_qp(QpType::Rc);
    scene.connect_pair(QpType::Rc, qpn, qb, crate::kit::Connection::default());
    let errno = |result: Result<(), HcaError>| result.map_err(|error| error.errno());
    let sge = scene.a.sge(0, 1);
    let sges = vec![sge; granted.max_send_sge as usize + 1];
    let send = |sges: &[Sge]| {
        errno(scene.a.hca.post_send(qpn, &SendRequest { sges, ..SendRequest::new(1, SendOpcode::Send) }))
    };
    assert_eq!(send(&sges), Err(libc::EINVAL));
    assert_eq!(send(&sges[1..]), Ok(()));
    let data = vec![1; granted.max_inline_data as usize + 1];
    let inline = |inline_data: &[u8]| {
        let flags = SendFlags::SIGNALED | SendFlags::INLINE;
        let request = SendRequest { flags, inline_data, ..SendRequest::new(1, SendOpcode::Send) };
        errno(scene.a.hca.post_send(qpn, &request))
    };
    assert_eq!(inline(&data), Err(libc::EINVAL));
    assert_eq!(inline(&data[1..]), Ok(()));
    for _ in 2..granted.max_send_wr {
        assert_eq!(send(&[sge]), Ok(()));
    }
    assert_eq!(send(&[sge]), Err(libc::ENOMEM));
    for _ in 0..granted.max_recv_wr {
        assert_eq!(errno(scene.a.hca.post_recv(qpn, &RecvRequest { wr_id: 1, sges: &[] })), Ok(()));
    }
    assert_eq!(errno(scene.a.hca.post_recv(qpn, &RecvRequest { wr_id: 1, sges: &[] })), Err(libc::ENOMEM));
}

/// Queues of no depth are legal, and take nothing.
#[test]
fn a_queue_of_depth_zero_takes_nothing() {
    let scene = Scene::with(QpType::Rc, |init| init.capacity = QpCapacity::default(), |_| {});
    let send = scene.a.hca.post_send(scene.qa, &SendRequest::new(1, SendOpcode::Send)).unwrap_err();
    assert_eq!(send.errno(), libc::ENOMEM);
    let recv = scene.a.hca.post_recv(scene.qa, &RecvRequest { wr_id: 1, sges: &[] }).unwrap_err();
    assert_eq!(recv.errno(), libc::ENOMEM);
}

/// With sq_sig_all each request completes, with and without the flag that asks for it.
#[test]
fn sq_sig_all_signals_every_request() {
    for signal_all in [true, false] {
        let mut scene = Scene::with(QpType::Rc, |init| init.signal_all = signal_all, |_| {});
        for wr_id in 0..4 {
            let flags = if wr_id == 3 { SendFlags::SIGNALED } else { SendFlags::empty() };
            let sges = [scene.a.sge(0, 8)];
            scene.post(&SendRequest {
                flags,
                sges: &sges,
                remote: scene.b.target(0),
                ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
            });
        }
        scene.settle();
        let ids: Vec<u64> = scene.a.drain().iter().map(|wc| wc.wr_id).collect();
        assert_eq!(ids, if signal_all { vec![0, 1, 2, 3] } else { vec![3] });
    }
}

/// A receive's entry is free when a message took it, not when it is polled.
#[test]
fn a_receive_queue_entry_is_free_once_its_message_arrived() {
    let mut scene = Scene::with(QpType::Rc, |_| {}, |init| init.capacity.max_recv_wr = 2);
    let depth = scene.b.hca.query_qp(scene.qb).unwrap().cap.max_recv_wr;
    for wr_id in 0..u64::from(depth) {
        scene.b.post_recv(scene.qb, wr_id, 0, 8);
    }
    assert!(scene.b.hca.post_recv(scene.qb, &RecvRequest { wr_id: 9, sges: &[] }).is_err());
    scene.send(1, 8);
    scene.settle();
    scene.b.post_recv(scene.qb, 9, 0, 8);
}

/// Inline data is for operations that carry data: SEND and WRITE, with immediate or without, and ATOMIC
/// WRITE.
#[test]
fn inline_is_for_operations_that_carry_data() {
    let mut scene = Scene::new();
    for wr_id in 0..2 {
        scene.b.post_recv(scene.qb, wr_id, 0, 64);
    }
    let data = [7; 8];
    for (opcode, legal) in [
        (SendOpcode::Send, true),
        (SendOpcode::RdmaWrite, true),
        (SendOpcode::RdmaWriteWithImm, true),
        (SendOpcode::AtomicWrite, true),
        (SendOpcode::RdmaRead, false),
        (SendOpcode::FetchAdd, false),
        (SendOpcode::CompareSwap, false),
        (SendOpcode::LocalInvalidate, false),
        (SendOpcode::BindWindow, false),
        (SendOpcode::Flush, false),
    ] {
        let request = SendRequest {
            flags: SendFlags::SIGNALED | SendFlags::INLINE,
            inline_data: &data,
            remote: scene.b.target(512),
            ..SendRequest::new(1, opcode)
        };
        let result = scene.a.hca.post_send(scene.qa, &request).map_err(|error| error.errno());
        assert_eq!(result, if legal { Ok(()) } else { Err(libc::EINVAL) }, "{}", opcode.name());
    }
    scene.settle();
    assert_eq!(scene.a.outcomes(), vec![(1, WcStatus::Success); 4]);
    assert_eq!(scene.b.memory.read(512, 8), data);
}

/// An empty list of inline data, and one of READ without any place to put it.
#[test]
fn requests_of_no_bytes_work() {
    let mut scene = Scene::new();
    scene.b.post_recv(scene.qb, 1, 0, 0);
    let inline = SendFlags::SIGNALED | SendFlags::INLINE;
    scene.post(&SendRequest { flags: inline, ..SendRequest::new(1, SendOpcode::Send) });
    scene.post(&SendRequest::new(2, SendOpcode::RdmaRead));
    scene.post(&SendRequest::new(3, SendOpcode::RdmaWrite));
    scene.settle();
    assert_eq!(scene.a.outcomes(), [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success)));
    assert_eq!(scene.b.drain()[0].byte_len, 0);
}
