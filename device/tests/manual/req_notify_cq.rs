//! ibv_req_notify_cq(3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pumice_device::objects::completion_channel::{CompletionChannel, CqEvent};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::scene::Scene;
use crate::kit::{Connection, drain};

/// A scene whose `b` completes on a queue with a channel.
struct Watched {
    scene: Scene,
    cq: Arc<CompletionQueue>,
    channel: Arc<CompletionChannel>,
}

impl Watched {
    fn new() -> Watched {
        let mut scene = Scene::new();
        let (cq, channel) = scene.b.cq_with_channel(256);
        let mut init = scene.b.qp_init(QpType::Rc);
        (init.send_cq, init.recv_cq) = (Some(cq.handle()), Some(cq.handle()));
        let (qa, qb) = (scene.a.create_qp(QpType::Rc), scene.b.hca.create_qp(&init).unwrap().0);
        scene.connect_pair(QpType::Rc, qa, qb, Connection::default());
        (scene.qa, scene.qb) = (qa, qb);
        for wr_id in 0..16 {
            scene.b.post_recv(qb, wr_id, 0, 64);
        }
        Watched { scene, cq, channel }
    }

    fn arm(&self, solicited_only: bool) {
        self.scene.b.hca.req_notify_cq(&self.cq, solicited_only);
    }

    /// A message for `b`.
    fn receive(&mut self, opcode: SendOpcode, flags: SendFlags) {
        let request = SendRequest { flags, remote: self.scene.b.target(0), ..SendRequest::new(1, opcode) };
        self.scene.post(&request);
        self.scene.settle();
        self.scene.a.drain();
    }

    /// A request of `b` that succeeds, or fails for its key.
    fn send_from_b(&mut self, good: bool) {
        let sge = self.scene.b.sge(0, 8);
        let sge = if good { sge } else { Sge { lkey: 0xdead_0000, ..sge } };
        let remote = self.scene.a.target(0);
        let request = SendRequest { sges: &[sge], remote, ..SendRequest::new(90, SendOpcode::RdmaWrite) };
        self.scene.b.hca.post_send(self.scene.qb, &request).unwrap();
        self.scene.settle();
    }

    /// Events since the last call, acknowledged.
    fn fired(&self) -> usize {
        let count = std::iter::from_fn(|| self.channel.try_event()).count();
        self.cq.ack_events(count as u64);
        count
    }
}

const PLAIN: SendFlags = SendFlags::SIGNALED;
const ASKING: SendFlags = SendFlags::SIGNALED.union(SendFlags::SOLICITED);

/// A request for notification puts one event into the channel of the queue when the next completion is added,
/// with the queue and its cookie.
#[test]
fn req_notify_cq_gives_an_event_on_the_queues_channel() {
    let mut watched = Watched::new();
    watched.arm(false);
    assert!(!watched.channel.queued() > 0 && watched.channel.try_event().is_none());
    watched.receive(SendOpcode::Send, PLAIN);
    let expected = CqEvent { cq: watched.cq.handle(), cookie: watched.cq.cookie() };
    assert_eq!(watched.channel.try_event(), Some(expected));
    watched.cq.ack_events(1);
}

/// With solicited_only 0 any completion fires: of receives and of sends, good or bad.
#[test]
fn req_notify_cq_for_any_fires_for_every_kind_of_completion() {
    let mut watched = Watched::new();
    watched.arm(false);
    watched.receive(SendOpcode::Send, PLAIN);
    assert_eq!(watched.fired(), 1);
    watched.arm(false);
    watched.receive(SendOpcode::RdmaWriteWithImm, ASKING);
    assert_eq!(watched.fired(), 1);
    watched.arm(false);
    watched.send_from_b(true);
    assert_eq!(watched.fired(), 1);
    watched.arm(false);
    watched.send_from_b(false);
    assert_eq!(watched.fired(), 1);
}

/// With solicited_only a receive fires if the message had the solicited-event bit.
#[test]
fn req_notify_cq_solicited_fires_for_messages_that_ask() {
    for opcode in [SendOpcode::Send, SendOpcode::SendWithImm, SendOpcode::RdmaWriteWithImm] {
        let mut watched = Watched::new();
        watched.arm(true);
        watched.receive(opcode, PLAIN);
        assert_eq!(watched.fired(), 0, "{}", opcode.name());
        watched.receive(opcode, ASKING);
        assert_eq!(watched.fired(), 1, "{}", opcode.name());
    }
}

/// A message of many packets asks in its last one only, and counts once.
#[test]
fn req_notify_cq_solicited_fires_once_for_a_long_message() {
    let mut watched = Watched::new();
    let scene = &mut watched.scene;
    scene.b.hca.destroy_qp(scene.qb).unwrap();
    let mut init = scene.b.qp_init(QpType::Rc);
    init.recv_cq = Some(watched.cq.handle());
    let qb = scene.b.hca.create_qp(&init).unwrap().0;
    scene.a.move_to(scene.qa, QpState::Reset);
    scene.connect_pair(QpType::Rc, scene.qa, qb, Connection::default());
    scene.b.post_recv(qb, 1, 0, 100_000);
    watched.arm(true);
    let scene = &mut watched.scene;
    scene.post(&SendRequest {
        flags: ASKING,
        sges: &[scene.a.sge(0, 100_000)],
        ..SendRequest::new(1, SendOpcode::Send)
    });
    scene.settle();
    assert_eq!(watched.fired(), 1);
}

/// With solicited_only any unsuccessful completion fires, of a send as of a receive.
#[test]
fn req_notify_cq_solicited_fires_for_every_failure() {
    let mut watched = Watched::new();
    watched.arm(true);
    watched.send_from_b(false);
    assert_eq!(watched.fired(), 1, "a failed send");
    let mut watched = Watched::new();
    watched.arm(true);
    // Flushed receives.
    watched.scene.b.move_to(watched.scene.qb, QpState::Err);
    assert_eq!(watched.fired(), 1, "flushed receives");
    // A flushed send.
    watched.arm(true);
    watched.send_from_b(true);
    assert_eq!(watched.fired(), 1, "a flushed send");
    // A message that does not fit.
    let mut watched = Watched::new();
    watched.arm(true);
    watched.scene.send(1, 4096);
    watched.scene.settle();
    assert_eq!(watched.fired(), 1, "a failed receive");
}

/// Successful sends and receives that were not asked for are not solicited, even if the send carried the
/// flag.
#[test]
fn req_notify_cq_solicited_ignores_successful_sends_and_plain_receives() {
    let mut watched = Watched::new();
    watched.arm(true);
    watched.receive(SendOpcode::Send, PLAIN);
    watched.send_from_b(true);
    let scene = &mut watched.scene;
    scene.a.post_recv(scene.qa, 1, 0, 8);
    let request = SendRequest { flags: ASKING, ..SendRequest::new(1, SendOpcode::Send) };
    scene.b.hca.post_send(scene.qb, &request).unwrap();
    scene.settle();
    assert_eq!(watched.fired(), 0);
    assert_eq!(drain(&watched.cq).len(), 3);
    // Still armed.
    watched.receive(SendOpcode::Send, ASKING);
    assert_eq!(watched.fired(), 1);
}

/// One request, one event: it has to be asked for again.
#[test]
fn req_notify_cq_is_one_shot() {
    let mut watched = Watched::new();
    watched.arm(false);
    for _ in 0..3 {
        watched.receive(SendOpcode::Send, ASKING);
    }
    assert_eq!(watched.fired(), 1);
    for _ in 0..3 {
        watched.arm(false);
        watched.arm(false);
        watched.receive(SendOpcode::Send, PLAIN);
        watched.receive(SendOpcode::Send, PLAIN);
        assert_eq!(watched.fired(), 1, "arming twice before a completion is arming once");
    }
}

/// Only completions that are added afterwards count.
#[test]
fn req_notify_cq_does_not_fire_for_completions_already_there() {
    let mut watched = Watched::new();
    watched.receive(SendOpcode::Send, ASKING);
    watched.arm(false);
    assert_eq!((watched.fired(), watched.cq.len()), (0, 1));
    drain(&watched.cq);
    assert_eq!(watched.fired(), 0);
    watched.receive(SendOpcode::Send, PLAIN);
    assert_eq!(watched.fired(), 1);
}

/// Asking for solicited ones after asking for any takes nothing back; asking for any after solicited widens.
#[test]
fn req_notify_cq_for_any_is_not_weakened_by_solicited() {
    let mut watched = Watched::new();
    watched.arm(false);
    watched.arm(true);
    watched.receive(SendOpcode::Send, PLAIN);
    assert_eq!(watched.fired(), 1);
    watched.arm(true);
    watched.arm(false);
    watched.receive(SendOpcode::Send, PLAIN);
    assert_eq!(watched.fired(), 1);
}

/// Many threads complete, arm and take at once: there are as many events as armings that fired, none lost and
/// none twice.
#[test]
fn req_notify_cq_gives_exactly_one_event_per_arming_with_many_threads() {
    const ROUNDS: u64 = 500;
    const COMPLETERS: u64 = 3;
    let scene = Scene::new();
    let (cq, channel) = scene.b.cq_with_channel(4096);
    let hca = &scene.b.hca;
    // A queue pair in ERR completes a receive as soon as it is posted, in the thread that posts it.
    let qpns: Vec<Qpn> = (0..COMPLETERS)
        .map(|_| {
            let mut init = scene.b.qp_init(QpType::Rc);
            init.recv_cq = Some(cq.handle());
            let qpn = hca.create_qp(&init).unwrap().0;
            scene.b.to_init(qpn);
            scene.b.move_to(qpn, QpState::Err);
            qpn
        })
        .collect();
    let (armings, stop, completed) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    let events = std::thread::scope(|scope| {
        for qpn in &qpns {
            scope.spawn(|| {
                let request = RecvRequest { wr_id: 1, sges: &[] };
                while !stop.load(Ordering::Acquire) {
                    if cq.len() > 1000 {
                        std::thread::yield_now();
                        continue;
                    }
                    hca.post_recv(*qpn, &request).unwrap();
                    completed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Polls without arming: a thread that polls a completion takes no event with it.
        let poller = scope.spawn(|| {
            let mut polled = 0;
            while !stop.load(Ordering::Acquire) {
                polled += drain(&cq).len() as u64;
            }
            polled
        });
        let mut events = 0;
        for round in 0..ROUNDS {
            hca.req_notify_cq(&cq, round % 2 == 0);
            armings.fetch_add(1, Ordering::Relaxed);
            // Flushed completions keep coming, and each is unsuccessful: the event must come.
            let patience = Instant::now() + Duration::from_secs(60);
            let event = loop {
                if let Some(event) = channel.try_event() {
                    break event;
                }
                if Instant::now() > patience {
                    stop.store(true, Ordering::Release);
                    panic!("round {round}: no event for an arming");
                }
                std::thread::yield_now();
            };
            assert_eq!(event.cq, cq.handle());
            assert!(channel.try_event().is_none(), "round {round}: a second event for one arming");
            events += 1;
            cq.ack_events(1);
        }
        stop.store(true, Ordering::Release);
        let polled = poller.join().unwrap();
        assert!(polled > 0);
        events
    });
    drain(&cq);
    assert!(!cq.is_failed(), "{} completions were too many", completed.load(Ordering::Relaxed));
    assert_eq!((events, channel.queued()), (armings.load(Ordering::Relaxed), 0));
}
