//! SIDR_REQ and SIDR_REP, and service ids, which name the service that a request is for.
//!
//! Service ids, which name the service that a request is for. RDMA-CM makes them of a port space and a port.

use core::fmt;

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, PrivateData, SidrStatus};
use crate::wire::Qpn;

/// A service id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceId(pub u64);

/// The port spaces of RDMA-CM; discriminants are those of its API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum PortSpace {
    /// IP over InfiniBand (datagrams).
    IpoIb = 0x0002,
    /// Connections (`RDMA_PS_TCP`).
    Tcp = 0x0106,
    /// Datagrams (`RDMA_PS_UDP`).
    Udp = 0x0111,
    /// InfiniBand's own port space.
    Ib = 0x013f,
}

impl PortSpace {
    /// All port spaces.
    pub const ALL: [PortSpace; 4] = [PortSpace::IpoIb, PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib];

    /// Returns the port space with this number.
    pub fn from_number(number: u16) -> Option<PortSpace> {
        PortSpace::ALL.into_iter().find(|space| *space as u16 == number)
    }
}

impl ServiceId {
    /// Mask of the bits of a service id that name the port space of RDMA-CM.
    pub const PORT_SPACE_MASK: u64 = !0xffff;

    /// Returns the service id of a port.
    pub const fn rdma_cm(space: PortSpace, port: u16) -> ServiceId {
        //= linux:cma.c#rdma_get_service_id
        //| The service ID of RDMA-CM is the port space followed by the port.
        ServiceId((space as u64) << 16 | port as u64)
    }

    /// Returns port space and port, if this is a service id of RDMA-CM.
    pub fn to_rdma_cm(self) -> Option<(PortSpace, u16)> {
        let space = u16::try_from(self.0 >> 16).ok().and_then(PortSpace::from_number)?;
        Some((space, self.0 as u16))
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_rdma_cm() {
            Some((space, port)) => write!(f, "{space:?} port {port}"),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn golden_numbers() {
        assert_eq!(ServiceId::rdma_cm(PortSpace::Tcp, 0x1234).0, 0x0106_1234);
        assert_eq!(ServiceId::rdma_cm(PortSpace::Udp, 0x1234).0, 0x0111_1234);
        assert_eq!(ServiceId(0x013f_0007).to_rdma_cm(), Some((PortSpace::Ib, 7)));
        assert_eq!(ServiceId(0x0002_0007).to_rdma_cm(), Some((PortSpace::IpoIb, 7)));
        assert_eq!(ServiceId(0x0107_0007).to_rdma_cm(), None);
        assert_eq!(ServiceId(0x1_0000_0106_0007).to_rdma_cm(), None);
    }

    #[test]
    fn they_print_as_people_know_them() {
        assert_eq!(ServiceId(0x0106_1c06).to_string(), "Tcp port 7174");
        assert_eq!(ServiceId(7).to_string(), "0x0000000000000007");
    }
}
