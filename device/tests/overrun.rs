//! Completion queues that overrun, and the count of free send queue entries.

mod kit;

use kit::{Connection, Node, connect, drain};
use pumice_device::event::async_event::AsyncElement;
use pumice_device::hca::{CqSetup, HcaError};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::qp::PostError;
use pumice_transport::types::*;

/// Statement 36: CQ_ERR once, QP_FATAL per queue pair, queue pairs in ERR, nothing new in the CQ.
#[test]
fn an_overrun_fails_the_completion_queue_and_its_queue_pairs_once() {
    let mut world = World::new(FabricConfig::default());
    let a = Node::new(&mut world, "10.0.0.1", 4096, 64);
    let b = Node::new(&mut world, "10.0.0.2", 4096, 64);
    let small = a.hca.create_cq(CqSetup { depth: 2, cookie: 9, ..CqSetup::default() }).unwrap();
    let depth = small.depth() as usize;
    let mut init = a.qp_init(QpType::Rc);
    init.send_cq = Some(small.handle());
    init.cookie = 71;
    let one = a.hca.create_qp(&init).unwrap().0;
    init.cookie = 72;
    let other = a.hca.create_qp(&init).unwrap().0;
    for qpn in [one, other] {
        let peer = b.create_qp(QpType::Rc);
        connect(&a, qpn, &b, peer, true, Connection::default());
    }
    for wr_id in 0..=depth as u64 {
        let write = SendRequest {
            remote: b.target(0),
            sges: &[a.sge(0, 8)],
            ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
        };
        a.hca.post_send(one, &write).unwrap();
    }
    world.run_until(1_000_000, || false);
    let mut events = Vec::new();
    while let Some(event) = a.hca.async_events().try_event() {
        events.push((event.event, event.element));
        event.ack();
    }
    let fatal = |qpn: pumice_transport::wire::Qpn, cookie| {
        (AsyncEventType::QpFatal, AsyncElement::Qp { qpn: qpn.value(), cookie })
    };
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!(events[0], (AsyncEventType::CqErr, AsyncElement::Cq { cookie: 9 }));
    assert!(events.contains(&fatal(one, 71)) && events.contains(&fatal(other, 72)));
    assert_eq!((a.state(one), a.state(other)), (QpState::Err, QpState::Err));
    assert!(small.is_failed());
    // What it holds is still there, and nothing comes after it.
    let held = drain(&small);
    assert_eq!(held.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), (0..depth as u64).collect::<Vec<_>>());
    let more = SendRequest { remote: b.target(0), ..SendRequest::new(99, SendOpcode::RdmaWrite) };
    a.hca.post_send(other, &more).unwrap();
    world.run_until(1_000_000, || false);
    assert!(drain(&small).is_empty());
    assert!(a.hca.async_events().try_event().is_none());
    a.hca.destroy_qp(one).unwrap();
    a.hca.destroy_qp(other).unwrap();
    a.hca.destroy_cq(small.handle()).unwrap();
}

/// Statement 37: unsignaled requests keep their send queue entries until a later completion is polled.
#[test]
fn entries_of_unsignaled_requests_come_back_with_a_polled_completion() {
    let mut world = World::new(FabricConfig::default());
    let a = Node::new(&mut world, "10.0.0.1", 4096, 64);
    let b = Node::new(&mut world, "10.0.0.2", 4096, 64);
    let mut init = a.qp_init(QpType::Rc);
    init.capacity.max_send_wr = 4;
    let (qa, granted) = a.hca.create_qp(&init).unwrap();
    let qb = b.create_qp(QpType::Rc);
    connect(&a, qa, &b, qb, true, Connection::default());
    let depth = u64::from(granted.max_send_wr);
    let post = |wr_id, flags| {
        let write = SendRequest {
            flags,
            remote: b.target(0),
            sges: &[a.sge(0, 8)],
            ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
        };
        a.hca.post_send(qa, &write)
    };
    let full = |result: Result<(), HcaError>| {
        let error = result.unwrap_err();
        assert_eq!(error.errno(), libc::ENOMEM);
        assert!(matches!(error, HcaError::Post { error: PostError::QueueFull { .. }, .. }));
    };
    for wr_id in 0..depth - 1 {
        post(wr_id, SendFlags::empty()).unwrap();
    }
    post(depth - 1, SendFlags::SIGNALED).unwrap();
    full(post(90, SendFlags::SIGNALED));
    world.run_until(1_000_000, || false);
    // Executed, but not polled.
    full(post(91, SendFlags::SIGNALED));
    assert_eq!(a.drain().len(), 1);
    for wr_id in 0..depth {
        post(wr_id, SendFlags::empty()).unwrap();
    }
    world.run_until(1_000_000, || false);
    // All executed, none signaled: this queue is stuck, as on hardware.
    full(post(92, SendFlags::SIGNALED));
    assert!(a.drain().is_empty());
    // RESET empties it.
    a.move_to(qa, QpState::Reset);
    b.move_to(qb, QpState::Reset);
    connect(&a, qa, &b, qb, true, Connection::default());
    post(7, SendFlags::SIGNALED).unwrap();
    world.run_until(1_000_000, || false);
    assert_eq!(a.drain()[0].wr_id, 7);
}
