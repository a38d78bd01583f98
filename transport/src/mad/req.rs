//! REQ: the request for a connection.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, Ece, PrivateData, ServiceId};
use crate::types::{Gid, Mtu};
use crate::wire::{Psn, Qpn};

/// The transport that a REQ asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransportType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram, which no RoCE device has.
    Rd,
    /// Extended reliable connection.
    Xrc,
    /// An extended type (three bits, not 1) without a meaning.
    Unknown(u8),
}

impl TransportType {
    const fn from_bits(kind: u8, extended: u8) -> TransportType {
        match (kind, extended) {
            (0, _) => TransportType::Rc,
            (1, _) => TransportType::Uc,
            (2, _) => TransportType::Rd,
            //= linux:cm_msgs.h#cm_req_get_qp_type
            //| The transport type 3 with the extended type 1 stands for XRC.
            (_, 1) => TransportType::Xrc,
            (_, other) => TransportType::Unknown(other),
        }
    }

    const fn to_bits(self) -> (u8, u8) {
        match self {
            TransportType::Rc => (0, 0),
            TransportType::Uc => (1, 0),
            TransportType::Rd => (2, 0),
            TransportType::Xrc => (3, 1),
            TransportType::Unknown(extended) => (3, extended),
        }
    }
}

/// A path as a REQ describes it, seen from the sender of the REQ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathFields {
    /// LID of the sender: 0xffff on RoCE, 0 on one link.
    pub local_lid: u16,
    /// LID of the receiver, as `local_lid`. Linux takes an alternate path for present when its local LID is
    /// not 0.
    pub remote_lid: u16,
    /// GID of the sender.
    pub local_gid: Gid,
    /// GID of the receiver.
    pub remote_gid: Gid,
    /// IPv6 flow label (20 bits).
    pub flow_label: u32,
    /// Packet rate of the verbs enumeration (6 bits); 0 means the rate of the port.
    pub packet_rate: u8,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
    /// Service level (4 bits).
    pub sl: u8,
    /// True if both ends are on one link.
    pub subnet_local: bool,
    /// Transport timeout that the sender's queue pair uses (5 bits).
    pub local_ack_timeout: u8,
}

/// A request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Req {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Service that the request is for.
    pub service_id: ServiceId,
    /// Node GUID of the sender: together with an id or a queue pair number it identifies the sender's end.
    pub local_ca_guid: u64,
    /// Enhanced connection establishment: options of vendors.
    pub ece: Ece,
    /// Q_Key of the sender (datagrams only).
    pub local_q_key: u32,
    /// Queue pair number of the sender.
    pub local_qpn: Qpn,
    /// READs and atomics that the sender can serve at once.
    pub responder_resources: u8,
    /// EE context of the sender (24 bits); unused on RoCE.
    pub local_eecn: u32,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// EE context of the receiver (24 bits).
    pub remote_eecn: u32,
    /// Time within which the receiver has to answer (5 bits: 4.096 µs · 2^t).
    pub remote_response_timeout: u8,
    /// Transport of the connection.
    pub transport: TransportType,
    /// True if the sender's queue pair does end-to-end flow control.
    pub flow_control: bool,
    /// First PSN of the receiver's packets.
    pub starting_psn: Psn,
    /// Time within which the sender will answer (5 bits: 4.096 µs · 2^t).
    pub local_response_timeout: u8,
    /// Transport retries that the receiver is to use (3 bits).
    pub retry_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU by verbs number (4 bits); see [`Req::mtu`].
    pub path_mtu: u8,
    /// True if an RDC exists.
    pub rdc_exists: bool,
    /// RNR retries that the receiver is to use (3 bits).
    pub rnr_retry_count: u8,
    /// Number of repetitions of a message that is not answered (4 bits).
    pub max_cm_retries: u8,
    /// True if the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// Primary path of the connection.
    pub primary: PathFields,
    /// Alternate path; all zero on RoCE.
    pub alternate: PathFields,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Req::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const SERVICE_ID: MadField = MadField::bytes(8, 8);
const LOCAL_CA_GUID: MadField = MadField::bytes(16, 8);
const VENDOR_ID: MadField = MadField::bytes(24, 3);
const LOCAL_Q_KEY: MadField = MadField::bytes(28, 4);
const LOCAL_QPN: MadField = MadField::bytes(32, 3);
const RESPONDER_RESOURCES: MadField = MadField::bytes(35, 1);
const LOCAL_EECN: MadField = MadField::bytes(36, 3);
const INITIATOR_DEPTH: MadField = MadField::bytes(39, 1);
const REMOTE_EECN: MadField = MadField::bytes(40, 3);
const REMOTE_RESPONSE_TIMEOUT: MadField = MadField::bits(43, 0, 5);
const TRANSPORT_TYPE: MadField = MadField::bits(43, 5, 2);
const FLOW_CONTROL: MadField = MadField::bits(43, 7, 1);
const STARTING_PSN: MadField = MadField::bytes(44, 3);
const LOCAL_RESPONSE_TIMEOUT: MadField = MadField::bits(47, 0, 5);
const RETRY_COUNT: MadField = MadField::bits(47, 5, 3);
const PKEY: MadField = MadField::bytes(48, 2);
const PATH_MTU: MadField = MadField::bits(50, 0, 4);
const RDC_EXISTS: MadField = MadField::bits(50, 4, 1);
const RNR_RETRY_COUNT: MadField = MadField::bits(50, 5, 3);
const MAX_CM_RETRIES: MadField = MadField::bits(51, 0, 4);
const SRQ: MadField = MadField::bits(51, 4, 1);
const EXTENDED_TRANSPORT_TYPE: MadField = MadField::bits(51, 5, 3);
const PRIMARY: PathLayout = PathLayout::at(52);
const ALTERNATE: PathLayout = PathLayout::at(96);
const PRIVATE_DATA: MadBytes<{ Req::PRIVATE_DATA_BYTES }> = MadBytes::at(140);

impl Req {
    /// Bytes of private data that the message has room for; RDMA-CM uses the first 36.
    pub const PRIVATE_DATA_BYTES: usize = 92;

    /// Returns the path MTU, if its number has a meaning.
    pub const fn mtu(&self) -> Option<Mtu> {
        Mtu::from_verbs(self.path_mtu as u32)
    }

    pub(super) fn read(body: &CmBody, modifier: u32) -> Req {
        Req {
            local_id: CommId(LOCAL_ID.u32(body)),
            service_id: ServiceId(SERVICE_ID.read(body)),
            local_ca_guid: LOCAL_CA_GUID.read(body),
            ece: Ece { vendor_id: VENDOR_ID.u32(body), options: modifier },
            local_q_key: LOCAL_Q_KEY.u32(body),
            local_qpn: Qpn::new(LOCAL_QPN.u32(body)),
            responder_resources: RESPONDER_RESOURCES.u8(body),
            local_eecn: LOCAL_EECN.u32(body),
            initiator_depth: INITIATOR_DEPTH.u8(body),
            remote_eecn: REMOTE_EECN.u32(body),
            remote_response_timeout: REMOTE_RESPONSE_TIMEOUT.u8(body),
            transport: TransportType::from_bits(TRANSPORT_TYPE.u8(body), EXTENDED_TRANSPORT_TYPE.u8(body)),
            flow_control: FLOW_CONTROL.flag(body),
            starting_psn: Psn::new(STARTING_PSN.u32(body)),
            local_response_timeout: LOCAL_RESPONSE_TIMEOUT.u8(body),
            retry_count: RETRY_COUNT.u8(body),
            pkey: PKEY.u16(body),
            path_mtu: PATH_MTU.u8(body),
            rdc_exists: RDC_EXISTS.flag(body),
            rnr_retry_count: RNR_RETRY_COUNT.u8(body),
            max_cm_retries: MAX_CM_RETRIES.u8(body),
            srq: SRQ.flag(body),
            primary: PRIMARY.read(body),
            alternate: ALTERNATE.read(body),
            private_data: PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        SERVICE_ID.write(body, self.service_id.0);
        LOCAL_CA_GUID.write(body, self.local_ca_guid);
        VENDOR_ID.write(body, self.ece.vendor_id.into());
        LOCAL_Q_KEY.write(body, self.local_q_key.into());
        LOCAL_QPN.write(body, self.local_qpn.value().into());
        RESPONDER_RESOURCES.write(body, self.responder_resources.into());
        LOCAL_EECN.write(body, self.local_eecn.into());
        INITIATOR_DEPTH.write(body, self.initiator_depth.into());
        REMOTE_EECN.write(body, self.remote_eecn.into());
        REMOTE_RESPONSE_TIMEOUT.write(body, self.remote_response_timeout.into());
        let (kind, extended) = self.transport.to_bits();
        TRANSPORT_TYPE.write(body, kind.into());
        EXTENDED_TRANSPORT_TYPE.write(body, extended.into());
        FLOW_CONTROL.write(body, self.flow_control.into());
        STARTING_PSN.write(body, self.starting_psn.value().into());
        LOCAL_RESPONSE_TIMEOUT.write(body, self.local_response_timeout.into());
        RETRY_COUNT.write(body, self.retry_count.into());
        PKEY.write(body, self.pkey.into());
        PATH_MTU.write(body, self.path_mtu.into());
        RDC_EXISTS.write(body, self.rdc_exists.into());
        RNR_RETRY_COUNT.write(body, self.rnr_retry_count.into());
        MAX_CM_RETRIES.write(body, self.max_cm_retries.into());
        SRQ.write(body, self.srq.into());
        PRIMARY.write(body, &self.primary);
        ALTERNATE.write(body, &self.alternate);
        PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

/// Fields of a path in a message.
#[derive(Debug, Clone, Copy)]
struct PathLayout {
    local_lid: MadField,
    remote_lid: MadField,
    local_gid: MadBytes<16>,
    remote_gid: MadBytes<16>,
    flow_label: MadField,
    packet_rate: MadField,
    traffic_class: MadField,
    hop_limit: MadField,
    sl: MadField,
    subnet_local: MadField,
    local_ack_timeout: MadField,
}

impl PathLayout {
    const fn at(offset: usize) -> PathLayout {
        PathLayout {
            local_lid: MadField::bytes(offset, 2),
            remote_lid: MadField::bytes(offset + 2, 2),
            local_gid: MadBytes::at(offset + 4),
            remote_gid: MadBytes::at(offset + 20),
            flow_label: MadField::bits(offset + 36, 0, 20),
            packet_rate: MadField::bits(offset + 39, 2, 6),
            traffic_class: MadField::bytes(offset + 40, 1),
            hop_limit: MadField::bytes(offset + 41, 1),
            sl: MadField::bits(offset + 42, 0, 4),
            subnet_local: MadField::bits(offset + 42, 4, 1),
            local_ack_timeout: MadField::bits(offset + 43, 0, 5),
        }
    }

    fn read(&self, body: &CmBody) -> PathFields {
        PathFields {
            local_lid: self.local_lid.u16(body),
            remote_lid: self.remote_lid.u16(body),
            local_gid: Gid(self.local_gid.read(body)),
            remote_gid: Gid(self.remote_gid.read(body)),
            flow_label: self.flow_label.u32(body),
            packet_rate: self.packet_rate.u8(body),
            traffic_class: self.traffic_class.u8(body),
            hop_limit: self.hop_limit.u8(body),
            sl: self.sl.u8(body),
            subnet_local: self.subnet_local.flag(body),
            local_ack_timeout: self.local_ack_timeout.u8(body),
        }
    }

    fn write(&self, body: &mut CmBody, path: &PathFields) {
        self.local_lid.write(body, path.local_lid.into());
        self.remote_lid.write(body, path.remote_lid.into());
        self.local_gid.write(body, &path.local_gid.0);
        self.remote_gid.write(body, &path.remote_gid.0);
        self.flow_label.write(body, path.flow_label.into());
        self.packet_rate.write(body, path.packet_rate.into());
        self.traffic_class.write(body, path.traffic_class.into());
        self.hop_limit.write(body, path.hop_limit.into());
        self.sl.write(body, path.sl.into());
        self.subnet_local.write(body, path.subnet_local.into());
        self.local_ack_timeout.write(body, path.local_ack_timeout.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_types_and_their_bits_are_inverses() {
        use TransportType::{Rc, Rd, Uc, Unknown, Xrc};
        for transport in [Rc, Uc, Rd, Xrc, Unknown(0), Unknown(7)] {
            let (kind, extended) = transport.to_bits();
            assert_eq!(TransportType::from_bits(kind, extended), transport);
        }
    }
}
