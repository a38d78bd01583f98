//! Asynchronous events, and rules of MRC that a program or its peer breaks.

use core::fmt;

use super::SendOpcode;

/// Declares the asynchronous events, a row each: the number and the name of `IBV_EVENT_*`, and the variant.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// Asynchronous events (`IBV_EVENT_*`) that a software device can raise.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum AsyncEventType { $($(#[$doc])* $variant = $number),* }

        impl AsyncEventType {
            /// All events, in the order of their numbers.
            pub const ALL: &[AsyncEventType] = &[$(AsyncEventType::$variant),*];

            /// Returns the name of the event in verbs.
            pub const fn name(self) -> &'static str {
                match self { $(AsyncEventType::$variant => concat!("IBV_EVENT_", $name)),* }
            }
        }
    };
}

events! {
    /// A completion queue overran.
    CqErr = 0, "CQ_ERR";
    /// A completion could not be written.
    QpFatal = 1, "QP_FATAL";
    /// A request was invalid, and no receive request can be blamed.
    QpReqErr = 2, "QP_REQ_ERR";
    /// An access was not allowed, and no receive request can be blamed.
    QpAccessErr = 3, "QP_ACCESS_ERR";
    /// The first packet arrived in RTR.
    CommEst = 4, "COMM_EST";
    /// The send queue is drained after RTS → SQD.
    SqDrained = 5, "SQ_DRAINED";
    /// A connection now uses its alternate path.
    PathMig = 6, "PATH_MIG";
    /// The peer has moved to a path that is not this side's alternate one.
    PathMigErr = 7, "PATH_MIG_ERR";
    /// The device is lost.
    DeviceFatal = 8, "DEVICE_FATAL";
    /// The link went up.
    PortActive = 9, "PORT_ACTIVE";
    /// The link went down.
    PortErr = 10, "PORT_ERR";
    /// The LID changed.
    LidChange = 11, "LID_CHANGE";
    /// The P_Key table changed.
    PkeyChange = 12, "PKEY_CHANGE";
    /// A shared receive queue failed.
    SrqErr = 14, "SRQ_ERR";
    /// The number of requests in a shared receive queue fell below its limit.
    SrqLimitReached = 15, "SRQ_LIMIT_REACHED";
    /// The queue pair takes no more receive requests from its SRQ.
    QpLastWqeReached = 16, "QP_LAST_WQE_REACHED";
    /// The GID table changed.
    GidChange = 18, "GID_CHANGE";
}

/// A breach of a rule of MRC, which other services do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MrcBreach {
    /// The program posts an operation that MRC does not have.
    Operation {
        /// Operation of the request.
        opcode: SendOpcode,
    },
    /// A WRITE with immediate was due, and no receive request was posted.
    NoReceive,
    /// The peer has more WRITEs with immediate in flight than this side has granted.
    Immediates {
        /// Number that this side has granted: `max_wimm_dest`.
        granted: u16,
    },
    /// The peer sends beyond the window that this side has granted.
    BeyondWindow {
        /// Window in units of 128 PSNs: `mpr_dest`.
        granted: u8,
    },
    /// The peer refuses a packet that is within this side's window.
    WindowRefused {
        /// Window in units of 128 PSNs: `mpr`.
        used: u8,
    },
    /// One side changes its window while it receives (Dynamic MPR), and the other side does not.
    DynamicWindow {
        /// True if this side has the capability, and the peer has not.
        here: bool,
    },
    /// The program asks for a profile that is not ONLINE.
    NoProfile {
        /// Name of the profile's kind, as in "EV".
        kind: &'static str,
        /// Number of the profile.
        id: u64,
    },
}

/// The way in which the requester of an MRC queue pair found that a packet was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MrcLossProof {
    /// Enough packets that left later have arrived.
    Overtaken = 0,
    /// A probe that left later was answered.
    Probe = 1,
    /// No answer came before the acknowledgement timer expired.
    Timeout = 2,
    /// A NACK: a switch cut off its data.
    Trimmed = 3,
    /// A NACK: the switch of the last hop cut off its data.
    TrimmedAtLastHop = 4,
    /// A NACK for another reason: the peer had no room for it.
    Refused = 5,
}

impl MrcLossProof {
    /// Returns the proof with this number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<MrcLossProof> {
        use MrcLossProof::{Overtaken, Probe, Refused, Timeout, Trimmed, TrimmedAtLastHop};
        let all = [Overtaken, Probe, Timeout, Trimmed, TrimmedAtLastHop, Refused];
        all.into_iter().find(|proof| *proof as u8 == number)
    }
}

impl fmt::Display for MrcBreach {
    /// Writes what is said of the queue pair, after its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MrcBreach::Operation { opcode } => {
                let name = opcode.name();
                write!(f, "is of MRC, which has RDMA WRITE with and without immediate, and got a {name}")
            }
            MrcBreach::NoReceive => f.write_str(
                "had no receive for a WRITE with immediate: MRC does not wait for one, and the connection \
                 has ended",
            ),
            MrcBreach::Immediates { granted } => write!(
                f,
                "has granted {granted} WRITEs with immediate in flight (max_wimm_dest), and its peer has \
                 more in flight: the max_wimm of the peer is larger, and the connection has ended"
            ),
            MrcBreach::BeyondWindow { granted } => write!(
                f,
                "has granted a window of {granted} × 128 packets (mpr_dest), and its peer sends beyond that: \
                 the mpr of the peer is larger"
            ),
            MrcBreach::WindowRefused { used } => write!(
                f,
                "uses a window of {used} × 128 packets (mpr), and its peer refuses packets beyond its own: \
                 the mpr_dest of the peer is smaller"
            ),
            MrcBreach::DynamicWindow { here } => {
                let sides = ("this side", "the peer");
                let (with, without) = if *here { sides } else { (sides.1, sides.0) };
                write!(f, "has a peer with another cap: {with} has DYNAMIC_MPR, and {without} has not")
            }
            MrcBreach::NoProfile { kind, id } => {
                write!(f, "is given {kind} profile {id}, which is not ONLINE")
            }
        }
    }
}
