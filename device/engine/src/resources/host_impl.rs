//! The device as a queue pair's protocol sees it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};

use crate::objects::completion_queue::CqPushOutcome;
use crate::objects::srq::{Srq, SrqTake};
use pumice_memory::MappingCheck;
use pumice_model::event::async_event::AsyncElement;
use pumice_model::event::{Event, Topics};
use pumice_transport::event::{OutgoingPacket, QpEvent, Topic};
use pumice_transport::host::{
    CountedOperation, Counter, Ended, FrameData, FrameError, Host, MemoryError, NoRecv, QpContext, RecvWqe,
    RemoteKey, TaggedStart,
};
use pumice_transport::types::{
    Access, AsyncEventType, AtomicOperation, Cause, Fate, KeyConfiguration, MemoryFault, Sge, WcOpcode,
    WcStatus, WindowBind, WorkCompletion,
};
use pumice_transport::wire::Packet;

use super::tables::{Receives, Resources};
use crate::decisions::{PendingCompletion, Target};

/// The device, for one call into the protocol: its copies are checked as `check` says.
pub(crate) struct DeviceHost<'a> {
    resources: &'a mut Resources,
    check: MappingCheck,
}

impl Resources {
    /// Returns the device as a queue pair's protocol sees it; `check` decides how its copies treat memory
    /// that may be unmapped.
    #[inline]
    pub(crate) fn host(&mut self, check: MappingCheck) -> DeviceHost<'_> {
        DeviceHost { resources: self, check }
    }
}

impl Deref for DeviceHost<'_> {
    type Target = Resources;

    #[inline]
    fn deref(&self) -> &Resources {
        self.resources
    }
}

impl DerefMut for DeviceHost<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Resources {
        self.resources
    }
}

impl Host for DeviceHost<'_> {
    #[inline]
    fn gather(&mut self, pd: u32, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        if self.has_any_stores() {
            self.drain_before_gather(pd, sges, offset, out.len());
        }
        self.objects.memory.gather(pd, sges, offset, out, self.check)
    }

    #[inline]
    fn scatter(&mut self, pd: u32, sges: &[Sge], offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        if self.shuffles_stores() {
            let (target, check) = (Target::Local { pd, sges: Cow::Borrowed(sges), offset }, self.check);
            return self.store_buffered(&target, data, check);
        }
        self.objects.memory.scatter(pd, sges, offset, data, self.check)
    }

    #[cold]
    fn find_fault(&mut self, pd: u32, sges: &[Sge], stores: bool) -> Option<MemoryFault> {
        self.objects.memory.find_fault(pd, sges, stores)
    }

    #[inline]
    fn check_remote(
        &mut self,
        key: RemoteKey,
        address: u64,
        length_bytes: u64,
        access: Access,
    ) -> Result<(), MemoryError> {
        self.objects.memory.check_remote(key, address, length_bytes, access)
    }

    #[inline]
    fn remote_write(&mut self, key: RemoteKey, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        if self.shuffles_stores() {
            let check = self.check;
            return self.store_buffered(&Target::Remote { key, address }, data, check);
        }
        self.objects.memory.remote_write(key, address, data, self.check)
    }

    #[inline]
    fn remote_read(&mut self, key: RemoteKey, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        if self.has_any_stores() {
            self.store_before_answer(key, address, out.len() as u64);
        }
        self.objects.memory.remote_read(key, address, out, self.check)
    }

    fn remote_atomic(
        &mut self,
        key: RemoteKey,
        address: u64,
        operation: AtomicOperation,
    ) -> Result<u64, MemoryError> {
        if self.has_any_stores() {
            self.store_before_answer(key, address, 8);
        }
        self.objects.memory.remote_atomic(key, address, operation)
    }

    fn remote_flush(
        &mut self,
        key: RemoteKey,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<(), MemoryError> {
        if self.has_any_stores() {
            self.store_before_answer(key, 0, 0);
        }
        self.objects.memory.remote_flush(key, range, access)
    }

    fn invalidate(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        self.drain_stores();
        self.objects.memory.invalidate(key, false)
    }

    fn invalidate_for_peer(&mut self, key: RemoteKey) -> Result<(), MemoryError> {
        self.drain_stores();
        self.objects.memory.invalidate(key, true)
    }

    #[cold]
    fn configure_key(&mut self, qp: &QpContext, to: &KeyConfiguration) -> Result<(), MemoryError> {
        self.drain_stores();
        self.objects.memory.configure_key(qp.pd, to)
    }

    #[cold]
    fn key_posted(&mut self, pd: u32, to: &KeyConfiguration) {
        self.objects.memory.key_posted(pd, to);
    }

    #[inline]
    fn wire_bytes(&mut self, sges: &[Sge]) -> Option<u64> {
        let memory = &self.objects.memory;
        memory.has_signatures().then(|| sges.iter().map(|sge| memory.wire_bytes_of(sge, true)).sum())
    }

    #[cold]
    fn has_bad_signature(&mut self, sges: &[Sge]) -> bool {
        let memory = &self.objects.memory;
        memory.has_signatures() && sges.iter().any(|sge| memory.has_signature_error(sge.lkey))
    }

    fn bind_window(&mut self, qp: &QpContext, bind: &WindowBind) -> Result<(), MemoryError> {
        self.drain_stores();
        self.objects.memory.bind_window(qp.pd, qp.qpn, bind)
    }

    #[cold]
    fn send_frame(
        &mut self,
        qp: &QpContext,
        data: FrameData<'_>,
        length_bytes: u32,
    ) -> Result<(), FrameError> {
        let check = self.check;
        self.send_frame_of(qp, data, length_bytes, check)
    }

    fn take_recv(&mut self, qp: &QpContext, xrc_srqn: Option<u32>, into: &mut RecvWqe) -> Result<(), NoRecv> {
        let slot = match xrc_srqn {
            Some(number) => self.xrc_srq_index(qp, number)?,
            None => qp.recv_queue,
        };
        let other = self.choose_receive(qp, slot);
        let taken = match self.objects.receives.at_mut(slot).ok_or(NoRecv::Empty)? {
            Receives::Own(queue) => {
                if let Some(index) = other.filter(|index| *index > 0) {
                    queue.bring_forward(index);
                }
                into.pd = qp.pd;
                into.cq = qp.recv_cq;
                if queue.take(into) { SrqTake::Request } else { SrqTake::Empty }
            }
            Receives::Shared(srq) if srq.tags().is_some() => {
                into.matches_tags = true;
                return if srq.is_failed() { Err(NoRecv::Empty) } else { Ok(()) };
            }
            Receives::Shared(srq) => {
                into.cq = srq.xrc().map_or(qp.recv_cq, |xrc| xrc.cq);
                self.take_shared(slot, into)
            }
        };
        let memory = &self.objects.memory;
        if memory.has_signatures() {
            into.length_bytes = into.sges.iter().map(|sge| memory.wire_bytes_of(sge, false)).sum();
        }
        if taken == SrqTake::Empty { Err(NoRecv::Empty) } else { Ok(()) }
    }

    #[cold]
    fn match_tag(
        &mut self,
        qp: &QpContext,
        start: TaggedStart<'_>,
        into: &mut RecvWqe,
    ) -> Result<(), NoRecv> {
        self.match_message(qp, start, into)
    }

    fn srq_protection_domain(&mut self, qp: &QpContext, xrc_srqn: u32) -> Result<u32, NoRecv> {
        let slot = self.xrc_srq_index(qp, xrc_srqn)?;
        self.shared(slot).map(Srq::pd).ok_or(NoRecv::NoSuchSrq)
    }

    fn address_handle(&mut self, pd: u32, peer: IpAddr) -> Option<u16> {
        self.objects.ah_number_to(pd, peer)
    }

    fn flush_recv_queue(&mut self, qp: &QpContext) {
        while let Some(Receives::Own(queue)) = self.objects.receives.at_mut(qp.recv_queue) {
            //= statement:30
            //| The receive requests of a failed queue pair are flushed in order.
            let Some(wr_id) = queue.take_id() else { break };
            let completion = WorkCompletion {
                wr_id,
                status: WcStatus::WrFlushErr,
                opcode: WcOpcode::Recv,
                qp_num: qp.qpn.value(),
                ..WorkCompletion::default()
            };
            self.complete(
                qp,
                PendingCompletion { cq: qp.recv_cq, completion, released: 0, solicited: false },
            );
        }
    }

    #[inline]
    fn complete_send(&mut self, qp: &QpContext, completion: WorkCompletion, released: u32) {
        if self.completes_plainly(&completion) {
            return self.store_completion(qp, qp.send_cq, &completion, released, false);
        }
        self.complete(qp, PendingCompletion { cq: qp.send_cq, completion, released, solicited: false });
    }

    #[inline]
    fn complete_recv(&mut self, qp: &QpContext, cq: u32, completion: WorkCompletion, solicited: bool) {
        if self.completes_plainly(&completion) {
            return self.store_completion(qp, cq, &completion, 0, solicited);
        }
        self.complete(qp, PendingCompletion { cq, completion, released: 0, solicited });
    }

    #[inline]
    fn judges(&self) -> bool {
        self.decisions.delays()
    }

    fn judge(&mut self, qp: &QpContext, ended: &Ended) -> Option<WcStatus> {
        self.resources.judge(qp, ended)
    }

    #[inline]
    fn counts(&self) -> bool {
        self.completions.counts_completions
    }

    fn ended(&mut self, qp: &QpContext, operation: CountedOperation, succeeded: bool) {
        self.count_ended(qp, operation, succeeded);
    }

    fn event(&mut self, qp: &QpContext, event: AsyncEventType) {
        if self.decisions.delays() {
            self.end_wait_of(qp.ordinal);
        }
        if self.is_shuffled() {
            self.release_before_event(qp);
        }
        self.raise_qp_event(qp.qpn, event);
    }

    #[inline]
    fn listens(&self, topic: Topic) -> bool {
        self.resources.listens(topic)
    }

    #[inline]
    fn emit(&mut self, qp: &QpContext, event: QpEvent<'_>) {
        self.resources.emit(qp, event);
    }

    #[inline(always)]
    fn emit_uncounted(&mut self, qp: &QpContext, event: &QpEvent<'_>) {
        self.resources.emit_uncounted(qp, event.topic(), event);
    }

    #[inline]
    fn decides(&self) -> bool {
        self.decisions.decides_packets()
    }

    fn halted(&mut self, qp: &QpContext) {
        self.resources.decisions.halted(qp);
    }

    fn fate(&mut self, qp: &QpContext, departure: &OutgoingPacket<'_>) -> Fate {
        let Resources { decisions, listeners, .. } = &mut *self.resources;
        decisions.packet(qp, departure, &listeners.subscribers)
    }
}

impl Resources {
    /// Reports whether stores may be deferred. With signatures they may not: fields are calculated from
    /// stored data.
    #[inline]
    fn shuffles_stores(&mut self) -> bool {
        if !self.is_shuffled() {
            return false;
        }
        if self.objects.memory.has_signatures() {
            self.drain_stores();
            return false;
        }
        true
    }

    /// Decides which of the posted receives the next message of a queue pair takes, if a seed decides that.
    #[inline]
    fn choose_receive(&mut self, qp: &QpContext, slot: u32) -> Option<u32> {
        if !self.is_shuffled() || !qp.out_of_order {
            return None;
        }
        let Some(Receives::Own(queue)) = self.objects.receives.at_mut(slot) else { return None };
        let posted = queue.len();
        Some(self.receive_to_take(qp, posted))
    }

    /// Reports whether anything subscribes to events of this topic.
    #[inline]
    pub(crate) fn listens(&self, topic: Topic) -> bool {
        self.listeners.topics.intersects(Topics::from_bits_retain(topic.bit()))
    }

    /// Reports whether anything subscribes to events of one of these topics.
    #[inline]
    pub(crate) fn listens_to_any(&self, topics: Topics) -> bool {
        self.listeners.topics.intersects(topics)
    }

    /// Reports whether a queue pair ever had a completion counter.
    #[inline]
    pub(crate) fn counts_completions(&self) -> bool {
        self.completions.counts_completions
    }

    /// Emits an event of a queue pair, and counts it.
    #[inline]
    pub(crate) fn emit(&mut self, qp: &QpContext, event: QpEvent<'_>) {
        if let Some((counter, amount)) = event.counter() {
            self.count(counter, amount);
            self.objects.note(qp.qpn, counter, amount);
        }
        if let QpEvent::Logged(cause) = event {
            self.objects.note_error(qp.qpn, cause);
        }
        let topic = event.topic();
        if self.listens(topic) {
            self.emit_uncounted(qp, topic, &event);
        }
    }

    /// Emits an event that counts nothing, if a subscriber listens to its topic.
    #[cold]
    #[inline(never)]
    pub(crate) fn emit_uncounted(&mut self, qp: &QpContext, topic: Topic, event: &QpEvent<'_>) {
        // The usual case is handled without another call, for which registers would have to be saved.
        if let Some(subscriber) = self.listeners.subscribers.single_subscriber(topic)
            && let Some(at_ns) = self.listeners.batch_time.shared(topic)
        {
            subscriber.on_event(at_ns, &Event::Qp { qp, event });
        } else {
            self.emit_to_subscribers(qp, topic, event);
        }
    }

    #[cold]
    #[inline(never)]
    fn emit_to_subscribers(&mut self, qp: &QpContext, topic: Topic, event: &QpEvent<'_>) {
        let at_ns = self.listeners.batch_time.of(topic, || self.listeners.subscribers.now_ns());
        if !self.listeners.subscribers.deliver(
            at_ns,
            Topics::from_bits_retain(topic.bit()),
            &Event::Qp { qp, event },
        ) {
            // A subscriber has left, for which it takes no lock of the engine.
            self.follow_subscribers();
        }
    }

    /// Reports the cause of a problem for the operator's log.
    #[cold]
    pub(crate) fn log(&mut self, qp: &QpContext, cause: Cause) {
        self.emit(qp, QpEvent::Logged(&cause));
    }

    /// Counts a packet that is dropped before a queue pair sees it, and emits an event. `packet`: if it could
    /// be parsed.
    #[cold]
    pub(crate) fn drop_packet(&mut self, reason: Counter, source: IpAddr, packet: Option<&Packet<'_>>) {
        self.count(reason, 1);
        let known = |packet: &Packet<'_>| {
            let bth = packet.bth();
            (bth.destination, bth.opcode, bth.psn)
        };
        self.listeners.subscribers.emit(&Event::PacketDropped { reason, source, packet: packet.map(known) });
    }

    /// Adds to a counter what no queue pair's event counts.
    #[inline]
    pub(crate) fn count(&mut self, counter: Counter, amount: u64) {
        self.port.counters.add_under_lock(counter, amount);
    }

    /// Reports whether a completion goes into its queue at once: it is of a success, and nothing is decided,
    /// counted, deferred or told by it.
    #[inline]
    fn completes_plainly(&self, completion: &WorkCompletion) -> bool {
        completion.status == WcStatus::Success
            && !self.completions.counts_completions
            && !self.decisions.delays()
            && !self.has_any_stores()
            && !self.decisions.has_deferred_stores()
            && !self.listens(Topic::Completions)
    }

    fn complete(&mut self, qp: &QpContext, mut made: PendingCompletion) {
        if made.completion.status != WcStatus::Success {
            self.number_failure(&mut made);
        }
        if self.completions.counts_completions && made.completion.opcode.is_recv() {
            self.count_ended(qp, CountedOperation::Receive, made.completion.status == WcStatus::Success);
        }
        if self.decisions.delays() {
            let Some(changed) = self.delay(qp, made) else { return };
            made = changed;
        }
        self.complete_in_turn(qp, made);
    }

    /// Gives a failed completion the number by which the adapter's library names the cause, if it has none.
    #[cold]
    fn number_failure(&self, made: &mut PendingCompletion) {
        let completion = &mut made.completion;
        if completion.vendor_err == 0 {
            completion.vendor_err =
                self.completions.failures.vendor_err(completion.status, completion.opcode.is_recv());
        }
    }

    /// Makes a completion now, unless stores before it are buffered.
    #[inline]
    pub(super) fn complete_in_turn(&mut self, qp: &QpContext, made: PendingCompletion) {
        if !self.has_any_stores() {
            return self.complete_now(qp, &made);
        }
        if let Some(made) = self.complete_buffered(qp, made) {
            self.complete_now(qp, &made);
        }
    }

    #[inline]
    pub(super) fn complete_now(&mut self, qp: &QpContext, made: &PendingCompletion) {
        // A completion is long: it is copied into its queue from where it was made.
        let PendingCompletion { cq, ref completion, released, solicited } = *made;
        if self.decisions.has_deferred_stores() {
            self.store_before_completion(qp, made);
        }
        if self.listens(Topic::Completions) {
            self.emit_uncounted(qp, Topic::Completions, &QpEvent::Completed { completion, cq, released });
        }
        self.store_completion(qp, cq, completion, released, solicited);
    }

    /// Stores a completion in its queue, or where a thread polls for it.
    #[inline]
    fn store_completion(
        &mut self,
        qp: &QpContext,
        cq: u32,
        completion: &WorkCompletion,
        released: u32,
        solicited: bool,
    ) {
        let Some(entry) = self.objects.cqs.at(cq) else { return self.device_request_ended(qp, completion) };
        self.completions.new_completions = true;
        if self.completions.direct.awaits(cq) && entry.cq.may_pass_over() {
            return self.completions.direct.deliver(completion, released);
        }
        match entry.cq.push_of(qp.ordinal, completion, released, solicited) {
            CqPushOutcome::Stored => {}
            CqPushOutcome::Overwrote => {
                let depth = entry.cq.depth();
                self.log(qp, Cause::CompletionLost { cq, depth });
            }
            CqPushOutcome::EventBy(due_ns) => self.delay_event(cq, due_ns),
            //= statement:36
            //| An overrun raises CQ_ERR and ends all queue pairs of the completion queue.
            CqPushOutcome::Overrun => self.cq_overran(cq, qp.qpn),
            CqPushOutcome::InError => self.qp_ruined(qp.qpn, cq),
        }
    }

    /// Returns the index of the XRC SRQ with this number, if it is of the queue pair's XRC domain.
    fn xrc_srq_index(&self, qp: &QpContext, number: u32) -> Result<u32, NoRecv> {
        let index = (number & 0xffff).wrapping_sub(1);
        let slot = *self.objects.xrc_srqs.at(index).ok_or(NoRecv::NoSuchSrq)?;
        let xrc = self.shared(slot).and_then(Srq::xrc).ok_or(NoRecv::NoSuchSrq)?;
        if xrc.number == number && xrc.xrcd == qp.xrcd { Ok(slot) } else { Err(NoRecv::NoSuchSrq) }
    }

    /// Reports whether the receive queue of a queue pair, its own or a shared one, has requests.
    #[inline]
    pub(crate) fn has_receives(&self, qp: &QpContext) -> bool {
        match self.objects.receives.at(qp.recv_queue) {
            Some(Receives::Own(queue)) => !queue.is_empty(),
            Some(Receives::Shared(srq)) => !srq.is_empty(),
            None => false,
        }
    }

    /// Takes the oldest request of a shared receive queue.
    pub(super) fn take_shared(&mut self, slot: u32, into: &mut RecvWqe) -> SrqTake {
        let Some(Receives::Shared(srq)) = self.objects.receives.at_mut(slot) else { return SrqTake::Empty };
        let taken = srq.take(into);
        //= statement:44
        //| SRQ_LIMIT_REACHED tells that the limit was crossed.
        if taken == SrqTake::BelowLimit {
            let element = AsyncElement::Srq { cookie: srq.cookie() };
            self.port.async_events.raise_for(AsyncEventType::SrqLimitReached, element, srq.account());
        }
        taken
    }

    pub(super) fn shared(&self, slot: u32) -> Option<&Srq> {
        match self.objects.receives.at(slot)? {
            Receives::Shared(srq) => Some(srq),
            Receives::Own(_) => None,
        }
    }
}
