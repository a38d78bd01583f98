//! Requests that one end posts.

use pumice_verbs::{RecvRequest, RemoteSlice, SendRequest, WorkCompletion};

use super::buffers::receives_per_queue;
use super::end::Endpoint;
use super::post::{BufferSelection, Post};
use super::queue_pairs::{ServiceQueuePairs, post_on, receive_on};
use crate::error::{Result, of_device};
use crate::plan::Operation;

impl Endpoint {
    /// Posts requests of the plan's operation; for WRITEs, READs and atomics to the peer's buffer of the same
    /// number.
    pub(crate) fn post(&mut self, post: &Post) -> Result<()> {
        let (own, depth) = (post.buffers == BufferSelection::OfQueuePair, self.plan.depth as u64);
        let base = self.posted.get(post.qp).copied().unwrap_or(0);
        if let Some(posted) = self.posted.get_mut(post.qp).filter(|_| own) {
            *posted += post.count;
        }
        let buffer_count = self.buffers.sources.len().max(1) as u64;
        let buffer = |message: u64| {
            if own {
                post.qp as u64 * depth + (base + message - post.first) % depth
            } else {
                message % buffer_count
            }
        };
        let local =
            |message: u64| self.buffers.sources.get(buffer(message) as usize).map_or(&[][..], |one| &one[..]);
        let none = RemoteSlice { address: 0, rkey: 0, length: 0 };
        let remote =
            |message: u64| self.buffers.remotes.get(buffer(message) as usize).copied().unwrap_or(none);
        let counter = self.buffers.remotes.get(post.qp).copied().unwrap_or(none);
        match &self.queue_pairs {
            ServiceQueuePairs::Rc(qps) => post_on(qps, post, |message| match self.plan.operation {
                Operation::Write => SendRequest::write(local(message), remote(message)),
                Operation::Read => SendRequest::read(local(message), remote(message)),
                Operation::Send => SendRequest::send(local(message)),
                Operation::Atomic => SendRequest::fetch_add(local(message), counter, 1),
            }),
            ServiceQueuePairs::Uc(qps) => post_on(qps, post, |message| match self.plan.operation {
                Operation::Write => SendRequest::write(local(message), remote(message)),
                _ => SendRequest::send(local(message)),
            }),
            ServiceQueuePairs::Ud(qps, addresses) => {
                let Some(to) = addresses.get(post.qp) else { return Ok(()) };
                post_on(qps, post, |message| SendRequest::send_to(to, local(message)))
            }
        }
    }

    /// Sends the number of the last message that arrived to the sender on an unreliable service.
    pub(crate) fn send_credit(&mut self, number: u64) -> Result<()> {
        self.discard_sends()?;
        let imm = (number as u32).to_be_bytes();
        let sent = match &self.queue_pairs {
            ServiceQueuePairs::Rc(_) => Ok(()),
            ServiceQueuePairs::Uc(qps) => {
                qps.first().map_or(Ok(()), |qp| qp.post_send(&SendRequest::send(&[]).imm(imm).signaled()))
            }
            ServiceQueuePairs::Ud(qps, addresses) => match (qps.first(), addresses.first()) {
                (Some(qp), Some(to)) => qp.post_send(&SendRequest::send_to(to, &[]).imm(imm).signaled()),
                _ => Ok(()),
            },
        };
        sent.map_err(of_device)
    }

    pub(super) fn post_all_receives(&mut self) -> Result<()> {
        let per_queue = receives_per_queue(&self.plan);
        let queues = if self.shared.is_some() { 1 } else { self.plan.qp_count };
        for index in 0..per_queue * queues {
            let (qp, buffer) = (index / per_queue, index % self.buffers.targets.len().max(1));
            self.post_receive((qp as u64) << 32 | buffer as u64)?;
        }
        Ok(())
    }

    /// Posts the receive of a completion again.
    #[inline]
    pub(crate) fn post_receive_again(&mut self, completion: &WorkCompletion) -> Result<()> {
        self.post_receive(completion.wr_id)
    }

    #[inline]
    fn post_receive(&mut self, wr_id: u64) -> Result<()> {
        let sges = self.buffers.targets.get(wr_id as u32 as usize).map_or(&[][..], |one| &one[..]);
        let request = RecvRequest { wr_id, sges };
        if let Some(shared) = &self.shared {
            return shared.post_recv(&request).map_err(of_device);
        }
        let qp = (wr_id >> 32) as usize;
        match &self.queue_pairs {
            ServiceQueuePairs::Rc(qps) => receive_on(qps, qp, &request),
            ServiceQueuePairs::Uc(qps) => receive_on(qps, qp, &request),
            ServiceQueuePairs::Ud(qps, _) => receive_on(qps, qp, &request),
        }
    }

    /// Returns the index of the receive buffer that a message is in.
    #[inline]
    pub(crate) fn buffer_of(&self, completion: &WorkCompletion) -> usize {
        completion.wr_id as u32 as usize
    }
}
