//! The events of a device about connections, and about packets that no queue pair sees.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use pumice_fabric::FabricConfig;
use pumice_fabric::gsi::CmChannel;
use pumice_model::addresses::gid_table::GidEntry;
use pumice_model::event::{Event, Subscriber, Topics};
use pumice_model::port::Port;
use pumice_model::port::batch::GsoBatch;
use pumice_model::port::directory::ServiceEntry;
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmEvent, CmPath, ConnectParams, ListenScope, MadRoute, Served,
};
use pumice_transport::host::Counter;
use pumice_transport::mad::{CmMessage, CommId, IpHeader, PortSpace, ServiceId};
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::types::Mtu;
use pumice_transport::wire::{Bth, Headers, Opcode, Psn, Qpn, icrc};

use crate::hca::{Hca, HcaConfig};
use crate::world::World;

const SECOND_NS: u64 = 1_000_000_000;
const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7471);

/// The received events: a line for each.
type Lines = Arc<Mutex<Vec<String>>>;

struct Listener {
    topics: Topics,
    lines: Lines,
}

impl Subscriber for Listener {
    fn topics(&self) -> Topics {
        self.topics
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        let line = match event {
            Event::CmSent { message } => format!("sent {}", name(message)),
            Event::CmReceived { message } => format!("received {}", name(message)),
            Event::CmEvent { event, state } => {
                let happened = match event {
                    CmEvent::ConnectRequest { .. } => "request",
                    CmEvent::ConnectResponse { .. } => "response",
                    CmEvent::Established { .. } => "established",
                    CmEvent::Rejected { .. } => "rejected",
                    _ => "another event",
                };
                let state = state.map_or("forgotten".to_owned(), |state| format!("{state:?}"));
                format!("told {happened}, now {state}")
            }
            Event::PacketDropped { reason, source, packet } => {
                let packet = packet.map(|(qpn, opcode, psn)| (qpn.value(), opcode.byte(), psn.value()));
                format!("dropped {reason:?} from {source}: {packet:x?}")
            }
            other => format!("{other:?}"),
        };
        self.lines.lock().unwrap().push(line);
    }
}

fn name(message: &CmMessage) -> &'static str {
    match message {
        CmMessage::Req(_) => "REQ",
        CmMessage::Rep(_) => "REP",
        CmMessage::Rtu(_) => "RTU",
        CmMessage::Rej(_) => "REJ",
        CmMessage::Dreq(_) => "DREQ",
        _ => "another message",
    }
}

/// Returns a device whose events of these topics become lines.
fn device(world: &mut World, address: IpAddr, topics: Topics) -> (Arc<Hca>, Lines) {
    let lines = Lines::default();
    let mut config = HcaConfig::new("listened", vec![GidEntry::new(address, "sim", 0, Mtu::Mtu4096)]);
    config.subscribers = vec![Box::new(Listener { topics, lines: Arc::clone(&lines) })];
    (world.add_hca_with(config, |port| Box::new(port)).unwrap(), lines)
}

fn take(lines: &Lines) -> Vec<String> {
    std::mem::take(&mut *lines.lock().unwrap())
}

/// Two devices, a client and a server, with a channel each.
struct Pair {
    world: World,
    addresses: [IpAddr; 2],
    hcas: [Arc<Hca>; 2],
    lines: [Lines; 2],
    channels: [Arc<CmChannel>; 2],
}

impl Pair {
    fn new(topics: [Topics; 2]) -> Pair {
        let mut world = World::new(FabricConfig::default());
        let addresses = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        let (client, client_lines) = device(&mut world, addresses[0], topics[0]);
        let (server, server_lines) = device(&mut world, addresses[1], topics[1]);
        let channels = [(); 2].map(|()| Arc::new(CmChannel::new().unwrap()));
        let (hcas, lines) = ([client, server], [client_lines, server_lines]);
        Pair { world, addresses, hcas, lines, channels }
    }

    fn listen(&self) {
        let entry = ServiceEntry { service_id: SERVICE, mask: u64::MAX, scope: ListenScope::Everywhere };
        let [_, server] = &self.hcas;
        let binding = server.cm_bind(&entry).unwrap();
        let overflow = BacklogOverflow::Reject;
        server.cm_listen(binding, Served::Anything, 1, overflow, &self.channels[1]).unwrap();
    }

    fn connect(&self) -> CommId {
        let [local, remote] = self.addresses;
        let header = IpHeader { source_port: 4000, source: local, destination: remote }.emit();
        let route =
            MadRoute { local: local.into(), remote: remote.into(), hop_limit: 64, ..MadRoute::default() };
        let path = CmPath::new(route, Mtu::Mtu1024);
        let params = ConnectParams {
            private_data: &header,
            ..ConnectParams::new(SERVICE, path, Qpn::new(0x21), Psn::new(1))
        };
        self.hcas[0].cm_connect(&params, &self.channels[0]).unwrap()
    }

    /// Waits for the next event of one of the two.
    fn wait(&mut self, side: usize) -> CmEvent {
        let (hca, channel) = (&self.hcas[side], &self.channels[side]);
        assert!(self.world.run_until(SECOND_NS, || channel.queued() > 0));
        hca.cm_event(channel).unwrap()
    }

    /// Connects the two.
    fn establish(&mut self) {
        self.listen();
        let id = self.connect();
        let CmEvent::ConnectRequest { id: server_id, .. } = self.wait(1) else { panic!() };
        self.hcas[1].cm_accept(server_id, &AcceptParams::new(Qpn::new(0x22), Psn::new(2))).unwrap();
        assert!(matches!(self.wait(0), CmEvent::ConnectResponse { .. }));
        self.hcas[0].cm_send_rtu(id, &[]).unwrap();
        assert!(matches!(self.wait(1), CmEvent::Established { .. }));
    }
}

#[test]
fn subscribers_hear_of_messages_and_states_of_a_connection() {
    let mut pair = Pair::new([Topics::CM; 2]);
    pair.establish();
    assert_eq!(
        take(&pair.lines[0]),
        ["sent REQ", "received REP", "told response, now RepReceived", "sent RTU"]
    );
    assert_eq!(
        take(&pair.lines[1]),
        [
            "received REQ",
            "told request, now ReqReceived",
            "sent REP",
            "received RTU",
            "told established, now Established"
        ]
    );
}

#[test]
fn subscribers_hear_of_a_refused_connection_once_its_patience_is_over() {
    let mut pair = Pair::new([Topics::CM; 2]);
    pair.connect();
    assert!(matches!(pair.wait(0), CmEvent::Rejected { .. }));
    assert_eq!(take(&pair.lines[0]), ["sent REQ", "received REJ", "told rejected, now Idle"]);
    assert_eq!(take(&pair.lines[1]), ["received REQ", "sent REJ"], "the program is told of nothing");
}

#[test]
fn subscribers_of_other_topics_hear_of_no_connection() {
    let mut pair = Pair::new([Topics::DROPS, Topics::empty()]);
    pair.establish();
    assert_eq!(pair.lines.each_ref().map(take), [[""; 0]; 2]);
}

#[test]
fn subscribers_hear_of_packets_that_no_queue_pair_sees() {
    let mut world = World::new(FabricConfig::default());
    let (victim, source) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 9]));
    let (hca, lines) = device(&mut world, victim, Topics::DROPS);
    let mut port = world.fabric().attach(&[source]);
    let flow = Flow { source, destination: victim, source_port: 50_000, destination_port: ROCE_PORT };
    let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
    let send_only = |destination| {
        let headers = Headers::new(Bth::new(Opcode::from_byte(0x04), destination, Psn::new(7)));
        let mut bytes = vec![0; headers.len() + 4];
        headers.emit(&mut bytes);
        icrc::seal(&flow, 0, &mut bytes);
        bytes
    };
    let mut damaged = send_only(Qpn::new(0x55));
    *damaged.last_mut().unwrap() ^= 1;
    let cases = [
        (Counter::RxTooShort, vec![0; 3], "None"),
        (Counter::RxBadIcrc, damaged, "None"),
        (Counter::RxUnknownQpn, send_only(Qpn::new(0x55)), "Some((55, 4, 7))"),
        (Counter::RxWrongService, send_only(Qpn::GSI), "Some((1, 4, 7))"),
        (Counter::RxWrongService, send_only(Qpn::MULTICAST), "Some((ffffff, 4, 7))"),
    ];
    for (reason, bytes, packet) in cases {
        let before = hca.counters().value(reason);
        port.transmit(world.now_ns(), &GsoBatch::new(&path, bytes.len(), &bytes)).unwrap();
        world.run_until(SECOND_NS, || false);
        assert_eq!(take(&lines), [format!("dropped {reason:?} from {source}: {packet}")]);
        assert_eq!(hca.counters().value(reason), before + 1, "{reason:?}");
    }
    // A sender that numbers its IP headers otherwise is understood all the same.
    let mut numbered = send_only(Qpn::new(0x55));
    icrc::seal(&flow, 9, &mut numbered);
    port.transmit(world.now_ns(), &GsoBatch::new(&path, numbered.len(), &numbered)).unwrap();
    world.run_until(SECOND_NS, || false);
    assert_eq!(take(&lines), [format!("dropped RxUnknownQpn from {source}: Some((55, 4, 7))")]);
    assert_eq!(hca.counters().value(Counter::RxIcrcRecovered), 1);
}
