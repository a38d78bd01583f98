//! One end's device and queue pairs, all services alike to the loops that use them.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use pumice_transport::types::Mtu;
use pumice_verbs::transport::{Receiver, Transport};
use pumice_verbs::{
    Access, CompletionQueue, Counter, Device, DeviceOptions, LocalSlice, MemoryRegion, PathOptions,
    ProtectionDomain, QueuePair, QueuePairBuilder, RcConnectOptions, RcEndpoint, RcQueuePair, RecvRequest,
    RemoteSlice, SendList, SendRequest, SharedReceiveQueue, UcConnectOptions, UcEndpoint, UcQueuePair,
    UdAddress, UdEndpoint, UdQueuePair, WcFlags, WorkCompletion,
};
use serde::{Deserialize, Serialize};

use super::control::Traffic;
use super::first_failure::FirstFailure;
use super::plan::{MAX_OUTSTANDING, Operation, Plan, Service};
use super::queue::Queue;

/// What the other end must know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndInfo {
    /// Queue pairs, as verbs writes them.
    endpoints: Vec<[u8; 24]>,
    /// Memory for WRITEs, READs and atomics.
    target: [u8; 16],
}

/// Requests to post together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Post {
    pub(crate) qp: usize,
    /// Number of the first message.
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) slots: Slots,
    /// Every so many messages carry their number as immediate data; 0 for none.
    pub(crate) imm_every: u64,
    /// The last request makes a completion that tells of so many.
    pub(crate) retires: Option<u32>,
}

impl Post {
    fn wr_id(&self) -> u64 {
        (self.qp as u64) << 32 | u64::from(self.retires.unwrap_or(0))
    }

    /// Queue pair and number of requests that a completion tells of.
    pub(crate) fn of_completion(wr_id: u64) -> (usize, u32) {
        ((wr_id >> 32) as usize, wr_id as u32)
    }
}

/// Which memory messages use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slots {
    /// All slots in turn, by message number.
    All,
    /// The queue pair's own, by what it posted so far.
    OfQueuePair,
}

enum QueuePairs {
    Rc(Vec<RcQueuePair>),
    Uc(Vec<UcQueuePair>),
    Ud(Vec<UdQueuePair>, Vec<UdAddress>),
}

/// One end.
pub(crate) struct Endpoint {
    device: Device,
    domain: ProtectionDomain,
    queue_pairs: QueuePairs,
    shared: Option<SharedReceiveQueue>,
    sends: Queue,
    receives: Queue,
    /// Never used: polling it drives the device without taking anybody's completion.
    idle: CompletionQueue,
    pub(super) source: MemoryRegion,
    pub(super) sources: Vec<[LocalSlice; 1]>,
    pub(super) target: MemoryRegion,
    /// Where receives go, by slot.
    targets: Vec<[LocalSlice; 1]>,
    /// The peer's targets, by slot.
    remotes: Vec<RemoteSlice>,
    pub(super) plan: Plan,
    /// Atomics by queue pair: posted, and compared.
    posted: Vec<u64>,
    pub(super) fetched: Vec<u64>,
    pub(super) scratch: Vec<u8>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("plan", &self.plan).finish_non_exhaustive()
    }
}

const QKEY: u32 = 0x1234_5678;
/// Bytes before a received datagram.
const GRH_BYTES: usize = 40;
/// Requests beyond the depth: replies and credits.
const SPARE: usize = 64;
/// Receives of one queue pair.
const MAX_RECEIVES: usize = 8192;
/// Nothing more comes when nothing came for this long.
const SILENCE: Duration = Duration::from_millis(5);
/// Receive buffers take no more memory than this before messages share them.
const RECEIVE_BYTES: usize = 2 << 20;
pub(super) const CACHE_LINE: usize = 64;

pub(super) fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Endpoint {
    /// Opens the device and makes everything for a plan.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn open(plan: &Plan, address: IpAddr, capture: Option<&Path>) -> Result<Endpoint, String> {
        // Each end has an address of its own, so it need not share the port.
        let first_failure = FirstFailure::default();
        let told = first_failure.clone();
        let mut options = DeviceOptions::new().exclusive(!plan.shared).addresses([address]);
        options = options.explain(move |qpn, cause| told.told(qpn, cause));
        if let Some(file) = capture {
            options = options.capture(file);
        }
        let device = Device::open(options).map_err(said)?;
        let domain = device.protection_domain().map_err(said)?;
        let receive_count = receives_per_queue(plan) * if plan.shared_receives() { 1 } else { plan.qp_count };
        let sends = Queue::new(&device, plan.outstanding() + SPARE, plan.events, &first_failure)?;
        let receives = Queue::new(&device, receive_count + SPARE, plan.events, &first_failure)?;
        let idle = device.completion_queue(1).map_err(said)?;
        let shared = if plan.shared_receives() {
            Some(domain.shared_receive_queue(receive_count as u32, 1).map_err(said)?)
        } else {
            None
        };
        let makers =
            Makers { domain: &domain, sends: &sends.cq, receives: &receives.cq, shared: shared.as_ref() };
        let queue_pairs = match plan.service {
            Service::Rc => QueuePairs::Rc(makers.make(plan)?),
            Service::Uc => QueuePairs::Uc(makers.make(plan)?),
            Service::Ud => QueuePairs::Ud(makers.make(plan)?, Vec::new()),
        };
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let source_stride = plan.size_bytes.next_multiple_of(CACHE_LINE);
        let source = domain.allocate(plan.slot_count() * source_stride, all).map_err(said)?;
        let target_stride = target_stride(plan);
        let target_count = target_slots(plan, receive_count);
        let target = domain.allocate(target_count * target_stride, all).map_err(said)?;
        let slices = |region: &MemoryRegion, stride: usize, length: usize, count: usize| {
            let slice =
                |slot: usize| region.slice(slot * stride..slot * stride + length).map(|slice| [slice]);
            (0..count).map(slice).collect::<Result<Vec<_>, _>>().map_err(said)
        };
        let receive_length = plan.size_bytes + grh_bytes(plan);
        let mut end = Endpoint {
            sources: slices(&source, source_stride, plan.size_bytes, plan.slot_count())?,
            targets: slices(&target, target_stride, receive_length, target_count)?,
            remotes: Vec::new(),
            plan: plan.clone(),
            posted: vec![0; plan.qp_count],
            fetched: vec![0; plan.qp_count],
            scratch: vec![0; plan.size_bytes],
            device,
            domain,
            queue_pairs,
            shared,
            sends,
            receives,
            idle,
            source,
            target,
        };
        end.post_all_receives()?;
        Ok(end)
    }

    /// What the other end must know.
    pub(crate) fn info(&self) -> EndInfo {
        let gid = self.device.gids().first().map(|(_, entry)| entry.gid).unwrap_or_default();
        let endpoints = match &self.queue_pairs {
            QueuePairs::Rc(qps) => qps.iter().map(|qp| qp.endpoint().to_bytes()).collect(),
            QueuePairs::Uc(qps) => qps.iter().map(|qp| qp.endpoint().to_bytes()).collect(),
            QueuePairs::Ud(qps, _) => {
                let endpoint = |qp: &UdQueuePair| UdEndpoint { gid, qpn: qp.qpn(), qkey: QKEY };
                qps.iter().map(|qp| endpoint(qp).to_bytes()).collect()
            }
        };
        EndInfo { endpoints, target: self.target.remote().to_bytes() }
    }

    /// Connects all queue pairs.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn connect(&mut self, peer: &EndInfo) -> Result<(), String> {
        let path = PathOptions { mtu: Mtu::from_bytes(self.plan.mtu_bytes), ..PathOptions::default() };
        let rd_atomic = self.plan.depth.clamp(1, 128) as u8;
        if peer.endpoints.len() != self.plan.qp_count {
            return Err("the other end made another number of queue pairs".to_owned());
        }
        match &mut self.queue_pairs {
            QueuePairs::Rc(qps) => {
                let options = RcConnectOptions {
                    path,
                    max_rd_atomic: rd_atomic,
                    max_dest_rd_atomic: rd_atomic,
                    ..RcConnectOptions::default()
                };
                for (qp, bytes) in qps.iter().zip(&peer.endpoints) {
                    let endpoint = RcEndpoint::from_bytes(bytes).map_err(said)?;
                    check_mtu(endpoint.mtu, &self.plan)?;
                    qp.connect(&endpoint, &options).map_err(said)?;
                }
            }
            QueuePairs::Uc(qps) => {
                for (qp, bytes) in qps.iter().zip(&peer.endpoints) {
                    let endpoint = UcEndpoint::from_bytes(bytes).map_err(said)?;
                    check_mtu(endpoint.mtu, &self.plan)?;
                    qp.connect(&endpoint, &UcConnectOptions { path }).map_err(said)?;
                }
            }
            QueuePairs::Ud(qps, addresses) => {
                check_mtu(self.device.active_mtu(), &self.plan)?;
                for (qp, bytes) in qps.iter().zip(&peer.endpoints) {
                    qp.activate(QKEY).map_err(said)?;
                    let endpoint = UdEndpoint::from_bytes(bytes);
                    addresses.push(self.domain.ud_address(&endpoint).map_err(said)?);
                }
            }
        }
        let whole = RemoteSlice::from_bytes(&peer.target);
        let (stride, length) = (target_stride(&self.plan), self.plan.size_bytes);
        let slice = |slot: usize| whole.slice(slot * stride..slot * stride + length);
        let count = self.plan.slot_count().max(1);
        self.remotes = (0..count).map(slice).collect::<Result<_, _>>().map_err(said)?;
        Ok(())
    }

    /// Posts requests of the plan's operation; for WRITEs, READs and atomics to the peer's slot of the same
    /// number.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn post(&mut self, post: &Post) -> Result<(), String> {
        let (own, depth) = (post.slots == Slots::OfQueuePair, self.plan.depth as u64);
        let base = self.posted.get(post.qp).copied().unwrap_or(0);
        if let Some(posted) = self.posted.get_mut(post.qp).filter(|_| own) {
            *posted += post.count;
        }
        let slot_count = self.sources.len().max(1) as u64;
        let slot = |message: u64| {
            if own {
                post.qp as u64 * depth + (base + message - post.first) % depth
            } else {
                message % slot_count
            }
        };
        let local = |message: u64| self.sources.get(slot(message) as usize).map_or(&[][..], |one| &one[..]);
        let none = RemoteSlice { address: 0, rkey: 0, length: 0 };
        let remote = |message: u64| self.remotes.get(slot(message) as usize).copied().unwrap_or(none);
        let counter = self.remotes.get(post.qp).copied().unwrap_or(none);
        match &self.queue_pairs {
            QueuePairs::Rc(qps) => post_on(qps, post, |message| match self.plan.operation {
                Operation::Write => SendRequest::write(local(message), remote(message)),
                Operation::Read => SendRequest::read(local(message), remote(message)),
                Operation::Send => SendRequest::send(local(message)),
                Operation::Atomic => SendRequest::fetch_add(local(message), counter, 1),
            }),
            QueuePairs::Uc(qps) => post_on(qps, post, |message| match self.plan.operation {
                Operation::Write => SendRequest::write(local(message), remote(message)),
                _ => SendRequest::send(local(message)),
            }),
            QueuePairs::Ud(qps, addresses) => {
                let Some(to) = addresses.get(post.qp) else { return Ok(()) };
                post_on(qps, post, |message| SendRequest::send_to(to, local(message)))
            }
        }
    }

    /// Tells the sender on an unreliable service which message was the last to arrive.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn send_credit(&mut self, number: u64) -> Result<(), String> {
        self.discard_sends()?;
        let imm = (number as u32).to_be_bytes();
        let sent = match &self.queue_pairs {
            QueuePairs::Rc(_) => Ok(()),
            QueuePairs::Uc(qps) => {
                qps.first().map_or(Ok(()), |qp| qp.post_send(&SendRequest::send(&[]).imm(imm).signaled()))
            }
            QueuePairs::Ud(qps, addresses) => match (qps.first(), addresses.first()) {
                (Some(qp), Some(to)) => qp.post_send(&SendRequest::send_to(to, &[]).imm(imm).signaled()),
                _ => Ok(()),
            },
        };
        sent.map_err(said)
    }

    fn post_all_receives(&mut self) -> Result<(), String> {
        let per_queue = receives_per_queue(&self.plan);
        let queues = if self.shared.is_some() { 1 } else { self.plan.qp_count };
        for index in 0..per_queue * queues {
            let (qp, slot) = (index / per_queue, index % self.targets.len().max(1));
            self.post_receive((qp as u64) << 32 | slot as u64)?;
        }
        Ok(())
    }

    /// Posts the receive again that a completion is of.
    ///
    /// # Errors
    /// A sentence.
    #[inline]
    pub(crate) fn post_receive_again(&mut self, completion: &WorkCompletion) -> Result<(), String> {
        self.post_receive(completion.wr_id)
    }

    #[inline]
    fn post_receive(&mut self, wr_id: u64) -> Result<(), String> {
        let sges = self.targets.get(wr_id as u32 as usize).map_or(&[][..], |one| &one[..]);
        let request = RecvRequest { wr_id, sges };
        if let Some(shared) = &self.shared {
            return shared.post_recv(&request).map_err(said);
        }
        let qp = (wr_id >> 32) as usize;
        match &self.queue_pairs {
            QueuePairs::Rc(qps) => receive_on(qps, qp, &request),
            QueuePairs::Uc(qps) => receive_on(qps, qp, &request),
            QueuePairs::Ud(qps, _) => receive_on(qps, qp, &request),
        }
    }

    /// Slot of the receive memory that a message is in.
    #[inline]
    pub(crate) fn slot_of(&self, completion: &WorkCompletion) -> usize {
        completion.wr_id as u32 as usize
    }

    /// Number in a message's immediate data.
    pub(crate) fn number_of(completion: &WorkCompletion) -> u64 {
        u64::from(u32::from_be_bytes(completion.imm_data))
    }

    /// Whether it has one.
    pub(crate) fn has_number(completion: &WorkCompletion) -> bool {
        completion.flags.contains(WcFlags::WITH_IMM)
    }

    /// Completions of sends; looking at none drives the device.
    ///
    /// # Errors
    /// A sentence: a request failed.
    #[inline]
    pub(crate) fn poll_sends(&mut self, out: &mut [WorkCompletion]) -> Result<usize, String> {
        self.sends.poll(out)
    }

    /// Completions of receives; looking at none drives the device.
    ///
    /// # Errors
    /// As [`poll_sends`](Endpoint::poll_sends).
    #[inline]
    pub(crate) fn poll_receives(&mut self, out: &mut [WorkCompletion]) -> Result<usize, String> {
        self.receives.poll(out)
    }

    /// As [`poll_sends`](Endpoint::poll_sends), sleeping until there are some.
    pub(crate) fn wait_sends(
        &mut self,
        out: &mut [WorkCompletion],
        limit: Duration,
    ) -> Result<usize, String> {
        self.sends.wait(out, limit)
    }

    /// As [`poll_receives`](Endpoint::poll_receives), sleeping until there are some.
    pub(crate) fn wait_receives(
        &mut self,
        out: &mut [WorkCompletion],
        limit: Duration,
    ) -> Result<usize, String> {
        self.receives.wait(out, limit)
    }

    /// Takes completions of sends that nobody waits for.
    ///
    /// # Errors
    /// A sentence: a request failed.
    pub(crate) fn discard_sends(&mut self) -> Result<(), String> {
        let mut done = [WorkCompletion::default(); 32];
        while !self.sends.cq.is_empty() && self.sends.poll(&mut done)? > 0 {}
        Ok(())
    }

    /// Takes what an earlier round left.
    ///
    /// # Errors
    /// A sentence: a request failed.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        let mut done = [WorkCompletion::default(); 32];
        while self.sends.poll(&mut done)? > 0 {}
        loop {
            let count = self.receives.poll(&mut done)?;
            if count == 0 {
                return Ok(());
            }
            for completion in done.iter().take(count) {
                self.post_receive_again(completion)?;
            }
        }
    }

    /// Lets the device receive until nothing more comes; what is acknowledged is here already, so that a
    /// reliable service need not wait.
    ///
    /// # Errors
    /// A sentence: a request failed.
    pub(crate) fn settle(&mut self, reliable: bool) -> Result<(), String> {
        if reliable {
            return Ok(());
        }
        let received = |device: &Device| device.counters().value(Counter::RxPackets);
        let (mut before, mut since) = (received(&self.device), Instant::now());
        while since.elapsed() < SILENCE {
            self.idle.poll(&mut [WorkCompletion::default()]);
            let now = received(&self.device);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Whether messages arrive with a completion each.
    pub(crate) fn receives_messages(&self) -> bool {
        self.plan.operation == Operation::Send
    }

    /// Messages whose contents the destination can hold side by side.
    pub(crate) fn checkable_messages(&self) -> u64 {
        let distinct = if self.plan.operation == Operation::Send && self.plan.qp_count > 1 {
            // Receives of different queue pairs may share memory.
            let receives = receives_per_queue(&self.plan) * self.plan.qp_count;
            if self.plan.shared_receives() || self.targets.len() < receives { 1 } else { self.sources.len() }
        } else {
            self.sources.len().min(self.targets.len())
        };
        distinct.max(1) as u64
    }

    /// What the device counted.
    pub(crate) fn traffic(&self) -> Traffic {
        let count = |counter| self.device.counters().value(counter);
        Traffic {
            sent: count(Counter::TxPackets),
            received: count(Counter::RxPackets),
            retransmitted: count(Counter::RetransmittedPackets),
            timeouts: count(Counter::Timeout),
            receiver_not_ready: count(Counter::RxRnrNak),
        }
    }
}

struct Makers<'a> {
    domain: &'a ProtectionDomain,
    sends: &'a CompletionQueue,
    receives: &'a CompletionQueue,
    shared: Option<&'a SharedReceiveQueue>,
}

impl Makers<'_> {
    fn make<T: Receiver>(&self, plan: &Plan) -> Result<Vec<QueuePair<T>>, String> {
        let one = |_| {
            let builder: QueuePairBuilder<T> =
                QueuePair::<T>::builder(self.domain, self.sends, self.receives);
            let builder = builder.send_depth((plan.depth + SPARE) as u32).send_sges(1).inline_bytes(0);
            let builder = match self.shared {
                Some(shared) => builder.recv_depth(0).shared_receive_queue(shared),
                None => builder.recv_depth(receives_per_queue(plan) as u32).recv_sges(1),
            };
            builder.build().map_err(said)
        };
        (0..plan.qp_count).map(one).collect()
    }
}

fn post_on<'a, T: Transport>(
    qps: &[QueuePair<T>],
    post: &Post,
    request: impl Fn(u64) -> SendRequest<'a, T>,
) -> Result<(), String> {
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
        return qp.post_send(&complete(last)).map_err(said);
    }
    let list = SendList::of((post.first..=last).map(complete)).map_err(said)?;
    qp.post_sends(&list).map_err(said)
}

fn receive_on<T: Receiver>(qps: &[QueuePair<T>], qp: usize, request: &RecvRequest<'_>) -> Result<(), String> {
    qps.get(qp).map_or(Ok(()), |qp| qp.post_recv(request)).map_err(said)
}

/// Receives posted to a queue at a time.
pub(super) fn receives_per_queue(plan: &Plan) -> usize {
    match plan.operation {
        _ if plan.shared_receives() => 2 * MAX_OUTSTANDING,
        // More than may be outstanding: the device acknowledges messages that the application has yet to see.
        Operation::Send => {
            let count = (4 * plan.depth).min(MAX_RECEIVES) + SPARE;
            // Receives that share buffers use them in turn; an odd lot at the end would bring a buffer's turn
            // again while the message in it is still to be compared.
            if plan.qp_count == 1 { count.next_multiple_of(plan.slot_count()) } else { count }
        }
        _ => SPARE,
    }
}

pub(super) fn grh_bytes(plan: &Plan) -> usize {
    if plan.service == Service::Ud { GRH_BYTES } else { 0 }
}

pub(super) fn target_stride(plan: &Plan) -> usize {
    (plan.size_bytes + grh_bytes(plan)).next_multiple_of(CACHE_LINE)
}

/// Buffers at the receiving side: one for each receive if that is not too much memory for a cache.
fn target_slots(plan: &Plan, receive_count: usize) -> usize {
    let each = receive_count.max(plan.slot_count());
    if plan.operation == Operation::Send && each * target_stride(plan) <= RECEIVE_BYTES {
        each
    } else {
        plan.slot_count()
            .max(plan.qp_count.min(MAX_OUTSTANDING) * usize::from(plan.operation == Operation::Atomic))
    }
}

/// Whether the link carries the path MTU asked for.
fn check_mtu(largest: Mtu, plan: &Plan) -> Result<(), String> {
    if plan.mtu_bytes <= largest.bytes() {
        return Ok(());
    }
    Err(format!(
        "the link carries a path MTU of {} at most, not {}: use --mtu {}",
        largest.bytes(),
        plan.mtu_bytes,
        largest.bytes()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::latency;
    use crate::perf::plan::Quantity;
    use crate::perf::plan::tests::plan;
    use crate::perf::statistics::Times;

    #[test]
    fn messages_in_a_row_have_buffers_of_their_own() {
        for size_bytes in [8, 1000, 5000, 4096, 70_000, 1 << 20] {
            for depth in [1, 16, 100, 256] {
                let plan = Plan { size_bytes, depth, ..plan(Operation::Send, Service::Uc) };
                let receives = receives_per_queue(&plan);
                let slots = target_slots(&plan, receives);
                assert!(receives.is_multiple_of(slots), "{size_bytes}, {depth}: {receives} on {slots}");
            }
        }
    }

    #[test]
    fn the_first_failure_is_shown_whatever_is_flushed_after_it() {
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let address = |last| IpAddr::from([127, 128 + high % 64, low, last]);
        let plan = Plan { quantity: Quantity::Latency, ..plan(Operation::Send, Service::Rc) };
        let open = |last| Endpoint::open(&plan, address(last), None).expect("a device on loopback");
        let (mut left, mut right) = (open(1), open(2));
        left.connect(&right.info()).expect("fresh queue pairs");
        right.connect(&left.info()).expect("fresh queue pairs");
        drop(right);
        // A ping-pong looks for its answer first: at the receive requests, which are flushed.
        let mut times = Times::new();
        let long = Duration::from_secs(60);
        let failure = latency::measure(&mut left, &plan, long, &mut times).expect_err("the peer has gone");
        assert!(failure.contains("failed with RETRY_EXC_ERR"), "{failure}");
    }
}
