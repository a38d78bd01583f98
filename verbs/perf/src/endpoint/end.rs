//! One end of a measurement: its device and the objects that a plan needs.

use std::net::IpAddr;
use std::path::Path;

use pumice_verbs::{
    Access, CompletionQueue, Device, DeviceOptions, LocalSlice, MemoryRegion, ProtectionDomain, RemoteSlice,
    SharedReceiveQueue,
};

use super::buffers::{
    SPARE_BUFFERS, grh_bytes, receives_per_queue, source_stride, target_buffers, target_stride,
};
use super::first_failure::FirstFailure;
use super::queue::CompletionPoller;
use super::queue_pairs::{QpResources, ServiceQueuePairs};
use crate::error::{Result, of_device};
use crate::plan::Plan;

/// The memory of an end.
pub(crate) struct Buffers {
    pub(super) source: MemoryRegion,
    pub(super) sources: Vec<[LocalSlice; 1]>,
    pub(super) target: MemoryRegion,
    /// Buffers for receives.
    pub(super) targets: Vec<[LocalSlice; 1]>,
    /// Buffers of the peer.
    pub(super) remotes: Vec<RemoteSlice>,
    pub(super) scratch: Vec<u8>,
}

/// An end of a measurement.
pub(crate) struct Endpoint {
    pub(super) device: Device,
    pub(super) domain: ProtectionDomain,
    pub(super) queue_pairs: ServiceQueuePairs,
    pub(super) shared: Option<SharedReceiveQueue>,
    pub(super) sends: CompletionPoller,
    pub(super) receives: CompletionPoller,
    /// Completion queue that no queue pair uses: polling it drives the device and takes no completion.
    pub(super) idle: CompletionQueue,
    pub(super) buffers: Buffers,
    pub(super) plan: Plan,
    /// Numbers of atomics by queue pair: posted, and compared.
    pub(super) posted: Vec<u64>,
    pub(super) fetched: Vec<u64>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Endpoint {
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
