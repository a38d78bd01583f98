//! Reasons of a refusal: those of REJ and the states of SIDR_REP, by number and by name.

use core::fmt;

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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn every_number_prints() {
        assert_eq!(RejectReason::INVALID_SERVICE_ID.to_string(), "invalid service id (8)");
        assert_eq!(RejectReason(34).to_string(), "reason 34");
        assert_eq!((0..=u16::MAX).filter(|&number| RejectReason(number).name().is_some()).count(), 34);
        assert_eq!(SidrStatus::REJECT.to_string(), "rejected by the consumer");
        assert_eq!(SidrStatus(9).to_string(), "status 9");
    }
}
