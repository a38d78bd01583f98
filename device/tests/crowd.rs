//! Ten thousand connections at once, each with its queue pairs, between two adapters.

mod kit;

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kit::{Connection, Node};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::gsi::{CmChannel, ServiceEntry};
use pumice_device::hca::{Hca, HcaConfig};
use pumice_device::platform::clock::Clock;
use pumice_device::port::{FabricConfig, UdpConfig, UdpPort, wait_readable};
use pumice_device::world::World;
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmEvent, CmPath, ConnectParams, ListenScope, MadRoute, Served,
};
use pumice_transport::mad::{CommId, IpHeader, PortSpace, ServiceId};
use pumice_transport::types::{Mtu, QpCapacity, QpType};
use pumice_transport::wire::{Psn, Qpn};

const CONNECTIONS: usize = 10_000;
const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7471);
/// As many as a program may ask for, as with Linux: far fewer than there will be.
const BACKLOG: usize = 1024;

struct Side {
    node: Node,
    channel: Arc<CmChannel>,
    established: Vec<CommId>,
    over: usize,
}

impl Side {
    fn new(hca: Arc<Hca>, ip: IpAddr) -> Side {
        let channel = Arc::new(CmChannel::new().unwrap());
        Side { node: Node::on(hca, ip, 4096, 64), channel, established: Vec::new(), over: 0 }
    }

    fn create_qp(&self) -> Qpn {
        let mut init = self.node.qp_init(QpType::Rc);
        init.capacity = QpCapacity {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        self.node.hca.create_qp(&init).unwrap().0
    }

    fn listen(&self) {
        let entry = ServiceEntry { service_id: SERVICE, mask: u64::MAX, scope: ListenScope::Everywhere };
        let binding = self.node.hca.cm_bind(&entry).unwrap();
        self.node
            .hca
            .cm_listen(binding, Served::Anything, BACKLOG, BacklogOverflow::Ignore, &self.channel)
            .unwrap();
    }

    fn connect(&self, to: IpAddr) {
        let header = IpHeader { source_port: 4000, source: self.node.ip, destination: to }.emit();
        let route =
            MadRoute { local: self.node.ip.into(), remote: to.into(), hop_limit: 64, ..Default::default() };
        let path = CmPath::new(route, Mtu::Mtu1024);
        let qpn = self.create_qp();
        let params =
            ConnectParams { private_data: &header, ..ConnectParams::new(SERVICE, path, qpn, Psn::new(0x10)) };
        self.node.hca.cm_connect(&params, &self.channel).unwrap();
    }

    /// What a program does with its events, as far as there are any.
    fn answer(&mut self, peer: IpAddr) {
        let numbers = Connection::default();
        while let Some(event) = self.node.hca.cm_event(&self.channel) {
            let hca = &self.node.hca;
            match event {
                CmEvent::ConnectRequest { id, request, .. } => {
                    let qpn = self.create_qp();
                    self.node.to_rtr(qpn, true, peer, request.local_qpn, numbers);
                    self.node.to_rts(qpn, true, numbers);
                    hca.cm_accept(id, &AcceptParams::new(qpn, Psn::new(0x10))).unwrap();
                }
                CmEvent::ConnectResponse { id, .. } => {
                    hca.cm_send_rtu(id, &[]).unwrap();
                    self.established.push(id);
                }
                CmEvent::Established { id, .. } => self.established.push(id),
                CmEvent::DisconnectRequest { id, .. } => {
                    hca.cm_disconnect(id, &[]).unwrap();
                    self.over += 1;
                }
                CmEvent::Disconnected { private_data, .. } => {
                    assert!(private_data.is_some(), "it was confirmed");
                    self.over += 1;
                }
                CmEvent::TimewaitExit { id } => hca.cm_destroy(id).unwrap(),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// All at once: connected, used for nothing, disconnected.
fn run(mut client: Side, mut server: Side, mut until: impl FnMut(&str, &mut dyn FnMut() -> bool)) {
    server.listen();
    let (here, there) = (client.node.ip, server.node.ip);
    for _ in 0..CONNECTIONS {
        client.connect(there);
    }
    until("established", &mut || {
        server.answer(here);
        client.answer(there);
        server.established.len() == CONNECTIONS && client.established.len() == CONNECTIONS
    });
    for side in [&client, &server] {
        assert_eq!(side.node.hca.cm_connection_count(), CONNECTIONS);
    }
    for id in &client.established {
        client.node.hca.cm_disconnect(*id, &[]).unwrap();
    }
    until("disconnected", &mut || {
        server.answer(here);
        client.answer(there);
        server.over == CONNECTIONS && client.over == CONNECTIONS
    });
    until("forgotten", &mut || {
        server.answer(here);
        client.answer(there);
        client.node.hca.cm_connection_count() + server.node.hca.cm_connection_count() == 0
    });
}

#[test]
fn ten_thousand_connections_at_once_in_virtual_time() {
    let mut world = World::new(FabricConfig::default());
    let [client, server] = ["10.0.0.1", "10.0.0.2"].map(|text| {
        let ip = text.parse().unwrap();
        Side::new(world.add_hca(ip).unwrap(), ip)
    });
    run(client, server, |what, done| {
        let begun_ns = world.now_ns();
        assert!(world.run_until(10_000_000_000, &mut *done), "{what}");
        let took_ns = world.now_ns() - begun_ns;
        // A message that was lost would be repeated after four seconds.
        assert!(took_ns < 1_000_000_000, "{what} took {took_ns} ns");
    });
}

#[test]
fn ten_thousand_connections_at_once_over_udp() {
    let net = (std::process::id() % 200) as u8 + 1;
    let [client, server] = [1, 2].map(|last| {
        let ip = IpAddr::from([127, 107, net, last]);
        let port = UdpPort::bind(&UdpConfig::new(ip)).unwrap();
        let config = HcaConfig::new("pumice0", vec![GidEntry::new(ip, "lo", 1, Mtu::Mtu1024)]);
        Side::new(Arc::new(Hca::open(config, Box::new(port), Clock::monotonic()).unwrap()), ip)
    });
    let fds = [&client, &server].map(|side| side.channel.as_fd().as_raw_fd());
    let begun = Instant::now();
    run(client, server, |what, done| {
        let phase = Instant::now();
        while !done() {
            assert!(phase.elapsed() < Duration::from_secs(300), "{what}: not within five minutes");
            // With a limit, because the count of connections changes without an event at the end.
            wait_readable(&fds, None, Some(Duration::from_millis(10))).unwrap();
        }
        eprintln!("{what} after {:?}", phase.elapsed());
    });
    eprintln!("{CONNECTIONS} connections came and went within {:?}", begun.elapsed());
}
