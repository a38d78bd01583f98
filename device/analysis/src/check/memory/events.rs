//! Handlers of events about memory: registrations, posts, packets, and the end of requests.

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::{PacketSide, QpEvent};
use pumice_transport::host::QpContext;
use pumice_transport::types::{
    Cause, FailureDetail, QpState, RemoteRange, WcOpcode, WcStatus, WorkCompletion, WrClass,
};
use pumice_transport::wire::{Opcode, OpcodeInfo, OperationClass, Psn};

use super::super::context::CheckContext;
use super::overlaps::{NewRequest, contents_of};
use super::payload::BufferContents;
use super::regions::{BufferRole, MemoryKey, RegionRecord};
use super::requests::{PostedRequest, QueueId};
use super::state::Memory;

impl Memory {
    /// Handles an event, which may be about memory.
    pub(super) fn handle_memory_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        self.report_early_uses(context);
        match event {
            Event::Qp { qp, event } if context.qps.contains_key(&qp.qpn.value()) => {
                self.handle_buffer_event(context, qp, event);
                self.on_peer_message(context, qp.qpn.value(), event);
            }
            Event::RegionRegistered { lkey, rkey, address, length, iova, stays_mapped, .. } => {
                let made = context.here();
                // A region may be changed: the memory of its requests is elsewhere now.
                let key = context.own.key(*lkey);
                self.requests.key_changes(key);
                let region = RegionRecord {
                    rkey: context.own.key(*rkey),
                    address: *address,
                    length: *length,
                    iova: *iova,
                    stays_mapped: *stays_mapped,
                    made,
                };
                self.regions.add(key, region);
            }
            Event::RegionDeregistered { lkey, .. } => {
                let key = context.own.key(*lkey);
                self.region_ended(context, key);
            }
            Event::SharedRecvPosted { srq, request } => {
                let queue = QueueId::Shared(context.own.handle(*srq));
                self.replaced_is_over(context, request.sges);
                self.receive_posted_to(context, queue, request);
            }
            Event::SrqDestroyed { srq } => {
                self.requests.drop_queue(QueueId::Shared(context.own.handle(*srq)));
            }
            Event::QpDestroyed { qp } => self.forget_buffers(qp.qpn.value()),
            _ => {}
        }
        self.end_watches(context);
        self.report_bounds(context);
    }

    pub(super) fn handle_buffer_event(
        &mut self,
        context: &mut CheckContext,
        qp: &QpContext,
        event: &QpEvent<'_>,
    ) {
        let number = qp.qpn.value();
        match event {
            QpEvent::SendPosted {
                wr_id,
                message,
                opcode,
                length_bytes,
                psn,
                packet_count,
                signaled,
                inline,
                request,
            } => {
                let queue = QueueId::Sends(number);
                if *inline {
                    self.prepared_in_buffers(request.sges);
                }
                if *inline || *length_bytes == 0 || opcode.info().class == WrClass::Local {
                    return self.requests.pass(queue, *message);
                }
                let role =
                    if opcode.info().data.is_sent() { BufferRole::Payload } else { BufferRole::Answer };
                let is_ready = context.qps.get(&number).is_some_and(|qp| qp.state == QpState::Rts);
                self.post(
                    context,
                    &NewRequest {
                        queue,
                        number: *message,
                        wr_id: *wr_id,
                        role,
                        sges: request.sges,
                        end_psn: psn.plus(*packet_count),
                        is_signaled: *signaled,
                        is_copied_at_once: *packet_count == 1 && role == BufferRole::Payload && is_ready,
                    },
                );
            }
            QpEvent::RecvPosted { request } => {
                self.datagram_awaited(context, number, request);
                self.replaced_is_over(context, request.sges);
                self.receive_posted_to(context, QueueId::Receives(number), request)
            }
            QpEvent::PacketSent { identity, psn, .. } if identity.side == PacketSide::Requester => {
                self.request_left(number, identity.message, psn.next());
            }
            QpEvent::PacketReceived { opcode, .. } => self.packet_arrived(context, qp, *opcode),
            QpEvent::RemoteAccess { class, range, ends } => {
                self.peer_accesses(context, number, *class, range, *ends)
            }
            QpEvent::RemoteWriteEnded { .. } => self.remote_write_ended(context, number),
            QpEvent::Acknowledged { before } => self.acknowledged(context, number, *before),
            QpEvent::Completed { completion, released, .. } => {
                self.request_ended(context, qp, completion, *released)
            }
            QpEvent::StateChanged { to: QpState::Reset, .. } => self.forget_buffers(number),
            QpEvent::Logged(Cause::RequestRefused { reason, detail, .. })
            | QpEvent::Logged(Cause::MessageDropped { reason, detail, .. }) => {
                self.memory_refused(context, number, reason, detail);
            }
            _ => {}
        }
    }

    /// Checks the range that a peer's request names; `ends`: the request ends with it.
    fn peer_accesses(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        class: OperationClass,
        range: &RemoteRange,
        ends: bool,
    ) {
        self.peer_names(context, number, range);
        if class != OperationClass::Read {
            self.peer_stores(context, number, range, ends);
        }
    }

    /// Checks what the peer stored with a WRITE that has ended.
    fn remote_write_ended(&mut self, context: &mut CheckContext, number: u32) {
        if let Some(span) = self.arriving.remove(&number) {
            self.check_stored(context, number, span);
        }
    }

    /// Handles a refusal: the memory that the failure names, or that the queue pair's peer named last.
    fn memory_refused(
        &mut self,
        context: &mut CheckContext,
        number: u32,
        reason: &str,
        detail: &FailureDetail,
    ) {
        let named = match detail {
            FailureDetail::Remote(range) => Some(*range),
            _ => self.named.get(&number).copied(),
        };
        if let Some(range) = named {
            self.key_refused(context, number, reason, &range);
        }
    }

    /// Handles a packet of a request that left; `next` is the PSN after its own.
    fn request_left(&mut self, qp: u32, message: u64, next: Psn) {
        let Some(identity) = self.requests.find(QueueId::Sends(qp), message) else { return };
        let Some(posted) = self.requests.at(identity) else { return };
        let is_last = posted.end_psn == next && posted.at_departure.is_none();
        if !is_last || posted.role != BufferRole::Payload {
            return;
        }
        let contents = match posted.is_shared {
            true => BufferContents::Unknown,
            false => contents_of(&mut self.reader, posted),
        };
        if let Some(posted) = self.requests.at_mut(identity) {
            posted.at_departure = Some(contents);
        }
    }

    /// Handles a packet that came and of which nothing is stored yet.
    fn packet_arrived(&mut self, context: &mut CheckContext, qp: &QpContext, opcode: Opcode) {
        let begins = |info: &OpcodeInfo| info.class == OperationClass::Send && info.position.begins();
        if opcode.info().is_some_and(|info| info.is_request && begins(info)) {
            self.message_begins(context, qp);
        }
    }

    /// Handles the first packet of a peer's WRITE, or an atomic, that has been stored. `ends` says that it is
    /// the only one.
    fn peer_stores(&mut self, context: &mut CheckContext, qp: u32, range: &RemoteRange, ends: bool) {
        let span = self.regions.locate(
            self.regions.named_by_peer(context.own.key(range.rkey)),
            range.address,
            range.length_bytes,
        );
        for identity in span.map(|span| self.requests.overlapping(span)).unwrap_or_default() {
            if let Some(posted) = self.requests.at_mut(identity) {
                posted.is_shared = true;
                posted.written = span.filter(|_| posted.role == BufferRole::Receive).or(posted.written);
            }
        }
        self.named.insert(qp, *range);
        self.arriving.remove(&qp);
        if let Some(span) = span {
            if !ends {
                self.arriving.insert(qp, span);
            }
            self.check_stored(context, qp, span);
        }
    }

    fn receives_of(&self, context: &CheckContext, qp: &QpContext) -> QueueId {
        let shared = QueueId::Shared(context.own.handle(qp.recv_queue));
        if self.requests.knows(shared) { shared } else { QueueId::Receives(qp.qpn.value()) }
    }

    /// Returns the receive that a message takes, of which the first packet came: the oldest one. Of a shared
    /// queue, it is the oldest that no message of another queue pair has taken: at least as many are taken
    /// here as in fact, because a packet that is dropped takes one as well.
    fn receive_of_message(&mut self, context: &CheckContext, qp: &QpContext) -> Option<u64> {
        if qp.out_of_order {
            // The message may take any of those that are posted.
            return None;
        }
        let number = qp.qpn.value();
        match self.receives_of(context, qp) {
            shared @ QueueId::Shared(_) => {
                if self.taken.contains_key(&number) {
                    return None;
                }
                let identity = self.requests.oldest_unsettled(shared)?;
                self.taken.insert(number, identity);
                Some(identity)
            }
            own => self.requests.oldest(own),
        }
    }

    /// Handles the first packet of a message, for the oldest receive.
    fn message_begins(&mut self, context: &mut CheckContext, qp: &QpContext) {
        let Some(identity) = self.receive_of_message(context, qp) else { return };
        let Some(posted) = self.requests.at_mut(identity) else { return };
        let is_first = !std::mem::replace(&mut posted.is_settled, true);
        if !is_first || (posted.is_shared && !posted.overlaps_another) {
            return;
        }
        if posted.is_shared {
            let posted = posted.clone();
            return self.read_before_message(&posted);
        }
        if posted.at_post == BufferContents::Unknown {
            return;
        }
        let contents = contents_of(&mut self.reader, posted);
        if contents != posted.at_post {
            let posted = posted.clone();
            self.check_receive(context, &posted, contents);
        }
    }

    /// Handles an acknowledgement of the peer for what is before a PSN.
    fn acknowledged(&mut self, context: &mut CheckContext, qp: u32, before: Psn) {
        for identity in self.requests.acknowledge(QueueId::Sends(qp), before) {
            let Some(posted) = self.requests.at_mut(identity) else { continue };
            if posted.is_settled || posted.is_signaled || posted.role != BufferRole::Payload {
                continue;
            }
            posted.is_settled = true;
            let posted = posted.clone();
            self.check_payload(context, &posted);
        }
    }

    fn request_ended(
        &mut self,
        context: &mut CheckContext,
        qp: &QpContext,
        completion: &WorkCompletion,
        released: u32,
    ) {
        let number = qp.qpn.value();
        if !completion.opcode.is_recv() {
            let (queue, count) = (QueueId::Sends(number), released.max(1).into());
            if completion.status != WcStatus::Success {
                self.requests.finish(queue, count);
                return;
            }
            for identity in self.requests.complete(queue, count) {
                self.request_completed(context, identity);
            }
            return;
        }
        self.taken.remove(&number);
        let ended = match self.receives_of(context, qp) {
            queue if qp.out_of_order || matches!(queue, QueueId::Shared(_)) => {
                self.requests.end_by_id(queue, completion.wr_id)
            }
            // The sender, who knows it, may have told the program, or be the program.
            queue if self.requests.knows(queue) => {
                let Some(identity) = self.requests.finish_one(queue) else { return };
                // Most requests have no relation to others.
                let tells = |posted: &PostedRequest| posted.is_shared || posted.written.is_some();
                let ended = self.requests.at(identity).filter(|posted| tells(posted)).cloned();
                self.requests.forget(identity);
                ended
            }
            // An XRC target takes receives from the queue that each message names.
            _ => {
                for queue in self.requests.shared_queues() {
                    self.requests.end_by_id(queue, completion.wr_id);
                }
                None
            }
        };
        let is_message = completion.status == WcStatus::Success && completion.opcode == WcOpcode::Recv;
        if let Some(posted) = ended.filter(|_| is_message) {
            self.stored(context, &posted, completion.byte_len.into(), true);
        }
    }

    /// Handles a send request that has ended well.
    fn request_completed(&mut self, context: &mut CheckContext, identity: u64) {
        let Some(posted) = self.requests.at_mut(identity) else { return };
        if posted.role == BufferRole::Answer {
            let answer = posted.clone();
            self.stored(context, &answer, answer.bytes(), false);
        } else if posted.at_departure.is_some_and(|left| left != posted.at_post) {
            // The program may never poll, and other changes are checked when it does.
            let changed = posted.clone();
            posted.at_post = BufferContents::Unknown;
            self.check_payload(context, &changed);
        }
    }

    /// Handles a completion that the program polls: from now on it may know what is over.
    pub(super) fn completion_polled(&mut self, context: &mut CheckContext, completion: &WorkCompletion) {
        self.landed_was_polled(context, completion);
        if completion.status != WcStatus::Success || completion.opcode.is_recv() {
            return;
        }
        let queue = QueueId::Sends(completion.qp_num);
        for _ in 0..self.requests.ended_by_polled(queue) {
            let Some(posted) = self.requests.polled(queue) else { continue };
            if posted.role == BufferRole::Payload && !posted.is_settled {
                self.check_payload(context, &posted);
            }
        }
    }

    /// Forgets the buffers of a queue pair that was reset or destroyed.
    fn forget_buffers(&mut self, qp: u32) {
        self.requests.drop_queue(QueueId::Sends(qp));
        self.requests.drop_queue(QueueId::Receives(qp));
        self.named.remove(&qp);
        self.arriving.remove(&qp);
        self.taken.remove(&qp);
        self.landed.retain(|one| one.queue_pair() != Some(qp));
    }

    /// Clears the state of memory in a fork child.
    pub(super) fn memory_forked(&mut self, context: &CheckContext) {
        self.requests.clear();
        self.named.clear();
        self.arriving.clear();
        self.taken.clear();
        self.early_uses.forked();
        self.datagrams_forked();
        self.replaced = None;
        self.report_bounds(context);
        self.landed.clear();
    }

    /// Returns the name of a queue's owner for messages.
    pub(super) fn owner_of(&self, context: &CheckContext, queue: QueueId) -> String {
        match queue {
            QueueId::Sends(qp) | QueueId::Receives(qp) => {
                context.qps.get(&qp).map(|qp| qp.name.clone()).unwrap_or_default()
            }
            QueueId::Shared(_) => "a shared receive queue".to_owned(),
        }
    }

    /// Returns the call site that registered a region.
    pub(super) fn stack_of_region(&self, key: MemoryKey) -> Stack {
        self.regions.at(key).map(|region| region.made.clone()).unwrap_or_default()
    }
}
