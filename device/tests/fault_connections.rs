//! What a fault plan does to connections that the connection manager makes.

mod kit;

use std::sync::Arc;

use kit::planned::{FaultReport, node, plan};
use kit::{Connection, Node, connect};
use pumice_device::faults::{FaultPlan, WirePlan};
use pumice_device::gsi::{CmChannel, ServiceEntry};
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmEvent, CmPath, ConnectParams, ListenScope, MadRoute, Served,
};
use pumice_transport::mad::{IpHeader, PortSpace, RejectReason, ServiceId};
use pumice_transport::types::*;
use pumice_transport::wire::{Psn, Qpn};

const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7471);
const SECOND_NS: u64 = 1_000_000_000;

/// A client with a plan, a server, and a queue pair of each.
struct Ends {
    world: World,
    client: Node,
    server: Node,
    channels: [Arc<CmChannel>; 2],
    qps: [Qpn; 2],
    report: FaultReport,
}

impl Ends {
    fn new(plan: &FaultPlan, network_seed: u64) -> Ends {
        let mut world = World::new(FabricConfig {
            seed: network_seed,
            delay_ns: 1_000 * (1 + network_seed),
            faults: WirePlan::seeded(network_seed),
            ..FabricConfig::default()
        });
        let (client, report) = node(&mut world, "10.0.0.1", plan);
        let (server, _) = node(&mut world, "10.0.0.2", &FaultPlan::new());
        let channels = [(); 2].map(|()| Arc::new(CmChannel::new().unwrap()));
        let entry = ServiceEntry { service_id: SERVICE, mask: u64::MAX, scope: ListenScope::Everywhere };
        let binding = server.hca.cm_bind(&entry).unwrap();
        server.hca.cm_listen(binding, Served::Anything, 64, BacklogOverflow::Reject, &channels[1]).unwrap();
        let qps = [client.create_qp(QpType::Rc), server.create_qp(QpType::Rc)];
        connect(&client, qps[0], &server, qps[1], true, Connection::default());
        Ends { world, client, server, channels, qps, report }
    }

    /// The client asks for a connection.
    fn ask(&self) {
        let (from, to) = (self.client.ip, self.server.ip);
        let header = IpHeader { source_port: 4000, source: from, destination: to }.emit();
        let route = MadRoute { local: from.into(), remote: to.into(), hop_limit: 64, ..MadRoute::default() };
        let path = CmPath::new(route, Mtu::Mtu1024);
        let params = ConnectParams {
            private_data: &header,
            ..ConnectParams::new(SERVICE, path, self.qps[0], Psn::new(1))
        };
        self.client.hca.cm_connect(&params, &self.channels[0]).unwrap();
    }

    /// The next event of the client (0) or the server (1); both answer what has one answer.
    fn event(&mut self, end: usize) -> CmEvent {
        let Ends { world, client, server, channels, qps, .. } = self;
        let mut found = None;
        let came = world.run_until(600 * SECOND_NS, || {
            for (index, node) in [&*client, &*server].into_iter().enumerate() {
                while let Some(event) = node.hca.cm_event(&channels[index]) {
                    match &event {
                        CmEvent::ConnectRequest { id, .. } => {
                            node.hca.cm_accept(*id, &AcceptParams::new(qps[1], Psn::new(1))).unwrap();
                        }
                        CmEvent::ConnectResponse { id, .. } => node.hca.cm_send_rtu(*id, &[]).unwrap(),
                        CmEvent::DisconnectRequest { id, .. } => node.hca.cm_disconnect(*id, &[]).unwrap(),
                        _ => {}
                    }
                    if index == end && !matches!(event, CmEvent::MraReceived { .. }) && found.is_none() {
                        found = Some(event);
                    }
                }
            }
            found.is_some()
        });
        assert!(came, "no event of end {end}");
        found.unwrap()
    }

    /// The lines of the client's report about what happened.
    fn end(self) -> String {
        let Ends { world, client, server, report, .. } = self;
        drop((client, server, world));
        let report = report.sorted();
        report.lines().filter(|line| line.contains("\"rule\":")).collect::<Vec<_>>().join("\n")
    }
}

/// Runs rules in several networks: so many lines, the same each time, and by the report again.
fn everywhere(rules: &[&str], lines: usize, look: impl Fn(&mut Ends)) {
    let run = |plan: &FaultPlan, seed| {
        let mut ends = Ends::new(plan, seed);
        look(&mut ends);
        ends.end()
    };
    let plan = plan(rules);
    let first = run(&plan, 0);
    assert_eq!(first.lines().count(), lines, "{first}");
    for seed in 1..5 {
        assert_eq!(run(&plan, seed), first, "{rules:?}, network {seed}");
    }
    assert_eq!(run(&FaultPlan::parse(&first, 1).unwrap(), 2), first, "{rules:?} by the report");
}

#[test]
fn a_request_is_rejected_for_the_reason_of_the_rule_and_the_next_one_is_served() {
    for (rule, reason) in [
        ("reject connection=0", RejectReason::CONSUMER),
        ("reject connection=0 reason=stale-connection", RejectReason::STALE_CONNECTION),
        ("reject nth=1 reason=3", RejectReason::NO_RESOURCES),
    ] {
        everywhere(&[rule], 1, |ends| {
            ends.ask();
            let event = ends.event(0);
            let CmEvent::Rejected { rejection, .. } = event else { panic!("{event:?}") };
            assert_eq!(rejection.reason, reason);
            ends.ask();
            assert!(matches!(ends.event(1), CmEvent::ConnectRequest { .. }));
            assert!(matches!(ends.event(1), CmEvent::Established { .. }));
        });
    }
}

#[test]
fn what_the_peer_says_with_a_rejection_is_in_the_rule() {
    for (rule, said) in [
        ("reject connection=0 private-data=busy", &b"busy"[..]),
        ("reject connection=0 private-data=\"come back\" reason=no-resources", b"come back"),
        ("reject connection=0 private-data=0x00ff10", b"\0\xff\x10"),
    ] {
        everywhere(&[rule], 1, |ends| {
            ends.ask();
            let event = ends.event(0);
            let CmEvent::Rejected { rejection, .. } = event else { panic!("{event:?}") };
            assert_eq!(rejection.private_data.split_at(said.len()), (said, &[0; 148][said.len()..]));
        });
    }
}

#[test]
fn requests_that_are_ignored_or_doubled_and_lost_rtus_only_take_time() {
    for (rule, lines) in [
        ("drop service=cm opcode=req times=2", 2),
        ("duplicate service=cm opcode=req", 1),
        ("drop service=cm opcode=rtu times=1", 1),
    ] {
        everywhere(&[rule], lines, |ends| {
            ends.ask();
            assert!(matches!(ends.event(1), CmEvent::ConnectRequest { .. }));
            assert!(matches!(ends.event(1), CmEvent::Established { .. }));
        });
    }
}

#[test]
fn a_connection_ends_after_so_many_messages() {
    everywhere(&["event kind=disconnect qp=0 message=3"], 1, |ends| {
        ends.ask();
        assert!(matches!(ends.event(1), CmEvent::ConnectRequest { .. }));
        assert!(matches!(ends.event(1), CmEvent::Established { .. }));
        for k in 0..5 {
            let request = SendRequest {
                sges: &[ends.client.sge(0, 100)],
                remote: ends.server.target(0),
                flags: SendFlags::SIGNALED,
                ..SendRequest::new(k, SendOpcode::RdmaWrite)
            };
            ends.client.hca.post_send(ends.qps[0], &request).unwrap();
        }
        assert!(matches!(ends.event(1), CmEvent::DisconnectRequest { .. }));
        assert!(matches!(ends.event(0), CmEvent::Disconnected { .. }));
        // The queue pair is the program's, which is told.
        assert_eq!(ends.client.drain().len(), 5);
    });
}
