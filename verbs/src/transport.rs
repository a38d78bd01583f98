//! Transport services as types, by which the compiler knows what a queue pair can do.

use std::fmt::Debug;

use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Mtu, QpType};

use crate::setters::setters;

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

/// The marking of a connection's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Path MTU; `None` takes the largest that both ends have.
    pub mtu: Option<Mtu>,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL / hop limit; 0 is 64.
    pub hop_limit: u8,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Service level, 0…7.
    pub service_level: u8,
}

/// Options of RC connections, and of XRC initiators (which ignore those of responders).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RcConnectOptions {
    /// Path MTU and marking.
    pub path: PathOptions,
    /// ACK timeout: 4.096 µs · 2^timeout, 1…31; 0 waits for ever. 14 is 67 ms.
    pub timeout: u8,
    /// Number of retries after timeouts and lost packets, 0…7.
    pub retry_count: u8,
    /// Number of retries while the peer has no receive posted, 0…6; 7 means unlimited.
    pub rnr_retry: u8,
    /// Time that peers wait when no receive is posted here: a code of the RNR timer table, 0…31. 12 is 0.64
    /// ms.
    pub min_rnr_timer: u8,
    /// Number of READs and atomics that this side may have outstanding, 0…128.
    pub max_rd_atomic: u8,
    /// Number of READs and atomics that the peer may have outstanding here, 0…128; at least its
    /// `max_rd_atomic`.
    pub max_dest_rd_atomic: u8,
}

impl Default for RcConnectOptions {
    /// Returns the defaults: 67 ms, 7 retries, unlimited RNR retries after 0.64 ms, 16 READs and atomics each
    /// way.
    fn default() -> RcConnectOptions {
        RcConnectOptions {
            path: PathOptions::default(),
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
        }
    }
}

/// Options of UC connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UcConnectOptions {
    /// Path MTU and marking.
    pub path: PathOptions,
}

/// Options of XRC targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XrcTargetConnectOptions {
    /// Path MTU and marking.
    pub path: PathOptions,
    /// See [`RcConnectOptions::timeout`]; a target sends no requests.
    pub timeout: u8,
    /// See [`RcConnectOptions::min_rnr_timer`].
    pub min_rnr_timer: u8,
    /// See [`RcConnectOptions::max_dest_rd_atomic`].
    pub max_dest_rd_atomic: u8,
}

impl Default for XrcTargetConnectOptions {
    /// Returns the same defaults as for RC.
    fn default() -> XrcTargetConnectOptions {
        let RcConnectOptions { path, timeout, min_rnr_timer, max_dest_rd_atomic, .. } =
            RcConnectOptions::default();
        XrcTargetConnectOptions { path, timeout, min_rnr_timer, max_dest_rd_atomic }
    }
}

setters!(PathOptions {
    mtu: Option<Mtu>,
    traffic_class: u8,
    hop_limit: u8,
    flow_label: u32,
    service_level: u8,
});

setters!(RcConnectOptions {
    path: PathOptions,
    timeout: u8,
    retry_count: u8,
    rnr_retry: u8,
    min_rnr_timer: u8,
    max_rd_atomic: u8,
    max_dest_rd_atomic: u8,
});

setters!(UcConnectOptions { path: PathOptions });

setters!(XrcTargetConnectOptions {
    path: PathOptions,
    timeout: u8,
    min_rnr_timer: u8,
    max_dest_rd_atomic: u8,
});

/// Options of connecting as attributes of a queue pair.
pub trait ConnectOptions: Default {
    /// Returns path MTU and marking.
    fn path(&self) -> &PathOptions;
    /// Sets the attributes that the transition to RTR needs besides the path and the peer, and returns their
    /// mask.
    fn ready_to_receive<T: Transport>(&self, attributes: &mut QpAttributes) -> AttributeMask;
    /// Sets the attributes that the transition to RTS needs besides the PSN, and returns their mask.
    fn ready_to_send(&self, attributes: &mut QpAttributes) -> AttributeMask;
}

impl ConnectOptions for RcConnectOptions {
    fn path(&self) -> &PathOptions {
        &self.path
    }

    fn ready_to_receive<T: Transport>(&self, attributes: &mut QpAttributes) -> AttributeMask {
        if T::TYPE == XrcInitiator::TYPE {
            return AttributeMask::empty();
        }
        attributes.max_dest_rd_atomic = self.max_dest_rd_atomic;
        attributes.min_rnr_timer = self.min_rnr_timer;
        AttributeMask::MAX_DEST_RD_ATOMIC | AttributeMask::MIN_RNR_TIMER
    }

    fn ready_to_send(&self, attributes: &mut QpAttributes) -> AttributeMask {
        attributes.timeout = self.timeout;
        attributes.retry_cnt = self.retry_count;
        attributes.rnr_retry = self.rnr_retry;
        attributes.max_rd_atomic = self.max_rd_atomic;
        AttributeMask::TIMEOUT
            | AttributeMask::RETRY_CNT
            | AttributeMask::RNR_RETRY
            | AttributeMask::MAX_QP_RD_ATOMIC
    }
}

impl ConnectOptions for UcConnectOptions {
    fn path(&self) -> &PathOptions {
        &self.path
    }

    fn ready_to_receive<T: Transport>(&self, _: &mut QpAttributes) -> AttributeMask {
        AttributeMask::empty()
    }

    fn ready_to_send(&self, _: &mut QpAttributes) -> AttributeMask {
        AttributeMask::empty()
    }
}

impl ConnectOptions for XrcTargetConnectOptions {
    fn path(&self) -> &PathOptions {
        &self.path
    }

    fn ready_to_receive<T: Transport>(&self, attributes: &mut QpAttributes) -> AttributeMask {
        attributes.max_dest_rd_atomic = self.max_dest_rd_atomic;
        attributes.min_rnr_timer = self.min_rnr_timer;
        AttributeMask::MAX_DEST_RD_ATOMIC | AttributeMask::MIN_RNR_TIMER
    }

    fn ready_to_send(&self, attributes: &mut QpAttributes) -> AttributeMask {
        attributes.timeout = self.timeout;
        AttributeMask::TIMEOUT
    }
}
