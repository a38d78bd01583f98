//! Futures for completions, events and connections, on runtimes of tokio, of one thread and of several, and
//! on an executor of this file.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use pumice_verbs::asynchronous::{
    AsyncCompletionChannel, AsyncCompletionQueue, AsyncConnection, AsyncEvents, AsyncListener,
};
use pumice_verbs::{
    AsyncEventType, Connection, ConnectionEvent, ConnectionParams, FabricConfig, Fault, FaultPlan, Notify,
    RcQueuePair, RecvRequest, RemoteSlice, SendRequest, Simulation, VerbsError, WirePlan, WorkCompletion,
};
use tokio::runtime::{Builder, Runtime};

use crate::kit::{LIMIT, TestSide, on_both, on_udp_with, simulated, udp};

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A queue pair with a completion queue that is awaited.
fn awaited(side: &TestSide) -> (RcQueuePair, AsyncCompletionQueue) {
    let cq = AsyncCompletionQueue::new(&side.device, 256).unwrap();
    let qp = RcQueuePair::builder(&side.domain, cq.queue(), cq.queue()).build().unwrap();
    (qp, cq)
}

fn connect(one: &RcQueuePair, other: &RcQueuePair) {
    one.connect(&other.endpoint(), &Default::default()).unwrap();
    other.connect(&one.endpoint(), &Default::default()).unwrap();
}

#[test]
fn two_tasks_play_ping_pong() {
    on_both(140, |a, b| {
        let ((ping, ping_cq), (pong, pong_cq)) = (awaited(&a), awaited(&b));
        connect(&ping, &pong);
        let play = async |qp: &RcQueuePair, cq: &AsyncCompletionQueue, begins: bool| {
            qp.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap();
            let mut received = 0;
            if begins {
                qp.post_send(&SendRequest::send(&[])).unwrap();
            }
            while received < 100 {
                assert_eq!(cq.success().await.unwrap().wr_id, 1);
                received += 1;
                qp.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap();
                if received < 100 || !begins {
                    qp.post_send(&SendRequest::send(&[])).unwrap();
                }
            }
            received
        };
        let both = async { tokio::join!(play(&pong, &pong_cq, false), play(&ping, &ping_cq, true)) };
        assert_eq!(one_thread().block_on(both), (100, 100));
    });
}

#[test]
fn each_of_many_tasks_gets_the_completion_of_its_request() {
    on_both(141, |a, b| {
        let (qp, cq) = awaited(&a);
        let peer = b.rc();
        connect(&qp, &peer);
        let written = a.pattern(0, 64 * 64);
        let one = async |n: usize| {
            let local = [a.memory.slice(n * 64..n * 64 + 64).unwrap()];
            let remote = b.memory.remote_slice(n * 64..n * 64 + 64).unwrap();
            qp.post_send(&SendRequest::write(&local, remote).wr_id(n as u64).signaled()).unwrap();
            cq.of(n as u64).await.unwrap().wr_id
        };
        // The last request is awaited first.
        let all = async {
            let (evens, odds, rest) = tokio::join!(
                async { tokio::join!(one(6), one(4), one(2), one(0)) },
                async { tokio::join!(one(7), one(5), one(3), one(1)) },
                async {
                    let mut last = 0;
                    for n in 8..64 {
                        last = one(n).await;
                    }
                    last
                }
            );
            assert_eq!((evens, odds, rest), ((6, 4, 2, 0), (7, 5, 3, 1), 63));
        };
        one_thread().block_on(all);
        assert_eq!(b.memory.to_vec(0, 64 * 64).unwrap(), written);
    });
}

#[test]
fn tasks_on_several_threads_share_a_queue() {
    let (a, b) = udp(142);
    let (qp, cq) = awaited(&a);
    let peer = b.rc();
    connect(&qp, &peer);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (qp, cq) = (Arc::new(qp), Arc::new(cq));
    let remote = b.memory.remote_slice(0..8).unwrap();
    let tasks: Vec<_> = (0..16_u64)
        .map(|task| {
            let (qp, cq) = (Arc::clone(&qp), Arc::clone(&cq));
            runtime.spawn(async move {
                for round in 0..50 {
                    let wr_id = task << 32 | round;
                    let write = SendRequest::write(&[], remote).inline(b"8 bytes.").wr_id(wr_id);
                    qp.post_send(&write.signaled()).unwrap();
                    assert_eq!(cq.of(wr_id).await.unwrap().wr_id, wr_id);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(b.memory.to_vec(0, 8).unwrap(), b"8 bytes.");
}

#[test]
fn a_future_that_is_dropped_has_taken_nothing() {
    on_both(143, |a, b| {
        let ((ping, _cq), (pong, pong_cq)) = (awaited(&a), awaited(&b));
        connect(&ping, &pong);
        pong.post_recv(&RecvRequest { wr_id: 5, sges: &[] }).unwrap();
        one_thread().block_on(async {
            tokio::select! {
                biased;
                _ = pong_cq.next() => panic!("nothing was sent"),
                () = std::future::ready(()) => {}
            }
            ping.post_send(&SendRequest::send(&[])).unwrap();
            assert_eq!(pong_cq.success().await.unwrap().wr_id, 5);
        });
    });
}

#[test]
fn a_failed_request_is_an_error_that_names_it() {
    on_both(144, |a, b| {
        let (qp, cq) = awaited(&a);
        let peer = b.rc();
        connect(&qp, &peer);
        let nowhere = RemoteSlice { address: 0x1000, rkey: 0x77, length: 8 };
        qp.post_send(&SendRequest::write(&[], nowhere).inline(b"x").wr_id(3).signaled()).unwrap();
        qp.post_send(&SendRequest::send(&[]).wr_id(4).signaled()).unwrap();
        let events = AsyncEvents::new(&b.device).unwrap();
        one_thread().block_on(async {
            let error = cq.of(4).await.unwrap_err();
            assert!(error.to_string().contains("WR_FLUSH_ERR"), "{error}");
            let error = cq.of(3).await.unwrap_err();
            assert!(matches!(&error, VerbsError::Completed(of) if of.0.wr_id == 3), "{error}");
            assert!(error.to_string().contains("REM_ACCESS_ERR"), "{error}");
            assert_eq!(events.event().await.unwrap().event, AsyncEventType::QpAccessErr);
        });
    });
}

#[test]
fn events_of_a_channel_are_awaited_by_those_who_poll_themselves() {
    on_both(145, |a, b| {
        let channel = AsyncCompletionChannel::new(b.device.completion_channel().unwrap()).unwrap();
        let cq = channel.channel().completion_queue(16, 77).unwrap();
        let other = RcQueuePair::builder(&b.domain, &cq, &cq).build().unwrap();
        let one = a.rc();
        connect(&one, &other);
        other.post_recv(&RecvRequest { wr_id: 2, sges: &[] }).unwrap();
        cq.arm(Notify::Any).unwrap();
        one.post_send(&SendRequest::send(&[])).unwrap();
        let event = one_thread().block_on(channel.event()).unwrap();
        assert_eq!((event.queue, event.cookie), (cq.handle(), 77));
        let mut completions = [WorkCompletion::default(); 4];
        assert_eq!((cq.poll(&mut completions), completions[0].wr_id), (1, 2));
        assert_eq!(channel.channel().try_event(), None);
    });
}

#[test]
fn connections_are_asked_for_accepted_and_ended() {
    on_both(146, |client, server| {
        let listener = AsyncListener::new(server.device.listen(7474).unwrap()).unwrap();
        let at = SocketAddr::new(server.device.gids()[0].1.ip, listener.port());
        let params = ConnectionParams::default();
        let (qp, cq) = awaited(&client);
        let serve = async {
            let request = listener.request().await.unwrap();
            assert_eq!(request.private_data::<[u8; 5]>().unwrap(), *b"hello");
            let accepted = request.accept(&server.rc(), &params, &server.memory.remote()).unwrap();
            let accepted = AsyncConnection::new(accepted).unwrap();
            accepted.established().await.unwrap();
            accepted.established().await.unwrap();
            accepted.disconnected().await.unwrap();
            server.memory.to_vec(0, 5).unwrap()
        };
        let ask = async {
            let asked = Connection::start(&qp, at, &params, b"hello").unwrap();
            let asked = AsyncConnection::new(asked).unwrap();
            assert!(!asked.is_established());
            assert_eq!(asked.event().await.unwrap(), ConnectionEvent::Established);
            let remote: RemoteSlice = asked.private_data().unwrap();
            qp.post_send(&SendRequest::write(&[], remote).inline(b"stone").wr_id(1).signaled()).unwrap();
            cq.of(1).await.unwrap();
            asked.disconnect().unwrap();
            asked.disconnected().await.unwrap();
        };
        let both = async { tokio::join!(serve, ask).0 };
        assert_eq!(one_thread().block_on(both), b"stone");
        // No program listens there.
        let nowhere = SocketAddr::new(at.ip(), 7475);
        let asked = Connection::start(&client.rc(), nowhere, &params, &()).unwrap();
        let asked = AsyncConnection::new(asked).unwrap();
        let error = one_thread().block_on(asked.established()).unwrap_err();
        assert!(matches!(error, VerbsError::Rejected(_)), "{error}");
    });
}

#[test]
fn a_simulation_in_which_nothing_is_left_to_happen_ends_the_future() {
    let (a, _b) = simulated();
    let (_qp, cq) = awaited(&a);
    let error = one_thread().block_on(cq.next()).unwrap_err();
    assert!(matches!(error, VerbsError::Stalled { awaited: "completion" }), "{error}");
    assert!(error.to_string().starts_with("no completion will come: nothing is left to happen"), "{error}");
}

/// What a run of tasks on a lossy network was: how many packets were lost, and how long it took.
fn lossy_run() -> (u64, u64) {
    let simulation = Simulation::new(FabricConfig {
        faults: WirePlan::seeded(3).by_chance(50_000, Fault::Drop),
        ..FabricConfig::default()
    });
    let side = |last: u8| TestSide::new(simulation.device([10, 0, 0, last].into()).unwrap());
    let (a, b) = (side(1), side(2));
    let (qp, cq) = awaited(&a);
    let peer = b.rc();
    connect(&qp, &peer);
    let write = async |n: u64| {
        let local = [a.memory.slice(..100_000).unwrap()];
        qp.post_send(&SendRequest::write(&local, b.memory.remote()).wr_id(n).signaled()).unwrap();
        cq.of(n).await.unwrap();
    };
    one_thread().block_on(async { tokio::join!(write(1), write(2), write(3)) });
    (simulation.fabric().stats().lost, simulation.now_ns())
}

#[test]
fn a_simulated_run_is_the_same_each_time() {
    let first = lossy_run();
    assert!(first.0 > 0);
    assert_eq!(first, lossy_run());
}

#[test]
fn a_planned_failure_reaches_the_future() {
    let plan = FaultPlan::new().with_line("fail call=ibv_poll_cq errno=EIO nth=2").unwrap();
    let (a, b) = on_udp_with(147, pumice_verbs::DeviceOptions::new().faults(plan));
    let (qp, cq) = awaited(&a);
    let peer = b.rc();
    connect(&qp, &peer);
    let write = |wr_id| {
        let remote = b.memory.remote_slice(0..1).unwrap();
        qp.post_send(&SendRequest::write(&[], remote).inline(b"x").wr_id(wr_id).signaled()).unwrap();
    };
    (1..=2).for_each(write);
    one_thread().block_on(async {
        cq.of(1).await.unwrap();
        let error = cq.of(2).await.unwrap_err();
        assert!(matches!(error, VerbsError::Planned { call: "ibv_poll_cq", errno: 5 }), "{error}");
        cq.of(2).await.unwrap();
    });
}

/// The simplest executor: a thread that sleeps until the task is woken.
fn block_on<R>(future: impl Future<Output = R>) -> R {
    struct ThreadWaker(Thread);
    impl Wake for ThreadWaker {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(ThreadWaker(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        std::thread::park();
    }
}

#[test]
fn no_runtime_is_needed() {
    let (a, b) = udp(148);
    let (qp, cq) = awaited(&b);
    let peer = a.rc();
    connect(&peer, &qp);
    qp.post_recv(&RecvRequest { wr_id: 9, sges: &[] }).unwrap();
    let sender = std::thread::spawn(move || {
        peer.post_send(&SendRequest::send(&[]).signaled()).unwrap();
        a.cq.wait_success(LIMIT).unwrap();
    });
    assert_eq!(block_on(cq.success()).unwrap().wr_id, 9);
    sender.join().unwrap();
}

#[test]
fn futures_may_be_moved_to_other_threads() {
    fn is_send<T: Send>(_: T) {}
    fn check(cq: &AsyncCompletionQueue, events: &AsyncEvents) {
        is_send(cq.next());
        is_send(cq.of(1));
        is_send(events.event());
    }
    let _ = check;
}
