//! SIDR_REQ and SIDR_REP: the question which queue pair serves datagrams for a service, and its answer.

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, PrivateData, ServiceId, SidrStatus};
use crate::wire::Qpn;

/// A question for a datagram queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrReq {
    /// Id of the question, which the sender chooses as it chooses communication ids.
    pub request_id: CommId,
    /// Partition key.
    pub pkey: u16,
    /// Service that the question is for.
    pub service_id: ServiceId,
    /// Private data of the consumer; RDMA-CM uses the first 36 bytes.
    pub private_data: PrivateData<{ SidrReq::PRIVATE_DATA_BYTES }>,
}

/// The answer to a [`SidrReq`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrRep {
    /// Id of the question.
    pub request_id: CommId,
    /// Status: says whether the queue pair is valid.
    pub status: SidrStatus,
    /// Number of bytes of `info` that are valid.
    pub info_length: u8,
    /// Number of the queue pair.
    pub qpn: Qpn,
    /// Service that the question was for.
    pub service_id: ServiceId,
    /// Q_Key of the queue pair.
    pub q_key: u32,
    /// Additional information.
    pub info: PrivateData<{ SidrRep::INFO_BYTES }>,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ SidrRep::PRIVATE_DATA_BYTES }>,
}

const REQUEST_ID: MadField = MadField::bytes(0, 4);

const REQ_PKEY: MadField = MadField::bytes(4, 2);
const REQ_SERVICE_ID: MadField = MadField::bytes(8, 8);
const REQ_PRIVATE_DATA: MadBytes<{ SidrReq::PRIVATE_DATA_BYTES }> = MadBytes::at(16);

const REP_STATUS: MadField = MadField::bytes(4, 1);
const REP_INFO_LENGTH: MadField = MadField::bytes(5, 1);
const REP_QPN: MadField = MadField::bytes(8, 3);
const REP_SERVICE_ID: MadField = MadField::bytes(12, 8);
const REP_Q_KEY: MadField = MadField::bytes(20, 4);
const REP_INFO: MadBytes<{ SidrRep::INFO_BYTES }> = MadBytes::at(24);
const REP_PRIVATE_DATA: MadBytes<{ SidrRep::PRIVATE_DATA_BYTES }> = MadBytes::at(96);

impl SidrReq {
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 216;

    pub(super) fn read(body: &CmBody) -> SidrReq {
        SidrReq {
            request_id: CommId(REQUEST_ID.u32(body)),
            pkey: REQ_PKEY.u16(body),
            service_id: ServiceId(REQ_SERVICE_ID.read(body)),
            private_data: REQ_PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        REQUEST_ID.write(body, self.request_id.0.into());
        REQ_PKEY.write(body, self.pkey.into());
        REQ_SERVICE_ID.write(body, self.service_id.0);
        REQ_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

impl SidrRep {
    /// Bytes of additional information that the message has room for.
    pub const INFO_BYTES: usize = 72;
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 136;

    pub(super) fn read(body: &CmBody) -> SidrRep {
        SidrRep {
            request_id: CommId(REQUEST_ID.u32(body)),
            status: SidrStatus(REP_STATUS.u8(body)),
            info_length: REP_INFO_LENGTH.u8(body),
            qpn: Qpn::new(REP_QPN.u32(body)),
            service_id: ServiceId(REP_SERVICE_ID.read(body)),
            q_key: REP_Q_KEY.u32(body),
            info: REP_INFO.private_data(body),
            private_data: REP_PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        REQUEST_ID.write(body, self.request_id.0.into());
        REP_STATUS.write(body, self.status.0.into());
        REP_INFO_LENGTH.write(body, self.info_length.into());
        REP_QPN.write(body, self.qpn.value().into());
        REP_SERVICE_ID.write(body, self.service_id.0);
        REP_Q_KEY.write(body, self.q_key.into());
        REP_INFO.write(body, &self.info.0);
        REP_PRIVATE_DATA.write(body, &self.private_data.0);
    }
}
