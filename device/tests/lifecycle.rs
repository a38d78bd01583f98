//! Life of objects while traffic runs: events, SQD, SRQ limits, multicast, reset and destruction.

mod kit;

use std::net::IpAddr;
use std::sync::Arc;

use kit::{Connection, Node, address_vector, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::async_event::AsyncElement;
use pumice_device::hca::{CqSetup, HcaConfig, SrqSetup};
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::srq::SrqChange;
use pumice_device::port::FabricConfig;
use pumice_device::profile::QpnReuse;
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

struct Scene {
    world: World,
    a: Node,
    b: Node,
    qa: Qpn,
    qb: Qpn,
}

impl Scene {
    fn new() -> Scene {
        let mut world = World::new(FabricConfig::default());
        let a = Node::new(&mut world, "10.0.0.1", 1 << 20, 256);
        let b = Node::new(&mut world, "10.0.0.2", 1 << 20, 256);
        let (qa, qb) = (a.create_qp(QpType::Rc), b.create_qp(QpType::Rc));
        connect(&a, qa, &b, qb, true, Connection::default());
        Scene { world, a, b, qa, qb }
    }

    fn run(&mut self, ns: u64) {
        self.world.run_until(ns, || false);
    }
}

fn events(node: &Node) -> Vec<AsyncEventType> {
    let mut all = Vec::new();
    while let Some(event) = node.hca.async_events().try_event() {
        all.push(event.event);
        event.ack();
    }
    all
}

fn write(scene: &Scene, wr_id: u64, length: u32) {
    let request = SendRequest {
        sges: &[scene.a.sge(0, length)],
        remote: scene.b.target(0),
        ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
    };
    scene.a.hca.post_send(scene.qa, &request).unwrap();
}

/// Statements 33 and 34.
#[test]
fn armed_queues_fire_once_and_solicited_ones_only_when_asked() {
    let mut scene = Scene::new();
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let setup = CqSetup { depth: 64, cookie: 5, channel: Some(Arc::clone(&channel)), ..CqSetup::default() };
    let cq = scene.b.hca.create_cq(setup).unwrap();
    let mut init = scene.b.qp_init(QpType::Rc);
    init.recv_cq = Some(cq.handle());
    init.send_cq = Some(cq.handle());
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
    connect(&scene.a, qa, &scene.b, qb, true, Connection::default());
    for wr_id in 0..12 {
        scene.b.post_recv(qb, wr_id, 0, 64);
    }
    let send = |scene: &mut Scene, flags| {
        let request = SendRequest { flags, ..SendRequest::new(1, SendOpcode::Send) };
        scene.a.hca.post_send(qa, &request).unwrap();
        scene.run(100_000);
        scene.a.drain();
    };
    let signaled = SendFlags::SIGNALED;
    let solicited = signaled | SendFlags::SOLICITED;
    // Not armed: nothing. Armed afterwards: what is there already does not fire.
    send(&mut scene, signaled);
    scene.b.hca.req_notify_cq(&cq, false);
    assert!(channel.try_event().is_none());
    // One event however many completions.
    send(&mut scene, signaled);
    send(&mut scene, signaled);
    let event = channel.try_event().unwrap();
    assert_eq!((event.cq, event.cookie), (cq.handle(), 5));
    assert!(channel.try_event().is_none());
    cq.ack_events(1);
    // Solicited only.
    scene.b.hca.req_notify_cq(&cq, true);
    send(&mut scene, signaled);
    assert!(channel.try_event().is_none());
    send(&mut scene, solicited);
    assert!(channel.try_event().is_some());
    cq.ack_events(1);
    // Any, then solicited: any stays.
    scene.b.hca.req_notify_cq(&cq, false);
    scene.b.hca.req_notify_cq(&cq, true);
    send(&mut scene, signaled);
    assert!(channel.try_event().is_some());
    cq.ack_events(1);
    // An error completes a send: that counts as solicited.
    scene.b.hca.req_notify_cq(&cq, true);
    let bad = Sge { lkey: 0xdead_0000, ..scene.b.sge(0, 8) };
    let request = SendRequest { sges: &[bad], ..SendRequest::new(50, SendOpcode::Send) };
    scene.b.hca.post_send(qb, &request).unwrap();
    scene.run(100_000);
    assert!(channel.try_event().is_some());
    cq.ack_events(1);
    let failed = kit::drain(&cq).into_iter().find(|wc| wc.wr_id == 50).unwrap();
    assert_eq!(failed.status, WcStatus::LocProtErr);
}

/// Statement 35: destruction waits for acknowledgements; events not taken vanish.
#[test]
fn destruction_waits_for_the_acknowledgement_of_events_that_were_taken() {
    let scene = Scene::new();
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let setup =
        |cookie| CqSetup { depth: 8, cookie, channel: Some(Arc::clone(&channel)), ..CqSetup::default() };
    let (taken, untaken) =
        (scene.a.hca.create_cq(setup(1)).unwrap(), scene.a.hca.create_cq(setup(2)).unwrap());
    for cq in [&taken, &untaken] {
        let mut init = scene.a.qp_init(QpType::Rc);
        init.recv_cq = Some(cq.handle());
        let qpn = scene.a.hca.create_qp(&init).unwrap().0;
        scene.a.to_init(qpn);
        scene.a.post_recv(qpn, 1, 0, 8);
        scene.a.hca.req_notify_cq(cq, false);
        // Flushing makes the completion.
        scene.a.move_to(qpn, QpState::Err);
        scene.a.hca.destroy_qp(qpn).unwrap();
    }
    assert_eq!(channel.try_event().unwrap().cookie, 1);
    assert_eq!(channel.queued(), 1);
    scene.a.hca.destroy_cq(untaken.handle()).unwrap();
    assert!(channel.try_event().is_none(), "the event that no thread took went with its queue");
    let (done, is_done) = std::sync::mpsc::channel();
    let (hca, handle) = (Arc::clone(&scene.a.hca), taken.handle());
    let thread = std::thread::spawn(move || {
        hca.destroy_cq(handle).unwrap();
        done.send(()).unwrap();
    });
    let early = is_done.recv_timeout(std::time::Duration::from_millis(50));
    assert!(early.is_err(), "destroyed with an event unacknowledged");
    taken.ack_events(1);
    is_done.recv().unwrap();
    thread.join().unwrap();
    channel.check_unused().unwrap();
}

/// Statement 44.
#[test]
fn an_srq_tells_when_it_falls_below_its_limit_and_outlives_its_queue_pairs() {
    let mut scene = Scene::new();
    let setup = SrqSetup { pd: scene.b.pd, max_wr: 16, max_sge: 1, cookie: 3, xrc: None, tags: None };
    let srq = scene.b.hca.create_srq(&setup).unwrap();
    let mut init = scene.b.qp_init(QpType::Rc);
    init.srq = Some(srq);
    init.capacity.max_recv_wr = 0;
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
    connect(&scene.a, qa, &scene.b, qb, true, Connection::default());
    for wr_id in 0..4 {
        scene.b.hca.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[scene.b.sge(0, 64)] }).unwrap();
    }
    scene.b.hca.modify_srq(srq, SrqChange { limit: Some(3), max_wr: None }).unwrap();
    scene.a.send(qa, 1, 0, 8);
    scene.run(100_000);
    assert!(events(&scene.b).is_empty(), "3 are left: not below 3");
    scene.a.send(qa, 2, 0, 8);
    scene.a.send(qa, 3, 0, 8);
    scene.run(100_000);
    assert_eq!(events(&scene.b), [AsyncEventType::SrqLimitReached]);
    assert_eq!(scene.b.hca.query_srq(srq).unwrap().limit, 0, "an event disarms the limit");
    scene.b.move_to(qb, QpState::Err);
    scene.run(100_000);
    assert_eq!(events(&scene.b), [AsyncEventType::QpLastWqeReached]);
    let received: Vec<u64> = scene.b.drain().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(received, [0, 1, 2], "the SRQ is not flushed");
    scene.b.hca.destroy_qp(qb).unwrap();
    // The entry that is left serves another queue pair.
    let again = scene.b.hca.create_qp(&init).unwrap().0;
    scene.a.move_to(qa, QpState::Reset);
    connect(&scene.a, qa, &scene.b, again, true, Connection::default());
    scene.a.drain();
    scene.a.send(qa, 9, 0, 8);
    scene.run(100_000);
    assert_eq!(scene.b.drain()[0].wr_id, 3);
    assert_eq!(scene.b.hca.destroy_srq(srq).unwrap_err().errno(), libc::EBUSY);
    scene.b.hca.destroy_qp(again).unwrap();
    scene.b.hca.destroy_srq(srq).unwrap();
}

/// Statement 52.
#[test]
fn a_message_in_rtr_is_received_and_raises_comm_est_once() {
    let mut scene = Scene::new();
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.create_qp(QpType::Rc));
    let numbers = Connection::default();
    scene.a.to_rtr(qa, true, scene.b.ip, qb, numbers);
    scene.b.to_rtr(qb, true, scene.a.ip, qa, numbers.reversed());
    scene.a.to_rts(qa, true, numbers);
    for wr_id in 0..2 {
        scene.b.post_recv(qb, wr_id, 0, 64);
        scene.a.send(qa, wr_id, 0, 8);
    }
    scene.run(100_000);
    assert_eq!(events(&scene.b), [AsyncEventType::CommEst]);
    assert_eq!((scene.a.drain().len(), scene.b.drain().len()), (2, 2), "received and acknowledged");
    scene.b.to_rts(qb, true, numbers.reversed());
    scene.b.post_recv(qb, 2, 0, 64);
    scene.a.send(qa, 2, 0, 8);
    scene.run(100_000);
    assert!(events(&scene.b).is_empty());
}

/// Statement 45.
#[test]
fn sqd_finishes_what_was_started_holds_the_rest_and_says_when_it_is_drained() {
    let mut scene = Scene::new();
    // Longer than the window: in the middle of it when SQD comes.
    write(&scene, 1, 600_000);
    write(&scene, 2, 64);
    let attributes =
        QpAttributes { qp_state: QpState::Sqd as u32, en_sqd_async_notify: true, ..QpAttributes::default() };
    let mask = AttributeMask::STATE | AttributeMask::EN_SQD_ASYNC_NOTIFY;
    scene.a.hca.modify_qp(scene.qa, &attributes, mask).unwrap();
    assert!(scene.a.hca.query_qp(scene.qa).unwrap().sq_draining);
    write(&scene, 3, 64);
    assert!(events(&scene.a).is_empty());
    scene.run(100_000_000);
    assert_eq!(events(&scene.a), [AsyncEventType::SqDrained]);
    assert!(!scene.a.hca.query_qp(scene.qa).unwrap().sq_draining);
    let ids: Vec<u64> = scene.a.drain().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [1], "only the message in progress");
    scene.a.move_to(scene.qa, QpState::Rts);
    scene.run(100_000_000);
    let ids: Vec<u64> = scene.a.drain().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(ids, [2, 3]);
    assert!(events(&scene.a).is_empty());
}

/// Statement 42: every attached queue pair gets one copy, the sender's own HCA included.
#[test]
fn multicast_reaches_every_member_once_and_loops_back() {
    let mut scene = Scene::new();
    let group: IpAddr = "239.1.2.3".parse().unwrap();
    let gid = Gid::from(group);
    let a_members = [scene.a.create_qp(QpType::Ud), scene.a.create_qp(QpType::Ud)];
    let b_member = scene.b.create_qp(QpType::Ud);
    for (node, qpn) in [(&scene.a, a_members[0]), (&scene.a, a_members[1]), (&scene.b, b_member)] {
        node.to_rts_datagram(qpn, 0);
        node.hca.attach_mcast(qpn, gid).unwrap();
        // Twice is once.
        node.hca.attach_mcast(qpn, gid).unwrap();
        for wr_id in 0..4 {
            node.post_recv(qpn, u64::from(qpn.value()) << 8 | wr_id, 4096, 256);
        }
    }
    scene.a.memory.write(0, b"to all of you");
    let (handle, path) = scene.a.hca.create_ah(scene.a.pd, &address_vector(group)).unwrap();
    let destination = UdDestination { path, qpn: Qpn::MULTICAST, qkey: 0x1111_1111 };
    let request = SendRequest {
        sges: &[scene.a.sge(0, 13)],
        ud: Some(destination),
        ..SendRequest::new(1, SendOpcode::Send)
    };
    scene.a.hca.post_send(a_members[0], &request).unwrap();
    scene.run(100_000);
    let received = |node: &Node| {
        let mut qpns: Vec<u32> =
            node.drain().iter().filter(|wc| wc.opcode == WcOpcode::Recv).map(|wc| wc.qp_num).collect();
        qpns.sort_unstable();
        qpns
    };
    assert_eq!(received(&scene.a), a_members.map(Qpn::value));
    assert_eq!(received(&scene.b), [b_member.value()]);
    assert_eq!(scene.b.memory.read(4096 + 40, 13), b"to all of you");
    // One leaves; a queue pair that is attached cannot go.
    scene.a.hca.detach_mcast(a_members[1], gid).unwrap();
    scene.a.hca.post_send(a_members[0], &request).unwrap();
    scene.run(100_000);
    assert_eq!(received(&scene.a), [a_members[0].value()]);
    assert_eq!(received(&scene.b), [b_member.value()]);
    assert_eq!(scene.a.hca.destroy_qp(a_members[0]).unwrap_err().errno(), libc::EBUSY);
    scene.a.hca.detach_mcast(a_members[0], gid).unwrap();
    assert_eq!(scene.a.hca.detach_mcast(a_members[0], gid).unwrap_err().errno(), libc::EINVAL);
    scene.a.hca.destroy_qp(a_members[0]).unwrap();
    scene.a.hca.destroy_ah(handle).unwrap();
}

#[test]
fn a_new_address_raises_gid_change_once_and_can_be_used() {
    let scene = Scene::new();
    let address: IpAddr = "10.0.7.7".parse().unwrap();
    let entry = GidEntry::new(address, "sim", 0, Mtu::Mtu4096);
    assert!(scene.a.hca.change_gid(entry.clone(), true).unwrap());
    assert!(!scene.a.hca.change_gid(entry.clone(), true).unwrap(), "it is there already");
    let event = scene.a.hca.async_events().try_event().unwrap();
    assert_eq!((event.event, event.element), (AsyncEventType::GidChange, AsyncElement::Port(1)));
    event.ack();
    assert!(scene.a.hca.async_events().try_event().is_none());
    assert!(scene.a.hca.gids().iter().any(|(_, entry)| entry.ip == address));
    assert!(scene.a.hca.change_gid(entry, false).unwrap());
    assert_eq!(events(&scene.a), [AsyncEventType::GidChange]);
    assert!(!scene.a.hca.gids().iter().any(|(_, entry)| entry.ip == address));
}

/// RESET in the middle of a message: everything vanishes without completions, and the queue pair
/// can be connected again.
#[test]
fn a_queue_pair_reset_under_traffic_starts_afresh() {
    let mut scene = Scene::new();
    for round in 0..3u64 {
        write(&scene, round, 500_000);
        scene.b.post_recv(scene.qb, 100 + round, 0, 64);
        scene.run(3_000 + round * 5_000);
        scene.a.move_to(scene.qa, QpState::Reset);
        scene.b.move_to(scene.qb, QpState::Reset);
        scene.run(200_000_000);
        assert!(scene.a.drain().is_empty() && scene.b.drain().is_empty());
        assert_eq!(scene.a.hca.deadline_ns(), None, "no timer is left");
        let numbers = Connection { psn_here: 7 * round as u32, ..Connection::default() };
        connect(&scene.a, scene.qa, &scene.b, scene.qb, true, numbers);
    }
    write(&scene, 9, 300_000);
    scene.run(100_000_000);
    assert_eq!(scene.a.drain()[0].wr_id, 9);
}

/// Destroyed in the middle of a message: late packets are counted, the peer runs out of retries.
#[test]
fn a_queue_pair_destroyed_under_traffic_leaves_nothing_behind() {
    let mut scene = Scene::new();
    write(&scene, 1, 900_000);
    write(&scene, 2, 64);
    scene.run(3_000);
    scene.b.hca.destroy_qp(scene.qb).unwrap();
    scene.run(5_000_000_000);
    assert!(scene.b.counter(Counter::RxUnknownQpn) > 0);
    let outcomes: Vec<(u64, WcStatus)> = scene.a.drain().iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(outcomes, [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr)]);
    // The sender's side, also under way.
    let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.create_qp(QpType::Rc));
    connect(&scene.a, qa, &scene.b, qb, true, Connection::default());
    scene.a.hca.destroy_qp(scene.qa).unwrap();
    scene.qa = qa;
    write(&scene, 3, 900_000);
    scene.run(3_000);
    scene.a.hca.destroy_qp(qa).unwrap();
    scene.run(5_000_000_000);
    assert!(scene.a.drain().is_empty());
    assert_eq!((scene.a.hca.deadline_ns(), scene.b.hca.deadline_ns()), (None, None));
    // The budget towards the peer is free again: a new pair gets through.
    let (qa, qc) = (scene.a.create_qp(QpType::Rc), scene.b.create_qp(QpType::Rc));
    connect(&scene.a, qa, &scene.b, qc, true, Connection::default());
    scene.qa = qa;
    write(&scene, 4, 900_000);
    scene.run(100_000_000);
    assert_eq!(scene.a.drain()[0].wr_id, 4);
}

/// A node of a device that `change` makes another one.
fn node_of(world: &mut World, change: impl FnOnce(&mut HcaConfig)) -> Node {
    let ip: IpAddr = "10.0.0.1".parse().unwrap();
    let mut config = HcaConfig::new("pumice0", vec![GidEntry::new(ip, "sim", 0, Mtu::Mtu4096)]);
    change(&mut config);
    Node::on(world.add_hca_with(config, |port| Box::new(port)).unwrap(), ip, 1 << 12, 256)
}

/// The completions of a queue pair with two flushed receives, after it was destroyed or reset.
fn flushes_left(outlive: bool, end: impl FnOnce(&Node, Qpn)) -> Vec<(u64, WcStatus)> {
    let mut world = World::new(FabricConfig::default());
    let node = node_of(&mut world, |config| config.completions_outlive_qp = outlive);
    let qpn = node.create_qp(QpType::Rc);
    node.to_init(qpn);
    node.post_recv(qpn, 1, 0, 64);
    node.post_recv(qpn, 2, 0, 64);
    node.move_to(qpn, QpState::Err);
    end(&node, qpn);
    node.drain().iter().map(|completion| (completion.wr_id, completion.status)).collect()
}

#[test]
fn completions_of_a_destroyed_queue_pair_stay_where_the_device_is_one_that_leaves_them() {
    let both = vec![(1, WcStatus::WrFlushErr), (2, WcStatus::WrFlushErr)];
    let destroy = |node: &Node, qpn| node.hca.destroy_qp(qpn).unwrap();
    let reset = |node: &Node, qpn| node.move_to(qpn, QpState::Reset);
    assert_eq!(flushes_left(true, destroy), both);
    assert_eq!(flushes_left(true, reset), both);
    assert_eq!((flushes_left(false, destroy), flushes_left(false, reset)), (vec![], vec![]));
}

#[test]
fn a_reset_queue_pair_has_its_whole_send_queue_though_old_completions_stay() {
    let mut world = World::new(FabricConfig::default());
    let node = node_of(&mut world, |config| config.completions_outlive_qp = true);
    let qpn = node.create_qp(QpType::Rc);
    node.to_init(qpn);
    for round in 0..2 {
        node.move_to(qpn, QpState::Err);
        for wr_id in 0..16 {
            node.send(qpn, wr_id, 0, 8);
        }
        let full = SendRequest::new(16, SendOpcode::Send);
        assert!(node.hca.post_send(qpn, &full).is_err(), "round {round}");
        node.move_to(qpn, QpState::Reset);
        node.to_init(qpn);
    }
    assert_eq!(node.drain().len(), 32);
    node.move_to(qpn, QpState::Err);
    for wr_id in 0..16 {
        node.send(qpn, wr_id, 0, 8);
    }
    assert!(
        node.hca.post_send(qpn, &SendRequest::new(16, SendOpcode::Send)).is_err(),
        "old ones free nothing"
    );
}

#[test]
fn the_number_of_a_destroyed_queue_pair_is_given_again_late_or_at_once() {
    for (reuse, is_at_once) in [(QpnReuse::Late, false), (QpnReuse::AtOnce, true)] {
        let mut world = World::new(FabricConfig::default());
        let node = node_of(&mut world, |config| config.qpn_reuse = reuse);
        let (first, second) = (node.create_qp(QpType::Rc), node.create_qp(QpType::Rc));
        node.hca.destroy_qp(first).unwrap();
        node.hca.destroy_qp(second).unwrap();
        let next = [node.create_qp(QpType::Ud), node.create_qp(QpType::Rc)];
        assert_eq!(next == [second, first], is_at_once, "{reuse:?}: {next:?}");
        assert!(!next.contains(&node.create_qp(QpType::Rc)));
    }
}

#[test]
fn a_late_packet_meets_the_queue_pair_that_has_the_number_now() {
    let mut world = World::new(FabricConfig::default());
    let a = Node::new(&mut world, "10.0.0.2", 1 << 12, 256);
    let b = node_of(&mut world, |config| config.qpn_reuse = QpnReuse::AtOnce);
    let (qa, old) = (a.create_qp(QpType::Uc), b.create_qp(QpType::Uc));
    connect(&a, qa, &b, old, false, Connection::default());
    a.send(qa, 1, 0, 16);
    // It is still on its way.
    b.hca.destroy_qp(old).unwrap();
    let (qc, new) = (a.create_qp(QpType::Uc), b.create_qp(QpType::Uc));
    assert_eq!(new, old);
    connect(&a, qc, &b, new, false, Connection::default());
    b.post_recv(new, 7, 0, 64);
    world.run_until(1_000_000, || false);
    assert_eq!(b.drain().iter().map(|completion| completion.wr_id).collect::<Vec<_>>(), [7]);
}
