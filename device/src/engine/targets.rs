//! XRC targets that several processes are together: whoever owns the SRQ that a packet names executes it.
//!
//! A target of a shared domain has a queue pair in every process that deals with it. What counts is the record
//! in the domain's file: [`run`] brings the queue pair up to date, lets something happen to it, and writes down
//! what came of it, all under the record's lock. Answers leave afterwards, so the peer never knows more than the
//! file does.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_transport::path::Flow;
use pumice_transport::qp::{MessageSnapshot, QpConfig, QueuePair, TargetSnapshot};
use pumice_transport::types::{Cause, QpCapacity, QpState, QpType};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::queue_pairs::{QpEntry, QueuePairs};
use super::{Engine, schedule::Ready};
use crate::ground::error::ResourceError;
use crate::ground::table::Handle;
use crate::port::{Port, Received};
use crate::resources::Resources;
use crate::xrc::{DomainFile, Seen, TargetRecord, event_of};

/// How often a process looks whether others have changed the domains it shares, or died.
const LOOK_INTERVAL_NS: u64 = 20_000_000;

/// This process's view of a target that is shared.
#[derive(Debug)]
pub(crate) struct SharedTarget {
    domain: u32,
    place: u32,
    /// As it was loaded or stored last.
    record: TargetRecord,
    /// Events that this process has shown.
    seen_events: u64,
    scratch: TargetSnapshot,
}

/// Why a shared target cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// Somebody has it and does not let go.
    Busy,
    /// It was destroyed.
    Gone,
}

impl Unavailable {
    /// The error that a call gives.
    pub(crate) fn error(self, qpn: Qpn) -> ResourceError {
        match self {
            Unavailable::Busy => ResourceError::busy(format!("XRC target {qpn}: another process holds it")),
            Unavailable::Gone => ResourceError::invalid(format!("XRC target {qpn} does not exist any more")),
        }
    }
}

/// Packets for another process.
#[derive(Debug)]
pub(crate) struct Outgoing {
    slot: u8,
    flow: Flow,
    traffic_class: u8,
    hop_limit: u8,
    segment_bytes: usize,
    bytes: Vec<u8>,
}

/// What the engine keeps about shared domains.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    next_look_ns: u64,
    /// Each domain as it was looked at last.
    looked: BTreeMap<u32, (u64, [bool; 256])>,
    /// Slots of other processes whose targets are open here; true: their packets come here.
    reserved: BTreeMap<u8, bool>,
    outgoing: Vec<Outgoing>,
    /// Targets that were found to be gone.
    gone: Vec<Qpn>,
}

impl Targets {
    /// Packets for the process of `slot`, to be handed on when the port is free; runs are joined.
    pub(crate) fn forward(&mut self, slot: u8, received: &Received<'_>, packet: &[u8]) {
        let step = received.segment_bytes.max(1);
        if let Some(last) = self.outgoing.last_mut()
            && last.slot == slot
            && last.flow == received.flow
            && last.segment_bytes == step
            && last.bytes.len().is_multiple_of(step)
            && last.bytes.len() + packet.len() <= usize::from(u16::MAX)
        {
            last.bytes.extend_from_slice(packet);
            return;
        }
        self.outgoing.push(Outgoing {
            slot,
            flow: received.flow,
            traffic_class: received.traffic_class,
            hop_limit: received.hop_limit,
            segment_bytes: step,
            bytes: packet.to_vec(),
        });
    }

    /// Forwards what waits; what the port does not take is lost, as on a wire.
    pub(crate) fn flush(&mut self, port: &mut dyn Port) {
        if self.outgoing.is_empty() {
            return;
        }
        let mut group = port.group();
        for run in self.outgoing.drain(..) {
            let Outgoing { slot, flow, traffic_class, hop_limit, segment_bytes, ref bytes } = run;
            if let Some(group) = &mut group {
                let received = Received { flow, traffic_class, hop_limit, segment_bytes, bytes };
                group.forward(ProcessIndex::new(slot), &received);
            }
        }
    }

    /// A target was found to be gone.
    pub(crate) fn note_gone(&mut self, qpn: Qpn) {
        self.gone.push(qpn);
    }
}

impl SharedTarget {
    /// Whether the others think that it works although this queue pair has failed.
    pub(crate) fn is_outdated(&self, qp: &QueuePair) -> bool {
        self.record.half && qp.state() == QpState::Err && self.record.snapshot.state != QpState::Err
    }

    /// Index of its domain.
    pub(crate) const fn domain(&self) -> u32 {
        self.domain
    }

    /// Brings the queue pair in line with the record. The caller has the record's lock.
    fn refresh(
        &mut self,
        qp: &mut QueuePair,
        file: &DomainFile,
        resources: &mut Resources,
    ) -> Result<(), Unavailable> {
        match file.load(self.place, &mut self.record) {
            Seen::Same => return Ok(()),
            Seen::Gone => return Err(Unavailable::Gone),
            Seen::Changed => {}
        }
        let ours = self.record.executor == file.incarnation();
        if let MessageSnapshot::Send { here, .. } = &mut self.record.snapshot.responder.message {
            *here = ours;
        }
        qp.import_target(&self.record.snapshot, resources);
        let qpn = qp.context().qpn;
        for event in self.record.events_since(self.seen_events).filter_map(event_of) {
            resources.show_target_event(qpn, event);
        }
        self.seen_events = self.record.event_count;
        Ok(())
    }

    /// Writes down what became of the queue pair. The caller has the record's lock.
    fn publish(&mut self, qp: &mut QueuePair, file: &DomainFile, resources: &mut Resources) {
        qp.export_target(&mut self.scratch);
        let before = self.record.event_count;
        let record = &mut self.record;
        resources.xrc.take_raised(qp.context().qpn, |event| record.raise(event as u8));
        self.seen_events = self.record.event_count;
        if self.scratch == self.record.snapshot && before == self.record.event_count {
            return;
        }
        let noteworthy =
            before != self.record.event_count || self.scratch.state != self.record.snapshot.state;
        std::mem::swap(&mut self.scratch, &mut self.record.snapshot);
        self.record.executor = match self.record.snapshot.responder.message {
            MessageSnapshot::Send { here: true, .. } => file.incarnation(),
            MessageSnapshot::Send { here: false, .. } => self.record.executor,
            _ => 0,
        };
        self.store(file);
        if noteworthy {
            file.note_change();
        }
    }

    fn store(&mut self, file: &DomainFile) {
        self.record.sequence += 1;
        if file.store(self.place, &self.record).is_err() {
            // No room in the file system: nobody can go on with what is not written down.
            file.remove(self.place);
        }
    }
}

/// Lets something happen to a queue pair as it is now among all processes, and tells them what came of it.
/// Queue pairs that are not shared are simply handed on.
///
/// # Errors
/// It cannot be had; nothing happened.
pub(crate) fn run<R>(
    entry: &mut QpEntry,
    resources: &mut Resources,
    happen: impl FnOnce(&mut QueuePair, &mut Resources) -> R,
) -> Result<R, Unavailable> {
    let QpEntry { qp, shared, .. } = entry;
    let Some(shared) = shared.as_deref_mut() else { return Ok(happen(qp, resources)) };
    let file = resources.xrc.shared(shared.domain).map(Arc::clone).ok_or(Unavailable::Gone)?;
    let _lock = file.lock_record(shared.place).ok_or(Unavailable::Busy)?;
    shared.refresh(qp, &file, resources)?;
    let answer = happen(qp, resources);
    shared.publish(qp, &file, resources);
    Ok(answer)
}

/// A queue pair failed while it sent, which is not under the record's lock: the others have to know.
pub(crate) fn publish_failure(entry: &mut QpEntry, resources: &mut Resources) -> Result<(), Unavailable> {
    let QpEntry { qp, shared, .. } = entry;
    let Some(shared) = shared.as_deref_mut() else { return Ok(()) };
    let file = resources.xrc.shared(shared.domain).map(Arc::clone).ok_or(Unavailable::Gone)?;
    let _lock = file.lock_record(shared.place).ok_or(Unavailable::Busy)?;
    // Its own events are not to be shown twice, nor its state taken back.
    shared.refresh(qp, &file, resources)?;
    qp.enter_error_quietly();
    shared.publish(qp, &file, resources);
    Ok(())
}

/// The queue pair of a target of one of the shared domains that are open here; it is made if need be.
pub(crate) fn find(qpn: Qpn, queue_pairs: &mut QueuePairs, resources: &mut Resources) -> Option<u32> {
    // A receiving half is no target where it was made, and the queue pair itself there.
    if let Some((index, _)) = queue_pairs.by_number(qpn) {
        return Some(index);
    }
    if resources.is_target(qpn) {
        return None;
    }
    for (domain, file) in resources.xrc.all_shared() {
        let Some(place) = file.find(qpn.value()) else { continue };
        let mut record = TargetRecord { qpn: qpn.value(), ..TargetRecord::default() };
        let Some(lock) = file.lock_record(place) else { continue };
        if file.load(place, &mut record) == Seen::Gone {
            continue;
        }
        drop(lock);
        let mut entry = QpEntry::new(QueuePair::new(QpConfig {
            context: resources.insert_target(qpn, domain, record.half),
            qp_type: QpType::XrcTarget,
            capacity: QpCapacity::default(),
            signal_all: false,
            has_srq: false,
            port_mtu_bytes: 4096,
        }));
        let seen_events = record.event_count;
        let record = TargetRecord { qpn: qpn.value(), half: record.half, ..TargetRecord::default() };
        let scratch = TargetSnapshot::default();
        entry.shared = Some(Box::new(SharedTarget { domain, place, record, seen_events, scratch }));
        return Some(queue_pairs.insert_foreign(qpn, entry));
    }
    None
}

impl Engine {
    /// A new target of a shared domain is written down; of another domain, nothing happens.
    ///
    /// # Errors
    /// The domain is full, or its file cannot be written.
    pub(crate) fn share_target(&mut self, entry: &mut QpEntry) -> Result<(), ResourceError> {
        let context = *entry.qp.context();
        let half = entry.qp.qp_type() == QpType::XrcDuplex;
        let Some(file) = self.resources.xrc.shared(context.xrcd).map(Arc::clone) else { return Ok(()) };
        let mut record = TargetRecord { qpn: context.qpn.value(), half, ..TargetRecord::default() };
        entry.qp.export_target(&mut record.snapshot);
        let place = file.create(&mut record)?;
        let shared = SharedTarget {
            domain: context.xrcd,
            place,
            record,
            seen_events: 0,
            scratch: TargetSnapshot::default(),
        };
        entry.shared = Some(Box::new(shared));
        Ok(())
    }

    /// Makes the queue pair of a target known here, if another process made it.
    pub(crate) fn meet_target(&mut self, qpn: Qpn) {
        find(qpn, &mut self.queue_pairs, &mut self.resources);
    }

    /// Somebody of this process has opened a target, the first or another.
    ///
    /// # Errors
    /// It cannot be had.
    pub(crate) fn register_process(&mut self, qpn: Qpn) -> Result<(), Unavailable> {
        let Engine { queue_pairs, resources, port, targets, .. } = self;
        let Some((_, QpEntry { qp, shared: Some(shared), .. })) = queue_pairs.by_number(qpn) else {
            return Ok(());
        };
        let file = resources.xrc.shared(shared.domain).map(Arc::clone).ok_or(Unavailable::Gone)?;
        let slot = qpn.process().value();
        if slot != file.slot() && !targets.reserved.contains_key(&slot) {
            // Before the registration, so that the number is nobody else's while that lasts.
            if let Some(group) = port.group() {
                group.reserve_index(ProcessIndex::new(slot));
            }
            targets.reserved.insert(slot, false);
        }
        let _lock = file.lock_record(shared.place).ok_or(Unavailable::Busy)?;
        shared.refresh(qp, &file, resources)?;
        if !shared.record.is_registered(file.slot()) {
            shared.record.register(file.slot(), true);
            shared.store(&file);
            file.note_change();
        }
        Ok(())
    }

    /// A queue pair that initiates as well is being destroyed: nobody is its receiving half any more.
    pub(crate) fn unshare(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, resources, .. } = self;
        let Some((_, QpEntry { qp, shared, .. })) = queue_pairs.by_number(qpn) else { return };
        if qp.qp_type() != QpType::XrcDuplex {
            return;
        }
        qp.flush_message(resources);
        let Some(shared) = shared.take() else { return };
        if let Some(file) = resources.xrc.shared(shared.domain).map(Arc::clone) {
            // Without the lock as well: somebody who holds it finds the record gone the next time.
            let _lock = file.lock_record(shared.place);
            file.remove(shared.place);
        }
    }

    /// The last of this process has closed a target: it is destroyed, unless it is open in another process.
    pub(crate) fn destroy_target(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, resources, .. } = self;
        let mut destroyed = true;
        if let Some((_, QpEntry { qp, shared: Some(shared), .. })) = queue_pairs.by_number(qpn)
            && let Some(file) = resources.xrc.shared(shared.domain).map(Arc::clone)
            && let Some(_lock) = file.lock_record(shared.place)
            && shared.refresh(qp, &file, resources).is_ok()
        {
            shared.record.register(file.slot(), false);
            shared.record.forget_the_dead(&file.live());
            destroyed = shared.record.is_unused();
            if destroyed {
                file.remove(shared.place);
            } else {
                shared.store(&file);
                file.note_change();
            }
        }
        if destroyed {
            self.forget_target(qpn);
        }
        self.release_slots();
    }

    /// A target is no more. A receive request that it holds is flushed.
    fn forget_target(&mut self, qpn: Qpn) {
        let Engine { queue_pairs, resources, .. } = self;
        let Some((index, entry)) = queue_pairs.by_number(qpn) else { return };
        let domain = entry.shared.take().map(|shared| shared.domain);
        entry.qp.flush_message(resources);
        if resources.has_registrations(qpn) || !resources.is_target(qpn) {
            // Somebody has damaged the file: who has the target open sees it fail.
            entry.qp.enter_error(Some(Cause::Modified), resources);
            return;
        }
        resources.remove_target(qpn);
        if let Some(mut entry) = queue_pairs.remove(index) {
            self.release_budget(&mut entry);
        }
        if let Some(domain) = domain {
            self.resources.drop_unused_domain(domain);
        }
    }

    /// Closes an XRC domain. What other processes do in it is not this one's business any more, but for
    /// packets to its own numbers.
    ///
    /// # Errors
    /// As [`Resources::close_xrcd`].
    pub(crate) fn close_xrcd(&mut self, xrcd: Handle) -> Result<(), ResourceError> {
        let domain = self.resources.xrc.domain_of(xrcd)?;
        self.resources.close_xrcd(xrcd)?;
        if self.resources.xrc.is_lingering(domain) {
            let foreign: Vec<Qpn> = self.queue_pairs.foreign().collect();
            let of_domain = self.resources.targets_of(domain);
            foreign.into_iter().filter(|qpn| of_domain.contains(qpn)).for_each(|qpn| self.forget_target(qpn));
        }
        Ok(())
    }

    /// Gives up the slots of processes of which no target is open here any more.
    fn release_slots(&mut self) {
        let Engine { queue_pairs, resources, port, targets, .. } = self;
        let used: Vec<u8> = queue_pairs
            .foreign()
            .filter(|&qpn| resources.has_registrations(qpn))
            .map(|qpn| qpn.process().value())
            .collect();
        targets.reserved.retain(|slot, _| {
            let keep = used.contains(slot);
            if !keep && let Some(group) = port.group() {
                group.release_index(ProcessIndex::new(*slot));
            }
            keep
        });
    }

    /// Deals with targets that were found to be gone.
    pub(super) fn bury_targets(&mut self) {
        while let Some(qpn) = self.targets.gone.pop() {
            self.forget_target(qpn);
        }
    }

    /// When [`Engine::look_around`] is due: only where domains are shared.
    pub(super) fn look_deadline_ns(&self) -> Option<u64> {
        self.resources.xrc.shares().then_some(self.targets.next_look_ns)
    }

    /// Looks what other processes have done to shared domains: events, failed and destroyed targets, death.
    pub(super) fn look_around(&mut self, now_ns: u64) {
        if now_ns < self.targets.next_look_ns {
            return;
        }
        self.targets.next_look_ns = now_ns.saturating_add(LOOK_INTERVAL_NS);
        let domains = self.resources.xrc.all_shared();
        self.targets.looked.retain(|known, _| domains.iter().any(|(domain, _)| domain == known));
        for (domain, file) in domains {
            let live = file.live();
            let now = (file.change(), live);
            let before = self.targets.looked.insert(domain, now);
            if before == Some(now) {
                continue;
            }
            if before.is_some_and(|(_, before)| before != live) {
                file.sweep();
            }
            self.refresh_domain(domain);
            drop(file);
            self.resources.drop_unused_domain(domain);
        }
        let Engine { port, targets, .. } = self;
        if let Some(group) = port.group() {
            for (slot, adopted) in &mut targets.reserved {
                *adopted = group.adopt_index(ProcessIndex::new(*slot));
            }
        }
    }

    fn refresh_domain(&mut self, domain: u32) {
        let Engine { queue_pairs, resources, targets, touched, .. } = self;
        refresh_all(domain, queue_pairs, resources, targets, touched);
        self.bury_targets();
    }
}

fn refresh_all(
    domain: u32,
    queue_pairs: &mut QueuePairs,
    resources: &mut Resources,
    targets: &mut Targets,
    touched: &mut Ready,
) {
    let halves = queue_pairs.halves_of(domain);
    for qpn in resources.targets_of(domain).into_iter().chain(halves) {
        let Some((index, entry)) = queue_pairs.by_number(qpn) else { continue };
        // Another process that holds it is seen next time.
        if run(entry, resources, |_, _| ()) == Err(Unavailable::Gone) {
            targets.note_gone(qpn);
        }
        touched.push(index);
    }
}
