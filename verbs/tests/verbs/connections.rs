//! Connections by address, through the connection manager.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use pumice_device::port::wait_readable;
use pumice_verbs::rdma_cm::PrivateData;
use pumice_verbs::{
    Connection, ConnectionEvent, ConnectionParams, DeviceOptions, FabricConfig, FaultPlan, Listener, QpState,
    RcQueuePair, RecvRequest, RejectReason, RemoteSlice, SendRequest, Simulation, UcQueuePair, VerbsError,
    WcStatus,
};

use crate::kit::{LIMIT, TestSide, on_both, simulated};

const PORT: u16 = 7471;

fn address(side: &TestSide) -> IpAddr {
    side.device.gids()[0].1.ip
}

fn at(side: &TestSide, port: u16) -> SocketAddr {
    SocketAddr::new(address(side), port)
}

fn params() -> ConnectionParams {
    ConnectionParams::default()
}

fn uc(side: &TestSide) -> UcQueuePair {
    UcQueuePair::builder(&side.domain, &side.cq, &side.cq).build().unwrap()
}

fn start_connect(client: &TestSide, server: SocketAddr) -> Connection<pumice_verbs::transport::Rc> {
    Connection::start(&client.rc(), server, &params(), &()).unwrap()
}

/// Both ends of a connection.
fn connected(
    client: &TestSide,
    listener: &Listener,
    server: &TestSide,
) -> (Connection<pumice_verbs::transport::Rc>, Connection<pumice_verbs::transport::Rc>) {
    let connecting = start_connect(client, at(server, listener.port()));
    let accepted = listener.request(LIMIT).unwrap().accept(&server.rc(), &params(), &()).unwrap();
    connecting.established(LIMIT).unwrap();
    accepted.established(LIMIT).unwrap();
    (connecting, accepted)
}

#[test]
fn two_sides_connect_by_address_talk_and_disconnect() {
    on_both(101, |client, server| {
        let listener = server.device.listen(PORT).unwrap();
        assert_eq!(listener.port(), PORT);
        let qp = client.rc();
        let hello = (7_u32, *b"hello");
        let connecting = Connection::start(&qp, at(&server, PORT), &params(), &hello).unwrap();
        assert!(!connecting.is_established());
        assert_eq!(connecting.peer(), at(&server, PORT));

        let request = listener.request(LIMIT).unwrap();
        assert_eq!(request.private_data::<(u32, [u8; 5])>().unwrap(), hello);
        assert_eq!((request.peer().ip(), request.local()), (address(&client), address(&server)));
        assert!(request.peer().port() >= 32768);
        assert!(request.is::<pumice_verbs::transport::Rc>() && !request.is::<pumice_verbs::transport::Uc>());
        let server_qp = server.rc();
        server_qp.post_recv(&RecvRequest { wr_id: 9, sges: &[server.memory.slice(..100).unwrap()] }).unwrap();
        let accepted = request.accept(&server_qp, &params(), &server.memory.remote()).unwrap();
        assert_eq!(server_qp.state().unwrap(), QpState::Rts, "data may come with the confirmation");

        connecting.established(LIMIT).unwrap();
        accepted.established(LIMIT).unwrap();
        assert!(connecting.is_established() && accepted.is_established());
        let remote: RemoteSlice = connecting.private_data().unwrap();
        assert_eq!(remote, server.memory.remote());
        let sent = client.pattern(0, 64);
        let local = [client.memory.slice(..64).unwrap()];
        qp.post_send(&SendRequest::send(&local).wr_id(1).signaled()).unwrap();
        assert_eq!(server.expect(9).byte_len, 64);
        assert_eq!(server.memory.to_vec(0, 64).unwrap(), sent);
        client.expect(1);
        // The other way, and an operation with an answer.
        let back = [server.memory.slice(..64).unwrap()];
        let target = client.memory.remote_slice(1000..1064).unwrap();
        server_qp.post_send(&SendRequest::write(&back, target).wr_id(2).signaled()).unwrap();
        server.expect(2);
        qp.post_send(&SendRequest::read(&local, remote).wr_id(3).signaled()).unwrap();
        client.expect(3);

        qp.post_recv(&RecvRequest { wr_id: 4, sges: &[] }).unwrap();
        accepted.disconnect().unwrap();
        connecting.disconnected(LIMIT).unwrap();
        accepted.disconnected(LIMIT).unwrap();
        client.expect_failure(4, WcStatus::WrFlushErr);
        assert_eq!(qp.state().unwrap(), QpState::Err);
        assert!(!connecting.is_established());
        connecting.disconnect().unwrap();
        assert!(matches!(connecting.established(LIMIT), Err(VerbsError::Disconnected { .. })));
        // The queue pair can be connected again.
        drop((connecting, accepted));
        qp.reset().unwrap();
        let again = Connection::start(&qp, at(&server, PORT), &params(), &()).unwrap();
        let accepted = listener.request(LIMIT).unwrap().accept(&server.rc(), &params(), &()).unwrap();
        again.established(LIMIT).unwrap();
        accepted.established(LIMIT).unwrap();
    });
}

#[test]
fn a_rejected_peer_gets_the_reason() {
    on_both(102, |client, server| {
        // No program listens.
        let connecting = start_connect(&client, at(&server, PORT));
        let Err(error) = connecting.established(LIMIT) else { panic!() };
        assert!(error.to_string().contains("invalid service id"), "{error}");
        assert!(error.remedy().contains("listens"));
        assert_eq!(error.errno(), 111);
        // The program does not want to.
        let listener = server.device.listen(PORT).unwrap();
        let connecting = start_connect(&client, at(&server, PORT));
        listener.request(LIMIT).unwrap().reject(&(40_u8, *b"full")).unwrap();
        let event = connecting.event(LIMIT).unwrap();
        let ConnectionEvent::Rejected(rejection) = event else { panic!("{event:?}") };
        assert_eq!(rejection.reason, RejectReason::CONSUMER);
        assert_eq!(rejection.private_data::<(u8, [u8; 4])>().unwrap(), (40, *b"full"));
        assert_eq!(connecting.queue_pair().state().unwrap(), QpState::Err);
        // It does not even look.
        let connecting = start_connect(&client, at(&server, PORT));
        drop(listener.request(LIMIT).unwrap());
        assert!(matches!(connecting.established(LIMIT), Err(VerbsError::Rejected(_))));
        // It stops listening before it looks.
        let connecting = start_connect(&client, at(&server, PORT));
        let other = listener.as_fd().try_clone_to_owned().unwrap();
        if let Some(simulation) = client.device.simulation() {
            simulation.run_for(Duration::from_millis(1));
        }
        wait_readable(&[other.as_raw_fd()], None, Some(LIMIT)).unwrap();
        drop(listener);
        assert!(matches!(connecting.established(LIMIT), Err(VerbsError::Rejected(_))));
        assert_eq!(client.device.hca().cm_connection_count(), 4, "as many as there are values of them");
    });
}

#[test]
fn an_absent_peer_is_distinguished_and_waiting_ends_in_time() {
    let (client, server) = simulated();
    let listener = server.device.listen(PORT).unwrap();
    let error = listener.request(Duration::from_millis(5)).unwrap_err();
    assert!(matches!(error, VerbsError::TimedOut { .. }), "{error}");
    let quick = ConnectionParams { response_timeout: 10, max_cm_retries: 2, ..params() };
    let nowhere = "10.0.0.99:7".parse().unwrap();
    let connecting = Connection::start(&client.rc(), nowhere, &quick, &()).unwrap();
    assert!(matches!(connecting.established(Duration::from_millis(1)), Err(VerbsError::TimedOut { .. })));
    assert!(matches!(connecting.disconnect(), Err(VerbsError::Connection(_))), "it never was established");
    let error = connecting.established(LIMIT).unwrap_err();
    assert!(matches!(error, VerbsError::Unreachable { peer } if peer == nowhere), "{error}");
    assert_eq!(error.errno(), 110);
    let family = Connection::start(&client.rc(), "[::1]:7".parse().unwrap(), &quick, &()).unwrap_err();
    assert_eq!(family.attribute().as_deref(), Some("peer"));
    let wrong = ConnectionParams { retry_count: 8, ..params() };
    let error = Connection::start(&client.rc(), nowhere, &wrong, &()).unwrap_err();
    assert!(error.to_string().contains("retry count 8"), "{error}");
}

#[test]
fn dropping_a_connection_disconnects_and_leaves_nothing() {
    on_both(103, |client, server| {
        let listener = server.device.listen(0).unwrap();
        assert!(listener.port() >= 32768);
        let (connecting, accepted) = connected(&client, &listener, &server);
        drop(connecting);
        accepted.disconnected(LIMIT).unwrap();
        assert_eq!(accepted.queue_pair().state().unwrap(), QpState::Err);
        drop(accepted);
        let (connecting, accepted) = connected(&client, &listener, &server);
        drop(accepted);
        assert_eq!(connecting.event(LIMIT).unwrap(), ConnectionEvent::Disconnected);
        // Timewait, half a second, needs no program.
        assert_eq!(connecting.event(LIMIT).unwrap(), ConnectionEvent::TimewaitExit);
        drop(connecting);
        if let Some(simulation) = client.device.simulation() {
            simulation.run_for(LIMIT);
            for side in [&client, &server] {
                assert_eq!(side.device.hca().cm_connection_count(), 0);
            }
        }
    });
}

#[test]
fn a_port_is_for_one_listener_at_a_time_and_an_address_must_be_the_devices() {
    on_both(104, |client, server| {
        let first = server.device.listen(PORT).unwrap();
        let error = server.device.listen(PORT).unwrap_err();
        assert_eq!((error.errno(), error.object()), (98, "listener"), "{error}");
        assert!(Listener::bind(&server.device, at(&server, PORT), 8).is_err());
        let error = Listener::bind(&server.device, at(&client, PORT), 8).unwrap_err();
        assert_eq!(error.attribute().as_deref(), Some("address"));
        drop(first);
        let listener = Listener::bind(&server.device, at(&server, PORT), 8).unwrap();
        assert_eq!(listener.address(), at(&server, PORT));
        connected(&client, &listener, &server);
    });
}

#[test]
fn the_transport_is_the_requesters() {
    on_both(105, |client, server| {
        let listener = server.device.listen(PORT).unwrap();
        let client_qp = uc(&client);
        let connecting = Connection::start(&client_qp, at(&server, PORT), &params(), &()).unwrap();
        let error = listener.request(LIMIT).unwrap().accept(&server.rc(), &params(), &()).unwrap_err();
        assert!(error.to_string().contains("RC"), "{error}");
        assert!(matches!(connecting.established(LIMIT), Err(VerbsError::Rejected(_))));
        drop(connecting);
        client_qp.reset().unwrap();
        let connecting = Connection::start(&client_qp, at(&server, PORT), &params(), &()).unwrap();
        let server_qp = uc(&server);
        server_qp.post_recv(&RecvRequest { wr_id: 1, sges: &[server.memory.slice(..8).unwrap()] }).unwrap();
        let accepted = listener.request(LIMIT).unwrap().accept(&server_qp, &params(), &()).unwrap();
        connecting.established(LIMIT).unwrap();
        accepted.established(LIMIT).unwrap();
        client_qp.post_send(&SendRequest::send(&[]).inline(b"datagram").signaled()).unwrap();
        assert_eq!(server.expect(1).byte_len, 8);
    });
}

/// A type of the program's own, with something to say about its values.
#[derive(Debug, PartialEq)]
struct Version(u16);

impl PrivateData for Version {
    const LEN: usize = 2;

    fn write(&self, to: &mut [u8]) {
        self.0.write(to);
    }

    fn read(from: &[u8]) -> Option<Version> {
        u16::read(from).filter(|&number| number > 0).map(Version)
    }
}

#[test]
fn private_data_of_another_type_is_an_error_and_nothing_worse() {
    let (client, server) = simulated();
    let listener = server.device.listen(PORT).unwrap();
    let qp = client.rc();
    let connecting = Connection::start(&qp, at(&server, PORT), &params(), &Version(0)).unwrap();
    let request = listener.request(LIMIT).unwrap();
    let error = request.private_data::<Version>().unwrap_err();
    assert_eq!(error.attribute().as_deref(), Some("private_data"));
    assert_eq!(request.private_data::<[u8; 56]>().unwrap(), [0; 56]);
    assert!(request.private_data::<[u8; 57]>().is_err());
    let _accepted = request.accept(&server.rc(), &params(), &Version(3)).unwrap();
    assert!(connecting.private_data::<Version>().is_err(), "nothing was said yet");
    connecting.established(LIMIT).unwrap();
    assert_eq!(connecting.private_data::<Version>().unwrap(), Version(3));
}

#[test]
fn reads_and_atomics_are_limited_by_both_sides() {
    let (client, server) = simulated();
    let listener = server.device.listen(PORT).unwrap();
    let few = ConnectionParams { responder_resources: 2, initiator_depth: 3, ..params() };
    let qp = client.rc();
    let connecting = Connection::start(&qp, at(&server, PORT), &few, &()).unwrap();
    let many = ConnectionParams { responder_resources: 16, initiator_depth: 1, ..params() };
    let server_qp = server.rc();
    let _accepted = listener.request(LIMIT).unwrap().accept(&server_qp, &many, &()).unwrap();
    connecting.established(LIMIT).unwrap();
    let depths = |qp: &RcQueuePair| {
        let attributes = qp.query().unwrap();
        (attributes.max_dest_rd_atomic, attributes.max_rd_atomic)
    };
    assert_eq!(depths(&qp), (1, 3));
    assert_eq!(depths(&server_qp), (3, 1));
}

#[test]
fn a_lossy_network_delays_connections_and_no_more() {
    for seed in 1..=10 {
        let simulation = Simulation::new(FabricConfig::default());
        let side = |last: u8| {
            let faults = FaultPlan::seeded(seed).losing(100_000);
            let options = DeviceOptions::new().addresses([[10, 0, 0, last].into()]).faults(faults);
            TestSide::new(simulation.device_with(options).unwrap())
        };
        let (client, server) = (side(1), side(2));
        let listener = server.device.listen(PORT).unwrap();
        let wait = Duration::from_secs(200);
        for number in 0..5_u64 {
            let qp = client.rc();
            let connecting = Connection::start(&qp, at(&server, PORT), &params(), &number).unwrap();
            let request = listener.request(wait).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let accepted = request.accept(&server.rc(), &params(), &number).unwrap();
            connecting.established(wait).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            accepted.established(wait).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(connecting.private_data::<u64>().unwrap(), number, "seed {seed}");
            connecting.disconnect().unwrap();
            accepted.disconnected(wait).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
