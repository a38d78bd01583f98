//! What a queue pair is attached to. The queue pairs themselves belong to the engine.

use std::sync::Arc;

use pumice_transport::host::QpContext;
use pumice_transport::types::{AsyncEventType, Cause, QpCapacity, QpType, RecvRequest};
use pumice_transport::wire::Qpn;

use super::{CREATOR, NO_OBJECT, QpFault, Receives, Resources, TargetClosed, check_size};
use crate::async_event::AsyncElement;
use crate::error::ResourceError;
use crate::event_account::EventAccount;
use crate::recv_queue::RecvQueue;
use crate::table::Handle;

/// What to attach a queue pair to (`ibv_create_qp_ex`).
#[derive(Debug, Clone, Copy)]
pub struct QpSetup {
    /// Its number; the low 16 bits are not in use by another.
    pub qpn: Qpn,
    /// Its kind.
    pub qp_type: QpType,
    /// What the application calls it.
    pub cookie: u64,
    /// Protection domain; all but XRC targets.
    pub pd: Option<Handle>,
    /// Completion queue of sends; all but XRC targets.
    pub send_cq: Option<Handle>,
    /// Completion queue of receives; RC, UC, UD.
    pub recv_cq: Option<Handle>,
    /// Shared receive queue, instead of a receive queue of its own.
    pub srq: Option<Handle>,
    /// XRC domain; XRC targets and queue pairs of OFED 1.x.
    pub xrcd: Option<Handle>,
    /// Sizes asked for.
    pub capacity: QpCapacity,
}

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

/// A queue pair as the device's tables see it.
#[derive(Debug)]
pub(super) struct Attachment {
    context: QpContext,
    cookie: u64,
    srq: Option<Handle>,
    xrcd: Option<Handle>,
    account: Arc<EventAccount>,
    /// QP_FATAL was raised and the engine told.
    fatal: bool,
}

impl Resources {
    /// Attaches a queue pair to its objects, which cannot be destroyed from now on, and makes its
    /// receive queue.
    ///
    /// # Errors
    /// `Invalid`: an object is missing, stale or of the wrong kind for the type; a size is beyond
    /// its limit; the number is in use. `NoMemory`: a table is full.
    pub fn attach_qp(&mut self, setup: &QpSetup) -> Result<QpAttached, ResourceError> {
        let place = (setup.qpn.value() & 0xffff) as usize;
        if self.qps.get(place).is_some_and(Option::is_some) || self.is_target(setup.qpn) {
            return Err(ResourceError::invalid(format!("queue pair number {} is in use", setup.qpn)));
        }
        let setup = self.check_setup(setup)?;
        let capacity = self.check_capacity(&setup)?;
        if let (QpType::XrcTarget, Some(xrcd)) = (setup.qp_type, setup.xrcd) {
            let context = self.insert_target(setup.qpn, self.xrc.domain_of(xrcd)?, false);
            let (_creator, account) = self.register_target(xrcd, setup.qpn, setup.cookie)?;
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
        };
        if self.qps.len() <= place {
            self.qps.resize_with(place + 1, || None);
        }
        if let Some(slot) = self.qps.get_mut(place) {
            *slot = Some(Box::new(attachment));
        }
        self.send_slots.reset(setup.qpn.value());
        Ok(QpAttached { context, capacity, account })
    }

    /// Detaches a queue pair that is being destroyed (an XRC target: closes it for its creator): its unpolled completions, its unread events,
    /// its receive queue and its bindings of type-2 windows are gone. Without the engine's lock, call
    /// [`EventAccount::wait_all_acked`] on the result afterwards.
    ///
    /// # Errors
    /// `Busy`: it is attached to multicast groups. `Invalid`: it is not attached.
    pub fn detach_qp(&mut self, qpn: Qpn) -> Result<Arc<EventAccount>, ResourceError> {
        if self.is_target(qpn) {
            let TargetClosed { account, last } = self.unregister_target(qpn, CREATOR)?;
            if last {
                self.remove_target(qpn);
            }
            return Ok(account);
        }
        if self.attachment(qpn).is_none() {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        }
        let groups = self.groups.groups_of(qpn);
        if groups != 0 {
            return Err(ResourceError::busy(format!(
                "queue pair {qpn} is attached to {groups} multicast groups; detach it first"
            )));
        }
        self.groups.hear_itself(qpn, true);
        self.reset_qp(qpn);
        self.memory.unbind_windows_of(qpn);
        let slot = self.qps.get_mut((qpn.value() & 0xffff) as usize).and_then(Option::take);
        let Some(attachment) = slot else {
            return Err(ResourceError::invalid(format!("queue pair {qpn} does not exist")));
        };
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
    /// completions, used send slots.
    pub fn reset_qp(&mut self, qpn: Qpn) {
        if let Some(fatal) = self.target_fatal(qpn) {
            *fatal = false;
        }
        let Some(attachment) = self.attachment_mut(qpn) else { return };
        attachment.fatal = false;
        let context = attachment.context;
        let both = [context.send_cq, context.recv_cq];
        let distinct = if both[0] == both[1] { &both[..1] } else { &both[..] };
        for cq in distinct {
            if let Some(slot) = self.cqs.at(*cq) {
                slot.cq.remove_of(qpn.value());
            }
        }
        // After the completions: a poll can no longer release slots of the past.
        self.send_slots.reset(qpn.value());
        if let Some(Receives::Own(queue)) = self.receives.at_mut(context.recv_queue) {
            queue.clear();
        }
        self.qp_faults.retain(|fault| fault.qpn != qpn);
    }

    /// Posts a request to a queue pair's own receive queue.
    ///
    /// # Errors
    /// `Invalid`: too many elements, or it has an SRQ or no receive queue at all. `NoMemory`: full.
    #[inline]
    pub fn post_recv(&mut self, qp: &QpContext, request: &RecvRequest<'_>) -> Result<(), ResourceError> {
        match self.receives.at_mut(qp.recv_queue) {
            Some(Receives::Own(queue)) => queue.post(request),
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
            self.short_receives = Some(qp.recv_queue);
        }
    }

    /// Whether a queue that was noted is still short.
    pub(crate) fn short_of_receives(&mut self) -> bool {
        self.short_receives = self.short_receives.filter(|queue| self.is_short(*queue));
        self.short_receives.is_some()
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

    /// Marks a completion queue's overrun: CQ_ERR, SRQ_ERR for the XRC SRQs that complete there, and QP_FATAL for
    /// every queue pair attached to it and for the one that caused it.
    pub(super) fn cq_overran(&mut self, cq: u32, culprit: Qpn) {
        if let Some(slot) = self.cqs.at(cq) {
            let element = AsyncElement::Cq { cookie: slot.cq.cookie() };
            self.async_events.raise_for(AsyncEventType::CqErr, element, slot.cq.async_account());
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
        self.qp_ruined(culprit, cq);
    }

    /// A completion of this queue pair was lost: QP_FATAL, once, and ERR by the engine.
    pub(super) fn qp_ruined(&mut self, qpn: Qpn, cq: u32) {
        let depth = self.cqs.at(cq).map_or(0, |slot| slot.cq.depth());
        let fatal = match self.attachment_mut(qpn) {
            Some(attachment) => &mut attachment.fatal,
            None => match self.target_fatal(qpn) {
                Some(fatal) => fatal,
                None => return,
            },
        };
        if std::mem::replace(fatal, true) {
            return;
        }
        self.raise_qp_event(qpn, AsyncEventType::QpFatal);
        self.qp_faults.push(QpFault { qpn, cause: Cause::CqOverrun { depth } });
    }

    fn attachment(&self, qpn: Qpn) -> Option<&Attachment> {
        let attachment = self.qps.get((qpn.value() & 0xffff) as usize)?.as_deref()?;
        (attachment.context.qpn == qpn).then_some(attachment)
    }

    fn attachment_mut(&mut self, qpn: Qpn) -> Option<&mut Attachment> {
        let attachment = self.qps.get_mut((qpn.value() & 0xffff) as usize)?.as_deref_mut()?;
        (attachment.context.qpn == qpn).then_some(attachment)
    }

    /// The objects that the type needs are there, and those that it does not use are left out.
    fn check_setup(&self, setup: &QpSetup) -> Result<QpSetup, ResourceError> {
        let kind = setup.qp_type.name();
        let mut used = *setup;
        let target = setup.qp_type == QpType::XrcTarget;
        if setup.qp_type.is_xrc() {
            if setup.srq.is_some() {
                return Err(ResourceError::invalid(format!("{kind} queue pairs have no SRQ of their own")));
            }
            used.recv_cq = None;
        } else if setup.recv_cq.is_none() {
            return Err(ResourceError::invalid(format!("{kind} queue pairs need a recv_cq")));
        }
        if target {
            used.pd = None;
            used.send_cq = None;
            let xrcd = setup.xrcd.ok_or_else(|| ResourceError::invalid("XRC targets need an XRC domain"))?;
            self.xrc.domain_of(xrcd)?;
        } else {
            used.xrcd = setup.xrcd.filter(|_| setup.qp_type == QpType::XrcDuplex);
            if setup.qp_type == QpType::XrcDuplex {
                let missing = || ResourceError::invalid(format!("{kind} queue pairs need an XRC domain"));
                let xrcd = used.xrcd.ok_or_else(missing)?;
                self.xrc.domain_of(xrcd)?;
            }
            let pd =
                setup.pd.ok_or_else(|| ResourceError::invalid(format!("{kind} queue pairs need a PD")))?;
            self.pds.require(pd)?;
            if setup.send_cq.is_none() {
                return Err(ResourceError::invalid(format!("{kind} queue pairs need a send_cq")));
            }
        }
        for cq in used.send_cq.into_iter().chain(used.recv_cq) {
            self.cqs.require(cq)?;
        }
        if let Some(srq) = used.srq
            && self.srq(srq)?.xrc().is_some()
        {
            return Err(ResourceError::invalid(format!("{kind} queue pairs cannot use an XRC SRQ")));
        }
        Ok(used)
    }

    fn check_capacity(&self, setup: &QpSetup) -> Result<QpCapacity, ResourceError> {
        let limits = &self.limits;
        let mut capacity = setup.capacity;
        if setup.send_cq.is_none() {
            (capacity.max_send_wr, capacity.max_send_sge, capacity.max_inline_data) = (0, 0, 0);
        }
        if setup.recv_cq.is_none() || setup.srq.is_some() {
            (capacity.max_recv_wr, capacity.max_recv_sge) = (0, 0);
        }
        check_size("max_send_wr", capacity.max_send_wr, 0, limits.max_qp_wr)?;
        check_size("max_recv_wr", capacity.max_recv_wr, 0, limits.max_qp_wr)?;
        check_size("max_send_sge", capacity.max_send_sge, 0, limits.max_sge)?;
        check_size("max_recv_sge", capacity.max_recv_sge, 0, limits.max_sge)?;
        check_size("max_inline_data", capacity.max_inline_data, 0, limits.max_inline_data)?;
        Ok(capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::resources::{CqSetup, SrqSetup};

    struct Objects {
        resources: Resources,
        pd: Handle,
        xrcd: Handle,
        cq: Handle,
        other_cq: Handle,
        srq: Handle,
        xrc_srq: Handle,
    }

    fn objects() -> Objects {
        let mut resources = Resources::new(Limits::default()).unwrap();
        let (pd, xrcd) = (resources.alloc_pd().unwrap(), resources.open_xrcd().unwrap());
        let mut cq = || resources.create_cq(CqSetup { depth: 8, ..CqSetup::default() }).unwrap().handle();
        let (cq, other_cq) = (cq(), cq());
        let srq = SrqSetup { pd, max_wr: 8, max_sge: 1, cookie: 0, xrc: None };
        let xrc_srq = resources.create_srq(&SrqSetup { xrc: Some((xrcd, cq)), ..srq }).unwrap();
        let srq = resources.create_srq(&srq).unwrap();
        Objects { resources, pd, xrcd, cq, other_cq, srq, xrc_srq }
    }

    impl Objects {
        /// Everything that a queue pair could be attached to, but no SRQ.
        fn setup(&self, qp_type: QpType) -> QpSetup {
            QpSetup {
                qpn: Qpn::new(0x01_0011),
                qp_type,
                cookie: 5,
                pd: Some(self.pd),
                send_cq: Some(self.cq),
                recv_cq: Some(self.other_cq),
                srq: None,
                xrcd: Some(self.xrcd),
                capacity: QpCapacity {
                    max_send_wr: 4,
                    max_recv_wr: 2,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 16,
                },
            }
        }
    }

    #[test]
    fn each_type_is_attached_to_what_it_uses_and_nothing_else() {
        let mut o = objects();
        let (pd, cq, other, xrcd) = (o.pd.index, o.cq.index, o.other_cq.index, o.xrcd.index);
        let none = NO_OBJECT;
        let table = [
            (QpType::Rc, [pd, cq, other, none], [4, 2]),
            (QpType::Uc, [pd, cq, other, none], [4, 2]),
            (QpType::Ud, [pd, cq, other, none], [4, 2]),
            (QpType::XrcDuplex, [pd, cq, none, xrcd], [4, 0]),
            (QpType::XrcInitiator, [pd, cq, none, none], [4, 0]),
            (QpType::XrcTarget, [none, none, none, xrcd], [0, 0]),
        ];
        for (qp_type, objects, depths) in table {
            let setup = o.setup(qp_type);
            let attached = o.resources.attach_qp(&setup).unwrap();
            let context = attached.context;
            assert_eq!([context.pd, context.send_cq, context.recv_cq, context.xrcd], objects, "{qp_type:?}");
            assert_eq!([attached.capacity.max_send_wr, attached.capacity.max_recv_wr], depths);
            assert_eq!(context.recv_queue == NO_OBJECT, depths[1] == 0);
            assert_eq!(o.resources.attach_qp(&setup).unwrap_err().errno(), libc::EINVAL, "number in use");
            o.resources.detach_qp(setup.qpn).unwrap().wait_all_acked();
            assert_eq!(o.resources.detach_qp(setup.qpn).unwrap_err().errno(), libc::EINVAL);
        }
        o.resources.destroy_cq(o.other_cq).unwrap();
        o.resources.destroy_srq(o.xrc_srq).unwrap();
        o.resources.destroy_cq(o.cq).unwrap();
        o.resources.close_xrcd(o.xrcd).unwrap();
    }

    #[test]
    fn missing_wrong_and_oversized_arguments_are_refused() {
        let mut o = objects();
        let (rc, xrc) = (o.setup(QpType::Rc), o.setup(QpType::XrcTarget));
        let size = |change: fn(&mut QpCapacity)| {
            let mut setup = rc;
            change(&mut setup.capacity);
            setup
        };
        let cases = [
            (QpSetup { pd: None, ..rc }, "PD"),
            (QpSetup { send_cq: None, ..rc }, "send_cq"),
            (QpSetup { recv_cq: None, ..rc }, "recv_cq"),
            (QpSetup { srq: Some(o.xrc_srq), ..rc }, "XRC SRQ"),
            (QpSetup { srq: Some(Handle { index: 99, generation: 1 }), ..rc }, "does not exist"),
            (QpSetup { pd: Some(Handle { index: 0, generation: 9 }), ..rc }, "does not exist"),
            (QpSetup { xrcd: None, ..xrc }, "XRC domain"),
            (QpSetup { xrcd: None, qp_type: QpType::XrcDuplex, ..rc }, "XRC domain"),
            (QpSetup { srq: Some(o.srq), ..xrc }, "no SRQ"),
            (QpSetup { send_cq: None, qp_type: QpType::XrcInitiator, ..rc }, "send_cq"),
            (size(|capacity| capacity.max_send_wr = 16_385), "max_send_wr"),
            (size(|capacity| capacity.max_recv_wr = 16_385), "max_recv_wr"),
            (size(|capacity| capacity.max_send_sge = 33), "max_send_sge"),
            (size(|capacity| capacity.max_recv_sge = 33), "max_recv_sge"),
            (size(|capacity| capacity.max_inline_data = 513), "max_inline_data"),
        ];
        for (setup, part) in cases {
            let error = o.resources.attach_qp(&setup).unwrap_err();
            assert_eq!(error.errno(), libc::EINVAL, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        // Nothing was left in use.
        o.resources.destroy_cq(o.other_cq).unwrap();
        o.resources.destroy_srq(o.srq).unwrap();
    }

    #[test]
    fn objects_in_use_stay_and_an_srq_replaces_the_receive_queue() {
        let mut o = objects();
        let setup = QpSetup { srq: Some(o.srq), ..o.setup(QpType::Rc) };
        let attached = o.resources.attach_qp(&setup).unwrap();
        assert_eq!(attached.capacity.max_recv_wr, 0);
        assert!(o.resources.uses_srq(&attached.context));
        let request = RecvRequest { wr_id: 1, sges: &[] };
        assert_eq!(o.resources.post_recv(&attached.context, &request).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(o.resources.destroy_srq(o.srq).unwrap_err().errno(), libc::EBUSY);
        assert_eq!(o.resources.destroy_cq(o.other_cq).unwrap_err().errno(), libc::EBUSY);
        o.resources.detach_qp(setup.qpn).unwrap();
        o.resources.destroy_srq(o.srq).unwrap();
        o.resources.destroy_cq(o.other_cq).unwrap();
    }

    #[test]
    fn a_multicast_member_cannot_be_detached() {
        let mut o = objects();
        let setup = o.setup(QpType::Ud);
        o.resources.attach_qp(&setup).unwrap();
        let gid = pumice_transport::types::Gid::from(std::net::Ipv4Addr::new(239, 1, 1, 1));
        o.resources.groups.attach(gid, setup.qpn, QpType::Ud).unwrap();
        assert_eq!(o.resources.detach_qp(setup.qpn).unwrap_err().errno(), libc::EBUSY);
        o.resources.groups.detach(gid, setup.qpn, QpType::Ud).unwrap();
        o.resources.detach_qp(setup.qpn).unwrap();
    }

    #[test]
    fn events_carry_the_cookie_and_vanish_with_the_queue_pair() {
        let mut o = objects();
        let setup = o.setup(QpType::Rc);
        let attached = o.resources.attach_qp(&setup).unwrap();
        o.resources.raise_qp_event(setup.qpn, AsyncEventType::CommEst);
        o.resources.raise_qp_event(setup.qpn, AsyncEventType::SqDrained);
        o.resources.raise_qp_event(Qpn::new(0x02_0011), AsyncEventType::CommEst);
        let event = o.resources.async_events.try_event().unwrap();
        assert_eq!(event.element, AsyncElement::Qp { qpn: 0x01_0011, cookie: 5 });
        let account = o.resources.detach_qp(setup.qpn).unwrap();
        assert!(Arc::ptr_eq(&account, &attached.account));
        assert!(o.resources.async_events.try_event().is_none());
        assert_eq!(account.unacked(), 1);
        event.ack();
        account.wait_all_acked();
    }
}
