//! Processes that are stopped, or do not look, while they have the lowest process index of an address:
//! what they do for others, others do. Messages of the connection manager go by UDP on either medium.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::gsi::{CmChannel, ServiceEntry};
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::platform::clock::Clock;
use pumice_device::port::wait_readable;
use pumice_device::sharing::{SharedPort, SharingCounters};
use pumice_transport::cm::{BacklogOverflow, CmEvent, CmPath, ConnectParams, ListenScope, MadRoute, Served};
use pumice_transport::host::Counter;
use pumice_transport::mad::{IpHeader, PortSpace, ServiceId};
use pumice_transport::types::Mtu;
use pumice_transport::wire::{Psn, Qpn};

use crate::bare::Bare;
use crate::child::missteer;
use crate::fleet::Scene;

const SERVED: u16 = 7471;
const UNSERVED: u16 = 7472;

/// A process of the connection manager.
struct Node {
    hca: Hca,
    channel: Arc<CmChannel>,
    address: IpAddr,
    sharing: Arc<SharingCounters>,
    socket: RawFd,
}

impl Node {
    fn new(scene: &Scene) -> Node {
        let port = SharedPort::open(&scene.config(scene.address())).unwrap();
        let (sharing, socket) = (Arc::clone(port.counters()), port.medium().as_raw_fd());
        let gids = vec![GidEntry::new(scene.address(), "lo", 1, Mtu::Mtu1024)];
        let config = HcaConfig { process: port.process(), ..HcaConfig::new("pumice0", gids) };
        let hca = Hca::open(config, Box::new(port), Clock::monotonic()).unwrap();
        let channel = Arc::new(CmChannel::new().unwrap());
        Node { hca, channel, address: scene.address(), sharing, socket }
    }

    fn listen(&self, port: u16) {
        let service_id = ServiceId::rdma_cm(PortSpace::Tcp, port);
        let entry = ServiceEntry { service_id, mask: u64::MAX, scope: ListenScope::Everywhere };
        let binding = self.hca.cm_bind(&entry).unwrap();
        self.hca.cm_listen(binding, Served::Anything, 64, BacklogOverflow::Reject, &self.channel).unwrap();
    }

    fn connect(&self, port: u16) {
        let (source, destination) = (self.address, self.address);
        let header = IpHeader { source_port: 4000, source, destination }.emit();
        let [local, remote] = [source, destination].map(Into::into);
        let route = MadRoute { local, remote, hop_limit: 64, ..MadRoute::default() };
        let service_id = ServiceId::rdma_cm(PortSpace::Tcp, port);
        let path = CmPath::new(route, Mtu::Mtu1024);
        let params = ConnectParams {
            private_data: &header,
            ..ConnectParams::new(service_id, path, Qpn::new(5), Psn::new(5))
        };
        self.hca.cm_connect(&params, &self.channel).unwrap();
    }

    /// The next event, which other threads bring.
    fn wait(&self) -> CmEvent {
        loop {
            if let Some(event) = self.hca.cm_event(&self.channel) {
                return event;
            }
            let fd = self.channel.as_fd().as_raw_fd();
            assert!(wait_readable(&[fd], None, Some(Duration::from_secs(60))).unwrap(), "no event");
        }
    }
}

/// A packet that names no process, as from another host.
fn send_to_all(address: IpAddr) {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let mut packet = [0; 280];
    packet[..8].copy_from_slice(&[0x64, 0, 0xff, 0xff, 0, 0, 0, 1]);
    socket.send_to(&packet, (address, 4791)).unwrap();
}

fn wait_until(what: &str, happened: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::yield_now();
    }
}

#[test]
fn a_request_comes_directly_to_its_listener_although_a_process_is_stopped() {
    let scene = Scene::new();
    let mut lowest = Bare::start(&scene);
    let (server, client) = (Node::new(&scene), Node::new(&scene));
    server.listen(SERVED);
    lowest.stop();
    client.connect(SERVED);
    let event = server.wait();
    assert!(matches!(event, CmEvent::ConnectRequest { .. }), "{event:?}");
    lowest.resume();
    assert_eq!(lowest.ask("look 1"), "0", "the request was not its business");
    let forwarded = [&server, &client].map(|node| node.sharing.stats().forwarded);
    assert_eq!(forwarded, [0, 0], "nor that of another process");
}

#[test]
fn what_names_no_process_goes_around_a_stopped_one_and_comes_back_to_it() {
    let scene = Scene::new();
    let mut lowest = Bare::start(&scene);
    let (server, client) = (Node::new(&scene), Node::new(&scene));
    lowest.stop();
    // No process listens for this service, and the second process says so.
    client.connect(UNSERVED);
    let event = client.wait();
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    assert_eq!(client.sharing.stats().rerouted, 1);
    // It has also steered anew: a packet of another host comes to it.
    wait_until("it has mended", || server.sharing.stats().repaired > 0);
    let batches = || server.hca.counters().value(Counter::RxBatches);
    let before = batches();
    send_to_all(scene.address());
    wait_until("a packet comes", || batches() > before);
    lowest.resume();
    assert_eq!(lowest.ask("look 2"), "0", "nothing came to it while it was stopped");
    send_to_all(scene.address());
    assert_eq!(lowest.ask("take 1"), "1");
}

#[test]
fn a_stopped_process_is_gone_around_by_one_that_joins_and_by_the_one_with_the_next_index() {
    let scene = Scene::new();
    let mut lowest = Bare::start(&scene);
    let client = Node::new(&scene);
    lowest.stop();
    // The client has the lowest index of the processes that run, so it gets its own answer.
    client.connect(UNSERVED);
    let event = client.wait();
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    lowest.resume();
    assert_eq!(lowest.ask("look 2"), "0");
    lowest.stop();
    let newcomer = Bare::start(&scene);
    send_to_all(scene.address());
    drop(newcomer);
    lowest.resume();
    assert_eq!(lowest.ask("look 2"), "0", "a process that joins steers around it");
}

#[test]
fn a_request_that_is_not_looked_at_is_given_to_another() {
    let scene = Scene::new();
    // It lives, is not stopped, and never looks at its socket.
    let lowest = Bare::start(&scene);
    let (_second, client) = (Node::new(&scene), Node::new(&scene));
    client.connect(UNSERVED);
    let event = client.wait();
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    assert_eq!(client.sharing.stats().rerouted, 1);
    drop(lowest);
}

#[test]
fn a_request_that_came_to_the_wrong_process_finds_its_listener() {
    let scene = Scene::new();
    let mut lowest = Bare::start(&scene);
    let (server, client) = (Node::new(&scene), Node::new(&scene));
    server.listen(SERVED);
    missteer(server.socket);
    lowest.stop();
    client.connect(SERVED);
    let event = server.wait();
    assert!(matches!(event, CmEvent::ConnectRequest { .. }), "{event:?}");
    // The listener may have it before the client has counted it.
    wait_until("the client has counted it", || client.sharing.stats().rerouted == 1);
    lowest.resume();
    assert_eq!(lowest.ask("look 1"), "1", "there it lay");
}
