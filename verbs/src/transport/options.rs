//! The options for connecting a queue pair.

use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::Mtu;

use super::service::{Transport, XrcInitiator};
use crate::setters::setters;

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
