//! Errors of calls and of requests, and rejections of connections.

use std::net::SocketAddr;
use std::time::Duration;
use std::{fmt, io};

use pumice_device::faults::calls::errno_text;
use pumice_device::gsi::ConnectionError;
use pumice_device::hca::HcaError;
use pumice_device::port::PortError;
use pumice_device::sharing::SharingError;
use pumice_transport::mad::RejectReason;
use pumice_transport::qp::{ModifyError, PostError};
use pumice_transport::types::{CompletionError, SendOpcode, WcStatus};

/// The reason why a connection was rejected.
#[derive(Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Reason code: [`RejectReason::CONSUMER`] if the program at the other side rejected it,
    /// [`RejectReason::INVALID_SERVICE_ID`] if no program listens there.
    pub reason: RejectReason,
    pub(crate) private_data: Vec<u8>,
}

impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rejection").field(&self.reason).finish()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason.name() {
            Some(name) => write!(f, "the peer rejects the connection: {name} (reason {})", self.reason.0),
            None => write!(f, "the peer rejects the connection with reason {}", self.reason.0),
        }
    }
}

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, VerbsError>;

/// The reason why a call failed. Displays as one sentence with the remedy; [`VerbsError::object`],
/// [`VerbsError::attribute`] and [`VerbsError::remedy`] give its parts, [`VerbsError::errno`] what C verbs
/// would return.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerbsError {
    /// The device refused; nothing changed.
    Refused {
        /// Kind of object that the call was about.
        object: &'static str,
        /// Error of the device.
        error: HcaError,
    },
    /// The port to the network could not be opened.
    Port(PortError),
    /// The port to the network could not be shared with other processes.
    Sharing(SharingError),
    /// The operating system refused.
    Os {
        /// Action that failed.
        task: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// An argument is wrong.
    Invalid {
        /// Kind of object that the call was about.
        object: &'static str,
        /// Name of the argument.
        attribute: &'static str,
        /// A clause that says what is wrong with it.
        problem: String,
        /// Remedy.
        remedy: &'static str,
    },
    /// A request contradicts itself; nothing was posted.
    Request(RequestError),
    /// The time was over before anything happened.
    TimedOut {
        /// Event that was waited for.
        awaited: &'static str,
        /// Length of the wait.
        after: Duration,
    },
    /// The simulation has no event left ([`crate::asynchronous`]).
    Stalled {
        /// Event that was waited for.
        awaited: &'static str,
    },
    /// The connection manager refused.
    Connection(ConnectionError),
    /// The peer's program refused the connection, or no program listens there.
    Rejected(Rejection),
    /// The peer does not answer.
    Unreachable {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// The connection has ended.
    Disconnected {
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// A rule of the fault plan makes the call fail ([`crate::DeviceOptions::faults`]).
    Planned {
        /// Name of the call in C.
        call: &'static str,
        /// The errno of the call in C; positive.
        errno: i32,
    },
    /// The device is lost (DEVICE_FATAL, which a fault plan can bring about).
    DeviceLost,
    /// A work request completed unsuccessfully (from [`crate::CompletionQueue::wait_success`] and
    /// [`WorkCompletion::into_result`](crate::WorkCompletion::into_result)).
    Completed(CompletionError),
}

/// A send request that contradicts itself, noticed before the device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The local buffers are longer than the remote slice.
    RemoteTooShort {
        /// Sum of the local buffers in bytes.
        local_bytes: u64,
        /// Length of the remote slice in bytes.
        remote_bytes: u64,
    },
    /// Immediate data with an operation that carries none.
    NoImmediate {
        /// Operation of the request.
        opcode: SendOpcode,
    },
}

/// A list of requests that was posted in part.
#[derive(Debug)]
pub struct ListError {
    /// Position of the first request that was refused; those before it are posted.
    pub position: usize,
    /// Reason for the refusal.
    pub error: VerbsError,
}

impl VerbsError {
    pub(crate) fn refused(object: &'static str) -> impl FnOnce(HcaError) -> VerbsError {
        move |error| VerbsError::Refused { object, error }
    }

    pub(crate) fn connection(error: ConnectionError) -> VerbsError {
        VerbsError::Connection(error)
    }

    pub(crate) fn foreign(object: &'static str, attribute: &'static str) -> VerbsError {
        let problem = "is of another device than the protection domain".to_owned();
        VerbsError::Invalid { object, attribute, problem, remedy: "make all of them with the same device" }
    }

    /// Returns the kind of object that the failed call was about: "queue pair", "memory region", …
    pub fn object(&self) -> &'static str {
        match self {
            VerbsError::Refused { object, .. } | VerbsError::Invalid { object, .. } => object,
            VerbsError::Port(_) | VerbsError::Sharing(_) => "port",
            VerbsError::Os { .. } => "device",
            VerbsError::Request(_) => "send request",
            VerbsError::TimedOut { awaited, .. } | VerbsError::Stalled { awaited } => awaited,
            VerbsError::Connection(ConnectionError::Directory { .. }) => "listener",
            VerbsError::Connection(_)
            | VerbsError::Rejected(_)
            | VerbsError::Unreachable { .. }
            | VerbsError::Disconnected { .. } => "connection",
            VerbsError::Planned { call, .. } => call,
            VerbsError::DeviceLost => "device",
            VerbsError::Completed(_) => "work request",
        }
    }

    /// Returns the wrong attribute or argument, by its verbs name where it has one ("path_mtu"); several are
    /// joined by commas. `None` if the call as a whole is impossible.
    pub fn attribute(&self) -> Option<String> {
        match self {
            VerbsError::Refused { error: HcaError::Modify { error, .. }, .. } => modify_attribute(error),
            VerbsError::Refused { error: HcaError::Post { error, .. }, .. } => {
                Some(post_attribute(error).to_owned())
            }
            VerbsError::Invalid { attribute, .. } => Some((*attribute).to_owned()),
            VerbsError::Request(RequestError::RemoteTooShort { .. }) => Some("remote".to_owned()),
            VerbsError::Request(RequestError::NoImmediate { .. }) => Some("imm_data".to_owned()),
            _ => None,
        }
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            VerbsError::Refused { error, .. } => refused_remedy(error),
            VerbsError::Port(_) | VerbsError::Sharing(_) => {
                "choose another local address, or stop who holds the port"
            }
            VerbsError::Os { .. } => "raise the process's limits (see `ulimit -a`)",
            VerbsError::Invalid { remedy, .. } => remedy,
            VerbsError::Request(RequestError::RemoteTooShort { .. }) => {
                "shorten the local slices, or take a longer remote slice"
            }
            VerbsError::Request(RequestError::NoImmediate { .. }) => "use imm with SEND and RDMA_WRITE only",
            VerbsError::TimedOut { .. } | VerbsError::Stalled { .. } => {
                "check that the peer is connected and posts, that requests are signaled, and the device's \
                counters"
            }
            VerbsError::Connection(error) => match error.errno() {
                EADDRINUSE => "listen at another port, or at 0 for any",
                ENOMEM => "drop connections that are over",
                _ => "look at the events of the connection: it may be over",
            },
            VerbsError::Rejected(rejection) if rejection.reason == RejectReason::INVALID_SERVICE_ID => {
                "check the port, and that a program listens at it"
            }
            VerbsError::Rejected(_) => "ask the peer's program; its private data may say why",
            VerbsError::Unreachable { .. } => "check the peer's address, and the way there (UDP 4791)",
            VerbsError::Disconnected { .. } => "connect anew, with a queue pair that was reset",
            VerbsError::Planned { .. } => "do what the program does when this call fails",
            VerbsError::DeviceLost => "drop all that was made with the device, and open it again",
            VerbsError::Completed(CompletionError(completion)) => status_remedy(completion.status),
        }
    }

    /// Returns the errno that C verbs would give; positive.
    pub fn errno(&self) -> i32 {
        match self {
            VerbsError::Refused { error, .. } => error.errno(),
            VerbsError::Port(PortError::Socket { source, .. }) | VerbsError::Os { source, .. } => {
                source.raw_os_error().unwrap_or(EIO)
            }
            VerbsError::Sharing(error) => error.errno(),
            VerbsError::Port(PortError::Taken { .. }) => EADDRINUSE,
            VerbsError::Port(PortError::NotLocal { .. }) => EADDRNOTAVAIL,
            VerbsError::Port(PortError::NotPermitted { .. }) => EACCES,
            VerbsError::Port(PortError::NoFamily { .. }) => EAFNOSUPPORT,
            VerbsError::Invalid { .. } | VerbsError::Request(_) => EINVAL,
            VerbsError::TimedOut { .. } | VerbsError::Stalled { .. } => ETIMEDOUT,
            VerbsError::Connection(error) => error.errno(),
            VerbsError::Rejected(_) => ECONNREFUSED,
            VerbsError::Unreachable { .. } => ETIMEDOUT,
            VerbsError::Disconnected { .. } => ECONNRESET,
            VerbsError::Planned { errno, .. } => *errno,
            VerbsError::DeviceLost | VerbsError::Completed(_) => EIO,
        }
    }
}

// Values of Linux, the same on all architectures that this crate runs on.
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EAFNOSUPPORT: i32 = 97;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerbsError::Refused { error: error @ HcaError::Resource(_), object } => {
                write!(f, "{object}: {error}")?;
            }
            VerbsError::Refused { error, .. } => write!(f, "{error}")?,
            // The message of these errors includes the remedy.
            VerbsError::Port(error) => return error.fmt(f),
            VerbsError::Sharing(error) => return error.fmt(f),
            VerbsError::Os { task, source } => write!(f, "cannot {task}: {source}")?,
            VerbsError::Invalid { object, attribute, problem, .. } => {
                write!(f, "{object}: {attribute} {problem}")?;
            }
            VerbsError::Request(error) => write!(f, "send request: {error}")?,
            VerbsError::Stalled { awaited } => {
                write!(f, "no {awaited} will come: nothing is left to happen in the simulation")?;
            }
            VerbsError::TimedOut { awaited, after } => write!(f, "no {awaited} within {after:?}")?,
            VerbsError::Connection(error) => error.fmt(f)?,
            VerbsError::Rejected(rejection) => rejection.fmt(f)?,
            VerbsError::Unreachable { peer } => write!(f, "{peer} does not answer")?,
            VerbsError::Disconnected { peer } => write!(f, "the connection to {peer} is over")?,
            VerbsError::Planned { call, errno } => {
                write!(f, "{call} fails with {} by a rule of the fault plan", errno_text(*errno))?;
            }
            VerbsError::DeviceLost => write!(f, "the device is lost")?,
            VerbsError::Completed(error) => error.fmt(f)?,
        }
        write!(f, "; {}", self.remedy())
    }
}

impl std::error::Error for VerbsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            VerbsError::Refused { error, .. } => Some(error),
            VerbsError::Port(error) => Some(error),
            VerbsError::Connection(error) => Some(error),
            VerbsError::Os { source, .. } => Some(source),
            VerbsError::Completed(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            RequestError::RemoteTooShort { local_bytes, remote_bytes } => {
                write!(f, "{local_bytes} local bytes do not fit the remote slice of {remote_bytes}")
            }
            RequestError::NoImmediate { opcode } => {
                write!(f, "{} carries no imm_data", opcode.name())
            }
        }
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} of the list: {}", self.position, self.error)
    }
}

impl std::error::Error for ListError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CompletionError> for VerbsError {
    fn from(error: CompletionError) -> VerbsError {
        VerbsError::Completed(error)
    }
}

impl From<VerbsError> for ListError {
    /// Converts an error of the whole list, which is refused at its first request.
    fn from(error: VerbsError) -> ListError {
        ListError { position: 0, error }
    }
}

impl From<ListError> for VerbsError {
    fn from(error: ListError) -> VerbsError {
        error.error
    }
}

fn modify_attribute(error: &ModifyError) -> Option<String> {
    match error {
        ModifyError::UnknownState { .. } | ModifyError::NoTransition { .. } => Some("qp_state".to_owned()),
        ModifyError::WrongCurrentState { .. } => Some("cur_qp_state".to_owned()),
        ModifyError::NotSupported { attributes, .. }
        | ModifyError::Missing { attributes, .. }
        | ModifyError::NotAllowed { attributes, .. } => Some(attributes.to_string()),
        ModifyError::OutOfRange { attribute, .. } | ModifyError::NoSuchEntry { attribute, .. } => {
            Some((*attribute).to_owned())
        }
        ModifyError::PathMtuTooLarge { .. } => Some("path_mtu".to_owned()),
        ModifyError::NotGlobal { attribute, .. }
        | ModifyError::BadDestination { attribute, .. }
        | ModifyError::PortMismatch { attribute, .. } => Some((*attribute).to_owned()),
        ModifyError::PrivilegedQkey { .. } => Some("qkey".to_owned()),
        _ => None,
    }
}

fn post_attribute(error: &PostError) -> &'static str {
    match error {
        PostError::WrongState { .. } | PostError::ReceiveInReset => "qp_state",
        PostError::WrongOpcode { .. } => "opcode",
        PostError::InlineNotAllowed { .. } => "inline",
        PostError::TooManySges { .. } => "max_send_sge",
        PostError::InlineTooLong { .. } => "max_inline_data",
        PostError::MessageTooLong { .. } | PostError::NotEightBytes { .. } => "sges",
        PostError::Misaligned { .. } => "remote",
        PostError::ForeignAddressHandle => "ud",
        PostError::Incomplete { missing } => missing,
        PostError::FlagsOfSrd => "flags",
        PostError::BuffersOfSrd => "sges",
        PostError::QueueFull { .. } => "max_send_wr",
        PostError::NoMemory => "memory",
    }
}

fn refused_remedy(error: &HcaError) -> &'static str {
    match error {
        HcaError::Resource(_) | HcaError::Entry { .. } | HcaError::Mrc { .. } => "correct what it names",
        HcaError::UnknownQueuePair { .. } => "make another one",
        HcaError::Inherited => "open a device in the child",
        HcaError::Modify { error, .. } => match error {
            ModifyError::UnknownState { .. }
            | ModifyError::NoTransition { .. }
            | ModifyError::WrongCurrentState { .. } => {
                "go through the states in order (RESET, INIT, RTR, RTS), or reset the queue pair"
            }
            ModifyError::NotSupported { .. } | ModifyError::NotAllowed { .. } => "leave it out",
            ModifyError::Missing { .. } => "set it and its bit in the mask",
            ModifyError::PathMtuTooLarge { .. } => "use the smaller active MTU of the two ports",
            ModifyError::BadDestination { .. } => "give the peer's unicast address",
            ModifyError::NoSuchEntry { .. } => "choose an index inside the table",
            _ => "choose a legal value",
        },
        HcaError::Post { error, .. } => match error {
            PostError::WrongState { .. } | PostError::ReceiveInReset => {
                "connect (or activate) the queue pair first"
            }
            PostError::WrongOpcode { .. } => "use a queue pair of a transport that has it (RC has all)",
            PostError::InlineNotAllowed { .. } => "give registered memory",
            PostError::TooManySges { .. } => "ask for more when building the queue pair (send_sges)",
            PostError::InlineTooLong { .. } => "ask for more when building the queue pair (inline_bytes)",
            PostError::MessageTooLong { .. } => "split the message",
            PostError::NotEightBytes { .. } => "give one slice of 8 bytes",
            PostError::Misaligned { .. } => "give an address that is a multiple of 8",
            PostError::ForeignAddressHandle => {
                "make the address handle in the queue pair's protection domain"
            }
            PostError::Incomplete { .. } => "set it",
            PostError::FlagsOfSrd => "set SIGNALED, and no flag but INLINE",
            PostError::BuffersOfSrd => "give one slice",
            PostError::QueueFull { .. } => {
                "poll the send completion queue, or build with a larger send_depth"
            }
            PostError::NoMemory => "give the process more memory",
        },
    }
}

/// Returns the usual remedy for an unsuccessful completion.
fn status_remedy(status: WcStatus) -> &'static str {
    match status {
        WcStatus::LocLenErr => "post receives as long as the longest message (UD: 40 bytes more)",
        WcStatus::LocProtErr | WcStatus::LocAccessErr => {
            "check that the memory region of each slice still exists, is of the queue pair's protection \
            domain and has LOCAL_WRITE where data lands"
        }
        WcStatus::WrFlushErr => {
            "look at the first unsuccessful completion: it says why the queue pair failed"
        }
        WcStatus::RemAccessErr => {
            "check rkey, range and rights of the remote slice, and that its owner still has it registered"
        }
        WcStatus::RemInvReqErr => {
            "check that the peer's queue pair grants the operation and that its receives are long enough"
        }
        WcStatus::RemOpErr => "look at the peer's own completions: its receive failed",
        WcStatus::RetryExcErr => {
            "check the peer's address, that its queue pair is connected to this one, and the way there (UDP \
            4791, MTU)"
        }
        WcStatus::RnrRetryExcErr => "post receives at the peer before sending, or raise rnr_retry",
        WcStatus::RemInvRdReqErr => "check the remote SRQ number",
        WcStatus::MwBindErr => "check the region's MW_BIND right, the window's state and the range",
        _ => "look at the device's counters and explanations",
    }
}
