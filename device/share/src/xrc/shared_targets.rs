//! All shared targets of this process: how it finds those that other processes made, opens and closes them
//! together with these processes, and learns what they did.

use std::collections::{BTreeMap, BTreeSet};

use pumice_ground::error::ResourceError;
use pumice_ports::{Port, Received};
use pumice_transport::qp::{Congestion, QpConfig, QueuePair};
use pumice_transport::types::{Cause, QpCapacity, QpType};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::file::Seen;
use super::forwarding::Forwarding;
use super::record::TargetRecord;
use super::target::{SharedTarget, Sharing, TargetHost, Unavailable};

/// How often a process looks whether others have changed the domains it shares, or died.
const LOOK_INTERVAL_NS: u64 = 20_000_000;

/// The engine's table of queue pairs, as far as shared targets need it.
pub trait Entries {
    /// A queue pair with its index, and how it is shared.
    fn entry(&mut self, qpn: Qpn) -> Option<(u32, &mut QueuePair, &mut Sharing)>;

    /// Adds the queue pair of a target with another process's number; its index.
    fn insert(&mut self, qp: QueuePair, sharing: Sharing) -> u32;

    /// Removes a queue pair.
    fn remove(&mut self, index: u32);
}

/// A domain as it was looked at last: its number of changes, and the processes that have it open.
type Look = (u64, [bool; 256]);

/// The shared targets of a process.
#[derive(Debug, Default)]
pub struct SharedTargets {
    /// Targets with numbers of other processes that have a queue pair here.
    foreign: BTreeSet<Qpn>,
    /// This process's queue pairs that initiate as well, each with its domain.
    halves: BTreeMap<Qpn, u32>,
    /// Other processes whose targets are open here; true: their packets come here.
    reserved: BTreeMap<ProcessIndex, bool>,
    forwarding: Forwarding,
    /// Targets that were found to be gone.
    gone: Vec<Qpn>,
    looked: BTreeMap<u32, Look>,
    next_look_ns: u64,
}

impl SharedTargets {
    /// Writes down a new target of a shared domain. In another domain it is not shared.
    ///
    /// # Errors
    /// The domain is full, or its file cannot be written.
    pub fn share<H: TargetHost>(&mut self, qp: &QueuePair, host: &mut H) -> Result<Sharing, ResourceError> {
        let context = qp.context();
        let Some(file) = host.xrc().shared(context.xrcd) else { return Ok(Sharing::default()) };
        let target = SharedTarget::create(file, context.xrcd, qp)?;
        if qp.qp_type().is_both_halves() {
            self.halves.insert(context.qpn, context.xrcd);
        }
        Ok(Sharing::of(target))
    }

    /// The index of the queue pair of a target of one of the shared domains that are open here. The queue
    /// pair is made if another process made the target.
    pub fn find<H: TargetHost>(&mut self, qpn: Qpn, entries: &mut impl Entries, host: &mut H) -> Option<u32> {
        // A receiving half is no target where it was made, and the queue pair itself there.
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
            if file.load(slot, &mut record) == Seen::Gone {
                continue;
            }
            drop(lock);
            let qp = QueuePair::new(QpConfig {
                context: host.meet_target(qpn, domain, record.half),
                qp_type: QpType::XrcTarget,
                capacity: QpCapacity::default(),
                signal_all: false,
                has_srq: false,
                port_mtu_bytes: 4096,
                congestion: Congestion::default(),
            });
            let target = SharedTarget::found(&file, domain, slot, &record);
            self.foreign.insert(qpn);
            return Some(entries.insert(qp, Sharing::of(target)));
        }
        None
    }

    /// The first, or another, registration of this process for a target was made.
    ///
    /// # Errors
    /// The target cannot be had.
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
            // Before the registration, so that the index is not given to another process while that lasts.
            if let Some(group) = port.group() {
                group.reserve_index(maker);
            }
            self.reserved.insert(maker, false);
        }
        target.register(qp, host)
    }

    /// The last registration of this process for a target was closed: the target is destroyed, unless it is
    /// open in another process.
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

    /// A queue pair that initiates as well is being destroyed: no process is its receiving half any more.
    pub fn unshare<H: TargetHost>(&mut self, qp: &mut QueuePair, sharing: &mut Sharing, host: &mut H) {
        if !qp.qp_type().is_both_halves() {
            return;
        }
        qp.flush_message(host);
        self.halves.remove(&qp.context().qpn);
        if let Some(target) = sharing.take() {
            target.remove();
        }
    }

    /// A domain was closed. What other processes do in it concerns this one only as far as its own numbers
    /// go.
    pub fn domain_closed<H: TargetHost>(&mut self, domain: u32, entries: &mut impl Entries, host: &mut H) {
        if !host.xrc().is_lingering(domain) {
            return;
        }
        let foreign: Vec<Qpn> =
            host.xrc().targets.of_domain(domain).filter(|qpn| self.foreign.contains(qpn)).collect();
        foreign.into_iter().for_each(|qpn| self.forget(qpn, entries, host));
    }

    /// A target is no more. A receive request that it holds is flushed.
    fn forget<H: TargetHost>(&mut self, qpn: Qpn, entries: &mut impl Entries, host: &mut H) {
        let Some((index, qp, sharing)) = entries.entry(qpn) else { return };
        let domain = sharing.take().map(|target| target.domain);
        self.halves.remove(&qpn);
        qp.flush_message(host);
        let targets = &host.xrc().targets;
        if targets.is_open(qpn) || !targets.contains(qpn) {
            // A process has damaged the file: those who have the target open see it fail.
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

    /// A target was found to be gone.
    pub fn note_gone(&mut self, qpn: Qpn) {
        self.gone.push(qpn);
    }

    /// Whether targets were found to be gone.
    #[inline]
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Forgets the targets that were found to be gone.
    #[inline]
    pub fn reap<H: TargetHost>(&mut self, entries: &mut impl Entries, host: &mut H) {
        while let Some(qpn) = self.gone.pop() {
            self.forget(qpn, entries, host);
        }
    }

    /// Tells the other processes if the queue pair failed outside of [`Sharing::with`], that is while it
    /// sent.
    #[inline]
    pub fn publish_failure<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        sharing: &mut Sharing,
        host: &mut H,
    ) {
        if sharing.is_outdated(qp)
            && let Some(target) = sharing.target_mut()
            && target.publish_failure(qp, host) == Err(Unavailable::Gone)
        {
            self.note_gone(qp.context().qpn);
        }
    }

    /// A packet for the process that owns its SRQ. It leaves with [`flush`](Self::flush), when the port is
    /// free.
    pub fn forward(&mut self, owner: ProcessIndex, received: &Received<'_>, packet: &[u8]) {
        self.forwarding.push(owner, received, packet);
    }

    /// Forwards what waits.
    #[inline]
    pub fn flush(&mut self, port: &mut dyn Port) {
        self.forwarding.flush(port);
    }

    /// When [`look_around`](Self::look_around) is due: only where domains are shared.
    pub fn look_deadline_ns(&self, shares: bool) -> Option<u64> {
        shares.then_some(self.next_look_ns)
    }

    /// Looks what other processes have done to shared domains: events, failed and destroyed targets, death.
    /// Reports the indices of the queue pairs that this may have changed.
    pub fn look_around<H: TargetHost>(
        &mut self,
        now_ns: u64,
        entries: &mut impl Entries,
        host: &mut H,
        port: &mut dyn Port,
        mut touched: impl FnMut(u32),
    ) {
        if now_ns < self.next_look_ns {
            return;
        }
        self.next_look_ns = now_ns.saturating_add(LOOK_INTERVAL_NS);
        let domains = host.xrc().all_shared();
        self.looked.retain(|known, _| domains.iter().any(|(domain, _)| domain == known));
        for (domain, file) in domains {
            let live = file.live();
            let now = (file.change(), live);
            let before = self.looked.insert(domain, now);
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
            // A target that another process holds is seen next time.
            if sharing.with(qp, host, |_, _| ()) == Err(Unavailable::Gone) {
                self.note_gone(qpn);
            }
            touched(index);
        }
        self.reap(entries, host);
    }
}
