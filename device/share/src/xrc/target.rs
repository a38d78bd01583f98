//! One target that several processes are together: the process that owns the SRQ that a packet names executes
//! it.
//!
//! A target of a shared domain has a queue pair in every process that deals with it. What counts is the
//! record in the domain's file: [`Sharing::with`] brings the queue pair up to date, lets something happen to
//! it, and writes down what came of it, all under the record's lock. Answers leave afterwards, so the peer
//! never knows more than the file does.

use std::sync::Arc;

use pumice_ground::error::ResourceError;
use pumice_transport::host::{Host, QpContext};
use pumice_transport::qp::{MessageSnapshot, QueuePair, TargetSnapshot};
use pumice_transport::types::{AsyncEventType, QpState};
use pumice_transport::wire::{ProcessIndex, Qpn};

use super::codec::event_of;
use super::domain::XrcDomains;
use super::file::{DomainFile, Seen};
use super::record::TargetRecord;

/// Why a shared target cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unavailable {
    /// Another process has it and does not let go.
    Busy,
    /// It was destroyed.
    Gone,
}

impl Unavailable {
    /// The error that a call gives.
    pub fn error(self, qpn: Qpn) -> ResourceError {
        match self {
            Unavailable::Busy => ResourceError::busy(format!("XRC target {qpn}: another process holds it")),
            Unavailable::Gone => ResourceError::invalid(format!("XRC target {qpn} does not exist any more")),
        }
    }
}

/// What a shared target needs of the device that it is in.
pub trait TargetHost: Host {
    /// The domains of this process and the targets that it knows.
    fn xrc(&mut self) -> &mut XrcDomains;

    /// Shows an event, which perhaps another process raised, to all of this process who have the target open,
    /// or to the owner of the queue pair that the target is a half of.
    fn show_target_event(&mut self, qpn: Qpn, event: AsyncEventType);

    /// Makes the tables' side of a target of another process. It is not open here yet.
    fn meet_target(&mut self, qpn: Qpn, domain: u32, half: bool) -> QpContext;

    /// Forgets a target that is destroyed.
    fn forget_target(&mut self, qpn: Qpn);
}

/// Whether, and how, other processes are the same queue pair. By default none is.
#[derive(Debug, Default)]
pub struct Sharing(Option<Box<SharedTarget>>);

/// This process's view of a target that is shared.
#[derive(Debug)]
pub struct SharedTarget {
    pub(super) file: Arc<DomainFile>,
    /// Index of its domain.
    pub(super) domain: u32,
    /// Where its record is in the file.
    pub(super) slot: u32,
    view: View,
}

/// What this process knows of the record.
#[derive(Debug)]
pub(crate) struct View {
    /// As it was loaded or stored last.
    record: TargetRecord,
    /// Events that this process has shown.
    seen_events: u64,
    scratch: TargetSnapshot,
}

impl Sharing {
    #[doc(hidden)]
    pub fn of(target: SharedTarget) -> Sharing {
        Sharing(Some(Box::new(target)))
    }

    /// Whether other processes may be the same queue pair.
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

    /// Lets something happen to a queue pair as it is now among all processes, and tells them what came of
    /// it. A queue pair that is not shared is simply passed on.
    ///
    /// # Errors
    /// It cannot be had; nothing happened.
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

    /// Whether another process has to execute what is for the SRQs of `owner`.
    pub fn is_executed_by(&self, owner: ProcessIndex) -> bool {
        self.0.as_ref().is_some_and(|target| owner != target.file.process() && target.file.is_open_in(owner))
    }

    /// Whether the other processes think that the queue pair works although it has failed.
    #[inline]
    pub fn is_outdated(&self, qp: &QueuePair) -> bool {
        self.0.as_ref().is_some_and(|target| {
            qp.state() == QpState::Err && target.view.record.snapshot.state != QpState::Err
        })
    }
}

impl SharedTarget {
    /// A new target is written down.
    ///
    /// # Errors
    /// The domain is full, or its file cannot be written.
    pub fn create(
        file: &Arc<DomainFile>,
        domain: u32,
        qp: &QueuePair,
    ) -> Result<SharedTarget, ResourceError> {
        let half = qp.qp_type().is_both_halves();
        let mut record = TargetRecord { qpn: qp.context().qpn.value(), half, ..TargetRecord::default() };
        qp.export_target(&mut record.snapshot);
        let slot = file.create(&mut record)?;
        let view = View { record, seen_events: 0, scratch: TargetSnapshot::default() };
        Ok(SharedTarget { file: Arc::clone(file), domain, slot, view })
    }

    /// A target that another process has written down: its record as it was found. Its queue pair here is a
    /// new one, which the first [`with`](Self::with) brings up to date.
    pub fn found(file: &Arc<DomainFile>, domain: u32, slot: u32, found: &TargetRecord) -> SharedTarget {
        let record = TargetRecord { qpn: found.qpn, half: found.half, ..TargetRecord::default() };
        let view = View { record, seen_events: found.event_count, scratch: TargetSnapshot::default() };
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

    /// The queue pair failed while it sent, which is not under the record's lock: the others have to know.
    pub fn publish_failure<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        host: &mut H,
    ) -> Result<(), Unavailable> {
        // Its own events are not to be shown twice, nor its state taken back.
        self.with(qp, host, |qp, _| qp.enter_error_quietly())
    }

    /// Registers this process for the target: it lives at least as long.
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

    /// Ends this process's registration. True: it was the last one, and the record is removed.
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
        // Without the lock as well: a process that holds it finds the record gone the next time.
        let _lock = self.file.lock_record(self.slot);
        self.file.remove(self.slot);
    }
}

impl View {
    /// Brings the queue pair in line with the record. The caller has the record's lock.
    fn refresh<H: TargetHost>(
        &mut self,
        qp: &mut QueuePair,
        file: &DomainFile,
        slot: u32,
        host: &mut H,
    ) -> Result<(), Unavailable> {
        match file.load(slot, &mut self.record) {
            Seen::Same => return Ok(()),
            Seen::Gone => return Err(Unavailable::Gone),
            Seen::Changed => {}
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

    /// Writes down what became of the queue pair. The caller has the record's lock.
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
            // No room in the file system: no process can go on with what is not written down.
            file.remove(slot);
        }
    }
}
