//! The attachment of queue pairs to their objects. The queue pairs themselves belong to the engine.

use std::sync::Arc;

use crate::objects::recv_queue::RecvQueue;
use pumice_fabric::xrc::{CREATOR, TargetClosed, TargetHost as _, TargetOpened};
use pumice_memory::MappingCheck;
use pumice_model::event::Event;
use pumice_model::event::async_event::AsyncElement;
use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::EventAccount;
use pumice_platform::table::Handle;
use pumice_transport::event::{QpEvent, Topic};
use pumice_transport::host::QpContext;
use pumice_transport::types::{AsyncEventType, Cause, CqUse, QpCapacity, RecvRequest};
use pumice_transport::wire::Qpn;

use super::qp_setup::QpSetup;
use super::tables::{NO_OBJECT, ObjectTables, QpAttachment, QpFailure, Receives, Resources};
use super::tally::QpTally;
use super::users::cq_use;

/// An attached queue pair.
#[derive(Debug, Clone)]
pub struct QpAttached {
    /// The context that the protocol hands back to the device.
    pub context: QpContext,
    /// The granted sizes: the requested ones, 0 for queues that the queue pair does not have.
    pub capacity: QpCapacity,
    /// The account of the queue pair's asynchronous events.
    pub account: Arc<EventAccount>,
}

impl Resources {
    /// Attaches a queue pair to its objects, which cannot be destroyed from now on, and makes its
    /// receive queue.
    ///
    /// # Errors
    /// `Invalid`: an object is missing, stale or of the wrong kind for the type; a size is beyond
    /// its limit; the number is in use. `NoMemory`: a table is full.
    pub fn attach_qp(&mut self, setup: &QpSetup) -> Result<QpAttached, ResourceError> {
        self.attach_service(setup, setup.qp_type.name())
    }

    /// Attaches a queue pair as [`Resources::attach_qp`] does, whose transport service is another one than
    /// that of its type.
    ///
    /// # Errors
    /// As [`Resources::attach_qp`].
    pub(crate) fn attach_service(
        &mut self,
        setup: &QpSetup,
        service: &'static str,
    ) -> Result<QpAttached, ResourceError> {
        let qp_index = usize::from(setup.qpn.index());
        if self.objects.qps.get(qp_index).is_some_and(Option::is_some) || self.is_target(setup.qpn) {
            return Err(ResourceError::invalid(format!("queue pair number {} is in use", setup.qpn)));
        }
        let setup = self.objects.check_setup(setup)?;
        let capacity = self.objects.check_capacity(&setup)?;
        if let (true, Some(xrcd)) = (setup.qp_type.is_target(), setup.xrcd) {
            let context = self.insert_target(setup.qpn, self.objects.xrc.domain_of(xrcd)?, false);
            let TargetOpened { account, .. } = self.register_target(xrcd, setup.qpn, setup.cookie)?;
            return Ok(QpAttached { context, capacity, account });
        }
        let recv_queue = match (setup.srq, setup.recv_cq) {
            (Some(srq), _) => srq.index,
            (None, Some(_)) => {
                let mut queue = RecvQueue::new(capacity.max_recv_wr, capacity.max_recv_sge);
                queue.make_room()?;
                self.objects.receives.insert(Receives::Own(queue))?.index
            }
            (None, None) => NO_OBJECT,
        };
        let xrcd = match setup.xrcd {
            Some(xrcd) => self.objects.xrc.domain_of(xrcd)?,
            None => NO_OBJECT,
        };
        let index = |handle: Option<Handle>| handle.map_or(NO_OBJECT, |handle| handle.index);
        let context = QpContext {
            qpn: setup.qpn,
            pd: index(setup.pd),
            send_cq: index(setup.send_cq),
            recv_cq: index(setup.recv_cq),
            recv_queue,
            xrcd,
            ordinal: self.next_ordinal(),
            out_of_order: false,
        };
        setup.pd.into_iter().for_each(|pd| self.objects.use_pd(pd));
        setup.xrcd.into_iter().for_each(|xrcd| self.objects.xrc.use_open(xrcd));
        setup.send_cq.into_iter().chain(setup.recv_cq).for_each(|cq| self.objects.use_cq(cq));
        if let Some(Receives::Shared(srq)) = setup.srq.and_then(|srq| self.objects.receives.get_mut(srq)) {
            srq.attach();
        }
        let account = Arc::new(EventAccount::new());
        let attachment = QpAttachment {
            context,
            cookie: setup.cookie,
            srq: setup.srq,
            xrcd: setup.xrcd,
            account: Arc::clone(&account),
            fatal: false,
            tally: QpTally::default(),
            port_counters: None,
            counters: Vec::new(),
        };
        if self.objects.qps.len() <= qp_index {
            self.objects.qps.resize_with(qp_index + 1, || None);
        }
        if let Some(entry) = self.objects.qps.get_mut(qp_index) {
            *entry = Some(Box::new(attachment));
        }
        self.completions.cq_common.freed_send_slots.reset(setup.qpn.value());
        self.decisions.made(&context);
        self.listeners.subscribers.emit(&Event::QpCreated { qp: &context, service });
        Ok(QpAttached { context, capacity, account })
    }

    /// Detaches a queue pair that is being destroyed (an XRC target: closes it for its creator): its unpolled
    /// completions, its unread events, its receive queue and its bindings of type-2 windows are removed.
    /// Without the engine's lock, call [`EventAccount::wait_all_acked`] on the result afterwards.
    ///
    /// # Errors
    /// `Busy`: it is attached to multicast groups, or flow rules name it. `Invalid`: it is not attached.
    pub fn detach_qp(&mut self, qpn: Qpn) -> Result<Arc<EventAccount>, ResourceError> {
        if self.is_target(qpn) {
            let TargetClosed { account, last, .. } = self.unregister_target(qpn, CREATOR)?;
            if last {
                self.host(MappingCheck::Assumed).forget_target(qpn);
            }
            return Ok(account);
        }
        if self.objects.attachment(qpn).is_none() {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        }
        let groups = self.port.groups.groups_of(qpn).count();
        //= man:ibv_create_qp
        //| A queue pair that is attached to a multicast group cannot be destroyed.
        if groups != 0 {
            return Err(ResourceError::busy(format!(
                "queue pair {qpn} is attached to {groups} multicast groups; detach it first"
            )));
        }
        self.check_no_rules(qpn)?;
        self.leave_ethernet(qpn);
        self.port.groups.set_loopback(qpn, true);
        self.reset_qp(qpn);
        self.objects.memory.unbind_windows_of(qpn);
        let taken = self.objects.qps.get_mut(usize::from(qpn.index())).and_then(Option::take);
        let Some(attachment) = taken else {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        };
        self.listeners.subscribers.emit(&Event::QpDestroyed { qp: &attachment.context });
        self.drain_stores();
        self.decisions.forget(&attachment.context);
        let QpContext { pd, send_cq, recv_cq, recv_queue, .. } = attachment.context;
        self.objects.release_pd(pd);
        attachment.xrcd.into_iter().for_each(|xrcd| self.objects.xrc.release_open(xrcd));
        self.objects.release_cq(send_cq);
        self.objects.release_cq(recv_cq);
        match attachment.srq {
            Some(srq) => {
                if let Some(Receives::Shared(srq)) = self.objects.receives.get_mut(srq) {
                    srq.detach();
                }
            }
            None => {
                self.objects.receives.handle_at(recv_queue).map(|own| self.objects.receives.remove(own));
            }
        }
        self.port.async_events.purge(&attachment.account);
        Ok(attachment.account)
    }

    /// Makes a queue pair place data out of order.
    pub fn place_out_of_order(&mut self, qpn: Qpn) {
        if let Some(attachment) = self.objects.attachment_mut(qpn) {
            attachment.context.out_of_order = true;
        }
    }

    /// Forgets what a queue pair that moves to RESET has pending: posted receives, unpolled completions, used
    /// send queue entries.
    pub fn reset_qp(&mut self, qpn: Qpn) {
        self.drain_stores();
        if let Some(fatal) = self.objects.xrc.targets.fatal_mut(qpn) {
            *fatal = false;
        }
        let Some(attachment) = self.objects.attachment_mut(qpn) else { return };
        attachment.fatal = false;
        let context = attachment.context;
        self.decisions.drop_delayed(context.ordinal);
        let QpContext { send_cq, recv_cq, .. } = context;
        for cq in [Some(send_cq), Some(recv_cq).filter(|cq| *cq != send_cq)].into_iter().flatten() {
            if let Some(entry) = self.objects.cqs.at(cq) {
                match self.completions.completions_outlive_qp {
                    //= linux:rxe_qp.c#rxe_qp_do_cleanup
                    //| Completions stay in their queues when the queue pair is destroyed.
                    true => entry.cq.orphan(qpn.value()),
                    false => entry.cq.remove_of(qpn.value()),
                }
            }
        }
        // The count is reset after the completions: a poll can no longer release entries of the past.
        self.completions.cq_common.freed_send_slots.reset(qpn.value());
        if let Some(Receives::Own(queue)) = self.objects.receives.at_mut(context.recv_queue) {
            queue.clear();
        }
        self.completions.qp_failures.retain(|failure| failure.qpn != qpn);
        self.forget_rendezvous(qpn);
    }

    /// Returns the ordinal of a queue pair; `None`: the number is not known.
    pub fn ordinal_of(&self, qpn: Qpn) -> Option<u32> {
        self.objects.attachment(qpn).map(|attachment| attachment.context.ordinal)
    }

    /// Returns the ordinal of the next queue pair, which this thread creates.
    pub(super) fn next_ordinal(&mut self) -> u32 {
        self.created.qps.add().0
    }

    /// Posts a request to a queue pair's own receive queue.
    ///
    /// # Errors
    /// `Invalid`: too many elements, or the queue pair has an SRQ or no receive queue at all. `NoMemory`: the
    /// queue is full.
    #[inline]
    pub fn post_recv(&mut self, qp: &QpContext, request: &RecvRequest<'_>) -> Result<(), ResourceError> {
        match self.objects.receives.at_mut(qp.recv_queue) {
            Some(Receives::Own(queue)) => {
                queue.post(request)?;
                if self.listens(Topic::Posts) {
                    self.emit_uncounted(qp, Topic::Posts, &QpEvent::RecvPosted { request });
                }
                Ok(())
            }
            //= man:ibv_post_recv
            //| The receives of a queue pair with a shared receive queue are posted there.
            Some(Receives::Shared(_)) => Err(ResourceError::invalid(format!(
                "queue pair {} takes its receives from an SRQ; post them there",
                qp.qpn
            ))),
            None => Err(ResourceError::invalid(format!("queue pair {} has no receive queue", qp.qpn))),
        }
    }

    /// Records whether an unreliable queue pair runs out of receive requests: its next messages would be
    /// lost.
    pub(crate) fn note_receives(&mut self, qp: &QpContext) {
        if self.is_short(qp.recv_queue) {
            self.completions.short_receives = Some((qp.recv_queue, qp.recv_cq));
        }
    }

    /// Reports whether a recorded queue is still short, and its program is not known to wait for an event: a
    /// program that has armed its completion queue posts more requests only after a completion has woken it.
    pub(crate) fn short_of_receives(&mut self) -> bool {
        self.completions.short_receives =
            self.completions.short_receives.filter(|(queue, _)| self.is_short(*queue));
        self.completions
            .short_receives
            .is_some_and(|(_, cq)| !self.objects.cqs.at(cq).is_some_and(|entry| entry.cq.is_armed()))
    }

    fn is_short(&self, queue: u32) -> bool {
        match self.objects.receives.at(queue) {
            Some(Receives::Own(queue)) => queue.is_short(),
            Some(Receives::Shared(srq)) => srq.is_short(),
            None => false,
        }
    }

    /// Reports whether a queue pair takes its receives from an SRQ.
    pub fn uses_srq(&self, qp: &QpContext) -> bool {
        matches!(self.objects.receives.at(qp.recv_queue), Some(Receives::Shared(_)))
    }

    /// Raises an asynchronous event of a queue pair.
    pub fn raise_qp_event(&mut self, qpn: Qpn, event: AsyncEventType) {
        if self.raise_target_event(qpn, event) {
            return;
        }
        self.raise_attached_event(qpn, event);
    }

    /// Raises an event as [`Resources::raise_qp_event`] does, of a queue pair that is no target.
    pub(super) fn raise_attached_event(&self, qpn: Qpn, event: AsyncEventType) {
        if let Some(attachment) = self.objects.attachment(qpn) {
            let element = AsyncElement::Qp { qpn: qpn.value(), cookie: attachment.cookie };
            self.port.async_events.raise_for(event, element, &attachment.account);
        }
    }

    /// Marks a completion queue's overrun: CQ_ERR, SRQ_ERR for the XRC SRQs that complete there, and QP_FATAL
    /// for every queue pair attached to it and for the one that caused it.
    pub(super) fn cq_overran(&mut self, cq: u32, culprit: Qpn) {
        self.cq_failed(cq);
        self.qp_ruined(culprit, cq);
    }

    /// Marks a completion queue as failed, without a queue pair that caused it.
    pub(super) fn cq_failed(&mut self, cq: u32) {
        if let Some(entry) = self.objects.cqs.at(cq) {
            let element = AsyncElement::Cq { cookie: entry.cq.cookie() };
            self.port.async_events.raise_for(AsyncEventType::CqErr, element, entry.cq.async_account());
        }
        // An XRC SRQ that completes there cannot report its receives any more.
        for (_, receives) in self.objects.receives.iter() {
            if let Receives::Shared(srq) = receives
                && srq.xrc().is_some_and(|xrc| xrc.cq == cq)
            {
                let element = AsyncElement::Srq { cookie: srq.cookie() };
                self.port.async_events.raise_for(AsyncEventType::SrqErr, element, srq.account());
            }
        }
        let attached: Vec<Qpn> = self
            .objects
            .qps
            .iter()
            .flatten()
            .filter(|attachment| {
                let context = &attachment.context;
                context.send_cq == cq || context.recv_cq == cq
            })
            .map(|attachment| attachment.context.qpn)
            .collect();
        attached.into_iter().for_each(|qpn| self.qp_ruined(qpn, cq));
    }

    /// Fails a queue pair because a completion of it was lost: QP_FATAL, once, and ERR by the engine.
    pub(super) fn qp_ruined(&mut self, qpn: Qpn, cq: u32) {
        let depth = self.objects.cqs.at(cq).map_or(0, |entry| entry.cq.depth());
        let fatal = match self.objects.attachment_mut(qpn) {
            Some(attachment) => &mut attachment.fatal,
            None => match self.objects.xrc.targets.fatal_mut(qpn) {
                Some(fatal) => fatal,
                None => return,
            },
        };
        if std::mem::replace(fatal, true) {
            return;
        }
        self.raise_qp_event(qpn, AsyncEventType::QpFatal);
        let completes = self.objects.attachment(qpn).and_then(|attachment| {
            cq_use(attachment.context.send_cq == cq, attachment.context.recv_cq == cq)
        });
        // A target has no completion queue of its own: its completions are those of receives of an SRQ.
        let completes = completes.unwrap_or(CqUse::Receives);
        self.completions
            .qp_failures
            .push(QpFailure { qpn, cause: Cause::CqOverrun { cq, depth, completes } });
    }
}

impl ObjectTables {
    pub(super) fn attachment(&self, qpn: Qpn) -> Option<&QpAttachment> {
        let attachment = self.qps.get(usize::from(qpn.index()))?.as_deref()?;
        (attachment.context.qpn == qpn).then_some(attachment)
    }

    pub(super) fn attachment_mut(&mut self, qpn: Qpn) -> Option<&mut QpAttachment> {
        let attachment = self.qps.get_mut(usize::from(qpn.index()))?.as_deref_mut()?;
        (attachment.context.qpn == qpn).then_some(attachment)
    }
}

#[cfg(test)]
#[path = "queue_pairs_tests.rs"]
mod tests;
