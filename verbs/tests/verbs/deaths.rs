//! Processes that are killed: their peers learn it, in bounded time. The processes are this test program
//! again.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pumice_verbs::{
    Connection, ConnectionEvent, ConnectionParams, Device, DeviceOptions, Listener, QpState, SendRequest,
    VerbsError, WcStatus,
};

use crate::kit::{LIMIT, TestSide};

const PORT: u16 = 7471;
/// A peer on the same host is looked after every second; the rest is for a machine that is busy.
const DETECTION_LIMIT: Duration = Duration::from_secs(60);

fn address(net: u8, last: u8) -> IpAddr {
    IpAddr::from([127, 89, net, last])
}

fn open(net: u8, last: u8) -> TestSide {
    TestSide::new(Device::open(DeviceOptions::new().addresses([address(net, last)])).unwrap())
}

/// A child process that plays a role until it is killed, or its standard input ends.
struct RoleProcess(Child);

impl RoleProcess {
    fn start(role: &str, net: u8) -> RoleProcess {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["deaths::process", "--exact", "--nocapture"])
            .env("PUMICE_VERBS_ROLE", format!("{role} {net}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut process = RoleProcess(child);
        let out = BufReader::new(process.0.stdout.take().unwrap());
        assert!(out.lines().any(|line| line.unwrap().ends_with("ready")), "{role} ended");
        process
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for RoleProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Not a test: what a child process runs.
#[test]
#[expect(clippy::print_stdout, reason = "it tells its parent")]
fn process() {
    let Ok(role) = std::env::var("PUMICE_VERBS_ROLE") else { return };
    let (role, net) = role.split_once(' ').unwrap();
    let net = net.parse().unwrap();
    let params = ConnectionParams::default();
    let mut open_connections = Vec::new();
    match role {
        // Accepts every request.
        "server" => {
            let side = open(net, 1);
            let listener = side.device.listen(PORT).unwrap();
            println!("ready");
            std::thread::spawn(move || {
                loop {
                    let Ok(request) = listener.request(LIMIT) else { continue };
                    open_connections.push(request.accept(&side.rc(), &params, &()).unwrap());
                }
            });
        }
        // Connects once.
        "client" => {
            let side = open(net, 2);
            let server = SocketAddr::new(address(net, 1), PORT);
            let connection = Connection::start(&side.rc(), server, &params, &()).unwrap();
            println!("ready");
            connection.established(LIMIT).unwrap();
            open_connections.push(connection);
            let _ = std::io::stdin().read(&mut [0]);
        }
        other => panic!("there is no role {other}"),
    }
    let _ = std::io::stdin().read(&mut [0]);
}

fn connect(
    side: &TestSide,
    to: IpAddr,
    params: &ConnectionParams,
) -> Connection<pumice_verbs::transport::Rc> {
    Connection::start(&side.rc(), SocketAddr::new(to, PORT), params, &()).unwrap()
}

#[test]
fn a_waiting_client_notices_that_the_server_was_killed() {
    let mut server = RoleProcess::start("server", 111);
    let client = open(111, 2);
    let quick =
        ConnectionParams { retry_count: 1, response_timeout: 14, max_cm_retries: 3, ..Default::default() };
    let [idle, busy] = [(); 2].map(|()| {
        let connection = connect(&client, address(111, 1), &quick);
        connection.established(LIMIT).unwrap();
        connection
    });
    let killed = Instant::now();
    server.kill();
    // One that sends finds out by its own timer, before or after the connection manager does.
    busy.queue_pair().post_send(&SendRequest::send(&[]).inline(b"?").wr_id(5).signaled()).unwrap();
    let completion = client.cq.wait_one(DETECTION_LIMIT).unwrap();
    assert_eq!((completion.wr_id, completion.status), (5, WcStatus::RetryExcErr));
    assert_eq!(idle.event(DETECTION_LIMIT).unwrap(), ConnectionEvent::Disconnected);
    busy.disconnected(DETECTION_LIMIT).unwrap();
    eprintln!("noticed within {:?}", killed.elapsed());
    assert_eq!(idle.queue_pair().state().unwrap(), QpState::Err);
    drop((idle, busy));

    // No process is left at that address: silence, then "unreachable".
    let error = connect(&client, address(111, 1), &quick).established(LIMIT).unwrap_err();
    assert!(matches!(error, VerbsError::Unreachable { .. }), "{error}");
    // A process is there, but does not listen.
    let _survivor = open(111, 1);
    let error = connect(&client, address(111, 1), &quick).established(LIMIT).unwrap_err();
    assert!(matches!(error, VerbsError::Rejected(_)), "{error}");
}

#[test]
fn who_only_waits_learns_that_the_client_was_killed_and_the_port_is_free_again() {
    let server = open(112, 1);
    let listener = server.device.listen(PORT).unwrap();
    let mut clients: Vec<RoleProcess> = (0..3).map(|_| RoleProcess::start("client", 112)).collect();
    let mut connections: Vec<_> = (0..3)
        .map(|_| {
            let request = listener.request(LIMIT).unwrap();
            let connection = request.accept(&server.rc(), &Default::default(), &()).unwrap();
            connection.established(LIMIT).unwrap();
            connection
        })
        .collect();
    clients[1].kill();
    // One of the three has ended; the other two stay.
    let begun = Instant::now();
    let over = loop {
        let found = connections
            .iter()
            .position(|connection| connection.disconnected(Duration::from_millis(20)).is_ok());
        if let Some(found) = found {
            break found;
        }
        assert!(begun.elapsed() < DETECTION_LIMIT, "no process noticed");
    };
    drop(connections.remove(over));
    // Through another look at who lives.
    for (connection, wait) in connections.iter().zip([Duration::from_millis(1200), Duration::ZERO]) {
        assert!(connection.event(wait).is_err(), "its client lives");
    }
    drop(clients);
    for connection in &connections {
        connection.disconnected(DETECTION_LIMIT).unwrap();
    }

    drop((connections, listener, server));
    let mut other = RoleProcess::start("server", 112);
    other.kill();
    // The port of a process that was killed is free at once.
    let side = open(112, 1);
    Listener::bind(&side.device, SocketAddr::new(address(112, 1), PORT), 8).unwrap();
}
