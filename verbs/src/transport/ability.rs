//! The abilities of each service.

use super::options::{ConnectOptions, RcConnectOptions, UcConnectOptions, XrcTargetConnectOptions};
use super::service::{Rc, Srd, Transport, Uc, Ud, XrcDuplex, XrcInitiator, XrcTarget};

/// A service that names its peer in the queue pair.
pub trait Connected: Transport {
    /// Transport of the peer's queue pair.
    type Peer: Transport;
    /// Options of connecting.
    type Options: ConnectOptions;
}

/// A connected service with a send queue: SEND and RDMA WRITE.
pub trait Requester: Connected {}

/// A requester whose operations have answers: RDMA READ and atomics.
pub trait Reliable: Requester {}

/// A service with a receive queue, its own or a shared one.
pub trait Receiver: Transport {}

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

/// A requester whose requests name the destination's shared receive queue.
pub trait XrcRequester: Requester {}

impl XrcRequester for XrcDuplex {}
impl XrcRequester for XrcInitiator {}
impl Receiver for Rc {}
impl Receiver for Uc {}
impl Receiver for Ud {}
impl Receiver for Srd {}
