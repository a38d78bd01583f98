//! Send queues: order, errors, entries, inline data.

use pumice_device::faults::{Fault, WirePlan};
use pumice_device::hca::{CqSetup, HcaError};
use pumice_transport::qp::PostError;
use pumice_transport::types::*;

use crate::kit::scene::{Scene, outcomes};
use crate::kit::{Connection, drain};

const OK: WcStatus = WcStatus::Success;
const FLUSHED: WcStatus = WcStatus::WrFlushErr;

/// A fence waits for earlier READs and atomics, not for SENDs and WRITEs: with the READ's answer lost, the
/// fenced request does not leave, whereas one without fence does.
#[test]
fn statement_28_a_fence_waits_for_reads_only() {
    let arrives = |first: SendOpcode, flags: SendFlags| {
        let mut scene = Scene::new();
        scene.b.memory.write(512, &[7; 8]);
        // Nothing comes back to `a` any more.
        let (from, to) = (scene.b.ip, scene.a.ip);
        let silent = (0..1_000).fold(WirePlan::new(), |plan, index| plan.at(from, to, index, Fault::Drop));
        scene.world.fabric().play(&silent);
        let request = SendRequest {
            sges: &[scene.a.sge(0, 8)],
            remote: scene.b.target(512),
            ..SendRequest::new(1, first)
        };
        scene.post(&request);
        scene.a.memory.write(64, &[9; 8]);
        let fenced = SendRequest {
            sges: &[scene.a.sge(64, 8)],
            remote: scene.b.target(1024),
            flags,
            ..SendRequest::new(2, SendOpcode::RdmaWrite)
        };
        scene.post(&fenced);
        scene.run(1_000_000);
        scene.b.memory.read(1024, 8) == [9; 8]
    };
    let fence = SendFlags::SIGNALED | SendFlags::FENCE;
    assert!(!arrives(SendOpcode::RdmaRead, fence));
    assert!(arrives(SendOpcode::RdmaRead, SendFlags::SIGNALED));
    assert!(arrives(SendOpcode::RdmaWrite, fence));
}

/// A SEND longer than the receive buffers fails on both sides, and both queue pairs are in ERR.
#[test]
fn statement_29_a_send_longer_than_its_receive_ends_both_sides() {
    for length in [65, 5_000] {
        let mut scene = Scene::new();
        scene.b.post_recv(scene.qb, 3, 0, 64);
        scene.send(1, length);
        scene.settle();
        assert_eq!(scene.a.outcomes(), [(1, WcStatus::RemInvReqErr)]);
        assert_eq!(scene.b.outcomes(), [(3, WcStatus::LocLenErr)]);
        assert_eq!(scene.states(), (QpState::Err, QpState::Err));
    }
}

/// The first failure has its own status, everything behind it is flushed in order, unsignaled requests too;
/// what was acknowledged before it succeeded. Sends are flushed before receives.
#[test]
fn statement_30_the_first_failure_has_its_status_and_the_rest_is_flushed_in_order() {
    let mut scene = Scene::new();
    for wr_id in 100..103 {
        scene.a.post_recv(scene.qa, wr_id, 0, 8);
        scene.b.post_recv(scene.qb, wr_id, 0, 64);
    }
    for wr_id in 0..6 {
        let signaled = matches!(wr_id, 0 | 4);
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let remote = scene.b.target(0);
        // The third goes where it must not.
        let remote = if wr_id == 2 { RemoteTarget { rkey: 0xbad0_0000, ..remote } } else { remote };
        let sges = [scene.a.sge(0, 8)];
        scene.post(&SendRequest {
            flags,
            remote,
            sges: &sges,
            ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
        });
    }
    scene.settle();
    let sends = [(0, OK), (2, WcStatus::RemAccessErr), (3, FLUSHED), (4, FLUSHED), (5, FLUSHED)];
    let receives = [(100, FLUSHED), (101, FLUSHED), (102, FLUSHED)];
    assert_eq!(scene.a.outcomes(), [&sends[..], &receives[..]].concat());
    assert_eq!(scene.b.outcomes(), receives);
    // Posted afterwards: flushed at once.
    scene.write(9, 8);
    scene.a.post_recv(scene.qa, 109, 0, 8);
    assert_eq!(scene.a.outcomes(), [(9, FLUSHED), (109, FLUSHED)]);
}

/// N unsignaled requests fill a queue of N though they are executed; a polled completion gives back its entry
/// and all before it.
#[test]
fn statement_37_unsignaled_requests_hold_their_entries_until_a_later_completion_is_polled() {
    let mut scene = Scene::with(QpType::Rc, |init| init.capacity.max_send_wr = 5, |_| {});
    let depth = u64::from(scene.a.hca.query_qp(scene.qa).unwrap().cap.max_send_wr);
    assert!(depth >= 5);
    let post = |scene: &Scene, wr_id, flags| {
        let request = SendRequest {
            flags,
            remote: scene.b.target(0),
            sges: &[scene.a.sge(0, 8)],
            ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
        };
        scene.a.hca.post_send(scene.qa, &request)
    };
    let full = |result: Result<(), HcaError>| {
        let error = result.unwrap_err();
        assert_eq!(error.errno(), libc::ENOMEM);
        assert!(matches!(error, HcaError::Post { error: PostError::QueueFull { .. }, .. }), "{error}");
    };
    for wr_id in 0..depth - 1 {
        post(&scene, wr_id, SendFlags::empty()).unwrap();
    }
    post(&scene, 50, SendFlags::SIGNALED).unwrap();
    scene.settle();
    full(post(&scene, 60, SendFlags::SIGNALED));
    assert_eq!(scene.a.outcomes(), [(50, OK)]);
    // All entries are free again.
    for wr_id in 0..depth {
        post(&scene, wr_id, SendFlags::empty()).unwrap();
    }
    scene.settle();
    assert_eq!(scene.a.outcomes(), []);
    full(post(&scene, 61, SendFlags::SIGNALED));
    // An error makes completions of unsignaled requests as well, but those of before were executed.
    scene.a.move_to(scene.qa, QpState::Err);
    assert_eq!(scene.a.outcomes(), []);
}

/// A list stops at the first request that can be refused at once, and its index is told; earlier ones run. A
/// wrong L_Key is not one of those: it fails when the request is executed.
#[test]
fn statement_38_a_list_stops_at_the_first_bad_request_and_keys_are_looked_at_later() {
    let mut scene = Scene::new();
    let good = [scene.a.sge(0, 8)];
    let remote = scene.b.target(0);
    let write = |wr_id| SendRequest { remote, sges: &good, ..SendRequest::new(wr_id, SendOpcode::RdmaWrite) };
    let misaligned = SendRequest {
        remote: RemoteTarget { address: remote.address + 1, ..remote },
        atomic: Some(AtomicOperation::FetchAdd { add: 1 }),
        sges: &good,
        ..SendRequest::new(3, SendOpcode::FetchAdd)
    };
    let (position, error) =
        scene.a.hca.post_sends(scene.qa, &[write(1), write(2), misaligned, write(4)]).unwrap_err();
    assert_eq!((position, error.errno()), (2, libc::EINVAL));
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(1, OK), (2, OK)]);
    assert_eq!(scene.states().0, QpState::Rts, "a refusal leaves the queue pair as it is");
    let bad = [Sge { lkey: 0xdead_0000, ..scene.a.sge(0, 8) }];
    let bad_key = SendRequest { sges: &bad, ..write(5) };
    scene.a.hca.post_sends(scene.qa, &[bad_key, write(6)]).unwrap();
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(5, WcStatus::LocProtErr), (6, FLUSHED)]);
}

/// Inline data is copied while it is posted: it may change at once, and no key is needed.
#[test]
fn statement_39_inline_data_is_copied_and_needs_no_key() {
    let mut scene = Scene::new();
    scene.b.post_recv(scene.qb, 1, 0, 64);
    // Not even memory of any region.
    let mut data = *b"inline";
    let nonsense = [Sge { address: 3, length: 6, lkey: 0xdead_0000 }];
    let flags = SendFlags::SIGNALED | SendFlags::INLINE;
    scene.a.move_to(scene.qa, QpState::Sqd);
    scene.settle();
    // Held in SQD, so that nothing has left when the data changes.
    scene.post(&SendRequest {
        flags,
        sges: &nonsense,
        inline_data: &data,
        ..SendRequest::new(1, SendOpcode::Send)
    });
    data.fill(0);
    scene.a.move_to(scene.qa, QpState::Rts);
    scene.settle();
    assert_eq!(scene.a.outcomes(), [(1, OK)]);
    assert_eq!(scene.b.memory.read(0, 6), b"inline");
    assert_eq!(data, [0; 6]);
    // READ has nothing to take inline, and there is a limit.
    let read = SendRequest { flags, inline_data: &data, ..SendRequest::new(2, SendOpcode::RdmaRead) };
    assert_eq!(scene.a.hca.post_send(scene.qa, &read).unwrap_err().errno(), libc::EINVAL);
    let long = vec![0; scene.a.hca.query_qp(scene.qa).unwrap().cap.max_inline_data as usize + 1];
    let too_long = SendRequest { flags, inline_data: &long, ..SendRequest::new(3, SendOpcode::Send) };
    assert_eq!(scene.a.hca.post_send(scene.qa, &too_long).unwrap_err().errno(), libc::EINVAL);
}

/// An overrun: CQ_ERR once, QP_FATAL and ERR for each attached queue pair, the ring as it was, nothing new.
#[test]
fn statement_36_an_overrun_ends_the_queue_and_all_its_queue_pairs() {
    let mut scene = Scene::new();
    let small = scene.a.hca.create_cq(CqSetup { depth: 4, ..CqSetup::default() }).unwrap();
    let depth = u64::from(small.depth());
    let mut init = scene.a.qp_init(QpType::Rc);
    init.send_cq = Some(small.handle());
    let sender = scene.a.hca.create_qp(&init).unwrap().0;
    // A second queue pair only receives there.
    (init.send_cq, init.recv_cq) = (init.recv_cq, Some(small.handle()));
    let receiver = scene.a.hca.create_qp(&init).unwrap().0;
    for qpn in [sender, receiver] {
        let peer = scene.b.create_qp(QpType::Rc);
        scene.connect_pair(QpType::Rc, qpn, peer, Connection::default());
    }
    scene.qa = sender;
    for wr_id in 0..depth + 1 {
        scene.write(wr_id, 8);
    }
    scene.settle();
    let mut events = scene.a.event_types();
    assert_eq!(events.remove(0), AsyncEventType::CqErr);
    assert_eq!(events, [AsyncEventType::QpFatal; 2]);
    assert_eq!((scene.a.state(sender), scene.a.state(receiver)), (QpState::Err, QpState::Err));
    assert_eq!(outcomes(&small), (0..depth).map(|wr_id| (wr_id, OK)).collect::<Vec<_>>());
    scene.write(77, 8);
    scene.settle();
    assert!(drain(&small).is_empty() && scene.a.events().is_empty());
}
