//! What the consumer says when it calls.

use crate::mad::{Ece, RejectReason, ServiceId, SidrStatus, TransportType};
use crate::types::{Gid, Mtu};
use crate::wire::{Psn, Qpn};

/// How MADs travel between this process and a peer, seen from here. Replies go back the way the
/// message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MadRoute {
    /// Our address: the source of what is sent, the destination of what was received.
    pub local: Gid,
    /// The peer's address.
    pub remote: Gid,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label (20 bits).
    pub flow_label: u32,
}

/// A resolved path, for MADs and for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmPath {
    /// Addresses and marks. A hop limit of 0 or 1 says that the peer is on the same link.
    pub route: MadRoute,
    /// Service level (4 bits).
    pub sl: u8,
    /// Partition key: 0xffff.
    pub pkey: u16,
    /// Path MTU.
    pub mtu: Mtu,
    /// A rate of the verbs enumeration; 0 for that of the port, as rdma_rxe says.
    pub packet_rate: u8,
    /// Packet life time as a time code; Linux: 16.
    pub packet_life_time: u8,
}

impl CmPath {
    /// What Linux says of a path over rdma_rxe.
    pub const fn new(route: MadRoute, mtu: Mtu) -> CmPath {
        CmPath { route, sl: 0, pkey: 0xffff, mtu, packet_rate: 0, packet_life_time: 16 }
    }
}

/// A request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectParams<'a> {
    /// What is asked for.
    pub service_id: ServiceId,
    /// Which way.
    pub path: CmPath,
    /// RC, UC or XRC.
    pub transport: TransportType,
    /// Our queue pair, in INIT.
    pub local_qpn: Qpn,
    /// Where the peer's PSNs begin: random.
    pub starting_psn: Psn,
    /// READs and atomics that our queue pair serves at once.
    pub responder_resources: u8,
    /// READs and atomics that we want to have outstanding.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Transport retries of both sides, 0 to 7.
    pub retry_count: u8,
    /// RNR retries of the peer, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// Our queue pair has a shared receive queue.
    pub srq: bool,
    /// Within what time the peer has to answer: a time code. Linux: 20, four seconds.
    pub remote_response_timeout: u8,
    /// Within what time we answer.
    pub local_response_timeout: u8,
    /// How often a message without answer is repeated, 0 to 15. Linux: 15.
    pub max_cm_retries: u8,
    /// Options of vendors.
    pub ece: Ece,
    /// Up to 92 bytes; RDMA-CM's begin with [`IpHeader`](crate::mad::IpHeader).
    pub private_data: &'a [u8],
}

impl<'a> ConnectParams<'a> {
    /// A reliable connection with the times and retries that Linux uses.
    pub const fn new(service_id: ServiceId, path: CmPath, local_qpn: Qpn, starting_psn: Psn) -> Self {
        ConnectParams {
            service_id,
            path,
            transport: TransportType::Rc,
            local_qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            remote_response_timeout: 20,
            local_response_timeout: 20,
            max_cm_retries: 15,
            ece: Ece { vendor_id: 0, options: 0 },
            private_data: &[],
        }
    }
}

/// The consent of the passive side. Its queue pair must be in RTS: data may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptParams<'a> {
    /// Our queue pair.
    pub local_qpn: Qpn,
    /// Where the peer's PSNs begin: random, and what our queue pair expects.
    pub starting_psn: Psn,
    /// READs and atomics that our queue pair serves at once; no more than the peer wants.
    pub responder_resources: u8,
    /// READs and atomics that we will have outstanding; no more than the peer serves.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retries of the peer, 0 to 7.
    pub rnr_retry_count: u8,
    /// Our queue pair has a shared receive queue.
    pub srq: bool,
    /// Options of vendors.
    pub ece: Ece,
    /// Up to 196 bytes.
    pub private_data: &'a [u8],
}

impl AcceptParams<'_> {
    /// Consent with one READ at a time, and RNR retries for ever.
    pub const fn new(local_qpn: Qpn, starting_psn: Psn) -> Self {
        AcceptParams {
            local_qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            ece: Ece { vendor_id: 0, options: 0 },
            private_data: &[],
        }
    }
}

/// A rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectParams<'a> {
    /// Why.
    pub reason: RejectReason,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Up to 148 bytes.
    pub private_data: &'a [u8],
}

impl<'a> RejectParams<'a> {
    /// The consumer does not want to.
    pub const fn consumer(private_data: &'a [u8]) -> Self {
        RejectParams { reason: RejectReason::CONSUMER, info: &[], private_data }
    }
}

/// A question for a datagram queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolveParams<'a> {
    /// What is asked for.
    pub service_id: ServiceId,
    /// Which way.
    pub route: MadRoute,
    /// Partition key: 0xffff.
    pub pkey: u16,
    /// After what time the question is repeated: a time code. Linux: 20, four seconds.
    pub response_timeout: u8,
    /// How often, 0 to 15. Linux: 15.
    pub max_cm_retries: u8,
    /// Up to 216 bytes; RDMA-CM's begin with [`IpHeader`](crate::mad::IpHeader).
    pub private_data: &'a [u8],
}

impl<'a> ResolveParams<'a> {
    /// With the times and retries that Linux uses.
    pub const fn new(service_id: ServiceId, route: MadRoute, private_data: &'a [u8]) -> Self {
        ResolveParams {
            service_id,
            route,
            pkey: 0xffff,
            response_timeout: 20,
            max_cm_retries: 15,
            private_data,
        }
    }
}

/// The answer to such a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrReply<'a> {
    /// [`SidrStatus::SUCCESS`], or why not.
    pub status: SidrStatus,
    /// The queue pair; 0 if there is none.
    pub qpn: Qpn,
    /// Its Q_Key.
    pub q_key: u32,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Up to 136 bytes.
    pub private_data: &'a [u8],
}

impl<'a> SidrReply<'a> {
    /// "This queue pair."
    pub const fn queue_pair(qpn: Qpn, q_key: u32, private_data: &'a [u8]) -> Self {
        SidrReply { status: SidrStatus::SUCCESS, qpn, q_key, info: &[], private_data }
    }

    /// "No, because."
    pub const fn refused(status: SidrStatus, private_data: &'a [u8]) -> Self {
        SidrReply { status, qpn: Qpn::new(0), q_key: 0, info: &[], private_data }
    }
}

/// What both sides agreed on, as a queue pair needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpParameters {
    /// Kind of connection.
    pub transport: TransportType,
    /// Source address.
    pub local: Gid,
    /// Destination address.
    pub remote: Gid,
    /// IPv6 flow label; also chooses the UDP source port.
    pub flow_label: u32,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// First PSN to expect: the own starting PSN. `None` on the passive side before `accept`, which
    /// is told it.
    pub rq_psn: Option<Psn>,
    /// First PSN to send: the peer's starting PSN.
    pub sq_psn: Psn,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics to have outstanding there.
    pub max_rd_atomic: u8,
    /// ACK timeout (time code).
    pub timeout: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry_count: u8,
}
