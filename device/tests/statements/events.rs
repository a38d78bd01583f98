//! Completion events and their acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use pumice_device::hca::CqSetup;
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_transport::types::*;

use crate::kit::scene::Scene;
use crate::kit::{Connection, drain};

/// Armed for solicited completions: a plain message does not fire, one that asks does, and so does an error,
/// of a send too. Armed for any and then for solicited: any stays.
#[test]
fn statement_33_solicited_arming_fires_for_those_that_ask_and_for_errors() {
    let mut scene = Scene::new();
    let (cq, channel) = scene.b.cq_with_channel(64);
    let mut init = scene.b.qp_init(QpType::Rc);
    (init.send_cq, init.recv_cq) = (Some(cq.handle()), Some(cq.handle()));
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
    scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
    (scene.qa, scene.qb) = (qa, qb);
    for wr_id in 0..4 {
        scene.b.post_recv(qb, wr_id, 0, 64);
    }
    let send = |scene: &mut Scene, flags| {
        scene.post(&SendRequest { flags, ..SendRequest::new(1, SendOpcode::Send) });
        scene.settle();
    };
    let fired = || {
        let count = std::iter::from_fn(|| channel.try_event()).count();
        cq.ack_events(count as u64);
        count
    };
    scene.b.hca.req_notify_cq(&cq, true);
    send(&mut scene, SendFlags::SIGNALED);
    assert_eq!(fired(), 0);
    send(&mut scene, SendFlags::SIGNALED | SendFlags::SOLICITED);
    assert_eq!(fired(), 1);
    scene.b.hca.req_notify_cq(&cq, false);
    scene.b.hca.req_notify_cq(&cq, true);
    send(&mut scene, SendFlags::SIGNALED);
    assert_eq!(fired(), 1);
    scene.b.hca.req_notify_cq(&cq, true);
    let bad = [Sge { lkey: 0xdead_0000, ..scene.b.sge(0, 8) }];
    let request = SendRequest { sges: &bad, ..SendRequest::new(50, SendOpcode::Send) };
    scene.b.hca.post_send(qb, &request).unwrap();
    scene.settle();
    assert_eq!(fired(), 1, "a failed send, and the flushed receive behind it");
}

/// What is in the queue when it is armed does not fire; an arming gives one event, however many completions
/// come.
#[test]
fn statement_34_arming_looks_forward_and_fires_once() {
    let mut scene = Scene::new();
    let (cq, channel) = scene.b.cq_with_channel(64);
    let mut init = scene.b.qp_init(QpType::Rc);
    init.recv_cq = Some(cq.handle());
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
    scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
    scene.qa = qa;
    for wr_id in 0..12 {
        scene.b.post_recv(qb, wr_id, 0, 64);
    }
    scene.send(1, 8);
    scene.settle();
    scene.b.hca.req_notify_cq(&cq, false);
    assert!(channel.try_event().is_none());
    for wr_id in 2..10 {
        scene.send(wr_id, 8);
    }
    scene.settle();
    assert_eq!((channel.queued(), drain(&cq).len()), (1, 9));
    assert!(channel.try_event().is_some());
    cq.ack_events(1);
    scene.send(10, 8);
    scene.settle();
    assert_eq!(channel.queued(), 0, "not armed again");
}

/// Destroying a completion queue or a queue pair waits until the events that were got are acknowledged;
/// events that no thread fetched vanish.
#[test]
fn statement_35_destruction_waits_for_acknowledgements_and_unfetched_events_vanish() {
    let scene = Scene::new();
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let setup =
        |cookie| CqSetup { depth: 8, cookie, channel: Some(Arc::clone(&channel)), ..CqSetup::default() };
    let queues = [scene.a.hca.create_cq(setup(1)).unwrap(), scene.a.hca.create_cq(setup(2)).unwrap()];
    for cq in &queues {
        let mut init = scene.a.qp_init(QpType::Rc);
        init.recv_cq = Some(cq.handle());
        let qpn = scene.a.hca.create_qp(&init).unwrap().0;
        scene.a.to_init(qpn);
        scene.a.post_recv(qpn, 1, 0, 8);
        scene.a.hca.req_notify_cq(cq, false);
        scene.a.move_to(qpn, QpState::Err);
        scene.a.hca.destroy_qp(qpn).unwrap();
    }
    let [got, unfetched] = queues;
    assert_eq!(channel.try_event().unwrap().cookie, 1);
    scene.a.hca.destroy_cq(unfetched.handle()).unwrap();
    assert!(channel.try_event().is_none());
    let handle = got.handle();
    waits_for(&scene, move |hca| hca.destroy_cq(handle).unwrap(), || got.ack_events(1));
    // The same for the asynchronous events of a queue pair.
    let mut scene = Scene::new();
    let mut init = scene.a.qp_init(QpType::Rc);
    init.cookie = 5;
    let queue_pairs = [0, 1].map(|_| {
        let qpn = scene.a.hca.create_qp(&init).unwrap().0;
        let peer = scene.b.create_qp(QpType::Rc);
        scene.a.to_rtr(qpn, true, scene.b.ip, peer, Connection::default());
        connect_peer(&scene, peer, qpn);
        scene.a.post_recv(qpn, 1, 0, 64);
        scene.b.send(peer, 1, 0, 8);
        qpn
    });
    scene.settle();
    assert_eq!(scene.a.hca.async_events().queued(), 2, "COMM_EST of both");
    let event = scene.a.hca.async_events().try_event().unwrap();
    scene.a.hca.destroy_qp(queue_pairs[1]).unwrap();
    assert!(scene.a.hca.async_events().try_event().is_none());
    let qpn = queue_pairs[0];
    waits_for(&scene, move |hca| hca.destroy_qp(qpn).unwrap(), || event.ack());
}

fn connect_peer(scene: &Scene, peer: pumice_transport::wire::Qpn, qpn: pumice_transport::wire::Qpn) {
    let numbers = Connection::default().reversed();
    scene.b.to_rtr(peer, true, scene.a.ip, qpn, numbers);
    scene.b.to_rts(peer, true, numbers);
}

/// `destroy` does not return before `acknowledge` was called.
fn waits_for(
    scene: &Scene,
    destroy: impl FnOnce(&pumice_device::hca::Hca) + Send + 'static,
    acknowledge: impl FnOnce(),
) {
    let (done, is_done) = std::sync::mpsc::channel();
    let hca = Arc::clone(&scene.a.hca);
    let thread = std::thread::spawn(move || {
        destroy(&hca);
        done.send(()).unwrap();
    });
    let early = is_done.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "destroyed with an event unacknowledged");
    acknowledge();
    is_done.recv().unwrap();
    thread.join().unwrap();
}
