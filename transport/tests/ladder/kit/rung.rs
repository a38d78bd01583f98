//! One queue pair with its device and its port: what a test stands on.

use std::sync::Arc;

use pumice_transport::host::PeerProgress;
use pumice_transport::path::Flow;
use pumice_transport::qp::{
    AdaptiveTimeout, Arrival, AttributeMask, Congestion, ModifyError, ModifyLimits, PostError, Progress,
    QpAttributes, QpConfig, QueuePair, ResolvedPath,
};
use pumice_transport::types::{
    Access, AddressVector, Gid, Mtu, QpCapacity, QpState, QpType, RemoteTarget, SendFlags, SendOpcode,
    SendRequest, Sge, WcStatus,
};
use pumice_transport::wire::{Packet, icrc};

use super::host::FakeHost;
use super::literal::Literal;
use super::sink::Sink;
use super::{CONTEXT, LOCAL, LOCAL_ADDRESS, PEER, PEER_ADDRESS, path_to_peer, pattern};

/// L_Key of the region that the peer may use; its R_Key is [`RKEY`].
pub(crate) const TARGET: u32 = 1;
pub(crate) const RKEY: u32 = 0x1001;
/// Address of the target region.
pub(crate) const TARGET_BASE: u64 = 0x10_0000;
/// L_Key of the region of local buffers, closed to the peer.
pub(crate) const BUFFER: u32 = 2;
/// Address of the local buffers; they hold [`pattern`].
pub(crate) const BUFFER_BASE: u64 = 0x20_0000;
/// Size of both regions.
pub(crate) const REGION_BYTES: usize = 1 << 16;
/// Q_Key of datagram queue pairs.
pub(crate) const QKEY: u32 = 0x1234_5678;
/// First PSN that the peer sends.
pub(crate) const RQ_PSN: u32 = 0x100;
/// First PSN sent.
pub(crate) const SQ_PSN: u32 = 0x500;

/// All rights a peer can have.
pub(crate) const ALL_REMOTE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// What the queue pair is made with and told by `modify`.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) qp_type: QpType,
    pub(crate) has_srq: bool,
    pub(crate) signal_all: bool,
    pub(crate) mtu: Mtu,
    pub(crate) access: Access,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) qkey: u32,
    pub(crate) window_limit_packets: u32,
    pub(crate) congestion: Congestion,
    pub(crate) adaptive_timeout: Option<AdaptiveTimeout>,
    pub(crate) state: QpState,
}

impl Setup {
    /// Sensible attributes: path MTU 256, a timer of 67 ms, three retries, four READs each way.
    pub(crate) fn new(qp_type: QpType) -> Setup {
        Setup {
            qp_type,
            has_srq: false,
            signal_all: false,
            mtu: Mtu::Mtu256,
            access: ALL_REMOTE,
            rq_psn: RQ_PSN,
            sq_psn: SQ_PSN,
            timeout: 14,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            qkey: QKEY,
            window_limit_packets: 64,
            congestion: Congestion::default(),
            adaptive_timeout: None,
            state: QpState::Rts,
        }
    }

    /// The queue pair, with target and buffer regions registered.
    pub(crate) fn build(self) -> Rung {
        let config = QpConfig {
            context: CONTEXT,
            qp_type: self.qp_type,
            capacity: CAPACITY,
            signal_all: self.signal_all,
            has_srq: self.has_srq,
            port_mtu_bytes: self.mtu.bytes(),
            congestion: self.congestion.clone(),
            adaptive_timeout: self.adaptive_timeout,
        };
        let mut rung = Rung {
            qp: QueuePair::new(config),
            host: FakeHost::default(),
            sink: Sink::sealing(),
            now_ns: 1_000_000_000,
            peer_progress: PeerProgress::Unknown,
            asked_about_peer: Vec::new(),
            setup: self,
        };
        rung.host.shared = rung.setup.has_srq;
        rung.host.region(TARGET, TARGET_BASE, REGION_BYTES, ALL_REMOTE);
        rung.host.region(BUFFER, BUFFER_BASE, REGION_BYTES, Access::LOCAL_WRITE).bytes =
            pattern(REGION_BYTES);
        rung.climb();
        rung
    }
}

/// Queue sizes of every rung.
pub(crate) const CAPACITY: QpCapacity =
    QpCapacity { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 4, max_recv_sge: 4, max_inline_data: 256 };

/// What the fake device allows.
pub(crate) const LIMITS: ModifyLimits = ModifyLimits {
    active_mtu: Mtu::Mtu4096,
    max_rd_atomic_initiator: 128,
    max_rd_atomic_target: 128,
    pkey_table_len: 1,
    gid_table_len: 4,
    port_count: 1,
    privileged_qkey: true,
};

/// A queue pair under test.
pub(crate) struct Rung {
    pub(crate) qp: QueuePair,
    pub(crate) host: FakeHost,
    pub(crate) sink: Sink,
    pub(crate) now_ns: u64,
    /// What is answered when the queue pair doubts its peer, and since when each question was.
    pub(crate) peer_progress: PeerProgress,
    pub(crate) asked_about_peer: Vec<u64>,
    pub(crate) setup: Setup,
}

impl Rung {
    /// An RC queue pair in RTS.
    pub(crate) fn rc() -> Rung {
        Setup::new(QpType::Rc).build()
    }

    /// Moves from RESET to the state of the setup.
    pub(crate) fn climb(&mut self) {
        let attributes = self.attributes();
        for next in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if next > self.setup.state {
                return;
            }
            let row = pumice_transport::qp::transition::transition(self.setup.qp_type, self.qp.state(), next)
                .expect("a way up");
            self.modify(next, row.required, &attributes).expect("a legal step");
        }
    }

    /// The attributes of the setup.
    pub(crate) fn attributes(&self) -> QpAttributes {
        let setup = &self.setup;
        QpAttributes {
            path_mtu: setup.mtu as u32,
            qkey: setup.qkey,
            rq_psn: setup.rq_psn,
            sq_psn: setup.sq_psn,
            dest_qp_num: PEER.value(),
            access: setup.access.bits(),
            address_vector: AddressVector {
                is_global: true,
                dgid: Gid::from(PEER_ADDRESS),
                hop_limit: 64,
                port_num: 1,
                ..AddressVector::default()
            },
            max_rd_atomic: setup.max_rd_atomic,
            max_dest_rd_atomic: setup.max_dest_rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
            port_num: 1,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            ..QpAttributes::default()
        }
    }

    /// `modify_qp` to a state with these attributes.
    pub(crate) fn modify(
        &mut self,
        next: QpState,
        mask: AttributeMask,
        attributes: &QpAttributes,
    ) -> Result<(), ModifyError> {
        let attributes = QpAttributes { qp_state: next as u32, ..attributes.clone() };
        let resolved = ResolvedPath {
            path: Arc::new(path_to_peer()),
            window_limit_packets: self.setup.window_limit_packets,
            read_limit_packets: self.setup.window_limit_packets,
        };
        self.qp.modify(&attributes, mask | AttributeMask::STATE, &LIMITS, Some(resolved), &mut self.host)
    }

    /// `modify_qp` to a state that needs nothing else.
    pub(crate) fn enter(&mut self, next: QpState) -> Result<(), ModifyError> {
        let attributes = self.attributes();
        self.modify(next, AttributeMask::empty(), &attributes)
    }

    /// A packet from the peer.
    pub(crate) fn receive(&mut self, literal: &Literal) {
        self.receive_marked(literal, 0);
    }

    /// A packet from the peer with a traffic class.
    pub(crate) fn receive_marked(&mut self, literal: &Literal, traffic_class: u8) {
        let mut bytes = literal.bytes(LOCAL);
        icrc::seal(&flow_from_peer(), 0, &mut bytes);
        assert_eq!(icrc::verify(&flow_from_peer(), 0, &bytes), icrc::IcrcVerdict::Exact);
        assert!(self.receive_bytes(&bytes, &flow_from_peer(), traffic_class), "no packet: {literal:?}");
    }

    /// Packets from the peer, in order.
    pub(crate) fn receive_all(&mut self, literals: &[Literal]) {
        literals.iter().for_each(|literal| self.receive(literal));
    }

    /// Bytes from the network; false if they are no packet.
    pub(crate) fn receive_bytes(&mut self, bytes: &[u8], flow: &Flow, traffic_class: u8) -> bool {
        let Ok(packet) = Packet::parse(bytes) else { return false };
        let arrival = Arrival { flow, traffic_class, hop_limit: 64 };
        self.qp.handle_packet(self.now_ns, &arrival, &packet, &mut self.host);
        true
    }

    /// What the responder sends now.
    pub(crate) fn responses(&mut self) -> Vec<Literal> {
        while self.qp.transmit_responses(self.now_ns, &mut self.host, &mut self.sink) == Progress::Blocked {
            if self.sink.room == Some(0) {
                break;
            }
        }
        self.sink.take()
    }

    /// A packet from the peer, and what is answered.
    pub(crate) fn answers(&mut self, literal: &Literal) -> Vec<Literal> {
        self.receive(literal);
        self.responses()
    }

    /// A packet from the peer, and the one packet that is answered.
    pub(crate) fn answer(&mut self, literal: &Literal) -> Literal {
        match <[Literal; 1]>::try_from(self.answers(literal)) {
            Ok([answer]) => answer,
            Err(packets) => panic!("expected one answer to {literal:?}, got {packets:#?}"),
        }
    }

    /// What the requester sends now.
    pub(crate) fn requests(&mut self) -> Vec<Literal> {
        self.qp.transmit_requests(self.now_ns, &mut self.host, &mut self.sink);
        self.sink.take()
    }

    /// Posts a request that must be accepted.
    pub(crate) fn post(&mut self, request: &SendRequest<'_>) {
        self.try_post(request).expect("an acceptable request");
    }

    pub(crate) fn try_post(&mut self, request: &SendRequest<'_>) -> Result<(), PostError> {
        self.qp.post_send(request, &mut self.host)
    }

    /// Posts an operation over the first `length` bytes of the local buffers and the target region.
    pub(crate) fn post_op(&mut self, wr_id: u64, opcode: SendOpcode, length: u32) {
        let sges = [Sge { address: BUFFER_BASE, length, lkey: BUFFER }];
        self.post(&request(wr_id, opcode, &sges));
    }

    /// Posts a SEND of the first `length` bytes of the local buffers.
    pub(crate) fn post_send(&mut self, wr_id: u64, length: u32) {
        self.post_op(wr_id, SendOpcode::Send, length);
    }

    /// Posts a READ of the first `length` bytes of the peer's region.
    pub(crate) fn post_read(&mut self, wr_id: u64, length: u32) {
        self.post_op(wr_id, SendOpcode::RdmaRead, length);
    }

    /// Posts a receive into the local buffers.
    pub(crate) fn post_recv(&mut self, wr_id: u64, length: u32) {
        self.host.post_recv(wr_id, BUFFER_BASE, length, BUFFER);
    }

    /// Lets time pass, without looking at timers in between.
    pub(crate) fn wait(&mut self, ns: u64) {
        self.now_ns += ns;
        let asked = self.qp.peer_silent_since_ns(self.now_ns);
        let peer = asked.map_or(PeerProgress::Unknown, |since_ns| {
            self.asked_about_peer.push(since_ns);
            self.peer_progress
        });
        self.qp.handle_timeout(self.now_ns, peer, &mut self.host);
    }

    /// Lets time pass up to the next deadline; how long that was in ns.
    pub(crate) fn wait_for_deadline(&mut self) -> Option<u64> {
        let deadline_ns = self.qp.deadline_ns()?;
        let waited_ns = deadline_ns.saturating_sub(self.now_ns);
        self.wait(waited_ns);
        Some(waited_ns)
    }

    pub(crate) fn state(&self) -> QpState {
        self.qp.state()
    }

    /// Bytes of the region that the peer may use.
    pub(crate) fn target(&mut self) -> &mut [u8] {
        &mut self.host.memory.region(TARGET).bytes
    }

    /// Bytes of the local buffers.
    pub(crate) fn buffer(&mut self) -> &mut [u8] {
        &mut self.host.memory.region(BUFFER).bytes
    }

    /// The queue pair died, and said so to the peer with this syndrome at this PSN.
    #[track_caller]
    pub(crate) fn assert_refused(&mut self, literal: &Literal, syndrome: u8) {
        let before = self.qp.query().rq_psn;
        let answer = self.answer(literal);
        assert_eq!(answer.aeth.map(|(syndrome, _)| syndrome), Some(syndrome), "{answer:?}");
        assert_eq!(answer.psn, literal.psn, "{answer:?}");
        assert_eq!(self.qp.query().rq_psn, before, "a refused request moved the expected PSN");
        assert_eq!(self.state(), QpState::Err);
    }
}

/// A signaled request over the target region of the peer.
pub(crate) fn request(wr_id: u64, opcode: SendOpcode, sges: &[Sge]) -> SendRequest<'_> {
    SendRequest {
        sges,
        remote: RemoteTarget { address: TARGET_BASE, rkey: RKEY },
        ..SendRequest::new(wr_id, opcode)
    }
}

/// The same without a completion.
pub(crate) fn unsignaled(request: SendRequest<'_>) -> SendRequest<'_> {
    SendRequest { flags: request.flags - SendFlags::SIGNALED, ..request }
}

/// How packets of the peer arrive.
pub(crate) fn flow_from_peer() -> Flow {
    Flow { source: PEER_ADDRESS, destination: LOCAL_ADDRESS, ..path_to_peer().flow }
}

/// `(wr_id, SUCCESS)` for each.
pub(crate) fn successes(wr_ids: &[u64]) -> Vec<(u64, WcStatus)> {
    wr_ids.iter().map(|wr_id| (*wr_id, WcStatus::Success)).collect()
}
