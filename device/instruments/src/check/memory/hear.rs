//! Events that tell of memory: registrations, posts, packets, and the end of requests.

use pumice_events::Event;
use pumice_ground::call_stack::Stack;
use pumice_transport::event::{QpEvent, Side};
use pumice_transport::host::QpContext;
use pumice_transport::types::{
    Cause, Detail, QpState, RemoteRange, WcOpcode, WcStatus, WorkCompletion, WrClass,
};
use pumice_transport::wire::{Opcode, OpcodeInfo, OperationClass, Psn};

use super::super::context::Context;
use super::payload::Contents;
use super::posts::{Post, contents_of};
use super::regions::{Key, Region};
use super::requests::{Posted, QueueId};
use super::role::Role;
use super::state::Memory;

impl Memory {
    /// Something happened that may be about memory.
    pub(super) fn hear_of_memory(&mut self, context: &mut Context, event: &Event<'_>) {
        self.tell_early_uses(context);
        match event {
            Event::Qp { qp, event } if context.qps.contains_key(&qp.qpn.value()) => {
                self.hear_of_buffers(context, qp, event);
                self.peer_may_have_told(context, qp.qpn.value(), event);
            }
            Event::RegionRegistered { key, address, length, iova, stays_mapped } => {
                let made = context.here();
                // A region may be changed: what its requests use is elsewhere now.
                let key = context.own.key(*key);
                self.requests.key_changes(key);
                let region = Region {
                    address: *address,
                    length: *length,
                    iova: *iova,
                    stays_mapped: *stays_mapped,
                    made,
                };
                self.regions.add(key, region);
            }
            Event::RegionDeregistered { key } => {
                let key = context.own.key(*key);
                self.region_ended(context, key);
            }
            Event::SharedRecvPosted { srq, request } => {
                let queue = QueueId::Shared(context.own.handle(*srq));
                self.receive_posted_to(context, queue, request);
            }
            Event::SrqDestroyed { srq } => {
                self.requests.drop_queue(QueueId::Shared(context.own.handle(*srq)));
            }
            Event::QpDestroyed { qp } => self.forget_buffers(qp.qpn.value()),
            _ => {}
        }
        self.end_watches(context);
        self.tell_bounds(context);
    }

    pub(super) fn hear_of_buffers(&mut self, context: &mut Context, qp: &QpContext, event: &QpEvent<'_>) {
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
                let role = if opcode.info().data.is_sent() { Role::Payload } else { Role::Answer };
                let is_ready = context.qps.get(&number).is_some_and(|qp| qp.state == QpState::Rts);
                self.post(
                    context,
                    &Post {
                        queue,
                        number: *message,
                        wr_id: *wr_id,
                        role,
                        sges: request.sges,
                        end_psn: psn.plus(*packet_count),
                        is_signaled: *signaled,
                        is_copied_at_once: *packet_count == 1 && role == Role::Payload && is_ready,
                    },
                );
            }
            QpEvent::RecvPosted { request } => {
                self.receive_posted_to(context, QueueId::Receives(number), request)
            }
            QpEvent::PacketSent { identity, psn, .. } if identity.side == Side::Requester => {
                self.request_left(number, identity.message, psn.next());
            }
            QpEvent::PacketReceived { opcode, .. } => self.packet_came(context, qp, *opcode),
            QpEvent::RemoteAccess { range, ends, .. } => self.peer_stores(context, number, range, *ends),
            QpEvent::RemoteWriteEnded { .. } => {
                if let Some(span) = self.arriving.remove(&number) {
                    self.look_at_stored(context, number, span);
                }
            }
            QpEvent::Acknowledged { before } => self.acknowledged(context, number, *before),
            QpEvent::Completed { completion, released, .. } => {
                self.request_ended(context, qp, completion, *released)
            }
            QpEvent::StateChanged { to: QpState::Reset, .. } => self.forget_buffers(number),
            QpEvent::Logged(Cause::RequestRefused { reason, detail, .. })
            | QpEvent::Logged(Cause::MessageDropped { reason, detail, .. }) => {
                let named = match detail {
                    Detail::Remote(range) => Some(*range),
                    _ => self.named.get(&number).copied(),
                };
                if let Some(range) = named {
                    self.key_refused(context, number, reason, &range);
                }
            }
            _ => {}
        }
    }

    /// A packet of a request left; `next` is the PSN after its own.
    fn request_left(&mut self, qp: u32, message: u64, next: Psn) {
        let Some(identity) = self.requests.find(QueueId::Sends(qp), message) else { return };
        let Some(posted) = self.requests.at(identity) else { return };
        let is_last = posted.end_psn == next && posted.at_departure.is_none();
        if !is_last || posted.role != Role::Payload {
            return;
        }
        let contents = match posted.is_shared {
            true => Contents::Unknown,
            false => contents_of(&mut self.reader, posted),
        };
        if let Some(posted) = self.requests.at_mut(identity) {
            posted.at_departure = Some(contents);
        }
    }

    /// A packet came, and nothing of it is stored yet.
    fn packet_came(&mut self, context: &mut Context, qp: &QpContext, opcode: Opcode) {
        let begins = |info: &OpcodeInfo| info.class == OperationClass::Send && info.position.begins();
        if opcode.info().is_some_and(|info| info.is_request && begins(info)) {
            self.message_begins(context, qp);
        }
    }

    /// The first packet of a WRITE of the peer, or an atomic, has been stored; `ends`: it is the only one.
    fn peer_stores(&mut self, context: &mut Context, qp: u32, range: &RemoteRange, ends: bool) {
        let span = self.regions.locate(context.own.key(range.rkey), range.address, range.length_bytes);
        for identity in span.map(|span| self.requests.overlapping(span)).unwrap_or_default() {
            if let Some(posted) = self.requests.at_mut(identity) {
                posted.is_shared = true;
                posted.written = span.filter(|_| posted.role == Role::Receive).or(posted.written);
            }
        }
        self.named.insert(qp, *range);
        self.arriving.remove(&qp);
        if let Some(span) = span {
            if !ends {
                self.arriving.insert(qp, span);
            }
            self.look_at_stored(context, qp, span);
        }
    }

    fn receives_of(&self, context: &Context, qp: &QpContext) -> QueueId {
        let shared = QueueId::Shared(context.own.handle(qp.recv_queue));
        if self.requests.knows(shared) { shared } else { QueueId::Receives(qp.qpn.value()) }
    }

    /// The receive that a message takes, of which the first packet came: the oldest one. Of a shared queue,
    /// the oldest that no message of another queue pair has taken: at least as many are taken here as in
    /// fact, because a packet that is dropped takes one as well.
    fn receive_of_message(&mut self, context: &Context, qp: &QpContext) -> Option<u64> {
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

    /// The first packet of a message came, for the oldest receive.
    fn message_begins(&mut self, context: &mut Context, qp: &QpContext) {
        let Some(identity) = self.receive_of_message(context, qp) else { return };
        let Some(posted) = self.requests.at_mut(identity) else { return };
        let is_first = !std::mem::replace(&mut posted.is_settled, true);
        if !is_first || (posted.is_shared && !posted.meets_another) {
            return;
        }
        if posted.is_shared {
            let posted = posted.clone();
            return self.look_before_message(&posted);
        }
        if posted.at_post == Contents::Unknown {
            return;
        }
        let contents = contents_of(&mut self.reader, posted);
        if contents != posted.at_post {
            let posted = posted.clone();
            self.look_at_receive(context, &posted, contents);
        }
    }

    /// The peer has acknowledged what is before a PSN.
    fn acknowledged(&mut self, context: &mut Context, qp: u32, before: Psn) {
        for identity in self.requests.acknowledge(QueueId::Sends(qp), before) {
            let Some(posted) = self.requests.at_mut(identity) else { continue };
            if posted.is_settled || posted.is_signaled || posted.role != Role::Payload {
                continue;
            }
            posted.is_settled = true;
            let posted = posted.clone();
            self.look_at_payload(context, &posted);
        }
    }

    fn request_ended(
        &mut self,
        context: &mut Context,
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
            queue @ QueueId::Shared(_) => self.requests.end_by_id(queue, completion.wr_id),
            // The sender, who knows it, may have told the program, or be the program.
            queue if self.requests.knows(queue) => {
                let Some(identity) = self.requests.finish_one(queue) else { return };
                // Most have nothing to do with others.
                let tells = |posted: &Posted| posted.is_shared || posted.written.is_some();
                let ended = self.requests.at(identity).filter(|posted| tells(posted)).cloned();
                self.requests.forget(identity);
                ended
            }
            // An XRC target takes them from the queue that each message names.
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

    /// A send request has ended well.
    fn request_completed(&mut self, context: &mut Context, identity: u64) {
        let Some(posted) = self.requests.at_mut(identity) else { return };
        if posted.role == Role::Answer {
            let answer = posted.clone();
            self.stored(context, &answer, answer.bytes(), false);
        } else if posted.at_departure.is_some_and(|left| left != posted.at_post) {
            // The program may never poll, and other changes are looked for when it does.
            let changed = posted.clone();
            posted.at_post = Contents::Unknown;
            self.look_at_payload(context, &changed);
        }
    }

    /// The program polls a completion: from now on it may know what is over.
    pub(super) fn completion_polled(&mut self, context: &mut Context, completion: &WorkCompletion) {
        self.landed_was_polled(completion);
        if completion.status != WcStatus::Success || completion.opcode.is_recv() {
            return;
        }
        let queue = QueueId::Sends(completion.qp_num);
        for _ in 0..self.requests.ended_by_polled(queue) {
            let Some(posted) = self.requests.polled(queue) else { continue };
            if posted.role == Role::Payload && !posted.is_settled {
                self.look_at_payload(context, &posted);
            }
        }
    }

    /// A queue pair was reset or destroyed.
    fn forget_buffers(&mut self, qp: u32) {
        self.requests.drop_queue(QueueId::Sends(qp));
        self.requests.drop_queue(QueueId::Receives(qp));
        self.named.remove(&qp);
        self.arriving.remove(&qp);
        self.taken.remove(&qp);
        self.landed.retain(|one| one.queue_pair() != Some(qp));
    }

    /// This process is a child.
    pub(super) fn memory_forked(&mut self, context: &Context) {
        self.requests.clear();
        self.named.clear();
        self.arriving.clear();
        self.taken.clear();
        self.early_uses.forked();
        self.tell_bounds(context);
        self.landed.clear();
    }

    /// What a message calls the owner of a queue.
    pub(super) fn owner_of(&self, context: &Context, queue: QueueId) -> String {
        match queue {
            QueueId::Sends(qp) | QueueId::Receives(qp) => {
                context.qps.get(&qp).map(|qp| qp.name.clone()).unwrap_or_default()
            }
            QueueId::Shared(_) => "a shared receive queue".to_owned(),
        }
    }

    /// Where a region was registered.
    pub(super) fn stack_of_region(&self, key: Key) -> Stack {
        self.regions.at(key).map(|region| region.made.clone()).unwrap_or_default()
    }
}
