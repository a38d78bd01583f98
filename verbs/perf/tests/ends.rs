//! A program that measures: both ends in one process, each on a loopback address of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use pumice_perf::{
    Operation, PerfError, Plan, PlanError, Server, ServerOptions, Service, Session, SessionOptions,
};

/// Addresses that no other test uses at the same time: UDP port 4791 of an address has one owner.
fn addresses() -> [IpAddr; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let block = 1 + 2 * NEXT.fetch_add(1, Ordering::Relaxed);
    [block, block + 1].map(|last| IpAddr::from([127, 224 + high % 16, low, last]))
}

fn serving(address: IpAddr, wording: fn(&PerfError) -> String) -> Server {
    let options = ServerOptions { address: Some(address), wording, ..ServerOptions::default() };
    Server::bind("127.0.0.1:0".parse().expect("an address"), options).expect("a free port")
}

fn open(plan: &Plan, server: &Server, address: IpAddr) -> Result<Session, PerfError> {
    let stream = TcpStream::connect(server.local_addr().expect("it listens")).expect("it listens");
    Session::open(plan, stream, &SessionOptions { address: Some(address), ..SessionOptions::default() })
}

#[test]
fn every_round_is_reported_and_every_service_is_verified() {
    for service in [Service::Rc, Service::Uc, Service::Ud] {
        let [own, peer] = addresses();
        let server = serving(peer, PerfError::to_string);
        let plan = Plan::throughput(Operation::Send, service).size_bytes(1000).mtu_bytes(1024).verify(true);
        let plan = plan.raw(true).rounds(2, 0.3).build().expect("it can be measured");
        thread::scope(|scope| {
            let served = scope.spawn(|| server.serve_one());
            let mut rounds_done = Vec::new();
            let mut session = open(&plan, &server, own).expect("two devices on loopback");
            let report = session.run(&mut |done| rounds_done.push(done)).expect("nothing is wrong");
            drop(session);
            assert_eq!(rounds_done, [1, 2]);
            assert_eq!((report.test, report.unit), (plan.name(), "GB/s"));
            assert!(report.value > 0.0 && report.ratio.is_some_and(|ratio| ratio > 0.0));
            assert!(report.verified_messages > 0 && report.p99.is_none());
            assert_eq!(report.verified_bytes, 1000 * report.verified_messages);
            served.join().expect("it does not panic").expect("the client went in an orderly way");
        });
    }
}

#[test]
fn a_server_that_refuses_says_why_in_its_own_words() {
    let [own, peer] = addresses();
    let _held = std::net::UdpSocket::bind((peer, 4791)).expect("an address of this test alone");
    let server = serving(peer, |error| format!("in my words: {error}"));
    let plan = Plan::latency(Operation::Read, Service::Rc).build().expect("it can be measured");
    thread::scope(|scope| {
        let served = scope.spawn(|| server.serve_one());
        let refused = open(&plan, &server, own).expect_err("the server has no port");
        let PerfError::Refused(sentence) = &refused else { panic!("{refused:?}") };
        assert!(sentence.starts_with("in my words: ") && sentence.contains(&peer.to_string()), "{sentence}");
        let here = served.join().expect("it does not panic").expect_err("it has no port");
        assert!(matches!(here, PerfError::Device(_)), "{here:?}");
    });
}

#[test]
fn a_changed_plan_is_checked_before_anything_is_opened() {
    let [own, peer] = addresses();
    let server = serving(peer, PerfError::to_string);
    let mut plan = Plan::latency(Operation::Send, Service::Rc).build().expect("it can be measured");
    plan.round_seconds = f64::NAN;
    let wrong = open(&plan, &server, own).expect_err("a round without a length");
    assert!(matches!(wrong, PerfError::Plan(PlanError::RoundSeconds { .. })), "{wrong:?}");
}

#[test]
fn a_server_of_something_else_is_an_error() {
    let [own, _] = addresses();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let to = listener.local_addr().expect("it listens");
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let mut line = String::new();
            BufReader::new(stream.try_clone().expect("a descriptor")).read_line(&mut line).expect("a line");
            stream.write_all(b"220 mail\r\n").expect("the client reads");
        });
        let plan = Plan::latency(Operation::Send, Service::Rc).build().expect("it can be measured");
        let options = SessionOptions { address: Some(own), ..SessionOptions::default() };
        let stream = TcpStream::connect(to).expect("it listens");
        let error = Session::open(&plan, stream, &options).expect_err("no server of measurements");
        assert!(matches!(error, PerfError::Control(_)), "{error:?}");
    });
}
