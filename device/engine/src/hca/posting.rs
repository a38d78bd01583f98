//! The data path: posting requests, and polling completions.

use pumice_model::profile::PostCall;
use pumice_platform::error::ResourceError;
use pumice_transport::qp::{LaneSend, PostError, QueuePair, may_leave_by_lane};
use pumice_transport::types::{QpState, RecvRequest, SendRequest, WorkCompletion};
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError};
use crate::driver::CqPoll;
use crate::engine::Acknowledge;
use crate::objects::completion_queue::CompletionQueue;
use crate::resources::MappingCheckPolicy;
use pumice_memory::MappingCheck;

impl Hca {
    /// Posts a send request and sends as much of it as may leave now.
    ///
    /// # Errors
    /// Malformed, wrong state, or the queue is full: an entry is free only once its completion, or a later
    /// one of the same queue, was polled.
    pub fn post_send(&self, qpn: Qpn, request: &SendRequest<'_>) -> Result<(), HcaError> {
        if LaneSend::of(request).is_some_and(|send| self.post_by_lane(qpn, &send)) {
            return Ok(());
        }
        self.post_sends(qpn, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts send requests in order and sends them together.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; those before it are posted.
    pub fn post_sends(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        self.post(qpn, requests, false, false)
    }

    /// Posts a send request if it can leave at once by a lane. Returns false if it is not posted, and has to
    /// be posted by [`Hca::post_sends`].
    #[inline]
    pub fn post_by_lane(&self, qpn: Qpn, send: &LaneSend<'_>) -> bool {
        let Ok(mut engine) = self.core.lock_own() else { return false };
        let posted =
            engine.post_by_lane(qpn, send, MappingCheckPolicy::Datagrams, || self.core.clock.now_ns());
        let Some(now_ns) = posted else { return false };
        self.core.note_deadline(&engine, now_ns);
        true
    }

    /// Posts the beginning of a list as [`Hca::post_sends`] does, but it may leave with the rest of the list:
    /// the caller posts that at once, and if there is none after all, posts no request.
    ///
    /// # Errors
    /// As [`Hca::post_sends`]. The requests before the refused one have been sent.
    pub fn post_begun(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        self.post(qpn, requests, false, true)
    }

    /// Posts send requests as [`Hca::post_sends`] does, all of them or none.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; nothing is posted.
    pub fn post_series(&self, qpn: Qpn, requests: &[SendRequest<'_>]) -> Result<(), (usize, HcaError)> {
        self.post(qpn, requests, true, false)
    }

    // With constants for `whole` and `begun`, this function is inlined into each of its callers.
    #[inline(always)]
    fn post(
        &self,
        qpn: Qpn,
        requests: &[SendRequest<'_>],
        whole: bool,
        begun: bool,
    ) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock_own().map_err(|inherited| (0, inherited.into()))?;
        let engine = &mut *guard;
        let Some((index, entry)) = engine.queue_pairs.by_number(qpn) else {
            return self.post_mrc_sends(engine, qpn, requests);
        };
        let depth = entry.qp.capacity().max_send_wr;
        let polled = engine.resources.completions.cq_common.freed_send_slots.count(qpn.value());
        let call = if whole { PostCall::WrComplete } else { PostCall::PostSend };
        // A target has no send queue that could be full: the request itself is wrong.
        let has_queue = entry.qp.qp_type().has_send_queue();
        if whole && requests.len() > 1 {
            // Only the first request of a series can be refused below, when nothing of it is posted yet.
            let free = depth.saturating_sub(entry.posted_sends.wrapping_sub(polled));
            check_series(&entry.qp, requests, free)
                .map_err(|(position, error)| (position, self.refused_send(qpn, error, call)))?;
        }
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            // Executed requests keep their entry until they are polled.
            let posted = if has_queue && entry.posted_sends.wrapping_sub(polled) >= depth {
                Err(PostError::QueueFull { depth, all_unsignaled: entry.qp.is_unsignaled(depth) })
            } else {
                entry.qp.post_send(request, &mut engine.resources.host(MappingCheck::Assumed))
            };
            if let Err(error) = posted {
                outcome = Err((position, self.refused_send(qpn, error, call)));
                break;
            }
            entry.posted_sends = entry.posted_sends.wrapping_add(1);
        }
        if begun && outcome.is_ok() && engine.holds_beginning(index) {
            return Ok(());
        }
        let now_ns = self.core.clock.now_ns();
        let may_leave = requests.last().is_some_and(|request| may_leave_by_lane(request.opcode));
        if !may_leave || !engine.send_by_lane(index, now_ns, MappingCheckPolicy::Datagrams) {
            engine.posted(index, now_ns);
            // Requests leave first, then answers: an ACK must not delay a reply.
            engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        }
        self.core.note_deadline(engine, now_ns);
        outcome
    }

    /// Returns the refusal of a send request, with the errno that the imitated device's library returns.
    #[cold]
    pub fn refused_send(&self, qpn: Qpn, error: PostError, call: PostCall) -> HcaError {
        HcaError::Post { qpn, errno: self.settings.provider.errno_of_send(&error, call), error }
    }

    /// Returns the refusal of a send request with `given` bytes of inline data, which are more than the
    /// device takes.
    #[cold]
    pub fn refused_inline(&self, qpn: Qpn, given: u64, call: PostCall) -> HcaError {
        let mut engine = self.core.lock();
        let capacity = engine.queue_pairs.by_number(qpn).map(|(_, entry)| *entry.qp.capacity());
        let allowed =
            capacity.map_or(self.settings.limits.max_inline_data, |capacity| capacity.max_inline_data);
        drop(engine);
        self.refused_send(qpn, PostError::InlineTooLong { given, allowed }, call)
    }

    /// Posts a receive request to a queue pair's own receive queue.
    ///
    /// # Errors
    /// The queue pair is in RESET or uses an SRQ, the queue is full, or the request has too many elements.
    pub fn post_recv(&self, qpn: Qpn, request: &RecvRequest<'_>) -> Result<(), HcaError> {
        self.post_recvs(qpn, std::slice::from_ref(request)).map_err(|(_, error)| error)
    }

    /// Posts receive requests in order.
    ///
    /// # Errors
    /// The position of the first request that was refused, and why; those before it are posted.
    pub fn post_recvs(&self, qpn: Qpn, requests: &[RecvRequest<'_>]) -> Result<(), (usize, HcaError)> {
        let mut guard = self.core.lock_own().map_err(|inherited| (0, inherited.into()))?;
        let engine = &mut *guard;
        let Some((_, entry)) = engine.queue_pairs.by_number(qpn) else {
            return self.post_mrc_recvs(engine, qpn, requests);
        };
        if entry.qp.state() == QpState::Reset {
            let error = PostError::ReceiveInReset;
            return Err((0, HcaError::Post { qpn, error, errno: libc::EINVAL }));
        }
        let mut outcome = Ok(());
        for (position, request) in requests.iter().enumerate() {
            if let Err(error) = engine.resources.post_recv(entry.qp.context(), request) {
                let is_long = request.sges.len() > entry.qp.capacity().max_recv_sge as usize;
                let errno = engine.resources.completions.failures.provider.errno_of_long_receive();
                let error = match error {
                    ResourceError::Invalid { what } if is_long => ResourceError::Refused { what, errno },
                    error => error,
                };
                outcome = Err((position, error.into()));
                break;
            }
        }
        entry.qp.flush_posted_receives(&mut engine.resources.host(MappingCheck::Assumed));
        outcome
    }

    /// Takes completions, oldest first, into `out`, and returns their number. An empty queue drives the
    /// engine once. In a process that was forked from the one of the device there are none.
    #[inline]
    pub fn poll_cq(&self, cq: &CompletionQueue, out: &mut [WorkCompletion]) -> usize {
        let wanted = out.len();
        self.poll_cq_of(cq, out, wanted)
    }

    /// Takes completions as [`Hca::poll_cq`] does, for a caller who takes `wanted` in all, the others by
    /// further polls at once. The engine may make that many.
    #[inline]
    pub fn poll_cq_of(&self, cq: &CompletionQueue, out: &mut [WorkCompletion], wanted: usize) -> usize {
        if !self.is_own() {
            return 0;
        }
        let most = cq.max_returned(out.len());
        let out = out.get_mut(..most).unwrap_or_default();
        let count = cq.poll(out);
        if count > 0 || out.is_empty() {
            return count;
        }
        let Some((first, rest)) = out.split_first_mut() else { return 0 };
        let progress = match self.core.poll(cq, first, wanted) {
            CqPoll::Delivered => return if rest.is_empty() { 1 } else { 1 + cq.poll(rest) },
            CqPoll::PassedOver => return 0,
            CqPoll::Drove { progress } => progress,
        };
        let count = cq.poll(out);
        if count == 0 && !progress {
            self.core.idle();
        }
        count
    }

    /// Takes one completion as [`Hca::poll_cq`] does, with the time when it was made, in ns of
    /// [`Hca::clock`]; 0 if the queue does not stamp.
    pub fn poll_cq_stamped(&self, cq: &CompletionQueue) -> Option<(WorkCompletion, u64)> {
        if !self.is_own() {
            return None;
        }
        if let Some(stamped) = cq.poll_stamped() {
            return Some(stamped);
        }
        let mut first = WorkCompletion::default();
        let progress = match self.core.poll(cq, &mut first, 1) {
            CqPoll::Delivered => return Some((first, 0)),
            CqPoll::PassedOver => return None,
            CqPoll::Drove { progress } => progress,
        };
        let stamped = cq.poll_stamped();
        if stamped.is_none() && !progress {
            self.core.idle();
        }
        stamped
    }
}

/// Checks whether requests that belong together can all be posted; `free`: entries of the send queue.
///
/// # Errors
/// The position of the first one that cannot be posted, and why.
#[cold]
fn check_series(qp: &QueuePair, requests: &[SendRequest<'_>], free: u32) -> Result<(), (usize, PostError)> {
    for (position, request) in requests.iter().enumerate() {
        qp.check_send(request).map_err(|error| (position, error))?;
        if position >= free as usize {
            return Err((
                position,
                PostError::QueueFull { depth: qp.capacity().max_send_wr, all_unsignaled: false },
            ));
        }
    }
    Ok(())
}
