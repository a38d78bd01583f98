//! SIDR_REQ and SIDR_REP: "which queue pair serves datagrams for this service?"

use super::field::{Bytes, CmBody, Field};
use super::{CommId, PrivateData, ServiceId, SidrStatus};
use crate::wire::Qpn;

/// A question for a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrReq {
    /// Chosen by the sender as a communication id.
    pub request_id: CommId,
    /// Partition key.
    pub pkey: u16,
    /// What is asked for.
    pub service_id: ServiceId,
    /// What the consumer says; RDMA-CM uses the first 36 bytes.
    pub private_data: PrivateData<{ SidrReq::PRIVATE_DATA_BYTES }>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrRep {
    /// Of the question.
    pub request_id: CommId,
    /// Whether the queue pair is valid.
    pub status: SidrStatus,
    /// Bytes of `info` that mean something.
    pub info_length: u8,
    /// The queue pair.
    pub qpn: Qpn,
    /// Of the question.
    pub service_id: ServiceId,
    /// Its Q_Key.
    pub q_key: u32,
    /// Additional information.
    pub info: PrivateData<{ SidrRep::INFO_BYTES }>,
    /// What the consumer says.
    pub private_data: PrivateData<{ SidrRep::PRIVATE_DATA_BYTES }>,
}

const REQUEST_ID: Field = Field::bytes(0, 4);

const REQ_PKEY: Field = Field::bytes(4, 2);
const REQ_SERVICE_ID: Field = Field::bytes(8, 8);
const REQ_PRIVATE_DATA: Bytes<{ SidrReq::PRIVATE_DATA_BYTES }> = Bytes::at(16);

const REP_STATUS: Field = Field::bytes(4, 1);
const REP_INFO_LENGTH: Field = Field::bytes(5, 1);
const REP_QPN: Field = Field::bytes(8, 3);
const REP_SERVICE_ID: Field = Field::bytes(12, 8);
const REP_Q_KEY: Field = Field::bytes(20, 4);
const REP_INFO: Bytes<{ SidrRep::INFO_BYTES }> = Bytes::at(24);
const REP_PRIVATE_DATA: Bytes<{ SidrRep::PRIVATE_DATA_BYTES }> = Bytes::at(96);

impl SidrReq {
    /// Room for private data.
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
    /// Room for additional information.
    pub const INFO_BYTES: usize = 72;
    /// Room for private data.
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
