//! All shared targets of this process: how it finds targets that other processes made, opens and closes them
//! together with these processes, and reads what those did.

use std::collections::{BTreeMap, BTreeSet};

use pumice_model::port::Port;
use pumice_model::port::batch::ReceivedBatch;
use pumice_platform::error::ResourceError;
use pumice_transport::qp::{Congestion, QpConfig, QueuePair};
use pumice_transport::types::{Cause, QpCapacity, QpType};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::file::RecordCheck;
use super::forwarding::Forwarding;
use super::record::TargetRecord;
use super::target::{SharedTarget, TargetHost, TargetSharing, Unavailable};

/// Time between two checks whether other processes have changed the domains that this one shares, or died.
const REFRESH_INTERVAL_NS: u64 = 20_000_000;

/// The engine's table of queue pairs, as far as shared targets need it.
pub trait Entries {
    /// Returns a queue pair with its index, and its sharing.
    fn entry(&mut self, qpn: Qpn) -> Option<(u32, &mut QueuePair, &mut TargetSharing)>;

    /// Adds the queue pair of a target with another process's number, and returns its index.
    fn insert(&mut self, qp: QueuePair, sharing: TargetSharing) -> u32;

    /// Removes a queue pair.
    fn remove(&mut self, index: u32);
}

/// State of a domain at the last check: its number of changes, and the processes that have it open.
type RefreshedState = (u64, [bool; 256]);

/// The shared targets of a process.
#[derive(Debug, Default)]
pub struct SharedTargets {
    /// Targets with numbers of other processes that have a queue pair here.
    foreign: BTreeSet<Qpn>,
    /// Queue pairs of this process that initiate as well, each with its domain.
    halves: BTreeMap<Qpn, u32>,
    /// Other processes whose targets are open here; true if their packets come here.
    reserved: BTreeMap<ProcessIndex, bool>,
    forwarding: Forwarding,
    /// Targets that were found to be gone.
    ended: Vec<Qpn>,
    last_states: BTreeMap<u32, RefreshedState>,
    next_refresh_ns: u64,
}

impl SharedTargets {
    /// Writes a new target of a shared domain to the domain's file. In another domain it is not shared.
    ///
    /// # Errors
    /// Fails if the domain is full, or if its file cannot be written.
    pub fn share<H: TargetHost>(
        &mut self,
        qp: &QueuePair,
        host: &mut H,
    ) -> Result<TargetSharing, ResourceError> {
        let context = qp.context();
        let Some(file) = host.xrc().shared(context.xrcd) else { return Ok(TargetSharing::default()) };
        let target = SharedTarget::create(file, context.xrcd, qp)?;
        if qp.qp_type().is_both_halves() {
            self.halves.insert(context.qpn, context.xrcd);
        }
        Ok(TargetSharing::of(target))
    }

    /// Returns the index of the queue pair of a target of one of the shared domains that are open here. The
    /// queue pair is made if another process made the target.
    pub fn find<H: TargetHost>(&mut self, qpn: Qpn, entries: &mut impl Entries, host: &mut H) -> Option<u32> {
        // A receiving half is no target in the process that made it; there it is the queue pair itself.
        if let Some((index, ..)) = entries.entry(qpn) {
            return Some(index);
        }
        if host.xrc().targets.contains(qpn) {
            return None;
        }
        for (domain, file) in host.xrc().all_shared() {
            let Some(slot) = file.find(qpn.value()) else { continue };
            let mut record = TargetRecord { qpn: qpn.value(), ..TargetRecord::default() };
            let Some(lock) = file.lock_record(slot) else { continue };
            if file.load(slot, &mut record) == RecordCheck::Removed {
                continue;
            }
            drop(lock);
            let qp = QueuePair::new(QpConfig {
                context: host.adopt_target(qpn, domain, record.half),
                qp_type: QpType::XrcTarget,
                capacity: QpCapacity::default(),
                signal_all: false,
                has_srq: false,
                port_mtu_bytes: 4096,
                congestion: Congestion::default(),
                adaptive_timeout: None,
            });
            let target = SharedTarget::found(&file, domain, slot, &record);
            self.foreign.insert(qpn);
            return Some(entries.insert(qp, TargetSharing::of(target)));
        }
        None
    }

    /// Registers this process for a target, after its first or another registration was made.
    ///
    /// # Errors
    /// Fails if the target is busy or gone.
    pub fn register_process<H: TargetHost>(
        &mut self,
        qpn: Qpn,
        entries: &mut impl Entries,
        host: &mut H,
        port: &mut dyn Port,
    ) -> Result<(), Unavailable> {
        let Some((_, qp, sharing)) = entries.entry(qpn) else { return Ok(()) };
        let Some(target) = sharing.target_mut() else { return Ok(()) };
        let maker = qpn.process();
        if maker != target.file.process() && !self.reserved.contains_key(&maker) {
            // Before the registration, so that the index is not assigned to another process while that lasts.
            if let Some(group) = port.group() {
                group.reserve_index(maker);
            }
            self.reserved.insert(maker, false);
        }
        target.register(qp, host)
    }

    /// Ends this process's registration for a target, after its last registration was closed. The target is
    /// destroyed, unless it is open in another process.
    pub fn unregister_process<H: TargetHost>(
        &mut self,
        qpn: Qpn,
        entries: &mut impl Entries,
        host: &mut H,
        port: &mut dyn Port,
    ) {
        let unused = match entries.entry(qpn) {
            Some((_, qp, sharing)) => sharing.target_mut().is_none_or(|target| target.unregister(qp, host)),
            None => true,
        };
        if unused {
            self.forget(qpn, entries, host);
        }
        self.release_unused(host, port);
    }

    /// Gives up the indices of processes of which no target is open here any more.
    fn release_unused<H: TargetHost>(&mut self, host: &mut H, port: &mut dyn Port) {
        let SharedTargets { foreign, reserved, .. } = self;
        let open = foreign.iter().filter(|qpn| host.xrc().targets.is_open(**qpn));
        let used: BTreeSet<ProcessIndex> = open.map(|qpn| qpn.process()).collect();
        reserved.retain(|process, _| {
            let keep = used.contains(process);
            if !keep && let Some(group) = port.group() {
                group.release_index(*process);
            }
            keep
        });
    }

    /// Removes the record of a queue pair that initiates as well and is being destroyed: no process is its
    /// receiving half any more.
    pub fn end_sharing<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        sharing: &mut TargetSharing,
        host: &mut H,
    ) {
        if !qp.qp_type().is_both_halves() {
            return;
        }
        qp.flush_message(host);
        self.halves.remove(&qp.context().qpn);
        if let Some(target) = sharing.take() {
            target.remove();
        }
    }

    /// Handles the closing of a domain. Changes by other processes matter from now on only as far as they
    /// concern this process's numbers.
    pub fn domain_closed<H: TargetHost>(&mut self, domain: u32, entries: &mut impl Entries, host: &mut H) {
        if !host.xrc().is_lingering(domain) {
            return;
        }
        let foreign: Vec<Qpn> =
            host.xrc().targets.of_domain(domain).filter(|qpn| self.foreign.contains(qpn)).collect();
        foreign.into_iter().for_each(|qpn| self.forget(qpn, entries, host));
    }

    /// Removes a target that does not exist any more. A receive request that it holds is flushed.
    fn forget<H: TargetHost>(&mut self, qpn: Qpn, entries: &mut impl Entries, host: &mut H) {
        let Some((index, qp, sharing)) = entries.entry(qpn) else { return };
        let domain = sharing.take().map(|target| target.domain);
        self.halves.remove(&qpn);
        qp.flush_message(host);
        let targets = &host.xrc().targets;
        if targets.is_open(qpn) || !targets.contains(qpn) {
            // A process has damaged the file: all registrations of the target see it fail.
            qp.enter_error(Some(Cause::Modified), host);
            return;
        }
        host.forget_target(qpn);
        entries.remove(index);
        self.foreign.remove(&qpn);
        if let Some(domain) = domain {
            host.xrc().drop_unused(domain);
        }
    }

    /// Notes that a target was found to be gone.
    pub fn note_ended(&mut self, qpn: Qpn) {
        self.ended.push(qpn);
    }

    /// Reports whether targets were found to be gone.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Removes the targets that were found to be gone.
    #[inline]
    pub fn reap<H: TargetHost>(&mut self, entries: &mut impl Entries, host: &mut H) {
        while let Some(qpn) = self.ended.pop() {
            self.forget(qpn, entries, host);
        }
    }

    /// Notifies the other processes if the queue pair failed outside of [`TargetSharing::with`], that is
    /// while it sent.
    #[inline]
    pub fn publish_failure<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        sharing: &mut TargetSharing,
        host: &mut H,
    ) {
        if sharing.is_outdated(qp)
            && let Some(target) = sharing.target_mut()
            && target.publish_failure(qp, host) == Err(Unavailable::Removed)
        {
            self.note_ended(qp.context().qpn);
        }
    }

    /// Queues a packet for the process that owns its SRQ. It leaves with [`flush`](Self::flush), when the
    /// port is free.
    pub fn forward(&mut self, owner: ProcessIndex, received: &ReceivedBatch<'_>, packet: &[u8]) {
        self.forwarding.push(owner, received, packet);
    }

    /// Forwards the queued packets.
    #[inline]
    pub fn flush(&mut self, port: &mut dyn Port) {
        self.forwarding.flush(port);
    }

    /// Returns when [`refresh_all`](Self::refresh_all) is due: only where domains are shared.
    pub fn refresh_deadline_ns(&self, shares: bool) -> Option<u64> {
        shares.then_some(self.next_refresh_ns)
    }

    /// Reads what other processes have done to shared domains: events, failed and destroyed targets, ended
    /// processes. Reports the indices of the queue pairs that this may have changed.
    pub fn refresh_all<H: TargetHost>(
        &mut self,
        now_ns: u64,
        entries: &mut impl Entries,
        host: &mut H,
        port: &mut dyn Port,
        mut touched: impl FnMut(u32),
    ) {
        if now_ns < self.next_refresh_ns {
            return;
        }
        self.next_refresh_ns = now_ns.saturating_add(REFRESH_INTERVAL_NS);
        let domains = host.xrc().all_shared();
        self.last_states.retain(|known, _| domains.iter().any(|(domain, _)| domain == known));
        for (domain, file) in domains {
            let live = file.live();
            let now = (file.change(), live);
            let before = self.last_states.insert(domain, now);
            if before == Some(now) {
                continue;
            }
            if before.is_some_and(|(_, before)| before != live) {
                file.sweep();
            }
            self.refresh_domain(domain, entries, host, &mut touched);
            drop(file);
            host.xrc().drop_unused(domain);
        }
        if let Some(group) = port.group() {
            for (process, adopted) in &mut self.reserved {
                *adopted = group.adopt_index(*process);
            }
        }
    }

    fn refresh_domain<H: TargetHost>(
        &mut self,
        domain: u32,
        entries: &mut impl Entries,
        host: &mut H,
        touched: &mut impl FnMut(u32),
    ) {
        let halves = self.halves.iter().filter(|(_, of)| **of == domain).map(|(qpn, _)| *qpn);
        let all: Vec<Qpn> = host.xrc().targets.of_domain(domain).chain(halves).collect();
        for qpn in all {
            let Some((index, qp, sharing)) = entries.entry(qpn) else { continue };
            // A target that another process has locked is examined at the next check.
            if sharing.with(qp, host, |_, _| ()) == Err(Unavailable::Removed) {
                self.note_ended(qpn);
            }
            touched(index);
        }
        self.reap(entries, host);
    }
}
