//! Shared receive queues.

use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::{Hca, SrqSetup};
use pumice_device::objects::srq::{SrqAttributes, SrqChange};
use pumice_device::platform::table::Handle;
use pumice_transport::types::RecvRequest;

use super::{ProtectionDomain, XrcDomain};
use crate::device::Device;
use crate::device::calls::{CallContext, gated_call};
use crate::error::{ListError, Result, VerbsError};
use crate::objects::completion::CompletionQueue;

const POST: CallContext = CallContext::new(Call::ibv_post_srq_recv);

/// A shared receive queue, for any number of queue pairs. Cheap to clone; destroyed with its last clone and
/// the last queue pair that uses it.
#[derive(Debug, Clone)]
pub struct SharedReceiveQueue(Arc<SrqInner>);

#[derive(Debug)]
struct SrqInner {
    hca: Arc<Hca>,
    handle: Handle,
    domain: ProtectionDomain,
    /// Objects that must outlive the queue.
    _xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl ProtectionDomain {
    /// Creates a shared receive queue for `depth` requests of up to `max_sge` slices.
    ///
    /// # Errors
    /// `Refused`: a size is out of range.
    pub fn shared_receive_queue(&self, depth: u32, max_sge: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, depth, max_sge, None)
    }
}

impl XrcDomain {
    /// Creates a shared receive queue that peers name by number. Everything received through it completes on
    /// `cq`; its buffers, and the remote memory of requests that name it, belong to `domain`.
    ///
    /// # Errors
    /// `Refused`: a size is out of range.
    pub fn shared_receive_queue(
        &self,
        domain: &ProtectionDomain,
        cq: &CompletionQueue,
        depth: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(domain, depth, max_sge, Some((self.clone(), cq.clone())))
    }
}

impl SharedReceiveQueue {
    fn new(
        domain: &ProtectionDomain,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(XrcDomain, CompletionQueue)>,
    ) -> Result<SharedReceiveQueue> {
        if let Some((xrcd, cq)) = &xrc
            && !(domain.device().is_same(xrcd.device()) && domain.device().is_same(cq.device()))
        {
            return Err(VerbsError::foreign("shared receive queue", "XRC domain or completion queue"));
        }
        let hca = Arc::clone(domain.device().shared_hca());
        let setup = SrqSetup {
            pd: domain.handle(),
            max_wr,
            max_sge,
            cookie: 0,
            xrc: xrc.as_ref().map(|(xrcd, cq)| (xrcd.handle(), cq.handle())),
            tags: None,
        };
        let call = if xrc.is_some() { Call::ibv_create_srq_ex } else { Call::ibv_create_srq };
        let handle = gated_call(domain.device(), call, || hca.create_srq(&setup).map_err(refused))?;
        Ok(SharedReceiveQueue(Arc::new(SrqInner { hca, handle, domain: domain.clone(), _xrc: xrc })))
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// `Refused`: full, or too many slices.
    #[inline]
    pub fn post_recv(&self, request: &RecvRequest<'_>) -> Result<()> {
        let SrqInner { hca, handle, .. } = &*self.0;
        self.device().data_call(hca, POST, || hca.post_srq_recv(*handle, request).map_err(refused))
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// The position of the first request that was refused, and the reason; those before it are posted.
    pub fn post_recvs(&self, requests: &[RecvRequest<'_>]) -> std::result::Result<(), ListError> {
        let SrqInner { hca, handle, .. } = &*self.0;
        self.device().data_call(hca, POST, || {
            requests.iter().enumerate().try_for_each(|(position, request)| {
                let posted = hca.post_srq_recv(*handle, request).map_err(refused);
                posted.map_err(|error| ListError { position, error })
            })
        })
    }

    /// Arms the queue for one asynchronous event `SrqLimitReached` when fewer than `limit` requests are left;
    /// 0 disarms.
    ///
    /// # Errors
    /// `Refused`: more than the depth.
    pub fn arm_limit(&self, limit: u32) -> Result<()> {
        let change = SrqChange { limit: Some(limit), ..SrqChange::default() };
        self.change(change)
    }

    /// Changes the number of requests that fit.
    ///
    /// # Errors
    /// `Refused`: out of range, or less than the number posted.
    pub fn resize(&self, depth: u32) -> Result<()> {
        let change = SrqChange { max_wr: Some(depth), ..SrqChange::default() };
        self.change(change)
    }

    fn change(&self, change: SrqChange) -> Result<()> {
        let hca = &self.0.hca;
        gated_call(self.device(), Call::ibv_modify_srq, || {
            hca.modify_srq(self.0.handle, change).map_err(refused)
        })
    }

    /// Returns the sizes and the armed limit.
    ///
    /// # Errors
    /// `Refused`: destroyed through [`Device::hca`].
    pub fn query(&self) -> Result<SrqAttributes> {
        gated_call(self.device(), Call::ibv_query_srq, || {
            self.0.hca.query_srq(self.0.handle).map_err(refused)
        })
    }

    /// Returns its number, as XRC initiators name it ([`crate::SendRequest::remote_srq`]).
    ///
    /// # Errors
    /// `Refused`: not of an XRC domain.
    pub fn number(&self) -> Result<u32> {
        gated_call(self.device(), Call::ibv_get_srq_num, || {
            self.0.hca.srq_number(self.0.handle).map_err(refused)
        })
    }

    /// Returns the device of the queue.
    pub fn device(&self) -> &Device {
        self.0.domain.device()
    }

    /// Returns the handle that names the queue in calls of [`Device::hca`].
    pub fn handle(&self) -> Handle {
        self.0.handle
    }
}

fn refused(error: pumice_device::hca::HcaError) -> VerbsError {
    VerbsError::Refused { object: "shared receive queue", error }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // The queue pairs that use it held it alive.
        let _ = self.hca.destroy_srq(self.handle);
    }
}
