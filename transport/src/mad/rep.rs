//! REP, RTU and MRA: the answers to a request for a connection.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, Ece, PrivateData};
use crate::wire::{Psn, Qpn};

/// A reply: the passive side accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rep {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver, from the REQ.
    pub remote_id: CommId,
    /// Q_Key of the sender (datagrams only).
    pub local_q_key: u32,
    /// Queue pair number of the sender.
    pub local_qpn: Qpn,
    /// Enhanced connection establishment: options of vendors.
    pub ece: Ece,
    /// EE context of the sender (24 bits); Linux puts the queue pair of an XRC target here.
    //= linux:cm.c#cm_format_rep
    //| The number of an XRC target stands in the place of the EE context.
    pub local_eecn: u32,
    /// First PSN of the receiver's packets.
    pub starting_psn: Psn,
    /// READs and atomics that the sender serves at once.
    pub responder_resources: u8,
    /// READs and atomics that the sender will have outstanding.
    pub initiator_depth: u8,
    /// Time that the sender's adapter takes to acknowledge (5 bits: 4.096 µs · 2^t).
    pub target_ack_delay: u8,
    /// Outcome for the alternate path (2 bits).
    pub failover_accepted: u8,
    /// True if the sender's queue pair does end-to-end flow control.
    pub flow_control: bool,
    /// RNR retries that the receiver is to use (3 bits).
    pub rnr_retry_count: u8,
    /// True if the sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// Node GUID of the sender.
    pub local_ca_guid: u64,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Rep::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const LOCAL_Q_KEY: MadField = MadField::bytes(8, 4);
const LOCAL_QPN: MadField = MadField::bytes(12, 3);
const VENDOR_ID_LOW: MadField = MadField::bytes(15, 1);
const LOCAL_EECN: MadField = MadField::bytes(16, 3);
const VENDOR_ID_MIDDLE: MadField = MadField::bytes(19, 1);
const STARTING_PSN: MadField = MadField::bytes(20, 3);
const VENDOR_ID_HIGH: MadField = MadField::bytes(23, 1);
const RESPONDER_RESOURCES: MadField = MadField::bytes(24, 1);
const INITIATOR_DEPTH: MadField = MadField::bytes(25, 1);
const TARGET_ACK_DELAY: MadField = MadField::bits(26, 0, 5);
const FAILOVER_ACCEPTED: MadField = MadField::bits(26, 5, 2);
const FLOW_CONTROL: MadField = MadField::bits(26, 7, 1);
const RNR_RETRY_COUNT: MadField = MadField::bits(27, 0, 3);
const SRQ: MadField = MadField::bits(27, 3, 1);
const LOCAL_CA_GUID: MadField = MadField::bytes(28, 8);
const PRIVATE_DATA: MadBytes<{ Rep::PRIVATE_DATA_BYTES }> = MadBytes::at(36);

impl Rep {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 196;

    pub(super) fn read(body: &CmBody, modifier: u32) -> Rep {
        let vendor_id =
            VENDOR_ID_HIGH.u32(body) << 16 | VENDOR_ID_MIDDLE.u32(body) << 8 | VENDOR_ID_LOW.u32(body);
        Rep {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            local_q_key: LOCAL_Q_KEY.u32(body),
            local_qpn: Qpn::new(LOCAL_QPN.u32(body)),
            ece: Ece { vendor_id, options: modifier },
            local_eecn: LOCAL_EECN.u32(body),
            starting_psn: Psn::new(STARTING_PSN.u32(body)),
            responder_resources: RESPONDER_RESOURCES.u8(body),
            initiator_depth: INITIATOR_DEPTH.u8(body),
            target_ack_delay: TARGET_ACK_DELAY.u8(body),
            failover_accepted: FAILOVER_ACCEPTED.u8(body),
            flow_control: FLOW_CONTROL.flag(body),
            rnr_retry_count: RNR_RETRY_COUNT.u8(body),
            srq: SRQ.flag(body),
            local_ca_guid: LOCAL_CA_GUID.read(body),
            private_data: PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        LOCAL_Q_KEY.write(body, self.local_q_key.into());
        LOCAL_QPN.write(body, self.local_qpn.value().into());
        VENDOR_ID_LOW.write(body, self.ece.vendor_id.into());
        VENDOR_ID_MIDDLE.write(body, (self.ece.vendor_id >> 8).into());
        VENDOR_ID_HIGH.write(body, (self.ece.vendor_id >> 16).into());
        LOCAL_EECN.write(body, self.local_eecn.into());
        STARTING_PSN.write(body, self.starting_psn.value().into());
        RESPONDER_RESOURCES.write(body, self.responder_resources.into());
        INITIATOR_DEPTH.write(body, self.initiator_depth.into());
        TARGET_ACK_DELAY.write(body, self.target_ack_delay.into());
        FAILOVER_ACCEPTED.write(body, self.failover_accepted.into());
        FLOW_CONTROL.write(body, self.flow_control.into());
        RNR_RETRY_COUNT.write(body, self.rnr_retry_count.into());
        SRQ.write(body, self.srq.into());
        LOCAL_CA_GUID.write(body, self.local_ca_guid);
        PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

/// A message of the active side that it is ready to use the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rtu {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Rtu::PRIVATE_DATA_BYTES }>,
}

const RTU_LOCAL_ID: MadField = MadField::bytes(0, 4);
const RTU_REMOTE_ID: MadField = MadField::bytes(4, 4);
const RTU_PRIVATE_DATA: MadBytes<{ Rtu::PRIVATE_DATA_BYTES }> = MadBytes::at(8);

impl Rtu {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 224;

    pub(super) fn read(body: &CmBody) -> Rtu {
        Rtu {
            local_id: CommId(RTU_LOCAL_ID.u32(body)),
            remote_id: CommId(RTU_REMOTE_ID.u32(body)),
            private_data: RTU_PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        RTU_LOCAL_ID.write(body, self.local_id.0.into());
        RTU_REMOTE_ID.write(body, self.remote_id.0.into());
        RTU_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

/// Message that an MRA acknowledges (two bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum MraOf {
    /// The request (REQ).
    #[default]
    Req = 0,
    /// The reply (REP).
    Rep = 1,
    /// The alternate path (LAP).
    Lap = 2,
    /// Reserved value.
    Reserved = 3,
}

/// A message receipt acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mra {
    /// Communication id of the sender.
    pub local_id: CommId,
    /// Communication id of the receiver.
    pub remote_id: CommId,
    /// Message that is acknowledged.
    pub of: MraOf,
    /// Time that the answer may take from now (5 bits: 4.096 µs · 2^t).
    pub service_timeout: u8,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Mra::PRIVATE_DATA_BYTES }>,
}

const MRA_LOCAL_ID: MadField = MadField::bytes(0, 4);
const MRA_REMOTE_ID: MadField = MadField::bytes(4, 4);
const OF: MadField = MadField::bits(8, 0, 2);
const SERVICE_TIMEOUT: MadField = MadField::bits(9, 0, 5);
const MRA_PRIVATE_DATA: MadBytes<{ Mra::PRIVATE_DATA_BYTES }> = MadBytes::at(10);

impl Mra {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 222;

    pub(super) fn read(body: &CmBody) -> Mra {
        Mra {
            local_id: CommId(MRA_LOCAL_ID.u32(body)),
            remote_id: CommId(MRA_REMOTE_ID.u32(body)),
            of: match OF.u8(body) {
                0 => MraOf::Req,
                1 => MraOf::Rep,
                2 => MraOf::Lap,
                _ => MraOf::Reserved,
            },
            service_timeout: SERVICE_TIMEOUT.u8(body),
            private_data: MRA_PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        MRA_LOCAL_ID.write(body, self.local_id.0.into());
        MRA_REMOTE_ID.write(body, self.remote_id.0.into());
        OF.write(body, self.of as u64);
        SERVICE_TIMEOUT.write(body, self.service_timeout.into());
        MRA_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}
