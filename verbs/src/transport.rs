//! Transport services as types: what a queue pair can do is known to the compiler.

use std::fmt::Debug;

use pumice_transport::types::QpType;

use crate::connect::{ConnectOptions, RcConnectOptions, UcConnectOptions, XrcTargetConnectOptions};

mod sealed {
    pub trait Sealed {}
}

/// A transport service.
pub trait Transport: sealed::Sealed + Debug + Copy + Send + Sync + 'static {
    /// Its number and name.
    const TYPE: QpType;
}

/// A service that names its peer in the queue pair.
pub trait Connected: Transport {
    /// What the peer's queue pair is.
    type Peer: Transport;
    /// What can be chosen when connecting.
    type Options: ConnectOptions;
}

/// A connected service with a send queue: SEND and RDMA WRITE.
pub trait Requester: Connected {}

/// A requester whose operations have answers: RDMA READ and atomics.
pub trait Reliable: Requester {}

/// A service with a receive queue, its own or a shared one.
pub trait Receiver: Transport {}

/// Reliable connection: everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rc;
/// Unreliable connection: SEND and RDMA WRITE; what is lost is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uc;
/// Unreliable datagram: messages of at most the path MTU, to anyone.
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

macro_rules! service {
    ($($marker:ident),*) => {$(
        impl sealed::Sealed for $marker {}
        impl Transport for $marker {
            const TYPE: QpType = QpType::$marker;
        }
    )*};
}

service!(Rc, Uc, Ud, XrcDuplex, XrcInitiator, XrcTarget);

impl Connected for Rc {
    type Peer = Rc;
    type Options = RcConnectOptions;
}
impl Connected for Uc {
    type Peer = Uc;
    type Options = UcConnectOptions;
}
impl Connected for XrcDuplex {
    type Peer = XrcDuplex;
    type Options = RcConnectOptions;
}
impl Connected for XrcInitiator {
    type Peer = XrcTarget;
    type Options = RcConnectOptions;
}
impl Connected for XrcTarget {
    type Peer = XrcInitiator;
    type Options = XrcTargetConnectOptions;
}

impl Requester for Rc {}
impl Requester for Uc {}
impl Requester for XrcDuplex {}
impl Requester for XrcInitiator {}
impl Reliable for Rc {}
impl Reliable for XrcDuplex {}
impl Reliable for XrcInitiator {}

/// A requester whose requests name the shared receive queue that they are for.
pub trait XrcRequester: Requester {}

impl XrcRequester for XrcDuplex {}
impl XrcRequester for XrcInitiator {}
impl Receiver for Rc {}
impl Receiver for Uc {}
impl Receiver for Ud {}
