//! The one rule of calls that wait, completions as results, and options that are set one after the other.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use pumice_verbs::{
    CompletionError, Connection, ConnectionParams, Notify, RcConnectOptions, RcQueuePair, RecvRequest,
    Result, SendRequest, VerbsError, WcStatus, WorkCompletion,
};

use crate::kit::{LIMIT, TestSide, connected, simulated, udp};

const PORT: u16 = 7474;

fn timed_out<T>(result: Result<T>) -> bool {
    matches!(result, Err(VerbsError::TimedOut { after: Duration::ZERO, .. }))
}

fn at(side: &TestSide) -> SocketAddr {
    SocketAddr::new(IpAddr::from(side.device.gids()[0].1.gid), PORT)
}

/// Every call that waits, while there is nothing.
fn finds_nothing(one: &TestSide, other: &TestSide) {
    let listener = one.device.listen(PORT).unwrap();
    let channel = one.device.completion_channel().unwrap();
    assert!(timed_out(one.cq.wait(&mut [WorkCompletion::default()], Duration::ZERO)));
    assert!(timed_out(one.cq.wait_one(Duration::ZERO)));
    assert!(timed_out(one.cq.wait_success(Duration::ZERO)));
    assert!(timed_out(channel.wait(Duration::ZERO)));
    assert!(timed_out(one.device.async_event(Duration::ZERO)));
    assert!(timed_out(listener.request(Duration::ZERO)));
    let qp = one.rc();
    let connecting = Connection::start(&qp, at(other), &ConnectionParams::new(), &()).unwrap();
    assert!(timed_out(connecting.established(Duration::ZERO)));
    assert!(timed_out(connecting.event(Duration::ZERO)));
    assert!(timed_out(connecting.disconnected(Duration::ZERO)));
}

#[test]
fn calls_without_time_find_nothing_where_nothing_is() {
    let (one, other) = simulated();
    finds_nothing(&one, &other);
    let (one, other) = udp(140);
    finds_nothing(&one, &other);
}

#[test]
fn calls_without_time_take_what_is_there() {
    let (one, other) = simulated();
    let passes = || one.device.simulation().unwrap().run_for(Duration::from_secs(1));
    let channel = other.device.completion_channel().unwrap();
    let cq = channel.completion_queue(16, 0).unwrap();
    let qp = one.rc();
    let target = RcQueuePair::builder(&other.domain, &cq, &cq).build().unwrap();
    qp.connect(&target.endpoint(), &Default::default()).unwrap();
    target.connect(&qp.endpoint(), &Default::default()).unwrap();
    target.post_recv(&RecvRequest { wr_id: 7, sges: &[] }).unwrap();
    cq.arm(Notify::Any).unwrap();
    qp.post_send(&SendRequest::send(&[]).wr_id(1).signaled()).unwrap();
    passes();
    assert_eq!(one.cq.wait_success(Duration::ZERO).unwrap().wr_id, 1);
    channel.wait(Duration::ZERO).unwrap();
    assert_eq!(cq.wait_one(Duration::ZERO).unwrap().wr_id, 7);

    let listener = other.device.listen(PORT).unwrap();
    let requester = one.rc();
    let connecting = Connection::start(&requester, at(&other), &ConnectionParams::new(), &()).unwrap();
    passes();
    let request = listener.request(Duration::ZERO).unwrap();
    let accepted = request.accept(&other.rc(), &ConnectionParams::new(), &()).unwrap();
    passes();
    connecting.established(Duration::ZERO).unwrap();
    passes();
    accepted.established(Duration::ZERO).unwrap();
    connecting.disconnect().unwrap();
    passes();
    accepted.disconnected(Duration::ZERO).unwrap();
}

#[test]
fn a_wait_for_ever_ends_with_what_it_waits_for() {
    let (one, other) = udp(141);
    let (qp, _peer) = connected(&one, &other);
    let channel = one.device.completion_channel().unwrap();
    qp.post_send(&SendRequest::write(&[], other.memory.remote().slice(..0).unwrap()).signaled()).unwrap();
    one.cq.wait_success(Duration::MAX).unwrap();
    let cq = channel.completion_queue(16, 0).unwrap();
    let again = RcQueuePair::builder(&one.domain, &cq, &cq).build().unwrap();
    let peer = other.rc();
    again.connect(&peer.endpoint(), &Default::default()).unwrap();
    peer.connect(&again.endpoint(), &Default::default()).unwrap();
    cq.arm(Notify::Any).unwrap();
    again.post_send(&SendRequest::write(&[], other.memory.remote().slice(..0).unwrap()).signaled()).unwrap();
    channel.wait(Duration::MAX).unwrap();
}

#[test]
fn connect_returns_a_connection_that_is_established() {
    let (client, server) = udp(142);
    let listener = server.device.listen(PORT).unwrap();
    let serving = thread::spawn(move || {
        let qp = server.rc();
        qp.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap();
        let request = listener.request(LIMIT).unwrap();
        let accepted = request.accept(&qp, &ConnectionParams::new(), &9_u32).unwrap();
        accepted.established(LIMIT).unwrap();
        server.expect(1);
        accepted.disconnected(LIMIT).unwrap();
        server
    });
    let qp = client.rc();
    let to = SocketAddr::new([127, 89, 142, 2].into(), PORT);
    let params = ConnectionParams::new().retry_count(3).initiator_depth(2);
    let connection = Connection::connect(&qp, to, &params, &(), LIMIT).unwrap();
    assert!(connection.is_established());
    assert_eq!(connection.private_data::<u32>().unwrap(), 9);
    qp.post_send(&SendRequest::send(&[]).signaled()).unwrap();
    client.cq.wait_success(LIMIT).unwrap();
    drop(connection);
    serving.join().unwrap();
}

#[test]
fn connect_gives_up_in_time() {
    let (client, server) = simulated();
    // It listens, and the program takes no request.
    let _listener = server.device.listen(PORT).unwrap();
    let qp = client.rc();
    let tried = Connection::connect(&qp, at(&server), &ConnectionParams::new(), &(), Duration::from_secs(2));
    assert!(matches!(tried, Err(VerbsError::TimedOut { .. })), "{tried:?}");
    client.device.simulation().unwrap().run_for(LIMIT);
    assert_eq!(client.device.hca().cm_connection_count(), 0);
}

#[test]
fn a_completion_is_a_result() {
    let (one, other) = simulated();
    let (qp, peer) = connected(&one, &other);
    qp.post_send(&SendRequest::write(&[], other.memory.remote().slice(..0).unwrap()).signaled()).unwrap();
    let completion = one.cq.wait_one(LIMIT).unwrap();
    assert_eq!(completion.into_result(), Ok(completion));

    let nowhere = other.memory.remote();
    drop(other);
    let impatient = RcConnectOptions::new().retry_count(1).timeout(10);
    let lonely = one.rc();
    lonely.connect(&peer.endpoint(), &impatient).unwrap();
    drop(peer);
    lonely.post_send(&SendRequest::write(&[], nowhere.slice(..0).unwrap()).wr_id(5).signaled()).unwrap();
    let failed = one.cq.wait_one(LIMIT).unwrap();
    let as_error = |failed: WorkCompletion| -> Result<WorkCompletion> { Ok(failed.into_result()?) };
    assert_eq!(failed.into_result().unwrap_err(), CompletionError(Box::new(failed)));
    let error = as_error(failed).unwrap_err();
    assert_eq!(failed.status, WcStatus::RetryExcErr);
    assert!(error.to_string().contains("work request 0x5 of QP"), "{error}");
    assert_eq!((error.object(), error.errno()), ("work request", 5));
}
