//! The queue pairs and the completion queue of one end, its buffers, and its first failure.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;
use pumice_verbs::transport::{Receiver, Transport};
use pumice_verbs::{
    CompletionChannel, CompletionQueue, Device, Notify, ProtectionDomain, QueuePair, QueuePairBuilder,
    RcQueuePair, RecvRequest, SendList, SendRequest, SharedReceiveQueue, UcQueuePair, UdAddress, UdQueuePair,
    WcStatus, WorkCompletion,
};

use crate::error::{PerfError, Result, of_device};
use crate::plan::{MAX_OUTSTANDING, Operation, Plan, Service};

/// Length in bytes of the area before a received datagram.
const GRH_BYTES: usize = 40;
/// Number of requests beyond the depth: for replies and credits.
pub(super) const SPARE_BUFFERS: usize = 64;
/// Largest number of receives of one queue pair.
const MAX_RECEIVES: usize = 8192;
/// Largest memory of receive buffers in bytes before messages share them.
const RECEIVE_BYTES: usize = 2 << 20;
pub(super) const CACHE_LINE: usize = 64;

/// Returns the number of receives posted to a queue at a time.
pub(crate) fn receives_per_queue(plan: &Plan) -> usize {
    match plan.operation {
        _ if plan.shared_receives() => 2 * MAX_OUTSTANDING,
        // The number is larger than what may be outstanding: the device acknowledges messages that the
        // application has yet to see.
        Operation::Send => {
            let count = (4 * plan.depth).min(MAX_RECEIVES) + SPARE_BUFFERS;
            // Receives that share buffers use them in turn; without the rounding, a buffer's turn would come
            // again while the message in it is still to be compared.
            if plan.qp_count == 1 { count.next_multiple_of(plan.buffer_count()) } else { count }
        }
        _ => SPARE_BUFFERS,
    }
}

/// Returns the number of bytes before each received message.
pub(super) fn grh_bytes(plan: &Plan) -> usize {
    if plan.service == Service::Ud { GRH_BYTES } else { 0 }
}

/// Returns the distance in bytes between buffers of outgoing messages.
pub(super) fn source_stride(plan: &Plan) -> usize {
    plan.size_bytes.next_multiple_of(CACHE_LINE)
}

/// Returns the distance in bytes between buffers of incoming messages.
pub(super) fn target_stride(plan: &Plan) -> usize {
    (plan.size_bytes + grh_bytes(plan)).next_multiple_of(CACHE_LINE)
}

/// Returns the number of buffers at the receiving side: one for each receive if a cache can hold that much
/// memory.
pub(super) fn target_buffers(plan: &Plan, receive_count: usize) -> usize {
    let each = receive_count.max(plan.buffer_count());
    if plan.operation == Operation::Send && each * target_stride(plan) <= RECEIVE_BYTES {
        each
    } else {
        plan.buffer_count()
            .max(plan.qp_count.min(MAX_OUTSTANDING) * usize::from(plan.operation == Operation::Atomic))
    }
}

/// Longest wait for the cause, which comes from a thread of the device: a completion may be here a moment
/// earlier.
const TIMEOUT: Duration = Duration::from_secs(1);

/// First failure, shared by the queues of an end and its device, which reports causes.
#[derive(Debug, Clone, Default)]
pub(super) struct FirstFailure(Arc<FailureReport>);

#[derive(Debug, Default)]
struct FailureReport {
    sentence: Mutex<Option<String>>,
    changed: Condvar,
}

impl FirstFailure {
    /// Records why a queue pair failed, or why a message was dropped; the first failure counts.
    pub(super) fn record(&self, qpn: Qpn, cause: &Cause) {
        if !cause.is_fatal() || cause.is_usual() {
            return;
        }
        let mut sentence = self.0.sentence.lock().unwrap_or_else(PoisonError::into_inner);
        sentence.get_or_insert_with(|| format!("QP {qpn} {cause}"));
        self.0.changed.notify_all();
    }

    /// Returns the sentence about completions of which at least one has failed.
    pub(super) fn sentence(&self, completions: &[WorkCompletion]) -> String {
        let record = self.0.sentence.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(record, TIMEOUT, |sentence| sentence.is_none());
        let (record, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(sentence) = &*record {
            return sentence.clone();
        }
        let failed = |completion: &&WorkCompletion| completion.status != WcStatus::Success;
        let flushed = |completion: &&WorkCompletion| completion.status == WcStatus::WrFlushErr;
        let first = completions.iter().filter(failed).find(|completion| !flushed(completion));
        match first.or_else(|| completions.iter().find(failed)) {
            Some(first) => {
                format!("a request of QP {:#08x} failed with {}", first.qp_num, first.status.name())
            }
            None => "no request failed".to_owned(),
        }
    }
}

/// Requests to post together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Post {
    pub(crate) qp: usize,
    /// Number of the first message.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) buffers: BufferSelection,
    /// Interval of messages that carry their number as immediate data; 0 for none.
    pub(crate) imm_every: u64,
    /// Number of requests that the last one's completion accounts for; `None` without a completion.
    pub(crate) retires: Option<u32>,
}

impl Post {
    pub(super) fn wr_id(&self) -> u64 {
        (self.qp as u64) << 32 | u64::from(self.retires.unwrap_or(0))
    }

    /// Returns queue pair and number of requests that a completion accounts for.
    pub(crate) fn of_completion(wr_id: u64) -> (usize, u32) {
        ((wr_id >> 32) as usize, wr_id as u32)
    }
}

/// Buffers that messages use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferSelection {
    /// All buffers in turn, by message number.
    All,
    /// The queue pair's own buffers, by the number of requests that it posted.
    OfQueuePair,
}

/// A completion queue and the channel that wakes its user.
pub(super) struct CompletionPoller {
    pub(super) cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    armed: bool,
    first_failure: FirstFailure,
}

impl CompletionPoller {
    /// Creates the queue, with a channel if its user will sleep.
    pub(super) fn new(
        device: &Device,
        depth: usize,
        events: bool,
        first_failure: &FirstFailure,
    ) -> Result<CompletionPoller> {
        let depth = u32::try_from(depth).map_err(of_device)?;
        let channel = if events { Some(device.completion_channel().map_err(of_device)?) } else { None };
        let cq = match &channel {
            Some(channel) => channel.completion_queue(depth, 0),
            None => device.completion_queue(depth),
        };
        Ok(CompletionPoller {
            cq: cq.map_err(of_device)?,
            channel,
            armed: false,
            first_failure: first_failure.clone(),
        })
    }

    /// Takes completions, which must be successful; a poll that finds none drives the device.
    #[inline]
    pub(super) fn poll(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        let count = self.cq.poll(out);
        let done = out.get(..count).unwrap_or_default();
        if done.iter().all(|completion| completion.status == WcStatus::Success) {
            return Ok(count);
        }
        Err(PerfError::Device(self.first_failure.sentence(done)))
    }

    /// Takes completions as [`poll`](CompletionPoller::poll) does, but sleeps for up to `limit` while there
    /// are none.
    pub(super) fn wait(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        if let Some(channel) = &self.channel {
            if !self.armed {
                self.cq.arm(Notify::Any).map_err(of_device)?;
                self.armed = true;
            }
            // Completions that came before arming do not wake the channel.
            if self.cq.is_empty() {
                if channel.wait(limit).is_err() {
                    return Ok(0);
                }
                self.armed = false;
            }
        }
        if self.cq.is_empty() { Ok(0) } else { self.poll(out) }
    }
}

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

#[cfg(test)]
mod tests {
    use pumice_transport::types::CqUse;

    use super::*;
    use crate::plan::tests::plan;

    #[test]
    fn messages_in_a_row_have_buffers_of_their_own() {
        for size_bytes in [8, 1000, 5000, 4096, 70_000, 1 << 20] {
            for depth in [1, 16, 100, 256] {
                let plan = Plan { size_bytes, depth, ..plan(Operation::Send, Service::Uc) };
                let receives = receives_per_queue(&plan);
                let buffers = target_buffers(&plan, receives);
                assert!(receives.is_multiple_of(buffers), "{size_bytes}, {depth}: {receives} on {buffers}");
            }
        }
    }

    #[test]
    fn the_first_failure_is_reported_and_not_the_flushes() {
        let first = FirstFailure::default();
        let qpn = Qpn::new(0x11);
        first.record(qpn, &Cause::Modified);
        let flush =
            WorkCompletion { status: WcStatus::WrFlushErr, qp_num: 0x11, ..WorkCompletion::default() };
        let failed = WorkCompletion { status: WcStatus::RemAccessErr, ..flush };
        assert_eq!(
            first.sentence(&[WorkCompletion::default(), flush, failed]),
            "a request of QP 0x000011 failed with REM_ACCESS_ERR"
        );
        assert_eq!(first.sentence(&[flush]), "a request of QP 0x000011 failed with WR_FLUSH_ERR");
        let overrun = |depth| Cause::CqOverrun { cq: 1, depth, completes: CqUse::Both };
        let teller = first.clone();
        let cause = std::thread::spawn(move || {
            teller.record(qpn, &overrun(4));
            teller.record(qpn, &overrun(5));
        });
        assert!(first.sentence(&[flush]).contains("of 4 entries"));
        cause.join().expect("it tells and ends");
        assert!(first.sentence(&[flush]).contains("of 4 entries"));
    }
}
