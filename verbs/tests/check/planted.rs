//! Programs with a planted mistake each, on the line that says `BUG`, which they do not make if mended.

use std::time::Duration;

use pumice_verbs::transport::Rc;
use pumice_verbs::{
    Access, CompletionQueue, Device, LocalSlice, MemoryRegion, Notify, ProtectionDomain, RcConnectOptions,
    RcQueuePair, RecvRequest, Result, SendRequest,
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A device, and what every program needs.
pub(crate) struct PlantedEnd {
    pub(crate) device: Device,
    domain: ProtectionDomain,
    memory: MemoryRegion,
}

impl PlantedEnd {
    pub(crate) fn new(device: Device) -> Result<PlantedEnd> {
        let domain = device.protection_domain()?;
        let memory = domain.allocate(4096, all())?;
        Ok(PlantedEnd { device, domain, memory })
    }

    fn qp(&self, send: &CompletionQueue, recv: &CompletionQueue) -> Result<RcQueuePair> {
        RcQueuePair::builder(&self.domain, send, recv).access(all()).send_depth(8).build()
    }
}

fn all() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

fn connect(one: &RcQueuePair, other: &RcQueuePair) -> Result<()> {
    one.connect(&other.endpoint(), &Default::default())?;
    other.connect(&one.endpoint(), &Default::default())
}

fn write_to<'a>(local: &'a [LocalSlice; 1], to: &PlantedEnd) -> SendRequest<'a, Rc> {
    SendRequest::write(local, to.memory.remote())
}

/// More completions than there is room for.
pub(crate) fn cq_too_small(end: &PlantedEnd, is_fixed: bool) -> Result<()> {
    let cq = end.device.completion_queue(if is_fixed { 8 } else { 2 })?;
    let qp = end.qp(&cq, &cq)?;
    qp.connect(&qp.endpoint(), &Default::default())?;
    for _ in 0..3 {
        qp.post_recv(&RecvRequest { wr_id: 0, sges: &[] })?; // BUG: cq-too-small
    }
    Ok(())
}

/// Requests that make no completion, until the queue is full for ever.
pub(crate) fn send_queue_never_reaped(end: &PlantedEnd, is_fixed: bool) -> Result<()> {
    let cq = end.device.completion_queue(64)?;
    let qp = end.qp(&cq, &cq)?;
    qp.connect(&qp.endpoint(), &Default::default())?;
    let local = [end.memory.slice(..8)?];
    for number in 0..64 {
        let request = write_to(&local, end);
        let is_signaled = is_fixed && number % 8 == 7;
        let request = if is_signaled { request.signaled() } else { request };
        let posted = qp.post_send(&request); // BUG: send-queue-never-reaped
        if posted.is_err() {
            return Ok(());
        }
        if is_signaled {
            cq.wait_success(TIMEOUT)?;
        }
    }
    Ok(())
}

/// Armed after the last poll, and asleep without another poll.
pub(crate) fn lost_wakeup(end: &PlantedEnd, is_fixed: bool) -> Result<()> {
    let channel = end.device.completion_channel()?;
    let cq = channel.completion_queue(8, 0)?;
    let qp = end.qp(&cq, &cq)?;
    qp.connect(&qp.endpoint(), &Default::default())?;
    let local = [end.memory.slice(..8)?];
    qp.post_send(&write_to(&local, end).signaled())?;
    let other = end.device.completion_queue(1)?;
    while cq.is_empty() {
        // Lets the completion come, without taking it.
        match end.device.simulation() {
            Some(simulation) => drop(simulation.step()),
            None => drop(other.poll(&mut [])),
        }
    }
    cq.arm(Notify::Any)?;
    if is_fixed {
        cq.wait_success(TIMEOUT)?;
        return Ok(());
    }
    let _ = channel.wait(Duration::from_secs(3)); // BUG: lost-wakeup
    cq.wait_success(TIMEOUT)?;
    Ok(())
}

/// A queue pair that waits for ever for a peer that does not answer.
pub(crate) fn timeout_for_ever(end: &PlantedEnd, is_fixed: bool) -> Result<()> {
    let cq = end.device.completion_queue(8)?;
    let qp = end.qp(&cq, &cq)?;
    let options = RcConnectOptions { timeout: if is_fixed { 14 } else { 0 }, ..Default::default() };
    qp.connect(&qp.endpoint(), &options)?; // BUG: timeout-for-ever
    Ok(())
}

/// A queue pair is dropped while a request is under way.
pub(crate) fn in_flight_at_destroy(end: &PlantedEnd, is_fixed: bool) -> Result<()> {
    let cq = end.device.completion_queue(8)?;
    let (qp, peer) = (end.qp(&cq, &cq)?, end.qp(&cq, &cq)?);
    connect(&qp, &peer)?;
    let local = [end.memory.slice(..8)?];
    if is_fixed {
        peer.post_recv(&RecvRequest { wr_id: 0, sges: &[end.memory.slice(..)?] })?;
    }
    qp.post_send(&SendRequest::send(&local).signaled())?;
    if is_fixed {
        cq.wait_success(TIMEOUT)?;
        cq.wait_success(TIMEOUT)?;
    }
    drop(qp); // BUG: in-flight-at-destroy
    Ok(())
}

/// Memory that is registered for each message.
pub(crate) fn registering_in_loop(end: &PlantedEnd, is_fixed: bool) -> Result<()> {
    for _ in 0..if is_fixed { 10 } else { 200 } {
        end.domain.allocate(64, all())?; // BUG: registering-in-loop
    }
    Ok(())
}

/// A program: its function gets a device, and whether the mistake is mended.
pub(crate) type Program = fn(&PlantedEnd, bool) -> Result<()>;

/// All programs, by the kind of their mistake.
pub(crate) const PROGRAMS: [(&str, Program); 6] = [
    ("cq-too-small", cq_too_small),
    ("send-queue-never-reaped", send_queue_never_reaped),
    ("lost-wakeup", lost_wakeup),
    ("timeout-for-ever", timeout_for_ever),
    ("in-flight-at-destroy", in_flight_at_destroy),
    ("registering-in-loop", registering_in_loop),
];
