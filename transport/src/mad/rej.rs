//! REJ, the reasons of a refusal, and answers to queries that are not served.

use core::fmt;

use super::field::{CmBody, MadBytes, MadField};
use super::{CommId, MAD_BYTES, Mad, MadHeader, PrivateData, class, method};

/// The reason in a REJ. Any number can arrive; the numbers that have names print them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RejectReason(pub u16);

/// Defines number, constant and text of every reason: one list makes the constants and the names.
macro_rules! reasons {
    ($($number:literal $name:ident $text:literal,)*) => {
        impl RejectReason {
            $(#[doc = concat!("REJ reason ", $number, ": ", $text, ".")]
            pub const $name: RejectReason = RejectReason($number);)*

            /// Returns the meaning of the number; `None` if it has no meaning.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    1 NO_QP "no queue pair",
    2 NO_EEC "no EE context",
    3 NO_RESOURCES "no resources",
    4 TIMEOUT "timeout",
    5 UNSUPPORTED "unsupported request",
    6 INVALID_COMM_ID "invalid communication id",
    7 INVALID_COMM_INSTANCE "invalid communication instance",
    8 INVALID_SERVICE_ID "invalid service id",
    9 INVALID_TRANSPORT_TYPE "invalid transport type",
    10 STALE_CONNECTION "stale connection",
    11 RDC_NOT_EXIST "RDC does not exist",
    12 INVALID_GID "invalid GID",
    13 INVALID_LID "invalid LID",
    14 INVALID_SL "invalid service level",
    15 INVALID_TRAFFIC_CLASS "invalid traffic class",
    16 INVALID_HOP_LIMIT "invalid hop limit",
    17 INVALID_PACKET_RATE "invalid packet rate",
    18 INVALID_ALTERNATE_GID "invalid alternate GID",
    19 INVALID_ALTERNATE_LID "invalid alternate LID",
    20 INVALID_ALTERNATE_SL "invalid alternate service level",
    21 INVALID_ALTERNATE_TRAFFIC_CLASS "invalid alternate traffic class",
    22 INVALID_ALTERNATE_HOP_LIMIT "invalid alternate hop limit",
    23 INVALID_ALTERNATE_PACKET_RATE "invalid alternate packet rate",
    24 PORT_CM_REDIRECT "port and CM redirection",
    25 PORT_REDIRECT "port redirection",
    26 INVALID_MTU "invalid path MTU",
    27 INSUFFICIENT_RESPONDER_RESOURCES "insufficient responder resources",
    28 CONSUMER "rejected by the consumer",
    29 INVALID_RNR_RETRY "invalid RNR retry count",
    30 DUPLICATE_LOCAL_COMM_ID "duplicate local communication id",
    31 INVALID_CLASS_VERSION "invalid class version",
    32 INVALID_FLOW_LABEL "invalid flow label",
    33 INVALID_ALTERNATE_FLOW_LABEL "invalid alternate flow label",
    35 VENDOR_OPTION "vendor option not supported",
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "reason {}", self.0),
        }
    }
}

/// Message that a REJ refuses (two bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Rejected {
    /// The request (REQ).
    Req = 0,
    /// The reply (REP).
    Rep = 1,
    /// Neither a request nor a reply, but the connection.
    #[default]
    Other = 2,
    /// Reserved value.
    Reserved = 3,
}

impl Rejected {
    /// Returns the value of the low two bits.
    pub(super) const fn from_bits(bits: u8) -> Rejected {
        match bits & 3 {
            0 => Rejected::Req,
            1 => Rejected::Rep,
            2 => Rejected::Other,
            _ => Rejected::Reserved,
        }
    }
}

/// The state in a SIDR_REP. Any number can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The queue pair number is valid.
    pub const SUCCESS: SidrStatus = SidrStatus(0);
    /// No process offers the service.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The consumer rejects the question.
    pub const REJECT: SidrStatus = SidrStatus(2);
    /// There is no queue pair.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// The question is redirected.
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    /// The version is not supported.
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("valid queue pair"),
            1 => f.write_str("service id not supported"),
            2 => f.write_str("rejected by the consumer"),
            3 => f.write_str("no queue pair"),
            4 => f.write_str("redirection"),
            5 => f.write_str("version not supported"),
            other => write!(f, "status {other}"),
        }
    }
}

/// A rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rej {
    /// Communication id of the sender; none if it refuses a request that it has given no id.
    pub local_id: CommId,
    /// Communication id of the receiver; none if the sender gives up a request that was never answered.
    pub remote_id: CommId,
    /// Message that is refused.
    pub rejected: Rejected,
    /// Number of bytes of `info` that are valid (7 bits; a message that arrives may claim more than there
    /// are).
    pub info_length: u8,
    /// Reason of the rejection.
    pub reason: RejectReason,
    /// Additional information, whose meaning depends on the reason. Linux gives its node GUID with
    /// [`RejectReason::TIMEOUT`].
    pub info: PrivateData<{ Rej::INFO_BYTES }>,
    /// Private data of the consumer.
    pub private_data: PrivateData<{ Rej::PRIVATE_DATA_BYTES }>,
}

const LOCAL_ID: MadField = MadField::bytes(0, 4);
const REMOTE_ID: MadField = MadField::bytes(4, 4);
const REJECTED: MadField = MadField::bits(8, 0, 2);
const INFO_LENGTH: MadField = MadField::bits(9, 0, 7);
const REASON: MadField = MadField::bytes(10, 2);
const INFO: MadBytes<{ Rej::INFO_BYTES }> = MadBytes::at(12);
const PRIVATE_DATA: MadBytes<{ Rej::PRIVATE_DATA_BYTES }> = MadBytes::at(84);

impl Rej {
    /// Bytes of additional information that the message has room for.
    pub const INFO_BYTES: usize = 72;
    /// Bytes of private data that the message has room for.
    pub const PRIVATE_DATA_BYTES: usize = 148;

    /// Returns the node GUID that comes with the reason [`RejectReason::TIMEOUT`].
    pub fn timeout_ca_guid(&self) -> Option<u64> {
        //= linux:cm.c#cm_acquire_rejected_id
        //| A REJ because of a timeout names the sender by its node GUID.
        let guid = self.info.first_chunk().filter(|_| self.reason == RejectReason::TIMEOUT)?;
        Some(u64::from_be_bytes(*guid))
    }

    pub(super) fn read(body: &CmBody) -> Rej {
        Rej {
            local_id: CommId(LOCAL_ID.u32(body)),
            remote_id: CommId(REMOTE_ID.u32(body)),
            rejected: Rejected::from_bits(REJECTED.u8(body)),
            info_length: INFO_LENGTH.u8(body),
            reason: RejectReason(REASON.u16(body)),
            info: INFO.private_data(body),
            private_data: PRIVATE_DATA.private_data(body),
        }
    }

    pub(super) fn write(&self, body: &mut CmBody) {
        LOCAL_ID.write(body, self.local_id.0.into());
        REMOTE_ID.write(body, self.remote_id.0.into());
        REJECTED.write(body, self.rejected as u64);
        INFO_LENGTH.write(body, self.info_length.into());
        REASON.write(body, self.reason.0.into());
        INFO.write(body, &self.info.0);
        PRIVATE_DATA.write(body, &self.private_data.0);
    }
}

/// The status "this method and attribute are not supported".
const UNSUPPORTED_METHOD_ATTRIBUTE: u16 = 0x000c;

/// Returns the answer to a query that no class serves, as the Linux MAD layer gives it for rdma_rxe: the
/// query itself as a GET_RESPONSE with the status "not supported". Only GET and SET are answered; subnet
/// management is never answered, because it belongs to queue pair 0.
pub fn refuse(mad: &Mad<'_>) -> Option<[u8; MAD_BYTES]> {
    let header = mad.header();
    let subnet_management = matches!(header.class, class::SUBNET_LID | class::SUBNET_DIRECTED);
    if subnet_management || !matches!(header.method, method::GET | method::SET) {
        return None;
    }
    let mut answer = *mad.bytes();
    let refused = MadHeader { method: method::GET_RESPONSE, status: UNSUPPORTED_METHOD_ATTRIBUTE, ..*header };
    refused.emit(&mut answer);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::mad::attribute;

    #[test]
    fn every_number_prints() {
        assert_eq!(RejectReason::INVALID_SERVICE_ID.to_string(), "invalid service id (8)");
        assert_eq!(RejectReason(34).to_string(), "reason 34");
        assert_eq!((0..=u16::MAX).filter(|&number| RejectReason(number).name().is_some()).count(), 34);
        assert_eq!(SidrStatus::REJECT.to_string(), "rejected by the consumer");
        assert_eq!(SidrStatus(9).to_string(), "status 9");
    }

    fn query(class: u8, method: u8) -> [u8; MAD_BYTES] {
        let mut bytes = [0x5a; MAD_BYTES];
        let header = MadHeader {
            class,
            method,
            class_version: 1,
            ..MadHeader::communication(attribute::CLASS_PORT_INFO, 7, 9)
        };
        header.emit(&mut bytes);
        bytes
    }

    #[test]
    fn queries_come_back_as_not_supported() {
        for class in [class::PERFORMANCE, class::SUBNET_ADMINISTRATION, class::COMMUNICATION] {
            for method in [method::GET, method::SET] {
                let query = query(class, method);
                let answer = refuse(&Mad::parse(&query).unwrap()).unwrap();
                assert_eq!(answer[..8], [1, class, 1, 0x81, 0, 0x0c, 0, 0]);
                assert_eq!(answer[8..], query[8..]);
            }
        }
    }

    #[test]
    fn other_methods_and_subnet_management_are_not_answered() {
        for (class, method) in [
            (class::PERFORMANCE, method::GET_RESPONSE),
            (class::PERFORMANCE, method::SEND),
            (class::SUBNET_LID, method::GET),
            (class::SUBNET_DIRECTED, method::SET),
        ] {
            assert!(refuse(&Mad::parse(&query(class, method)).unwrap()).is_none());
        }
    }
}
