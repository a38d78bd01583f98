//! Device and queue pairs of one end, with the same interface for all services.
//!
//! One end of a measurement: its medium, the contents of its memory, the requests that it posts.

use std::net::IpAddr;
use std::path::Path;
use std::process;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pumice_device::sharing::inspect_first;
use pumice_transport::path::ROCE_PORT;
use pumice_verbs::{
    Access, CompletionQueue, Device, DeviceOptions, LocalSlice, MemoryRegion, ProtectionDomain, RecvRequest,
    RemoteSlice, SendRequest, SharedReceiveQueue, WorkCompletion,
};

use self::queue_pairs::{
    CACHE_LINE, CompletionPoller, FirstFailure, QpResources, SPARE_BUFFERS, ServiceQueuePairs, grh_bytes,
    post_on, receive_on, source_stride, target_buffers, target_stride,
};
use crate::error::{PerfError, Result, of_device};
use crate::pattern::{self, Tag};
use crate::plan::{Operation, Plan};

/// Longest wait for the device's answer. The device may have to wait for a processor.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The medium of packets to the other end, and for UDP the reason why it is not shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Medium {
    /// Name: "shared memory" or "UDP".
    pub(crate) name: String,
    pub(crate) reason: Option<String>,
}

impl Medium {
    /// Parses the text of `pumice stat`: "shared memory", or "UDP: why".
    fn parse(description: &str) -> Medium {
        match description.split_once(": ") {
            Some((name, reason)) => Medium { name: name.to_owned(), reason: Some(reason.to_owned()) },
            None => Medium { name: description.to_owned(), reason: None },
        }
    }

    /// Reports whether packets go through shared memory.
    pub(crate) fn is_shared_memory(&self) -> bool {
        self.name == "shared memory"
    }

    /// Reports whether the two processes have not agreed on a ring yet, but may.
    pub(crate) fn may_change(&self) -> bool {
        self.reason
            .as_ref()
            .is_some_and(|why| why.contains("not answered") || why.contains("was sent to it yet"))
    }
}

impl Endpoint {
    /// Returns the medium of packets to the other end now, as the device reports it. `None` if it does not
    /// report it in time, or if the queue pairs are of a service that has no peer (UD).
    pub(crate) fn medium(&self) -> Option<Medium> {
        if !self.plan.shared {
            return Some(Medium::parse("UDP: the processes do not share their UDP ports"));
        }
        let qpn = match &self.queue_pairs {
            ServiceQueuePairs::Rc(qps) => qps.first()?.qpn(),
            ServiceQueuePairs::Uc(qps) => qps.first()?.qpn(),
            ServiceQueuePairs::Ud(..) => return None,
        };
        let this = (qpn.process(), process::id());
        let objects = inspect_first(ROCE_PORT, None, this, TIMEOUT).ok()??;
        let description = objects.qps.into_iter().find(|qp| qp.qpn == qpn.value())?.medium?;
        Some(Medium::parse(&description))
    }

    /// Fills a message to be sent.
    pub(crate) fn fill_send(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        pattern::fill(&mut self.buffers.scratch, tag);
        let stride = source_stride(&self.plan);
        self.buffers.source.write(buffer * stride, &self.buffers.scratch).map_err(of_device)
    }

    /// Fills all messages with the same contents.
    pub(crate) fn fill_sends(&mut self, tag: Tag) -> Result<()> {
        (0..self.buffers.sources.len()).try_for_each(|buffer| self.fill_send(buffer, tag))
    }

    /// Fills memory that the peer reads.
    pub(crate) fn fill_target(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        pattern::fill(&mut self.buffers.scratch, tag);
        self.buffers
            .target
            .write(buffer * target_stride(&self.plan), &self.buffers.scratch)
            .map_err(of_device)
    }

    /// Compares the data of a READ.
    pub(crate) fn check_send(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        let stride = source_stride(&self.plan);
        self.buffers.source.read(buffer * stride, &mut self.buffers.scratch).map_err(of_device)?;
        self.compare("read", buffer, tag)
    }

    /// Compares data that the peer wrote.
    pub(crate) fn check_target(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        self.buffers
            .target
            .read(buffer * target_stride(&self.plan), &mut self.buffers.scratch)
            .map_err(of_device)?;
        self.compare("written", buffer, tag)
    }

    /// Compares a received message.
    pub(crate) fn check_receive(&mut self, buffer: usize, tag: Tag) -> Result<()> {
        let offset = buffer * target_stride(&self.plan) + grh_bytes(&self.plan);
        self.buffers.target.read(offset, &mut self.buffers.scratch).map_err(of_device)?;
        self.compare("received", buffer, tag)
    }

    fn compare(&self, how: &str, buffer: usize, tag: Tag) -> Result<()> {
        let Some(wrong) = pattern::first_wrong(&self.buffers.scratch, tag) else { return Ok(()) };
        Err(PerfError::Contents(format!(
            "byte {} of a message {how} in buffer {buffer} is {:#04x} instead of {:#04x}: the device does \
             not transport data as it should",
            wrong.offset, wrong.found, wrong.expected
        )))
    }

    /// Compares the results of the oldest `count` fetch-and-adds of a queue pair: each is one more than the
    /// one before.
    pub(crate) fn check_fetched(&mut self, qp: usize, count: u64) -> Result<()> {
        let Some(fetched) = self.fetched.get_mut(qp) else { return Ok(()) };
        for _ in 0..count {
            let expected = *fetched;
            *fetched += 1;
            let buffer = qp * self.plan.depth + (expected % self.plan.depth as u64) as usize;
            let result = self.buffers.source.atomic_u64(buffer * CACHE_LINE).map_err(of_device)?;
            let found = result.load(Ordering::Acquire);
            if found != expected {
                let sentence = format!("a fetch-and-add returned {found} instead of {expected}");
                return Err(PerfError::Contents(sentence));
            }
        }
        Ok(())
    }

    /// Returns the number of fetch-and-add results compared so far.
    pub(crate) fn checked_results(&self) -> u64 {
        self.fetched.iter().sum()
    }

    /// Returns the expected values of the peer's counters, by queue pair.
    pub(crate) fn expected_counters(&self) -> Vec<u64> {
        self.fetched.clone()
    }

    /// Compares the counters that the peer's fetch-and-adds incremented.
    pub(crate) fn check_counters(&mut self, values: &[u64]) -> Result<()> {
        for (buffer, expected) in values.iter().enumerate() {
            let counter =
                self.buffers.target.atomic_u64(buffer * target_stride(&self.plan)).map_err(of_device)?;
            let found = counter.load(Ordering::Acquire);
            if found != *expected {
                let sentence = format!("a counter is at {found} after {expected} fetch-and-adds");
                return Err(PerfError::Contents(sentence));
            }
        }
        Ok(())
    }

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

    fn post_all_receives(&mut self) -> Result<()> {
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

    /// Opens the device and makes all objects for a plan.
    pub(crate) fn open(plan: &Plan, address: IpAddr, capture: Option<&Path>) -> Result<Endpoint> {
        let first_failure = FirstFailure::default();
        let device = open_device(plan, address, capture, &first_failure)?;
        let domain = device.protection_domain().map_err(of_device)?;
        let receive_count = receives_per_queue(plan) * if plan.shared_receives() { 1 } else { plan.qp_count };
        let sends =
            CompletionPoller::new(&device, plan.outstanding() + SPARE_BUFFERS, plan.events, &first_failure)?;
        let receives =
            CompletionPoller::new(&device, receive_count + SPARE_BUFFERS, plan.events, &first_failure)?;
        let idle = device.completion_queue(1).map_err(of_device)?;
        let shared = if plan.shared_receives() {
            Some(domain.shared_receive_queue(receive_count as u32, 1).map_err(of_device)?)
        } else {
            None
        };
        let makers = QpResources {
            domain: &domain,
            sends: &sends.cq,
            receives: &receives.cq,
            shared: shared.as_ref(),
        };
        let queue_pairs = makers.make(plan)?;
        let (source, sources) = memory(&domain, source_stride(plan), plan.size_bytes, plan.buffer_count())?;
        let received_bytes = plan.size_bytes + grh_bytes(plan);
        let (target, targets) =
            memory(&domain, target_stride(plan), received_bytes, target_buffers(plan, receive_count))?;
        let mut end = Endpoint {
            device,
            domain,
            queue_pairs,
            shared,
            sends,
            receives,
            idle,
            buffers: Buffers {
                source,
                sources,
                target,
                targets,
                remotes: Vec::new(),
                scratch: vec![0; plan.size_bytes],
            },
            plan: plan.clone(),
            posted: vec![0; plan.qp_count],
            fetched: vec![0; plan.qp_count],
        };
        end.post_all_receives()?;
        Ok(end)
    }
}

/// The memory of an end.
pub(crate) struct Buffers {
    source: MemoryRegion,
    sources: Vec<[LocalSlice; 1]>,
    target: MemoryRegion,
    /// Buffers for receives.
    targets: Vec<[LocalSlice; 1]>,
    /// Buffers of the peer.
    remotes: Vec<RemoteSlice>,
    scratch: Vec<u8>,
}

/// An end of a measurement.
pub(crate) struct Endpoint {
    device: Device,
    domain: ProtectionDomain,
    queue_pairs: ServiceQueuePairs,
    shared: Option<SharedReceiveQueue>,
    sends: CompletionPoller,
    receives: CompletionPoller,
    /// Completion queue that no queue pair uses: polling it drives the device and takes no completion.
    idle: CompletionQueue,
    buffers: Buffers,
    plan: Plan,
    /// Numbers of atomics by queue pair: posted, and compared.
    posted: Vec<u64>,
    fetched: Vec<u64>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("plan", &self.plan).finish_non_exhaustive()
    }
}

fn open_device(
    plan: &Plan,
    address: IpAddr,
    capture: Option<&Path>,
    first_failure: &FirstFailure,
) -> Result<Device> {
    let record = first_failure.clone();
    // Each end has an address of its own, so it need not share the port.
    let mut options = DeviceOptions::new().exclusive(!plan.shared).wire(plan.wire).addresses([address]);
    options = options.explain(move |qpn, cause| record.record(qpn, cause));
    if let Some(file) = capture {
        options = options.capture(file);
    }
    Device::open(options).map_err(of_device)
}

/// Allocates registered memory, with slices of it: `count` buffers of `length` bytes, each `stride` bytes
/// after the one before.
fn memory(
    domain: &ProtectionDomain,
    stride: usize,
    length: usize,
    count: usize,
) -> Result<(MemoryRegion, Vec<[LocalSlice; 1]>)> {
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let region = domain.allocate(count * stride, all).map_err(of_device)?;
    let slice = |index: usize| region.slice(index * stride..index * stride + length).map(|slice| [slice]);
    let slices = (0..count).map(slice).collect::<std::result::Result<Vec<_>, _>>().map_err(of_device)?;
    Ok((region, slices))
}

mod connect;
mod queue_pairs;

pub(crate) use connect::{EndpointInfo, PacketCounts};

pub(crate) use queue_pairs::{BufferSelection, Post, receives_per_queue};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_says_is_a_name_and_a_reason() {
        let ring = Medium::parse("shared memory");
        assert!(ring.is_shared_memory() && ring.reason.is_none() && !ring.may_change());
        let udp = Medium::parse("UDP: nothing was sent to it yet");
        assert!(!udp.is_shared_memory() && udp.may_change());
        assert_eq!(udp.reason.as_deref(), Some("nothing was sent to it yet"));
        assert!(!Medium::parse("UDP: the other process uses UDP only").may_change());
    }
}
