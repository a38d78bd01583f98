//! What a queue pair is attached to. The queue pairs themselves belong to the engine.

use std::sync::Arc;

use pumice_events::Event;
use pumice_ground::error::ResourceError;
use pumice_ground::table::Handle;
use pumice_objects::async_event::AsyncElement;
use pumice_objects::event_account::EventAccount;
use pumice_objects::memory::MappingCheck;
use pumice_objects::recv_queue::RecvQueue;
use pumice_share::xrc::{CREATOR, TargetClosed, TargetHost as _, TargetOpened};
use pumice_transport::event::{QpEvent, Topic};
use pumice_transport::host::QpContext;
use pumice_transport::types::{AsyncEventType, Cause, CqUse, QpCapacity, RecvRequest};
use pumice_transport::wire::Qpn;

use super::qp_setup::QpSetup;
use super::tables::{Attachment, NO_OBJECT, QpFailure, Receives, Resources};
use super::tally::Tally;
use super::users::cq_use;

/// An attached queue pair.
#[derive(Debug, Clone)]
pub struct QpAttached {
    /// What the protocol hands back to the device.
    pub context: QpContext,
    /// Sizes granted: those asked for, 0 for the queues that it has not.
    pub capacity: QpCapacity,
    /// Account of its asynchronous events.
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
        let qp_index = usize::from(setup.qpn.index());
        if self.qps.get(qp_index).is_some_and(Option::is_some) || self.is_target(setup.qpn) {
            return Err(ResourceError::invalid(format!("queue pair number {} is in use", setup.qpn)));
        }
        let setup = self.check_setup(setup)?;
        let capacity = self.check_capacity(&setup)?;
        if let (true, Some(xrcd)) = (setup.qp_type.is_target(), setup.xrcd) {
            let context = self.insert_target(setup.qpn, self.xrc.domain_of(xrcd)?, false);
            let TargetOpened { account, .. } = self.register_target(xrcd, setup.qpn, setup.cookie)?;
            return Ok(QpAttached { context, capacity, account });
        }
        let recv_queue = match (setup.srq, setup.recv_cq) {
            (Some(srq), _) => srq.index,
            (None, Some(_)) => {
                let queue = RecvQueue::new(capacity.max_recv_wr, capacity.max_recv_sge);
                self.receives.insert(Receives::Own(queue))?.index
            }
            (None, None) => NO_OBJECT,
        };
        let xrcd = match setup.xrcd {
            Some(xrcd) => self.xrc.domain_of(xrcd)?,
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
        };
        setup.pd.into_iter().for_each(|pd| self.use_pd(pd));
        setup.xrcd.into_iter().for_each(|xrcd| self.xrc.use_open(xrcd));
        setup.send_cq.into_iter().chain(setup.recv_cq).for_each(|cq| self.use_cq(cq));
        if let Some(Receives::Shared(srq)) = setup.srq.and_then(|srq| self.receives.get_mut(srq)) {
            srq.attach();
        }
        let account = Arc::new(EventAccount::new());
        let attachment = Attachment {
            context,
            cookie: setup.cookie,
            srq: setup.srq,
            xrcd: setup.xrcd,
            account: Arc::clone(&account),
            fatal: false,
            tally: Tally::default(),
            port_counters: None,
        };
        if self.qps.len() <= qp_index {
            self.qps.resize_with(qp_index + 1, || None);
        }
        if let Some(entry) = self.qps.get_mut(qp_index) {
            *entry = Some(Box::new(attachment));
        }
        self.cq_common.polled_sends.reset(setup.qpn.value());
        self.decisions.made(&context);
        self.events.emit(&Event::QpCreated { qp: &context, service: setup.qp_type.name() });
        Ok(QpAttached { context, capacity, account })
    }

    /// Detaches a queue pair that is being destroyed (an XRC target: closes it for its creator): its unpolled
    /// completions, its unread events, its receive queue and its bindings of type-2 windows are gone. Without
    /// the engine's lock, call [`EventAccount::wait_all_acked`] on the result afterwards.
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
        if self.attachment(qpn).is_none() {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        }
        let groups = self.groups.groups_of(qpn).count();
        //= man:ibv_create_qp
        //| A queue pair that is attached to a multicast group cannot be destroyed.
        if groups != 0 {
            return Err(ResourceError::busy(format!(
                "queue pair {qpn} is attached to {groups} multicast groups; detach it first"
            )));
        }
        self.check_no_rules(qpn)?;
        self.leave_ethernet(qpn);
        self.groups.hear_itself(qpn, true);
        self.reset_qp(qpn);
        self.memory.unbind_windows_of(qpn);
        let taken = self.qps.get_mut(usize::from(qpn.index())).and_then(Option::take);
        let Some(attachment) = taken else {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        };
        self.events.emit(&Event::QpDestroyed { qp: &attachment.context });
        self.drain_stores();
        self.decisions.forget(&attachment.context);
        let QpContext { pd, send_cq, recv_cq, recv_queue, .. } = attachment.context;
        self.release_pd(pd);
        attachment.xrcd.into_iter().for_each(|xrcd| self.xrc.release_open(xrcd));
        self.release_cq(send_cq);
        self.release_cq(recv_cq);
        match attachment.srq {
            Some(srq) => {
                if let Some(Receives::Shared(srq)) = self.receives.get_mut(srq) {
                    srq.detach();
                }
            }
            None => {
                self.receives.handle_at(recv_queue).map(|own| self.receives.remove(own));
            }
        }
        self.async_events.purge(&attachment.account);
        Ok(attachment.account)
    }

    /// Forgets what a queue pair that moves to RESET has pending: posted receives, unpolled
    /// completions, used send queue entries.
    pub fn reset_qp(&mut self, qpn: Qpn) {
        self.drain_stores();
        if let Some(fatal) = self.xrc.targets.fatal_mut(qpn) {
            *fatal = false;
        }
        let Some(attachment) = self.attachment_mut(qpn) else { return };
        attachment.fatal = false;
        let context = attachment.context;
        self.decisions.drop_delayed(context.ordinal);
        let QpContext { send_cq, recv_cq, .. } = context;
        for cq in [Some(send_cq), Some(recv_cq).filter(|cq| *cq != send_cq)].into_iter().flatten() {
            if let Some(entry) = self.cqs.at(cq) {
                entry.cq.remove_of(qpn.value());
            }
        }
        // After the completions: a poll can no longer release entries of the past.
        self.cq_common.polled_sends.reset(qpn.value());
        if let Some(Receives::Own(queue)) = self.receives.at_mut(context.recv_queue) {
            queue.clear();
        }
        self.qp_failures.retain(|failure| failure.qpn != qpn);
    }

    /// The ordinal of a queue pair; `None`: the number is not known.
    pub fn ordinal_of(&self, qpn: Qpn) -> Option<u32> {
        self.attachment(qpn).map(|attachment| attachment.context.ordinal)
    }

    /// The ordinal of the next queue pair, which this thread makes.
    pub(super) fn next_ordinal(&mut self) -> u32 {
        self.qps_made.add().0
    }

    /// Posts a request to a queue pair's own receive queue.
    ///
    /// # Errors
    /// `Invalid`: too many elements, or it has an SRQ or no receive queue at all. `NoMemory`: full.
    #[inline]
    pub fn post_recv(&mut self, qp: &QpContext, request: &RecvRequest<'_>) -> Result<(), ResourceError> {
        match self.receives.at_mut(qp.recv_queue) {
            Some(Receives::Own(queue)) => {
                queue.post(request)?;
                if self.listens(Topic::Posts) {
                    self.tell(qp, Topic::Posts, &QpEvent::RecvPosted { request });
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

    /// Notes whether an unreliable queue pair runs out of receive requests: its next messages would be lost.
    pub(crate) fn note_receives(&mut self, qp: &QpContext) {
        if self.is_short(qp.recv_queue) {
            self.short_receives = Some((qp.recv_queue, qp.recv_cq));
        }
    }

    /// Whether a queue that was noted is still short, and its program is not known to wait for an event: a
    /// program that has armed its completion queue posts more requests when a completion wakes it, and not
    /// before.
    pub(crate) fn short_of_receives(&mut self) -> bool {
        self.short_receives = self.short_receives.filter(|(queue, _)| self.is_short(*queue));
        self.short_receives.is_some_and(|(_, cq)| !self.cqs.at(cq).is_some_and(|entry| entry.cq.is_armed()))
    }

    fn is_short(&self, queue: u32) -> bool {
        match self.receives.at(queue) {
            Some(Receives::Own(queue)) => queue.is_short(),
            Some(Receives::Shared(srq)) => srq.is_short(),
            None => false,
        }
    }

    /// Whether a queue pair takes its receives from an SRQ.
    pub fn uses_srq(&self, qp: &QpContext) -> bool {
        matches!(self.receives.at(qp.recv_queue), Some(Receives::Shared(_)))
    }

    /// Raises an asynchronous event of a queue pair.
    pub fn raise_qp_event(&mut self, qpn: Qpn, event: AsyncEventType) {
        if self.raise_target_event(qpn, event) {
            return;
        }
        self.raise_attached_event(qpn, event);
    }

    /// As [`Resources::raise_qp_event`], of one that is no target.
    pub(super) fn raise_attached_event(&self, qpn: Qpn, event: AsyncEventType) {
        if let Some(attachment) = self.attachment(qpn) {
            let element = AsyncElement::Qp { qpn: qpn.value(), cookie: attachment.cookie };
            self.async_events.raise_for(event, element, &attachment.account);
        }
    }

    /// Marks a completion queue's overrun: CQ_ERR, SRQ_ERR for the XRC SRQs that complete there, and QP_FATAL
    /// for every queue pair attached to it and for the one that caused it.
    pub(super) fn cq_overran(&mut self, cq: u32, culprit: Qpn) {
        self.cq_failed(cq);
        self.qp_ruined(culprit, cq);
    }

    /// The same without one that caused it.
    pub(super) fn cq_failed(&mut self, cq: u32) {
        if let Some(entry) = self.cqs.at(cq) {
            let element = AsyncElement::Cq { cookie: entry.cq.cookie() };
            self.async_events.raise_for(AsyncEventType::CqErr, element, entry.cq.async_account());
        }
        // An SRQ of XRC that completes there cannot tell of its receives any more.
        for (_, receives) in self.receives.iter() {
            if let Receives::Shared(srq) = receives
                && srq.xrc().is_some_and(|xrc| xrc.cq == cq)
            {
                let element = AsyncElement::Srq { cookie: srq.cookie() };
                self.async_events.raise_for(AsyncEventType::SrqErr, element, srq.account());
            }
        }
        let attached: Vec<Qpn> = self
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

    /// A completion of this queue pair was lost: QP_FATAL, once, and ERR by the engine.
    pub(super) fn qp_ruined(&mut self, qpn: Qpn, cq: u32) {
        let depth = self.cqs.at(cq).map_or(0, |entry| entry.cq.depth());
        let fatal = match self.attachment_mut(qpn) {
            Some(attachment) => &mut attachment.fatal,
            None => match self.xrc.targets.fatal_mut(qpn) {
                Some(fatal) => fatal,
                None => return,
            },
        };
        if std::mem::replace(fatal, true) {
            return;
        }
        self.raise_qp_event(qpn, AsyncEventType::QpFatal);
        let completes = self.attachment(qpn).and_then(|attachment| {
            cq_use(attachment.context.send_cq == cq, attachment.context.recv_cq == cq)
        });
        // A target has no completion queue of its own: what completes there are receives of an SRQ.
        let completes = completes.unwrap_or(CqUse::Receives);
        self.qp_failures.push(QpFailure { qpn, cause: Cause::CqOverrun { cq, depth, completes } });
    }

    pub(super) fn attachment(&self, qpn: Qpn) -> Option<&Attachment> {
        let attachment = self.qps.get(usize::from(qpn.index()))?.as_deref()?;
        (attachment.context.qpn == qpn).then_some(attachment)
    }

    pub(super) fn attachment_mut(&mut self, qpn: Qpn) -> Option<&mut Attachment> {
        let attachment = self.qps.get_mut(usize::from(qpn.index()))?.as_deref_mut()?;
        (attachment.context.qpn == qpn).then_some(attachment)
    }
}

#[cfg(test)]
#[path = "queue_pairs_tests.rs"]
mod tests;
