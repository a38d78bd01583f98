//! Connections through queue pair 1: adapters on a simulated network in virtual time, and adapters that
//! share an address and its UDP port, in this process and in one that is killed.

#[path = "kit/forger.rs"]
#[expect(dead_code, unreachable_pub, reason = "other tests forge more, and see it from elsewhere")]
mod forger;

use std::io::Read;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::faults::{Fault, FaultPlan};
use pumice_device::gsi::{BindingId, CmChannel, ServiceEntry};
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::opening::Opening;
use pumice_device::platform::clock::Clock;
use pumice_device::port::{FabricConfig, UdpConfig, wait_readable};
use pumice_device::sharing::{SharedPort, SharedPortConfig};
use pumice_device::world::World;
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmEvent, CmPath, CmState, ConnectParams, ListenScope, MadRoute,
    RejectParams, ResolveParams, Served, SidrReply, UnansweredMessage,
};
use pumice_transport::host::Counter;
use pumice_transport::mad::{
    CommId, GSI_Q_KEY, IpHeader, MAD_BYTES, MadHeader, PortSpace, RejectReason, ServiceId, SidrStatus, class,
    method,
};
use pumice_transport::types::{Gid, Mtu};
use pumice_transport::wire::{Bth, Deth, Headers, Opcode, Packet, Psn, Qpn};

use forger::Forger;

const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7471);
const DATAGRAMS: ServiceId = ServiceId::rdma_cm(PortSpace::Udp, 7471);
const SECOND_NS: u64 = 1_000_000_000;

fn everywhere(service_id: ServiceId) -> ServiceEntry {
    ServiceEntry { service_id, mask: u64::MAX, scope: ListenScope::Everywhere }
}

fn route(from: IpAddr, to: IpAddr) -> MadRoute {
    MadRoute { local: from.into(), remote: to.into(), hop_limit: 64, ..MadRoute::default() }
}

/// An adapter with a channel.
struct Node {
    hca: Arc<Hca>,
    channel: Arc<CmChannel>,
    address: IpAddr,
}

impl Node {
    fn new(hca: Arc<Hca>, address: IpAddr) -> Node {
        Node { hca, channel: Arc::new(CmChannel::new().unwrap()), address }
    }

    fn listen(&self, service_id: ServiceId) -> BindingId {
        let binding = self.hca.cm_bind(&everywhere(service_id)).unwrap();
        self.hca.cm_listen(binding, Served::Anything, 64, BacklogOverflow::Reject, &self.channel).unwrap();
        binding
    }

    fn connect(&self, to: IpAddr, qpn: u32) -> CommId {
        let header = IpHeader { source_port: 4000, source: self.address, destination: to }.emit();
        let path = CmPath::new(route(self.address, to), Mtu::Mtu1024);
        let params = ConnectParams {
            private_data: &header,
            ..ConnectParams::new(SERVICE, path, Qpn::new(qpn), Psn::new(qpn))
        };
        self.hca.cm_connect(&params, &self.channel).unwrap()
    }

    fn resolve(&self, to: IpAddr) -> CommId {
        let header = IpHeader { source_port: 4000, source: self.address, destination: to }.emit();
        let params = ResolveParams::new(DATAGRAMS, route(self.address, to), &header);
        self.hca.cm_resolve(&params, &self.channel).unwrap()
    }

    fn event(&self) -> Option<CmEvent> {
        self.hca.cm_event(&self.channel)
    }

    /// The next event, which comes while other threads drive.
    fn wait(&self) -> CmEvent {
        loop {
            if let Some(event) = self.event() {
                return event;
            }
            let fd = self.channel.as_fd().as_raw_fd();
            let woken = wait_readable(&[fd], None, Some(Duration::from_secs(60))).unwrap();
            assert!(woken, "no event within a minute");
        }
    }

    /// Accepts a request that the peer of `client` made, and answers until both are established.
    fn accept(&self, client: &Node, request: CmEvent, qpn: u32) -> (CommId, CommId) {
        let CmEvent::ConnectRequest { id: server_id, .. } = request else { panic!("{request:?}") };
        self.hca.cm_accept(server_id, &AcceptParams::new(Qpn::new(qpn), Psn::new(qpn))).unwrap();
        let response = client.wait();
        let CmEvent::ConnectResponse { id: client_id, .. } = response else { panic!("{response:?}") };
        client.hca.cm_send_rtu(client_id, &[]).unwrap();
        let established = self.wait();
        assert!(matches!(established, CmEvent::Established { id, .. } if id == server_id), "{established:?}");
        (server_id, client_id)
    }
}

// ---- Virtual time.

fn pair(world: &mut World) -> [Node; 2] {
    ["10.0.0.1", "10.0.0.2"].map(|text| {
        let address: IpAddr = text.parse().unwrap();
        Node::new(world.add_hca(address).unwrap(), address)
    })
}

#[test]
fn two_adapters_connect_and_disconnect_in_virtual_time() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    server.listen(SERVICE);
    let id = client.connect(server.address, 0x21);
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    let Some(CmEvent::ConnectRequest { id: server_id, request, route, .. }) = server.event() else {
        panic!()
    };
    assert_eq!((request.local_qpn, request.local_ca_guid), (Qpn::new(0x21), client.hca.cm_ca_guid()));
    assert_eq!((route.local, route.remote), (Gid::from(server.address), Gid::from(client.address)));
    server.hca.cm_accept(server_id, &AcceptParams::new(Qpn::new(0x22), Psn::new(5))).unwrap();
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    let Some(CmEvent::ConnectResponse { reply, .. }) = client.event() else { panic!() };
    assert_eq!(reply.local_qpn, Qpn::new(0x22));
    let qp = client.hca.cm_qp_parameters(id).unwrap();
    assert_eq!((qp.dest_qpn, qp.sq_psn, qp.rq_psn), (Qpn::new(0x22), Psn::new(5), Some(Psn::new(0x21))));
    client.hca.cm_send_rtu(id, b"go").unwrap();
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    let Some(CmEvent::Established { private_data, .. }) = server.event() else { panic!("no connection") };
    assert!(private_data.starts_with(b"go"));
    assert_eq!(server.hca.cm_state(server_id), Some(CmState::Established));

    client.hca.cm_disconnect(id, b"bye").unwrap();
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    assert!(matches!(server.event(), Some(CmEvent::DisconnectRequest { .. })));
    server.hca.cm_disconnect(server_id, &[]).unwrap();
    // Timewait is half a second of virtual time.
    assert!(world.run_until(SECOND_NS, || client.channel.queued() == 2 && server.channel.queued() == 1));
    assert!(matches!(client.event(), Some(CmEvent::Disconnected { .. })));
    assert!(matches!(client.event(), Some(CmEvent::TimewaitExit { .. })));
    client.hca.cm_destroy(id).unwrap();
    server.hca.cm_destroy(server_id).unwrap();
    assert_eq!(server.channel.queued(), 0, "events go with their connection");
    assert_eq!((client.hca.cm_connection_count(), server.hca.cm_connection_count()), (0, 0));
}

/// A server keeps the events of what it has not accepted apart, and listens on the channel of what it has.
#[test]
fn what_a_peer_answers_comes_before_what_it_asks_for_later() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    server.listen(SERVICE);
    let id = client.connect(server.address, 0x21);
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    let Some(CmEvent::ConnectRequest { id: server_id, .. }) = server.event() else { panic!() };
    let unaccepted = Arc::new(CmChannel::new().unwrap());
    server.hca.cm_migrate(server_id, &unaccepted).unwrap();
    let parameters = AcceptParams::new(Qpn::new(0x22), Psn::new(5));
    server.hca.cm_accept_on(server_id, &parameters, &server.channel).unwrap();
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    client.hca.cm_send_rtu(id, &[]).unwrap();
    client.connect(server.address, 0x23);
    assert!(world.run_until(SECOND_NS, || server.channel.queued() == 2));
    assert_eq!(unaccepted.queued(), 0);
    assert!(matches!(server.event(), Some(CmEvent::Established { id, .. }) if id == server_id));
    assert!(matches!(server.event(), Some(CmEvent::ConnectRequest { .. })));
    // A request that is gone is not accepted, and its channel stays.
    assert!(server.hca.cm_accept_on(CommId(77), &parameters, &unaccepted).is_err());
}

#[test]
fn a_request_waits_a_moment_for_its_listener_and_no_longer() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    client.connect(server.address, 1);
    world.run_until(SECOND_NS / 5, || false);
    assert_eq!((client.channel.queued(), server.channel.queued()), (0, 0));
    server.listen(SERVICE);
    assert!(world.run_until(SECOND_NS / 50, || server.channel.queued() > 0));
    let Some(CmEvent::ConnectRequest { id, .. }) = server.event() else { panic!() };
    server.hca.cm_reject(id, &RejectParams::consumer(&[])).unwrap();
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    let Some(CmEvent::Rejected { rejection, .. }) = client.event() else { panic!() };
    assert_eq!(rejection.reason, RejectReason::CONSUMER);

    // More than a few are told at once.
    let begun_ns = world.now_ns();
    for _ in 0..65 {
        client.resolve(server.address);
    }
    assert!(world.run_until(SECOND_NS / 100, || client.channel.queued() == 1));
    assert!(world.run_until(SECOND_NS, || client.channel.queued() == 65));
    assert!((SECOND_NS / 4..SECOND_NS / 3).contains(&(world.now_ns() - begun_ns)));
}

#[test]
fn no_host_there_and_no_listener_there_are_told_apart() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    let id = client.connect(server.address, 1);
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    let Some(CmEvent::Rejected { rejection, .. }) = client.event() else { panic!() };
    assert_eq!((rejection.reason, rejection.local_id), (RejectReason::INVALID_SERVICE_ID, CommId::NONE));
    client.hca.cm_destroy(id).unwrap();

    client.resolve(server.address);
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    let Some(CmEvent::SidrResolved { reply, .. }) = client.event() else { panic!() };
    assert_eq!(reply.status, SidrStatus::UNSUPPORTED);

    let begun_ns = world.now_ns();
    client.connect("10.0.0.99".parse().unwrap(), 1);
    assert!(world.run_until(100 * SECOND_NS, || client.channel.queued() > 0));
    let event = client.event();
    assert!(
        matches!(event, Some(CmEvent::Unreachable { unanswered: UnansweredMessage::Req, .. })),
        "{event:?}"
    );
    // Sixteen times 4.608 s.
    assert_eq!((world.now_ns() - begun_ns) / 1_000_000, 73_728);
}

#[test]
fn only_a_mad_from_a_queue_pair_1_is_read() {
    let mut world = World::new(FabricConfig::default());
    let [_, server] = pair(&mut world);
    server.listen(SERVICE);
    let mut forger = Forger::new(&world, "10.0.0.3", server.address);
    let query = {
        let mut mad = [0; MAD_BYTES];
        let header = MadHeader { class: class::PERFORMANCE, method: method::GET, ..Default::default() };
        MadHeader { base_version: 1, class_version: 1, transaction: 5, ..header }.emit(&mut mad);
        mad
    };
    let envelope = |opcode, qkey| {
        let mut headers = Headers::new(Bth::new(Opcode::from_byte(opcode), Qpn::GSI, Psn::new(0)));
        headers.deth = Some(Deth { qkey, source: Qpn::GSI });
        headers
    };
    let good = envelope(0x64, GSI_Q_KEY);
    let mut other_partition = good;
    other_partition.bth.pkey = 0x8001;
    let mut no_datagram = Headers::new(Bth::new(Opcode::from_byte(0x04), Qpn::GSI, Psn::new(0)));
    no_datagram.bth.ack_request = true;
    let cases = [
        (envelope(0x64, 0x1111_1111), &query[..], Counter::RxBadQkey),
        (other_partition, &query[..], Counter::RxBadPkey),
        (good, &query[..252], Counter::RxBadLength),
        (no_datagram, &query[..], Counter::RxWrongService),
    ];
    for (headers, payload, counter) in cases {
        let before = server.hca.counters().value(counter);
        let packet = forger.packet(&headers, payload);
        forger.send(&mut world, &packet);
        world.run_until(SECOND_NS, || false);
        assert_eq!(server.hca.counters().value(counter), before + 1, "{counter:?}");
        assert!(forger.answers(&world).is_empty(), "{counter:?}");
    }
    // No agent serves the query: it comes back, refused.
    let packet = forger.packet(&good, &query);
    forger.send(&mut world, &packet);
    world.run_until(SECOND_NS, || false);
    let answers = forger.answers(&world);
    assert_eq!(answers.len(), 1);
    let answer = Packet::parse(&answers[0]).unwrap();
    assert_eq!(answer.bth().destination, Qpn::GSI);
    assert_eq!(answer.payload()[..8], [1, class::PERFORMANCE, 1, 0x81, 0, 0x0c, 0, 0]);
    assert_eq!(answer.payload()[8..], query[8..]);
    assert_eq!(server.channel.queued(), 0);
}

#[test]
fn datagram_queue_pairs_are_found() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    server.listen(DATAGRAMS);
    client.resolve(server.address);
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    let Some(CmEvent::SidrRequest { id, .. }) = server.event() else { panic!() };
    server.hca.cm_sidr_reply(id, &SidrReply::queue_pair(Qpn::new(9), 0x0123_4567, b"hello")).unwrap();
    server.hca.cm_destroy(id).unwrap();
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    let Some(CmEvent::SidrResolved { reply, .. }) = client.event() else { panic!() };
    assert_eq!((reply.qpn, reply.q_key), (Qpn::new(9), 0x0123_4567));
}

#[test]
fn a_lossy_network_delays_connections_and_no_more() {
    for seed in 1..=20 {
        let mut world = World::new(FabricConfig::default());
        let nodes: Vec<Node> = ["10.0.0.1", "10.0.0.2"]
            .iter()
            .map(|text| {
                let address: IpAddr = text.parse().unwrap();
                let config = HcaConfig::new("lossy", vec![GidEntry::new(address, "sim", 0, Mtu::Mtu1024)]);
                let faults = FaultPlan::seeded(seed).losing(200_000);
                let faults = faults.by_chance("twice", 100_000, Fault::DUPLICATE);
                let tag = Some((*text).to_owned());
                let hca = Opening { faults, tag, ..Opening::new(config) }.in_world(&mut world).unwrap();
                Node::new(hca, address)
            })
            .collect();
        let [client, server] = &nodes[..] else { panic!() };
        server.listen(SERVICE);
        for qpn in 1..=8 {
            client.connect(server.address, qpn);
        }
        let mut established = 0;
        let done = world.run_until(200 * SECOND_NS, || {
            while let Some(event) = server.event() {
                match event {
                    CmEvent::ConnectRequest { id, request, .. } => {
                        server.hca.cm_accept(id, &AcceptParams::new(request.local_qpn, Psn::new(1))).unwrap();
                    }
                    CmEvent::Established { .. } => established += 1,
                    CmEvent::MraReceived { .. } => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            while let Some(event) = client.event() {
                match event {
                    CmEvent::ConnectResponse { id, .. } => client.hca.cm_send_rtu(id, &[]).unwrap(),
                    CmEvent::MraReceived { .. } => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            established == 8
        });
        assert!(done, "seed {seed}: {established} of 8");
    }
}

#[test]
fn closing_an_adapter_disconnects_and_migrated_connections_tell_their_new_channel() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    server.listen(SERVICE);
    let id = client.connect(server.address, 1);
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    let Some(CmEvent::ConnectRequest { id: server_id, .. }) = server.event() else { panic!() };
    server.hca.cm_accept(server_id, &AcceptParams::new(Qpn::new(2), Psn::new(5))).unwrap();
    assert!(world.run_until(SECOND_NS, || client.channel.queued() > 0));
    // The event that waits moves as well.
    let other = Arc::new(CmChannel::new().unwrap());
    client.hca.cm_migrate(id, &other).unwrap();
    assert_eq!((client.channel.queued(), other.queued()), (0, 1));
    assert!(client.hca.cm_migrate(CommId(77), &other).is_err());
    client.hca.cm_event(&other);
    client.hca.cm_send_rtu(id, &[]).unwrap();
    assert!(world.run_until(SECOND_NS, || server.channel.queued() > 0));
    server.event();
    server.hca.cm_destroy(server_id).unwrap();
    assert!(world.run_until(SECOND_NS, || other.queued() > 0));
    assert!(matches!(client.hca.cm_event(&other), Some(CmEvent::DisconnectRequest { .. })));
}

#[test]
fn a_source_address_must_be_the_adapters_and_a_service_is_bound_once() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = pair(&mut world);
    let path = CmPath::new(route(server.address, client.address), Mtu::Mtu1024);
    let params = ConnectParams::new(SERVICE, path, Qpn::new(1), Psn::new(1));
    let error = client.hca.cm_connect(&params, &client.channel).unwrap_err();
    assert_eq!(error.errno(), libc::EADDRNOTAVAIL);
    let binding = server.listen(SERVICE);
    let here = ServiceEntry { scope: ListenScope::At(server.address.into()), ..everywhere(SERVICE) };
    for entry in [everywhere(SERVICE), here] {
        assert_eq!(server.hca.cm_bind(&entry).unwrap_err().errno(), libc::EADDRINUSE);
    }
    let again = server.hca.cm_listen(binding, Served::Anything, 1, BacklogOverflow::Reject, &server.channel);
    assert_eq!(again.unwrap_err().errno(), libc::EINVAL);
    server.hca.cm_unbind(binding).unwrap();
    assert_eq!(server.hca.cm_unbind(binding).unwrap_err().errno(), libc::EINVAL);
    server.listen(SERVICE);
}

// ---- One address, several adapters with ports of their own: to the kernel and to each other they are
// ---- processes.

/// Loopback addresses and a registry folder that no other test uses.
struct Scene {
    folder: PathBuf,
    number: u8,
    pid: u32,
    /// A child's scene is its parent's.
    owned: bool,
}

impl Scene {
    fn new() -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed) as u8;
        let folder = std::env::temp_dir().join(format!("pumice-connections-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Scene { folder, number, pid: std::process::id(), owned: true }
    }

    /// In a child process: that of its parent.
    fn inherited() -> Option<Scene> {
        let text = std::env::var("PUMICE_CONNECTIONS_SCENE").ok()?;
        let mut parts = text.splitn(3, ' ');
        let mut next = || parts.next().expect("pid, number, folder");
        let (pid, number) = (next().parse().unwrap(), next().parse().unwrap());
        Some(Scene { folder: next().into(), number, pid, owned: false })
    }

    /// This test program again, as the process that [`child`] is.
    fn child(&self) -> Child {
        let scene = format!("{} {} {}", self.pid, self.number, self.folder.display());
        Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env("PUMICE_CONNECTIONS_SCENE", scene)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// The same addresses with a registry of its own.
    fn apart(&self) -> Scene {
        let folder = self.folder.join("apart");
        Scene { folder, number: self.number, pid: self.pid, owned: false }
    }

    fn address(&self, last: u8) -> IpAddr {
        IpAddr::from([127, 106, (self.pid % 250) as u8 + 1, self.number * 16 + last])
    }

    fn node(&self, last: u8) -> Node {
        let address = self.address(last);
        let config = SharedPortConfig {
            folder: Some(self.folder.clone()),
            ..SharedPortConfig::new(UdpConfig::new(address))
        };
        let port = SharedPort::open(&config).unwrap_or_else(|error| panic!("{error}"));
        let gids = vec![GidEntry::new(address, "lo", 1, Mtu::Mtu1024)];
        let config = HcaConfig { process: port.process(), ..HcaConfig::new("pumice0", gids) };
        Node::new(Arc::new(Hca::open(config, Box::new(port), Clock::monotonic()).unwrap()), address)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.owned {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Not a test: a process that serves connections until its standard input ends or it is killed.
#[test]
fn child() {
    let Some(scene) = Scene::inherited() else { return };
    let server = scene.node(1);
    server.listen(SERVICE);
    // "Here I am": a connection to the parent, which then connects here.
    server.connect(scene.address(2), 0x11);
    let hca = Arc::clone(&server.hca);
    std::thread::spawn(move || {
        loop {
            match server.wait() {
                CmEvent::ConnectRequest { id, .. } => {
                    server.hca.cm_accept(id, &AcceptParams::new(Qpn::new(0x22), Psn::new(1))).unwrap();
                }
                CmEvent::DisconnectRequest { id, .. } => server.hca.cm_disconnect(id, &[]).unwrap(),
                _ => {}
            }
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
    drop(hca);
}

#[test]
fn a_killed_process_leaves_its_service_and_survivors_answer_for_it() {
    let scene = Scene::new();
    let survivor = scene.node(1);
    // In another registry, as on another host: what it knows it knows by packets.
    let client = scene.apart().node(2);
    client.listen(SERVICE);
    let mut child = scene.child();
    let greeting = client.wait();
    client.hca.cm_reject(greeting.id(), &RejectParams::consumer(&[])).unwrap();
    let id = client.connect(scene.address(1), 0x31);
    let response = client.wait();
    assert!(matches!(response, CmEvent::ConnectResponse { .. }), "{response:?}");
    client.hca.cm_send_rtu(id, &[]).unwrap();
    assert_eq!(survivor.hca.cm_bind(&everywhere(SERVICE)).unwrap_err().errno(), libc::EADDRINUSE);

    child.kill().unwrap();
    child.wait().unwrap();
    // No process has the connection any more, and a process of the address says so.
    client.hca.cm_disconnect(id, &[]).unwrap();
    let event = client.wait();
    assert!(matches!(event, CmEvent::Disconnected { private_data: Some(_), .. }), "{event:?}");
    client.hca.cm_destroy(id).unwrap();
    client.connect(scene.address(1), 0x32);
    let CmEvent::Rejected { rejection, .. } = client.wait() else { panic!() };
    assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
    survivor.listen(SERVICE);
    client.connect(scene.address(1), 0x33);
    assert!(matches!(survivor.wait(), CmEvent::ConnectRequest { .. }));
}

#[test]
fn requests_find_the_process_that_listens_and_answers_the_one_that_asked() {
    let scene = Scene::new();
    // Queue pair 1 of an address is read by the process that came first.
    let bystander = scene.node(1);
    let client = scene.node(1);
    let server = scene.node(1);
    let elsewhere = scene.node(2);
    let binding = server.listen(SERVICE);
    let datagrams = server.listen(DATAGRAMS);
    let mut connections = Vec::new();
    for (qpn, client) in [(0x31, &client), (0x32, &elsewhere), (0x33, &bystander), (0x34, &server)] {
        let asked = client.connect(server.address, qpn);
        let request = server.wait();
        let (server_id, client_id) = server.accept(client, request, qpn + 0x100);
        assert_eq!(client_id, asked);
        connections.push((client, client_id, server_id));
    }
    for client in [&client, &elsewhere, &bystander] {
        let id = client.resolve(server.address);
        let CmEvent::SidrRequest { id: asked, .. } = server.wait() else { panic!() };
        server.hca.cm_sidr_reply(asked, &SidrReply::queue_pair(Qpn::new(9), 1, &[])).unwrap();
        assert!(matches!(client.wait(), CmEvent::SidrResolved { id: resolved, .. } if resolved == id));
    }
    // The server disconnects; each client is told, and confirms.
    for (client, client_id, server_id) in connections {
        server.hca.cm_disconnect(server_id, &[]).unwrap();
        loop {
            match client.wait() {
                CmEvent::DisconnectRequest { id, .. } if id == client_id => break,
                CmEvent::TimewaitExit { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        client.hca.cm_disconnect(client_id, &[]).unwrap();
        loop {
            match server.wait() {
                CmEvent::Disconnected { id, private_data, .. } if id == server_id => {
                    assert!(private_data.is_some(), "it was confirmed");
                    break;
                }
                CmEvent::TimewaitExit { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    // A request may be refused, and its reason comes back through the queue pair that all processes share.
    let id = client.connect(server.address, 0x41);
    let request = loop {
        match server.wait() {
            CmEvent::TimewaitExit { .. } => {}
            other => break other,
        }
    };
    server.hca.cm_reject(request.id(), &RejectParams::consumer(b"no")).unwrap();
    let rejection = loop {
        match client.wait() {
            CmEvent::TimewaitExit { .. } => {}
            CmEvent::Rejected { id: rejected, rejection } if rejected == id => break rejection,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((rejection.reason, &rejection.private_data[..2]), (RejectReason::CONSUMER, &b"no"[..]));

    // A service belongs to one process.
    let taken = bystander.hca.cm_bind(&everywhere(SERVICE)).unwrap_err();
    assert_eq!(taken.errno(), libc::EADDRINUSE);
    elsewhere.listen(SERVICE);
    server.hca.cm_unbind(binding).unwrap();
    server.hca.cm_unbind(datagrams).unwrap();
    bystander.listen(SERVICE);
    client.connect(server.address, 0x51);
    assert!(matches!(bystander.wait(), CmEvent::ConnectRequest { .. }));
    for node in [&bystander, &client, &server, &elsewhere] {
        assert_eq!(node.hca.counters().value(Counter::RxUnknownQpn), 0);
    }
}

#[test]
fn who_goes_leaves_no_service_and_no_peer_behind() {
    let scene = Scene::new();
    let first = scene.node(1);
    let client = scene.node(2);
    let id = client.connect(first.address, 0x31);
    let CmEvent::Rejected { rejection, .. } = client.wait() else { panic!() };
    assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
    client.hca.cm_destroy(id).unwrap();

    let server = scene.node(1);
    server.listen(SERVICE);
    let id = client.connect(server.address, 0x32);
    let request = server.wait();
    server.accept(&client, request, 0x132);
    drop(server);
    assert!(matches!(client.wait(), CmEvent::DisconnectRequest { id: gone, .. } if gone == id));
    // No process has that index any more: another process at the address answers.
    client.hca.cm_disconnect(id, &[]).unwrap();
    client.hca.cm_destroy(id).unwrap();
    client.connect(first.address, 0x33);
    let CmEvent::Rejected { rejection, .. } = client.wait() else { panic!() };
    assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
    // And the service is free.
    first.listen(SERVICE);
    client.connect(first.address, 0x34);
    assert!(matches!(first.wait(), CmEvent::ConnectRequest { .. }));
}
