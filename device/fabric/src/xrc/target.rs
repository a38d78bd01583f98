//! A target that several processes execute together: each packet is executed by the process that owns the SRQ
//! that the packet names.
//!
//! A target of a shared domain has a queue pair in every process that uses it. The record in the domain's
//! file is authoritative: [`TargetSharing::with`] brings the queue pair up to date, runs an operation on it,
//! and writes the result to the record, all under the record's lock. Answers leave afterwards, so the peer
//! never knows more than the file does.

use std::sync::Arc;

use pumice_platform::error::ResourceError;
use pumice_transport::host::{Host, QpContext};
use pumice_transport::qp::{MessageSnapshot, QueuePair, TargetSnapshot};
use pumice_transport::types::{AsyncEventType, QpState};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::codec::event_of;
use super::domain::XrcDomains;
use super::file::{DomainFile, RecordCheck};
use super::record::TargetRecord;

/// The reason why a shared target is not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// Another process has locked the target and does not release it.
    Busy,
    /// The target was destroyed.
    Removed,
}

impl Unavailable {
    /// Returns the error of a call.
    pub fn error(self, qpn: Qpn) -> ResourceError {
        match self {
            Unavailable::Busy => ResourceError::busy(format!("XRC target {qpn}: another process holds it")),
            Unavailable::Removed => {
                ResourceError::invalid(format!("XRC target {qpn} does not exist any more"))
            }
        }
    }
}

/// Requirements of a shared target on the device that it is in.
pub trait TargetHost: Host {
    /// Returns the domains of this process and the targets that it knows.
    fn xrc(&mut self) -> &mut XrcDomains;

    /// Delivers an event, which perhaps another process raised, to all registrations of the target in this
    /// process, or to the owner of the queue pair that the target is a half of.
    fn show_target_event(&mut self, qpn: Qpn, event: AsyncEventType);

    /// Adds a target of another process to the tables. It is not open here yet.
    fn adopt_target(&mut self, qpn: Qpn, domain: u32, half: bool) -> QpContext;

    /// Removes a target that is destroyed.
    fn forget_target(&mut self, qpn: Qpn);
}

/// The link of a queue pair to the processes that share it. By default it is not shared.
#[derive(Debug, Default)]
pub struct TargetSharing(Option<Box<SharedTarget>>);

/// The state of a shared target in this process.
#[derive(Debug)]
pub struct SharedTarget {
    pub(super) file: Arc<DomainFile>,
    /// Index of its domain.
    pub(super) domain: u32,
    /// Slot of its record in the file.
    pub(super) slot: u32,
    view: TargetView,
}

/// The record as this process knows it.
#[derive(Debug)]
pub(crate) struct TargetView {
    /// Record as it was loaded or stored last.
    record: TargetRecord,
    /// Number of events that this process has delivered.
    seen_events: u64,
    scratch: TargetSnapshot,
}

impl TargetSharing {
    #[doc(hidden)]
    pub fn of(target: SharedTarget) -> TargetSharing {
        TargetSharing(Some(Box::new(target)))
    }

    /// Reports whether other processes may be the same queue pair.
    #[inline]
    pub const fn is_shared(&self) -> bool {
        self.0.is_some()
    }

    #[doc(hidden)]
    pub fn target_mut(&mut self) -> Option<&mut SharedTarget> {
        self.0.as_deref_mut()
    }

    /// Ends the sharing: the queue pair is this process's alone.
    pub fn take(&mut self) -> Option<Box<SharedTarget>> {
        self.0.take()
    }

    /// Runs an operation on a queue pair in its current state among all processes, and publishes the result
    /// to them. A queue pair that is not shared is simply passed on.
    ///
    /// # Errors
    /// Fails if the target is not available; then nothing happened.
    #[inline]
    pub fn with<H: TargetHost, R>(
        &mut self,
        qp: &mut QueuePair,
        host: &mut H,
        happen: impl FnOnce(&mut QueuePair, &mut H) -> R,
    ) -> Result<R, Unavailable> {
        match &mut self.0 {
            None => Ok(happen(qp, host)),
            Some(target) => target.with(qp, host, happen),
        }
    }

    /// Reports whether another process has to execute what is for the SRQs of `owner`.
    pub fn is_executed_by(&self, owner: ProcessIndex) -> bool {
        self.0.as_ref().is_some_and(|target| owner != target.file.process() && target.file.is_open_in(owner))
    }

    /// Reports whether the other processes still consider the queue pair working although it has failed.
    #[inline]
    pub fn is_outdated(&self, qp: &QueuePair) -> bool {
        self.0.as_ref().is_some_and(|target| {
            qp.state() == QpState::Err && target.view.record.snapshot.state != QpState::Err
        })
    }
}

impl SharedTarget {
    /// Writes a new target to the domain's file.
    ///
    /// # Errors
    /// Fails if the domain is full, or if its file cannot be written.
    pub fn create(
        file: &Arc<DomainFile>,
        domain: u32,
        qp: &QueuePair,
    ) -> Result<SharedTarget, ResourceError> {
        let half = qp.qp_type().is_both_halves();
        let mut record = TargetRecord { qpn: qp.context().qpn.value(), half, ..TargetRecord::default() };
        qp.export_target(&mut record.snapshot);
        let slot = file.create(&mut record)?;
        let view = TargetView { record, seen_events: 0, scratch: TargetSnapshot::default() };
        Ok(SharedTarget { file: Arc::clone(file), domain, slot, view })
    }

    /// Returns the state of a target that another process made, with its record as it was found. Its queue
    /// pair here is a new one, which the first [`with`](Self::with) brings up to date.
    pub fn found(file: &Arc<DomainFile>, domain: u32, slot: u32, found: &TargetRecord) -> SharedTarget {
        let record = TargetRecord { qpn: found.qpn, half: found.half, ..TargetRecord::default() };
        let view = TargetView { record, seen_events: found.event_count, scratch: TargetSnapshot::default() };
        SharedTarget { file: Arc::clone(file), domain, slot, view }
    }

    fn with<H: TargetHost, R>(
        &mut self,
        qp: &mut QueuePair,
        host: &mut H,
        happen: impl FnOnce(&mut QueuePair, &mut H) -> R,
    ) -> Result<R, Unavailable> {
        let SharedTarget { file, slot, view, .. } = self;
        let _lock = file.lock_record(*slot).ok_or(Unavailable::Busy)?;
        view.refresh(qp, file, *slot, host)?;
        let answer = happen(qp, host);
        view.publish(qp, file, *slot, host);
        Ok(answer)
    }

    /// Notifies the other processes of a failure while the queue pair sent, which is not under the record's
    /// lock.
    pub fn publish_failure<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        host: &mut H,
    ) -> Result<(), Unavailable> {
        // The queue pair's own events must not be delivered twice, nor its state reverted.
        self.with(qp, host, |qp, _| qp.enter_error_quietly())
    }

    /// Registers this process for the target, which lives at least as long.
    pub fn register<H: TargetHost>(&mut self, qp: &mut QueuePair, host: &mut H) -> Result<(), Unavailable> {
        let SharedTarget { file, slot, view, .. } = self;
        let _lock = file.lock_record(*slot).ok_or(Unavailable::Busy)?;
        view.refresh(qp, file, *slot, host)?;
        let own = file.process();
        if !view.record.is_registered(own) {
            view.record.register(own, true);
            view.store(file, *slot);
            file.note_change();
        }
        Ok(())
    }

    /// Ends this process's registration. Returns true if it was the last one, and the record is removed.
    pub fn unregister<H: TargetHost>(&mut self, qp: &mut QueuePair, host: &mut H) -> bool {
        let SharedTarget { file, slot, view, .. } = self;
        let Some(_lock) = file.lock_record(*slot) else { return true };
        if view.refresh(qp, file, *slot, host).is_err() {
            return true;
        }
        view.record.register(file.process(), false);
        view.record.forget_the_dead(&file.live());
        let unused = view.record.is_unused();
        if unused {
            file.remove(*slot);
        } else {
            view.store(file, *slot);
            file.note_change();
        }
        unused
    }

    /// Removes the record of a half whose queue pair is being destroyed.
    pub fn remove(&self) {
        // The record is removed even without the lock: a process that holds it finds the record gone the next
        // time.
        let _lock = self.file.lock_record(self.slot);
        self.file.remove(self.slot);
    }
}

impl TargetView {
    /// Brings the queue pair in line with the record. The caller holds the record's lock.
    fn refresh<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        file: &DomainFile,
        slot: u32,
        host: &mut H,
    ) -> Result<(), Unavailable> {
        match file.load(slot, &mut self.record) {
            RecordCheck::Same => return Ok(()),
            RecordCheck::Removed => return Err(Unavailable::Removed),
            RecordCheck::Changed => {}
        }
        let ours = self.record.executor == file.incarnation();
        if let MessageSnapshot::Send { here, .. } = &mut self.record.snapshot.responder.message {
            *here = ours;
        }
        qp.import_target(&self.record.snapshot, host);
        let qpn = qp.context().qpn;
        for event in self.record.events_since(self.seen_events).filter_map(event_of) {
            host.show_target_event(qpn, event);
        }
        self.seen_events = self.record.event_count;
        Ok(())
    }

    /// Writes the state of the queue pair to the record. The caller holds the record's lock.
    fn publish<H: TargetHost>(&mut self, qp: &mut QueuePair, file: &DomainFile, slot: u32, host: &mut H) {
        qp.export_target(&mut self.scratch);
        let before = self.record.event_count;
        let record = &mut self.record;
        host.xrc().targets.take_raised(qp.context().qpn, |event| record.raise(event as u8));
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
        self.store(file, slot);
        if noteworthy {
            file.note_change();
        }
    }

    fn store(&mut self, file: &DomainFile, slot: u32) {
        self.record.sequence += 1;
        if file.store(slot, &self.record).is_err() {
            // The file system has no room: no process can go on with a state that is not in the file.
            file.remove(slot);
        }
    }
}
