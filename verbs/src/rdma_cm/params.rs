//! The parameters of a connection.

use pumice_transport::cm::QpParameters;
use pumice_transport::mad::TransportType;

use crate::setters::setters;
use crate::transport::options::{PathOptions, RcConnectOptions, UcConnectOptions};
use crate::transport::{Connected, Rc, Receiver, Uc};

/// The parameters that each side can choose: the names are those of `rdma_conn_param`. READs and atomics
/// concern RC only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionParams {
    /// Number of READs and atomics that this side serves at once, 0…128; fewer if the peer wants fewer.
    pub responder_resources: u8,
    /// Number of READs and atomics that this side has outstanding, 0…128; fewer if the peer serves fewer.
    pub initiator_depth: u8,
    /// Number of retries after timeouts and lost packets, 0…7, of both sides: the connecting side sets it.
    pub retry_count: u8,
    /// Number of retries of the peer while no receive is posted here, 0…6; 7 means unlimited.
    pub rnr_retry_count: u8,
    /// Time that peers wait when no receive is posted here: a code of the RNR timer table, 0…31. 12 is 0.64
    /// ms.
    pub min_rnr_timer: u8,
    /// Time within which messages of the connection manager are answered: 4.096 µs · 2^t. 20 is four seconds.
    /// The connecting side sets it for both.
    pub response_timeout: u8,
    /// Number of times that such a message is repeated before the peer counts as unreachable, 0…15.
    pub max_cm_retries: u8,
    /// TOS byte / IPv6 traffic class. The connecting side sets it for both.
    pub traffic_class: u8,
}

impl Default for ConnectionParams {
    /// Returns the defaults: 16 READs and atomics each way, 7 retries, unlimited RNR retries after 0.64 ms,
    /// messages of the connection manager repeated 15 times after 4 s, as in Linux.
    fn default() -> ConnectionParams {
        ConnectionParams {
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: 12,
            response_timeout: 20,
            max_cm_retries: 15,
            traffic_class: 0,
        }
    }
}

setters!(ConnectionParams {
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: u8,
    rnr_retry_count: u8,
    min_rnr_timer: u8,
    response_timeout: u8,
    max_cm_retries: u8,
    traffic_class: u8,
});

/// A transport service that is connected by address: RC or UC.
pub trait Connectable: Connected<Peer = Self> + Receiver {
    /// Its name in a request.
    #[doc(hidden)]
    const TRANSPORT: TransportType;

    /// Returns the agreed parameters, as options of the queue pair.
    #[doc(hidden)]
    fn options(agreed: &QpParameters, own: &ConnectionParams) -> Self::Options;
}

impl Connectable for Rc {
    const TRANSPORT: TransportType = TransportType::Rc;

    fn options(agreed: &QpParameters, own: &ConnectionParams) -> RcConnectOptions {
        RcConnectOptions {
            path: path(agreed),
            timeout: agreed.timeout,
            retry_count: agreed.retry_count,
            rnr_retry: agreed.rnr_retry_count,
            min_rnr_timer: own.min_rnr_timer,
            max_rd_atomic: agreed.max_rd_atomic.min(own.initiator_depth),
            max_dest_rd_atomic: agreed.max_dest_rd_atomic.min(own.responder_resources),
        }
    }
}

impl Connectable for Uc {
    const TRANSPORT: TransportType = TransportType::Uc;

    fn options(agreed: &QpParameters, _: &ConnectionParams) -> UcConnectOptions {
        UcConnectOptions { path: path(agreed) }
    }
}

fn path(agreed: &QpParameters) -> PathOptions {
    PathOptions {
        mtu: Some(agreed.path_mtu),
        traffic_class: agreed.traffic_class,
        hop_limit: agreed.hop_limit,
        flow_label: agreed.flow_label,
        service_level: agreed.sl,
    }
}
