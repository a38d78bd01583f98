//! Queue pairs of services that name their peer in each request: SRD, and the two ends of DC.

use pumice_device::platform::error::ResourceError;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{
    AddressVector, AtomicOperation, DcDestination, DcStreams, Gid, QpState, SendOpcode, VendorService,
};
use pumice_transport::wire::Qpn;

use super::request::SendRequest;
use super::{MODIFY, QueuePair, QueuePairBuilder, UsedObjects};
use crate::buffers::{LocalSlice, RemoteSlice};
use crate::error::{Result, VerbsError};
use crate::objects::ProtectionDomain;
use crate::objects::address::{UdAddress, UdEndpoint};
use crate::objects::completion::CompletionQueue;
use crate::objects::receive::SharedReceiveQueue;
use crate::transport::{Dci, Dct, RcConnectOptions, Srd, Transport};

impl QueuePair<Srd> {
    /// Makes the queue pair send, and receive from others with this Q_Key. `rnr_retry` is the number of times
    /// that a message is repeated while the peer has no receive posted, 0…6; 7 means unlimited.
    ///
    /// # Errors
    /// `Refused`: it is active already ([`QueuePair::reset`] it).
    pub fn activate(&self, qkey: u32, rnr_retry: u8) -> Result<()> {
        self.call(MODIFY, || {
            if self.current_state()? == QpState::Reset {
                self.initialise()?;
            }
            let (qp_state, sq_psn) = (QpState::Rtr as u32, self.local().psn);
            let mut attributes =
                QpAttributes { qp_state, qkey, sq_psn, rnr_retry, ..QpAttributes::default() };
            self.change(&attributes, AttributeMask::STATE | AttributeMask::QKEY)?;
            attributes.qp_state = QpState::Rts as u32;
            self.change(&attributes, AttributeMask::STATE | AttributeMask::SQ_PSN | AttributeMask::RNR_RETRY)
        })
    }

    /// Returns the data that others need to send to this queue pair, once it is active. For RDMA they need an
    /// address handle of this side as well.
    ///
    /// # Errors
    /// The errors of [`QueuePair::state`].
    pub fn endpoint(&self) -> Result<UdEndpoint> {
        Ok(UdEndpoint { gid: self.local().gid, qpn: self.qpn(), qkey: self.query()?.qkey })
    }
}

impl<'a> SendRequest<'a, Srd> {
    /// Creates a SEND of the slices' bytes, at most 8928, which arrive once and in no order. It is signaled,
    /// as all requests of SRD are.
    pub fn srd_send(to: &UdAddress, local: &'a [LocalSlice]) -> Self {
        SendRequest::new(SendOpcode::Send, local).sent_to(to).signaled()
    }

    /// Creates an RDMA WRITE of one slice to the start of the remote one.
    pub fn srd_write(to: &UdAddress, local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        let request = SendRequest::new(SendOpcode::RdmaWrite, local);
        request.sent_to(to).remote(remote).signaled()
    }

    /// Creates an RDMA READ into one slice from the start of the remote one. It completes as
    /// `WcOpcode::Send`.
    pub fn srd_read(to: &UdAddress, local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        let request = SendRequest::new(SendOpcode::RdmaRead, local);
        request.sent_to(to).remote(remote).signaled()
    }
}

/// The data that initiators of DC need to send to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DcEndpoint {
    /// Address.
    pub gid: Gid,
    /// Number of the target.
    pub qpn: Qpn,
    /// Access key; requests with another one are refused.
    pub access_key: u64,
}

/// The address of a DC target, from a protection domain of an initiator.
#[derive(Debug, Clone)]
pub struct DcAddress {
    to: UdAddress,
    access_key: u64,
}

impl ProtectionDomain {
    /// Returns the address of a DC target, from GID index 0.
    ///
    /// # Errors
    /// The errors of [`ProtectionDomain::address_handle`].
    pub fn dc_address(&self, endpoint: &DcEndpoint) -> Result<DcAddress> {
        let DcEndpoint { gid, qpn, access_key } = *endpoint;
        Ok(DcAddress { to: self.ud_address(&UdEndpoint { gid, qpn, qkey: 0 })?, access_key })
    }
}

impl QueuePair<Dct> {
    /// Returns a builder of a target that takes receives from a shared queue and reports them to a completion
    /// queue, for all initiators that know its access key.
    pub fn builder(
        domain: &ProtectionDomain,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        access_key: u64,
    ) -> QueuePairBuilder<Dct> {
        let uses = UsedObjects {
            domain: Some(domain.clone()),
            recv_cq: Some(recv_cq.clone()),
            srq: Some(srq.clone()),
            ..UsedObjects::default()
        };
        QueuePairBuilder::new(domain.device(), uses).own(VendorService::DcTarget { access_key })
    }

    /// Makes the target execute requests of initiators, and returns the data that they need.
    ///
    /// # Errors
    /// `Refused`: it is active already.
    pub fn activate(&self) -> Result<DcEndpoint> {
        let local = *self.local();
        let access_key = match self.inner().own {
            Some(VendorService::DcTarget { access_key }) => access_key,
            _ => 0,
        };
        let attributes = QpAttributes {
            qp_state: QpState::Rtr as u32,
            path_mtu: local.mtu as u32,
            min_rnr_timer: RcConnectOptions::default().min_rnr_timer,
            address_vector: AddressVector {
                is_global: true,
                dgid: local.gid,
                sgid_index: local.gid_index,
                port_num: 1,
                ..AddressVector::default()
            },
            ..QpAttributes::default()
        };
        let mask = AttributeMask::STATE | AttributeMask::AV | AttributeMask::PATH_MTU;
        self.call(MODIFY, || self.change(&attributes, mask | AttributeMask::MIN_RNR_TIMER))?;
        Ok(DcEndpoint { gid: local.gid, qpn: self.qpn(), access_key })
    }
}

impl QueuePair<Dci> {
    /// Returns a builder of an initiator that reports its requests to a completion queue.
    pub fn builder(domain: &ProtectionDomain, send_cq: &CompletionQueue) -> QueuePairBuilder<Dci> {
        let uses = UsedObjects {
            domain: Some(domain.clone()),
            send_cq: Some(send_cq.clone()),
            ..UsedObjects::default()
        };
        QueuePairBuilder::new(domain.device(), uses)
    }

    /// Makes the initiator ready to send, also after a reset. Path and receiving side of the options are
    /// ignored.
    ///
    /// # Errors
    /// `Refused`: it is active already ([`QueuePair::reset`] it).
    pub fn activate(&self, options: &RcConnectOptions) -> Result<()> {
        self.call(MODIFY, || {
            if self.current_state()? == QpState::Reset {
                self.initialise()?;
            }
            let RcConnectOptions { timeout, retry_count, rnr_retry, max_rd_atomic, .. } = *options;
            let mut attributes = QpAttributes {
                qp_state: QpState::Rtr as u32,
                path_mtu: self.local().mtu as u32,
                sq_psn: self.local().psn,
                timeout,
                retry_cnt: retry_count,
                rnr_retry,
                max_rd_atomic,
                ..QpAttributes::default()
            };
            self.change(&attributes, AttributeMask::STATE | AttributeMask::PATH_MTU)?;
            attributes.qp_state = QpState::Rts as u32;
            let retries = AttributeMask::TIMEOUT | AttributeMask::RETRY_CNT | AttributeMask::RNR_RETRY;
            let rest = AttributeMask::SQ_PSN | AttributeMask::MAX_QP_RD_ATOMIC;
            self.change(&attributes, AttributeMask::STATE | retries | rest)
        })
    }

    /// Makes a stream that has failed usable again.
    ///
    /// # Errors
    /// `Refused`: the initiator was created without streams, or is not active.
    pub fn reset_stream(&self, stream: u16) -> Result<()> {
        self.call(MODIFY, || {
            if self.inner().hca.reset_dc_stream(self.qpn(), stream) {
                return Ok(());
            }
            let why = "the initiator was made without streams, or is not active";
            Err(VerbsError::refused("queue pair")(ResourceError::invalid(why).into()))
        })
    }
}

impl QueuePairBuilder<Dci> {
    /// Sets the number of streams, 2 to the power of `log_concurrent`, at most 6: each has an order of its
    /// own and fails alone, until 2 to the power of `log_errored` have failed.
    pub fn streams(self, log_concurrent: u8, log_errored: u8) -> Self {
        let streams = Some(DcStreams { log_concurrent, log_errored });
        self.own(VendorService::DcInitiator { streams })
    }
}

impl<'a> SendRequest<'a, Dci> {
    /// Creates a SEND of the slices' bytes to the target's next receive.
    pub fn dc_send(to: &DcAddress, local: &'a [LocalSlice]) -> Self {
        SendRequest::new(SendOpcode::Send, local).aimed_at(to)
    }

    /// Creates an RDMA WRITE of the slices' bytes to the start of the remote slice.
    pub fn dc_write(to: &DcAddress, local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        SendRequest::new(SendOpcode::RdmaWrite, local).aimed_at(to).remote(remote)
    }

    /// Creates an RDMA READ of as many bytes as the local slices have, from the start of the remote slice.
    pub fn dc_read(to: &DcAddress, local: &'a [LocalSlice], remote: RemoteSlice) -> Self {
        SendRequest::new(SendOpcode::RdmaRead, local).aimed_at(to).remote(remote)
    }

    /// Creates an atomic that adds `add`, wrapping, to the 8 remote bytes; the original value arrives in the
    /// local 8 bytes.
    pub fn dc_fetch_add(to: &DcAddress, local: &'a [LocalSlice], remote: RemoteSlice, add: u64) -> Self {
        SendRequest::atomic(local, remote, AtomicOperation::FetchAdd { add }).aimed_at(to)
    }

    /// Creates an atomic that stores `swap` in the 8 remote bytes if they equal `compare`; the original value
    /// arrives in the local 8 bytes.
    pub fn dc_compare_swap(
        to: &DcAddress,
        local: &'a [LocalSlice],
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Self {
        let operation = AtomicOperation::CompareSwap { compare, swap };
        SendRequest::atomic(local, remote, operation).aimed_at(to)
    }

    /// Sends the request on this stream of the initiator; 0 by default, and numbers beyond the last one wrap
    /// around.
    pub fn on_stream(mut self, stream: u16) -> Self {
        let access_key = self.request.dc.map_or(0, |dc| dc.access_key);
        self.request.dc = Some(DcDestination { access_key, stream });
        self
    }

    fn aimed_at(self, to: &DcAddress) -> Self {
        let mut this = self.sent_to(&to.to);
        this.request.dc = Some(DcDestination { access_key: to.access_key, stream: 0 });
        this
    }
}

impl<T: Transport> SendRequest<'_, T> {
    /// Sends the request to a queue pair that it names.
    fn sent_to(mut self, to: &UdAddress) -> Self {
        self.request.ud = Some(to.destination());
        self
    }
}
