//! Transport services as types.

use std::fmt::Debug;

use pumice_transport::types::QpType;

mod sealed {
    pub trait Sealed {}
}

/// A transport service.
pub trait Transport: sealed::Sealed + Debug + Copy + Send + Sync + 'static {
    /// Number and name of the service.
    const TYPE: QpType;
}

/// Reliable connection, which has all operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rc;
/// Unreliable connection: SEND and RDMA WRITE; lost packets are not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uc;
/// Unreliable datagram: messages of at most the path MTU, to any peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ud;
/// XRC initiator: sends to shared receive queues of the peer's process, named by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcInitiator;
/// XRC as OFED 1.x had it: initiator and target in one, for the shared receive queues of its XRC domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcDuplex;
/// XRC target: receives for all shared receive queues of its XRC domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcTarget;

/// Reliable datagrams without order (SRD of EFA): SEND, RDMA WRITE and READ, to any peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Srd;
/// Initiator of DC (of mlx5): all operations, in order, to any target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dci;
/// Target of DC, which executes requests of initiators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dct;

macro_rules! service {
    ($($marker:ident),*) => {$(
        impl sealed::Sealed for $marker {}
        impl Transport for $marker {
            const TYPE: QpType = QpType::$marker;
        }
    )*};
}

service!(Rc, Uc, Ud, XrcDuplex, XrcInitiator, XrcTarget, Srd, Dci, Dct);
