//! Errors of measurements.

use std::fmt;
use std::net::IpAddr;

use crate::plan::PlanError;

/// Result of functions that measure.
pub type Result<T, E = PerfError> = std::result::Result<T, E>;

/// Reason why a measurement failed: one sentence that names the wrong thing and, where there is one, the
/// remedy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PerfError {
    /// The plan cannot be measured.
    Plan(PlanError),
    /// The link carries no packets of the plan's path MTU.
    LinkMtu {
        /// Path MTU of the plan, in bytes.
        mtu_bytes: usize,
        /// Largest path MTU of the link, in bytes.
        most_bytes: usize,
    },
    /// Client and server would both have this address, and with it UDP port 4791.
    SameAddress(IpAddr),
    /// UDP port 4791 is taken at each loopback address.
    NoLoopbackAddress,
    /// The device, an object of it or a request failed, as the sentence says.
    Device(String),
    /// The connection to the other end failed, or its messages are not valid, as the sentence says.
    Control(String),
    /// The other end refused a request, with this sentence.
    Refused(String),
    /// Bytes are wrong, as the sentence says.
    Contents(String),
    /// Messages or answers did not arrive, as the sentence says.
    Lost(String),
    /// Plain UDP failed, as the sentence says.
    PlainUdp(String),
    /// Both ends failed.
    Both {
        /// Failure of this end.
        here: Box<PerfError>,
        /// Sentence of the server about its failure.
        server: String,
    },
}

impl fmt::Display for PerfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PerfError::Plan(error) => error.fmt(f),
            PerfError::LinkMtu { mtu_bytes, most_bytes } => write!(
                f,
                "the link carries a path MTU of {most_bytes} at most, not {mtu_bytes}: use {most_bytes}"
            ),
            PerfError::SameAddress(address) => write!(
                f,
                "client and server would both need UDP port 4791 of {address}: use the server's IPv4 \
                 address, or give the client's device another address"
            ),
            PerfError::NoLoopbackAddress => {
                f.write_str("no loopback address has UDP port 4791 free: give the client's device an address")
            }
            PerfError::Device(sentence)
            | PerfError::Control(sentence)
            | PerfError::Refused(sentence)
            | PerfError::Contents(sentence)
            | PerfError::Lost(sentence)
            | PerfError::PlainUdp(sentence) => f.write_str(sentence),
            PerfError::Both { here, server } => write!(f, "{here}; the server says: {server}"),
        }
    }
}

impl std::error::Error for PerfError {}

impl From<PlanError> for PerfError {
    fn from(error: PlanError) -> PerfError {
        PerfError::Plan(error)
    }
}

/// Converts an error of the device to one of a measurement; fits `map_err`.
pub(crate) fn of_device(error: impl fmt::Display) -> PerfError {
    PerfError::Device(error.to_string())
}
