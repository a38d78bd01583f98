//! The queue pairs of one end, of each service.

use pumice_verbs::transport::{Receiver, Transport};
use pumice_verbs::{
    CompletionQueue, ProtectionDomain, QueuePair, QueuePairBuilder, RcQueuePair, RecvRequest, SendList,
    SendRequest, SharedReceiveQueue, UcQueuePair, UdAddress, UdQueuePair,
};

use super::buffers::{SPARE_BUFFERS, receives_per_queue};
use super::post::Post;
use crate::error::{Result, of_device};
use crate::plan::{Plan, Service};

pub(super) enum ServiceQueuePairs {
    Rc(Vec<RcQueuePair>),
    Uc(Vec<UcQueuePair>),
    /// UD queue pairs with the peers' addresses, once connected.
    Ud(Vec<UdQueuePair>, Vec<UdAddress>),
}

/// Objects that queue pairs are made with.
pub(super) struct QpResources<'a> {
    pub(super) domain: &'a ProtectionDomain,
    pub(super) sends: &'a CompletionQueue,
    pub(super) receives: &'a CompletionQueue,
    pub(super) shared: Option<&'a SharedReceiveQueue>,
}

impl QpResources<'_> {
    /// Creates all queue pairs of a plan.
    pub(super) fn make(&self, plan: &Plan) -> Result<ServiceQueuePairs> {
        Ok(match plan.service {
            Service::Rc => ServiceQueuePairs::Rc(self.make_of(plan)?),
            Service::Uc => ServiceQueuePairs::Uc(self.make_of(plan)?),
            Service::Ud => ServiceQueuePairs::Ud(self.make_of(plan)?, Vec::new()),
        })
    }

    fn make_of<T: Receiver>(&self, plan: &Plan) -> Result<Vec<QueuePair<T>>> {
        let one = |_| {
            let builder: QueuePairBuilder<T> =
                QueuePair::<T>::builder(self.domain, self.sends, self.receives);
            let builder =
                builder.send_depth((plan.depth + SPARE_BUFFERS) as u32).send_sges(1).inline_bytes(0);
            let builder = match self.shared {
                Some(shared) => builder.recv_depth(0).shared_receive_queue(shared),
                None => builder.recv_depth(receives_per_queue(plan) as u32).recv_sges(1),
            };
            builder.build().map_err(of_device)
        };
        (0..plan.qp_count).map(one).collect()
    }
}

/// Posts the requests that `request` makes of message numbers.
pub(super) fn post_on<'a, T: Transport>(
    qps: &[QueuePair<T>],
    post: &Post,
    request: impl Fn(u64) -> SendRequest<'a, T>,
) -> Result<()> {
    let Some(qp) = qps.get(post.qp) else { return Ok(()) };
    let last = post.first + post.count - 1;
    let complete = |message: u64| {
        let mut request = request(message).wr_id(post.wr_id());
        if post.imm_every > 0 && (message + 1).is_multiple_of(post.imm_every) {
            request = request.imm((message as u32).to_be_bytes());
        }
        if message == last && post.retires.is_some() { request.signaled() } else { request }
    };
    if post.count == 1 {
        return qp.post_send(&complete(last)).map_err(of_device);
    }
    let list = SendList::of((post.first..=last).map(complete)).map_err(of_device)?;
    qp.post_sends(&list).map_err(of_device)
}

pub(super) fn receive_on<T: Receiver>(
    qps: &[QueuePair<T>],
    qp: usize,
    request: &RecvRequest<'_>,
) -> Result<()> {
    qps.get(qp).map_or(Ok(()), |qp| qp.post_recv(request)).map_err(of_device)
}
