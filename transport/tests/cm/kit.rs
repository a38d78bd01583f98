//! A connection manager on a bench: literal messages in and out.

use std::net::IpAddr;

use pumice_transport::cm::{
    AcceptParams, Cm, CmConfig, CmEvent, CmPath, CmState, ConnectParams, IdSource, IgnoredMad, ListenParams,
    ListenerId, MadRoute, time_code_ns,
};
use pumice_transport::mad::{
    CmMessage, CommId, Drep, Dreq, Ece, IpHeader, Mad, Mra, MraOf, PathFields, PortSpace, PrivateData, Rej,
    RejectReason, Rejected, Rep, Req, Rtu, ServiceId,
};
use pumice_transport::types::{Gid, Mtu};
use pumice_transport::wire::{ProcessIndex, Psn, Qpn};

use crate::request::request;

pub(crate) const SERVICE: ServiceId = ServiceId::rdma_cm(PortSpace::Tcp, 7471);
pub(crate) const US: [u8; 4] = [10, 0, 0, 1];
pub(crate) const PEER: [u8; 4] = [10, 0, 0, 2];
pub(crate) const OUR_GUID: u64 = 0xaa;
pub(crate) const PEER_GUID: u64 = 0xbb;
pub(crate) const OUR_QPN: Qpn = Qpn::new(0x07_0011);
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x22);
/// The first id that a bench gives.
pub(crate) const OURS: CommId = CommId(0x0700_0100);
pub(crate) const THEIRS: CommId = CommId(0x9abc_0001);
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// How long a REP and the passive side's DREQ wait for an answer.
pub(crate) const RESPONSE_NS: u64 = time_code_ns(20);
/// How long a REQ and the active side's DREQ do: twice the packet life time, 16, more.
pub(crate) const REQ_NS: u64 = RESPONSE_NS + 2 * time_code_ns(16);

pub(crate) fn gid(address: [u8; 4]) -> Gid {
    Gid::from(IpAddr::from(address))
}

pub(crate) fn route() -> MadRoute {
    MadRoute { local: gid(US), remote: gid(PEER), traffic_class: 0, hop_limit: 64, flow_label: 0x12345 }
}

pub(crate) fn ip_header(source: [u8; 4], destination: [u8; 4]) -> [u8; 36] {
    IpHeader { source_port: 4000, source: source.into(), destination: destination.into() }.emit()
}

/// One connection manager and a clock.
pub(crate) struct Bench {
    pub(crate) cm: Cm,
    pub(crate) now_ns: u64,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(CmConfig::new(OUR_GUID))
    }

    pub(crate) fn with(config: CmConfig) -> Bench {
        Bench { cm: Cm::new(config, IdSource::new(ProcessIndex::new(7), 0x100)), now_ns: 5 * SECOND_NS }
    }

    /// With a listener for [`SERVICE`].
    pub(crate) fn listening() -> (Bench, ListenerId) {
        let mut bench = Bench::new();
        let listener = bench.cm.listen(&ListenParams::new(SERVICE, 8)).unwrap();
        (bench, listener)
    }

    /// A message of the peer's.
    pub(crate) fn receive(&mut self, message: CmMessage) -> Result<(), IgnoredMad> {
        self.receive_from(&route(), message)
    }

    pub(crate) fn receive_from(&mut self, route: &MadRoute, message: CmMessage) -> Result<(), IgnoredMad> {
        self.cm.handle_mad(route, &message.emit(0x55), self.now_ns)
    }

    /// What was sent since the last call; every MAD must go to the peer.
    pub(crate) fn sent(&mut self) -> Vec<CmMessage> {
        let mut sent = Vec::new();
        while let Some(out) = self.cm.poll_transmit() {
            assert_eq!((out.route.local, out.route.remote), (gid(US), gid(PEER)));
            sent.push(CmMessage::parse(&Mad::parse(&out.mad).unwrap()).unwrap());
        }
        sent
    }

    /// The one message that was sent.
    pub(crate) fn sent_one(&mut self) -> CmMessage {
        let sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent[0]
    }

    pub(crate) fn events(&mut self) -> Vec<CmEvent> {
        std::iter::from_fn(|| self.cm.poll_event()).collect()
    }

    pub(crate) fn event(&mut self) -> CmEvent {
        let mut events = self.events();
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Nothing to send, nothing to tell.
    pub(crate) fn quiet(&mut self) {
        assert_eq!(self.sent(), []);
        assert_eq!(self.events(), []);
    }

    /// Lets time pass without looking at the timers.
    pub(crate) fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        self.cm.handle_timeout(self.now_ns);
    }

    /// Nothing happens one nanosecond earlier.
    pub(crate) fn wait_exactly(&mut self, ns: u64) {
        assert_eq!(self.cm.poll_timeout(), Some(self.now_ns + ns));
        self.wait(ns - 1);
        self.quiet();
        self.wait(1);
    }

    pub(crate) fn state(&self, id: CommId) -> Option<CmState> {
        self.cm.state(id)
    }

    /// Active, the request is under way.
    pub(crate) fn req_sent() -> Bench {
        let mut bench = Bench::new();
        assert_eq!(bench.cm.connect(&connect(&ip_header(US, PEER)), bench.now_ns), Ok(OURS));
        assert!(matches!(bench.sent_one(), CmMessage::Req(_)));
        bench
    }

    /// Active, the consumer has the reply.
    pub(crate) fn rep_received() -> Bench {
        let mut bench = Bench::req_sent();
        bench.receive(CmMessage::Rep(rep())).unwrap();
        assert!(matches!(bench.event(), CmEvent::ConnectResponse { id: OURS, .. }));
        bench
    }

    pub(crate) fn established() -> Bench {
        let mut bench = Bench::rep_received();
        bench.cm.send_rtu(OURS, &[]).unwrap();
        assert_eq!(bench.sent_one(), CmMessage::Rtu(our_rtu()));
        bench
    }

    /// Passive, the consumer has the request.
    pub(crate) fn req_received() -> Bench {
        let (mut bench, _) = Bench::listening();
        bench.receive(CmMessage::Req(req())).unwrap();
        assert!(matches!(bench.event(), CmEvent::ConnectRequest { id: OURS, .. }));
        bench
    }

    /// Passive, the reply is under way.
    pub(crate) fn rep_sent() -> Bench {
        let mut bench = Bench::req_received();
        bench.cm.accept(OURS, &AcceptParams::new(OUR_QPN, Psn::new(0x111)), bench.now_ns).unwrap();
        assert!(matches!(bench.sent_one(), CmMessage::Rep(_)));
        bench
    }

    pub(crate) fn passive_established() -> Bench {
        let mut bench = Bench::rep_sent();
        bench.receive(CmMessage::Rtu(rtu())).unwrap();
        assert!(matches!(bench.event(), CmEvent::Established { id: OURS, .. }));
        bench
    }

    /// The consumer has gone, the protocol has finished: nothing may be left but listeners.
    pub(crate) fn assert_gone(&mut self) {
        assert_eq!(self.cm.connection_count(), 0);
        assert_eq!(self.cm.poll_timeout(), None);
        assert_eq!(self.events(), []);
    }
}

pub(crate) fn connect(private_data: &[u8]) -> ConnectParams<'_> {
    let path = CmPath::new(route(), Mtu::Mtu1024);
    ConnectParams { private_data, ..ConnectParams::new(SERVICE, path, OUR_QPN, Psn::new(0x111)) }
}

/// The peer's request.
pub(crate) fn req() -> Req {
    let plain = request(1, SERVICE, PEER.into(), US.into());
    Req {
        local_id: THEIRS,
        local_ca_guid: PEER_GUID,
        local_qpn: PEER_QPN,
        responder_resources: 3,
        initiator_depth: 5,
        starting_psn: Psn::new(0x222),
        retry_count: 6,
        rnr_retry_count: 5,
        primary: PathFields {
            local_lid: 0xffff,
            remote_lid: 0xffff,
            flow_label: 0x54321,
            traffic_class: 8,
            hop_limit: 63,
            sl: 1,
            ..plain.primary
        },
        ..plain
    }
}

/// The peer's reply to our request.
pub(crate) fn rep() -> Rep {
    Rep {
        local_id: THEIRS,
        remote_id: OURS,
        local_q_key: 0,
        local_qpn: PEER_QPN,
        ece: Ece::default(),
        local_eecn: 0,
        starting_psn: Psn::new(0x222),
        responder_resources: 3,
        initiator_depth: 5,
        target_ack_delay: 15,
        failover_accepted: 0,
        flow_control: false,
        rnr_retry_count: 4,
        srq: false,
        local_ca_guid: PEER_GUID,
        private_data: PrivateData::new(b"welcome").unwrap(),
    }
}

/// The peer's.
pub(crate) fn rtu() -> Rtu {
    Rtu { local_id: THEIRS, remote_id: OURS, private_data: PrivateData::new(b"ready").unwrap() }
}

/// Ours, without private data.
pub(crate) fn our_rtu() -> Rtu {
    Rtu { local_id: OURS, remote_id: THEIRS, private_data: PrivateData::NONE }
}

/// The peer's.
pub(crate) fn dreq() -> Dreq {
    let private_data = PrivateData::new(b"bye").unwrap();
    Dreq { local_id: THEIRS, remote_id: OURS, remote_qpn: OUR_QPN, private_data }
}

/// Ours, without private data.
pub(crate) fn our_dreq() -> Dreq {
    Dreq { local_id: OURS, remote_id: THEIRS, remote_qpn: PEER_QPN, private_data: PrivateData::NONE }
}

/// The peer's.
pub(crate) fn drep() -> Drep {
    Drep { local_id: THEIRS, remote_id: OURS, private_data: PrivateData::new(b"farewell").unwrap() }
}

/// Ours, without private data.
pub(crate) fn our_drep() -> Drep {
    Drep { local_id: OURS, remote_id: THEIRS, private_data: PrivateData::NONE }
}

/// A REJ of the peer's.
pub(crate) fn rej(rejected: Rejected, reason: RejectReason) -> Rej {
    Rej {
        local_id: if rejected == Rejected::Req { CommId::NONE } else { THEIRS },
        remote_id: OURS,
        rejected,
        info_length: 0,
        reason,
        info: PrivateData::NONE,
        private_data: PrivateData::new(b"no").unwrap(),
    }
}

/// A REJ of ours without anything.
pub(crate) fn our_rej(local_id: CommId, rejected: Rejected, reason: RejectReason) -> Rej {
    Rej {
        local_id,
        remote_id: THEIRS,
        rejected,
        info_length: 0,
        reason,
        info: PrivateData::NONE,
        private_data: PrivateData::NONE,
    }
}

/// An MRA of the peer's.
pub(crate) fn mra(of: MraOf) -> Mra {
    Mra { local_id: THEIRS, remote_id: OURS, of, service_timeout: 24, private_data: PrivateData::NONE }
}
