//! Management datagrams that no peer should send to queue pair 1. They are answered as a kernel answers them,
//! or not at all, and leave no state behind.

mod kit;
#[path = "../../transport/tests/cm/request.rs"]
mod request;

use std::net::IpAddr;
use std::sync::Arc;

use kit::Random;
use kit::forger::Forger;
use pumice_device::gsi::{BindingId, CmChannel, ServiceEntry};
use pumice_device::hca::Hca;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::cm::{AcceptParams, BacklogOverflow, CmEvent, CmState, ListenScope, Served};
use pumice_transport::mad::{
    CmMessage, CommId, Drep, Dreq, GSI_Q_KEY, MAD_BYTES, Mad, MadHeader, Mra, MraOf, PortSpace, PrivateData,
    Rej, RejectReason, Rejected, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus, class, method,
};
use pumice_transport::wire::{Bth, Deth, Headers, Opcode, Packet, Psn, Qpn};

const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7471);
const DATAGRAMS: ServiceId = ServiceId::rdma_cm(PortSpace::Udp, 7471);
const BACKLOG: usize = 16;
const VICTIM: &str = "10.0.0.1";
const PEER: &str = "10.0.0.9";
const SECOND_NS: u64 = 1_000_000_000;

/// An adapter that listens, and a bare port that sends any bytes.
struct Scene {
    world: World,
    hca: Arc<Hca>,
    channel: Arc<CmChannel>,
    bindings: Vec<BindingId>,
    peer: Forger,
}

impl Scene {
    fn new(overflow: BacklogOverflow) -> Scene {
        let mut world = World::new(FabricConfig::default());
        let victim: IpAddr = VICTIM.parse().unwrap();
        let hca = world.add_hca(victim).unwrap();
        let channel = Arc::new(CmChannel::new().unwrap());
        let bind = |service_id| {
            let binding = hca
                .cm_bind(&ServiceEntry { service_id, mask: u64::MAX, scope: ListenScope::Everywhere })
                .unwrap();
            hca.cm_listen(binding, Served::Anything, BACKLOG, overflow, &channel).unwrap();
            binding
        };
        let bindings = vec![bind(SERVICE), bind(DATAGRAMS)];
        let peer = Forger::new(&world, PEER, victim);
        Scene { world, hca, channel, bindings, peer }
    }

    fn send(&mut self, mad: &[u8]) {
        let mut headers = Headers::new(Bth::new(Opcode::from_byte(0x64), Qpn::GSI, Psn::new(0)));
        headers.deth = Some(Deth { qkey: GSI_Q_KEY, source: Qpn::GSI });
        let packet = self.peer.packet(&headers, mad);
        self.peer.send(&mut self.world, &packet);
    }

    /// Delivers the packets that are under way and the answers to them. No timer fires.
    fn arrive(&mut self) {
        self.world.settle();
        while self.world.fabric().next_event_ns().is_some() {
            self.world.step();
        }
    }

    /// Sends a MAD, and returns the MADs that come back before a timer fires.
    fn ask(&mut self, mad: &[u8; MAD_BYTES]) -> Vec<[u8; MAD_BYTES]> {
        self.send(mad);
        self.arrive();
        let answers = self.peer.answers(&self.world);
        answers.iter().map(|answer| Packet::parse(answer).unwrap().payload().try_into().unwrap()).collect()
    }

    fn tell(&mut self, message: CmMessage) -> Vec<CmMessage> {
        let answers = self.ask(&message.emit(0x77));
        answers.iter().map(|mad| CmMessage::parse(&Mad::parse(mad).unwrap()).unwrap()).collect()
    }

    /// The program ends: after a time nothing of any conversation is left.
    fn assert_nothing_leaks(mut self) {
        let mut known = Vec::new();
        while let Some(event) = self.hca.cm_event(&self.channel) {
            known.push(event.id());
        }
        for binding in std::mem::take(&mut self.bindings) {
            self.hca.cm_unbind(binding).unwrap();
        }
        known.into_iter().for_each(|id| drop(self.hca.cm_destroy(id)));
        self.world.run_until(2000 * SECOND_NS, || self.hca.cm_connection_count() == 0);
        assert_eq!(self.hca.cm_connection_count(), 0);
        assert_eq!(self.channel.queued(), 0);
        self.arrive();
        assert_eq!(self.hca.deadline_ns(), None, "no timer is left");
    }
}

fn request(number: u32) -> Req {
    request::request(number, SERVICE, PEER.parse().unwrap(), VICTIM.parse().unwrap())
}

fn reply(local_id: CommId, remote_id: CommId) -> Rep {
    Rep {
        local_id,
        remote_id,
        local_q_key: 0,
        local_qpn: Qpn::new(5),
        ece: Default::default(),
        local_eecn: 0,
        starting_psn: Psn::new(0),
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        failover_accepted: 0,
        flow_control: false,
        rnr_retry_count: 7,
        srq: false,
        local_ca_guid: 3,
        private_data: PrivateData::NONE,
    }
}

fn rejection(local_id: CommId, remote_id: CommId, rejected: Rejected, reason: RejectReason) -> Rej {
    let (info, private_data) = (PrivateData::NONE, PrivateData::NONE);
    Rej { local_id, remote_id, rejected, info_length: 8, reason, info, private_data }
}

#[test]
fn messages_about_connections_that_do_not_exist_are_answered_as_linux_does_and_change_nothing() {
    let mut scene = Scene::new(BacklogOverflow::Ignore);
    let (theirs, unknown) = (CommId(0x1234), CommId(0xdead_beef));
    let silent = [
        CmMessage::Rtu(Rtu { local_id: theirs, remote_id: unknown, private_data: PrivateData::NONE }),
        CmMessage::Drep(Drep { local_id: theirs, remote_id: unknown, private_data: PrivateData::NONE }),
        CmMessage::Rej(rejection(theirs, unknown, Rejected::Req, RejectReason::CONSUMER)),
        CmMessage::Rej(rejection(theirs, CommId::NONE, Rejected::Other, RejectReason::TIMEOUT)),
        CmMessage::Mra(Mra {
            local_id: theirs,
            remote_id: unknown,
            of: MraOf::Req,
            service_timeout: 31,
            private_data: PrivateData::NONE,
        }),
        CmMessage::SidrRep(SidrRep {
            request_id: unknown,
            status: SidrStatus::SUCCESS,
            info_length: 0,
            qpn: Qpn::new(3),
            service_id: DATAGRAMS,
            q_key: 1,
            info: PrivateData::NONE,
            private_data: PrivateData::NONE,
        }),
    ];
    for message in silent {
        assert_eq!(scene.tell(message), [], "{message:?}");
    }
    let dreq = Dreq {
        local_id: theirs,
        remote_id: unknown,
        remote_qpn: Qpn::new(7),
        private_data: PrivateData::NONE,
    };
    let drep = Drep { local_id: unknown, remote_id: theirs, private_data: PrivateData::NONE };
    assert_eq!(scene.tell(CmMessage::Dreq(dreq)), [CmMessage::Drep(drep)]);
    let answers = scene.tell(CmMessage::Rep(reply(theirs, unknown)));
    let [CmMessage::Rej(rej)] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(
        (rej.reason, rej.rejected, rej.remote_id),
        (RejectReason::INVALID_COMM_ID, Rejected::Rep, theirs)
    );
    assert_eq!((scene.hca.cm_connection_count(), scene.channel.queued()), (0, 0));
    scene.assert_nothing_leaks();
}

#[test]
fn requests_beyond_the_backlog_are_refused_or_met_with_silence_and_cost_nothing() {
    for overflow in [BacklogOverflow::Ignore, BacklogOverflow::Reject] {
        let mut scene = Scene::new(overflow);
        let mut refusals = 0;
        for number in 1..=2000 {
            let answers = scene.tell(CmMessage::Req(request(number)));
            assert!(scene.hca.cm_connection_count() <= 2 * BACKLOG);
            match &answers[..] {
                [] => {}
                [CmMessage::Rej(rej)] if rej.reason == RejectReason::NO_RESOURCES => refusals += 1,
                other => panic!("{number}: {other:?}"),
            }
            let question = SidrReq {
                request_id: CommId(number),
                pkey: 0xffff,
                service_id: DATAGRAMS,
                private_data: PrivateData::new(&request(1).private_data[..36]).unwrap(),
            };
            for answer in scene.tell(CmMessage::SidrReq(question)) {
                assert!(
                    matches!(&answer, CmMessage::SidrRep(rep) if rep.status == SidrStatus::NO_QP),
                    "{answer:?}"
                );
                refusals += 1;
            }
        }
        assert_eq!(scene.channel.queued(), 2 * BACKLOG, "{overflow:?}");
        let refused = 2 * (2000 - BACKLOG);
        assert_eq!(refusals, if overflow == BacklogOverflow::Reject { refused } else { 0 });
        // A request that the program takes makes room for another.
        let taken = scene.hca.cm_event(&scene.channel).unwrap().id();
        assert_eq!(scene.tell(CmMessage::Req(request(3000))), []);
        assert_eq!(scene.channel.queued(), 2 * BACKLOG);
        scene.hca.cm_destroy(taken).unwrap();
        scene.assert_nothing_leaks();
    }
}

#[test]
fn a_conversation_that_is_replayed_does_nothing_again() {
    let mut scene = Scene::new(BacklogOverflow::Ignore);
    let mut said = vec![CmMessage::Req(request(7))];
    assert_eq!(scene.tell(said[0]), []);
    let Some(CmEvent::ConnectRequest { id, .. }) = scene.hca.cm_event(&scene.channel) else { panic!() };
    // While the consumer has not answered, a repeated request is answered by an MRA, which asks for time.
    let answers = scene.tell(said[0]);
    assert!(matches!(answers[..], [CmMessage::Mra(_)]), "{answers:?}");
    scene.hca.cm_accept(id, &AcceptParams::new(Qpn::new(0x21), Psn::new(1))).unwrap();
    said.push(CmMessage::Rtu(Rtu { local_id: CommId(7), remote_id: id, private_data: PrivateData::NONE }));
    let answers = scene.tell(said[1]);
    assert!(matches!(answers[..], [CmMessage::Rep(_)]), "{answers:?}");
    assert!(matches!(scene.hca.cm_event(&scene.channel), Some(CmEvent::Established { .. })));
    let dreq = Dreq {
        local_id: CommId(7),
        remote_id: id,
        remote_qpn: Qpn::new(0x21),
        private_data: PrivateData::NONE,
    };
    // While it is established.
    for message in &said {
        assert_eq!(scene.tell(*message), [], "{message:?}");
        assert_eq!(scene.hca.cm_state(id), Some(CmState::Established));
    }
    said.push(CmMessage::Dreq(dreq));
    assert_eq!(scene.tell(said[2]), []);
    assert!(matches!(scene.hca.cm_event(&scene.channel), Some(CmEvent::DisconnectRequest { .. })));
    scene.hca.cm_disconnect(id, &[]).unwrap();
    scene.arrive();
    assert_eq!(scene.peer.answers(&scene.world).len(), 1);
    // In timewait: the request is stale, the disconnection confirmed again.
    let answers = scene.tell(said[0]);
    let [CmMessage::Rej(rej)] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
    assert_eq!(scene.tell(said[1]), []);
    assert!(matches!(scene.tell(said[2])[..], [CmMessage::Drep(_)]));
    assert_eq!(scene.channel.queued(), 0);
    assert_eq!(scene.hca.cm_connection_count(), 1);
    scene.hca.cm_destroy(id).unwrap();
    scene.world.run_until(10 * SECOND_NS, || scene.hca.cm_connection_count() == 0);
    // When the connection is forgotten, a DREQ for it is confirmed as for any unknown connection.
    assert!(matches!(scene.tell(said[2])[..], [CmMessage::Drep(_)]));
    assert_eq!(scene.tell(said[1]), []);
    scene.assert_nothing_leaks();
}

/// Linux answers a GET or SET that no agent wants by "unsupported method or attribute": rdma_rxe has neither
/// a performance agent nor a subnet administrator. Subnet management is for queue pair 0.
#[test]
fn queries_for_counters_and_path_records_are_refused_as_rxe_does() {
    const PORT_COUNTERS: u16 = 0x12;
    const CLASS_PORT_INFO: u16 = 0x01;
    const PATH_RECORD: u16 = 0x35;
    const TRAP: u8 = 5;
    const GET_TABLE: u8 = 0x12;
    let mut scene = Scene::new(BacklogOverflow::Ignore);
    let query = |class, version, method, attribute| {
        let mut mad = [0x5a; MAD_BYTES];
        let header =
            MadHeader { class, class_version: version, method, ..MadHeader::communication(attribute, 9, 3) };
        header.emit(&mut mad);
        mad
    };
    let refused = [
        (class::PERFORMANCE, 1, method::GET, PORT_COUNTERS),
        (class::PERFORMANCE, 1, method::SET, PORT_COUNTERS),
        (class::PERFORMANCE, 1, method::GET, CLASS_PORT_INFO),
        (class::SUBNET_ADMINISTRATION, 2, method::GET, PATH_RECORD),
        (class::SUBNET_ADMINISTRATION, 2, method::SET, PATH_RECORD),
        (class::COMMUNICATION, 2, method::GET, CLASS_PORT_INFO),
        (0x81_u8.wrapping_add(0x20), 1, method::GET, CLASS_PORT_INFO),
    ];
    for (class, version, method, attribute) in refused {
        let mad = query(class, version, method, attribute);
        let answers = scene.ask(&mad);
        assert_eq!(answers.len(), 1, "class {class:#x} method {method:#x}");
        assert_eq!(answers[0][..8], [1, class, version, 0x81, 0, 0x0c, 0, 0]);
        assert_eq!(answers[0][8..], mad[8..], "the query comes back");
    }
    let silent = [
        (class::PERFORMANCE, 1, method::GET_RESPONSE, PORT_COUNTERS),
        (class::SUBNET_ADMINISTRATION, 2, GET_TABLE, PATH_RECORD),
        (class::SUBNET_ADMINISTRATION, 2, TRAP, CLASS_PORT_INFO),
        (class::SUBNET_LID, 1, method::GET, CLASS_PORT_INFO),
        (class::SUBNET_DIRECTED, 1, method::SET, CLASS_PORT_INFO),
    ];
    for (class, version, method, attribute) in silent {
        let answers = scene.ask(&query(class, version, method, attribute));
        assert!(answers.is_empty(), "class {class:#x} method {method:#x}");
    }
    scene.assert_nothing_leaks();
}

#[test]
fn noise_is_survived_and_leaves_nothing() {
    for seed in 1..=40 {
        let mut random = Random::new(seed);
        let mut scene = Scene::new(BacklogOverflow::Reject);
        let mut known = vec![CommId(1)];
        for _ in 0..200 {
            let mut mad = CmMessage::Req(request(random.below(8) as u32 + 1)).emit(random.next());
            let (to, from) = (known[random.below(known.len() as u64) as usize], random.below(8) as u32 + 1);
            if random.below(3) > 0 {
                // Another message, for a connection that exists or for one whose id is similar.
                mad[17] = 0x10 + random.below(12) as u8;
                mad[24..28].copy_from_slice(&from.to_be_bytes());
                mad[28..32].copy_from_slice(&to.0.to_be_bytes());
            }
            for _ in 0..random.below(3) {
                mad[random.below(MAD_BYTES as u64) as usize] = random.next() as u8;
            }
            let length = if random.below(20) == 0 { random.below(64) as usize * 4 } else { MAD_BYTES };
            scene.send(&mad[..length]);
            if random.below(4) == 0 {
                scene.world.run_until(random.below(SECOND_NS), || false);
            }
            if random.below(2) == 0
                && let Some(event) = scene.hca.cm_event(&scene.channel)
            {
                let id = event.id();
                known.push(id);
                let answer = match random.below(4) {
                    0 => scene.hca.cm_accept(id, &AcceptParams::new(Qpn::new(from), Psn::new(0))),
                    1 => scene.hca.cm_disconnect(id, &[]),
                    2 => scene.hca.cm_destroy(id),
                    _ => Ok(()),
                };
                // It is refused when the connection is in another state by then.
                drop(answer);
            }
            assert!(scene.hca.cm_connection_count() <= 2 * BACKLOG + known.len(), "seed {seed}");
        }
        scene.arrive();
        known.into_iter().for_each(|id| drop(scene.hca.cm_destroy(id)));
        eprintln!("seed {seed}");
        scene.assert_nothing_leaks();
    }
}
