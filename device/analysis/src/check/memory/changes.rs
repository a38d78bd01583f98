//! Findings about memory that the program changes or uses while a request has it.
//!
//! Findings about memory: contents that changed, memory and regions that ended, keys that are no longer
//! valid.
//!
//! The first and the last word of a result's destination are watched, from the post until the program polls
//! the completion, or may know otherwise that the result is there. The owner of the checker provides the
//! accesses; here they become findings.

use pumice_transport::event::QpEvent;
use pumice_transport::host::MemoryError;
use pumice_transport::types::{RemoteRange, WorkCompletion};
use pumice_transport::wire::OperationClass;

use super::super::context::{CheckContext, FindingParts, counted, related};
use super::super::kind::{
    DEREGISTERED_WHILE_IN_USE, FREED_WHILE_IN_USE, READ_RESULT_EARLY, RECEIVE_BUFFER_WRITTEN,
    SEND_BUFFER_CHANGED, STALE_RKEY,
};
use super::payload::{BufferContents, WatchedResult, words_of};
use super::regions::MemoryKey;
use super::requests::{PostedRequest, QueueId};
use super::state::Memory;

impl Memory {
    /// Checks the payload of a send request that is over as far as the peer is concerned: it must not have
    /// changed.
    pub(super) fn check_payload(&mut self, context: &mut CheckContext, posted: &PostedRequest) {
        if posted.is_shared || posted.at_post == BufferContents::Unknown {
            return;
        }
        let now = self.reader.contents(posted.spans());
        if now == BufferContents::Unmapped {
            return self.report_unmapped(context, posted);
        }
        let when = match posted.at_departure {
            Some(left) if left != posted.at_post => "before its last packet had left",
            _ if now == posted.at_post => return,
            // Payload that is never sent again was read when it left.
            Some(_) if !self.sends_again(context, posted.queue) => return,
            Some(_) if posted.is_unpolled => {
                "after its packets had left and before its completion was polled: they are not sent again \
                 unless one is lost"
            }
            Some(_) => "after its packets had left: they are not sent again unless one is lost",
            None => "before its completion was polled",
        };
        let object = self.owner_of(context, posted.queue);
        let (wr_id, bytes) = (posted.wr_id, posted.bytes());
        let stack_note = match posted.is_on_stack {
            true => {
                "; they are on the stack of the thread that posted it, whose function may have returned: \
                 IBV_SEND_INLINE copies short payload at the post"
            }
            false => "",
        };
        let numbers = format!(
            "the {bytes} bytes of request {wr_id:#x} of {object}, posted here, changed {when}{stack_note}"
        );
        let (stack, now) = (posted.stack.clone(), context.here());
        let related = match posted.is_unpolled {
            true => vec![related("its completion was polled here", &now)],
            false => Vec::new(),
        };
        context.found(&SEND_BUFFER_CHANGED, FindingParts { object, numbers, stack, related });
    }

    /// Reports whether a queue pair sends lost packets again.
    fn sends_again(&self, context: &CheckContext, queue: QueueId) -> bool {
        let QueueId::Sends(qp) = queue else { return false };
        context.qps.get(&qp).is_some_and(|qp| !matches!(qp.service, "UC" | "UD"))
    }

    /// Handles the first message for a receive whose buffer is not as it was posted.
    pub(super) fn check_receive(
        &mut self,
        context: &mut CheckContext,
        posted: &PostedRequest,
        now: BufferContents,
    ) {
        if now == BufferContents::Unmapped {
            return self.report_unmapped(context, posted);
        }
        let object = self.owner_of(context, posted.queue);
        let (wr_id, bytes) = (posted.wr_id, posted.bytes());
        let numbers = format!(
            "the buffer of {bytes} bytes of receive {wr_id:#x} of {object}, posted here, had changed when \
             its message came"
        );
        let stack = posted.stack.clone();
        context.found(&RECEIVE_BUFFER_WRITTEN, FindingParts { object, numbers, stack, related: Vec::new() });
    }

    fn report_unmapped(&mut self, context: &mut CheckContext, posted: &PostedRequest) {
        if posted.is_freed {
            return;
        }
        let object = self.owner_of(context, posted.queue);
        let (role, wr_id, bytes) = (posted.role.name(), posted.wr_id, posted.bytes());
        let numbers = format!(
            "{role} of {object}, {wr_id:#x}, posted here, {}: its buffer of {bytes} bytes is not mapped any \
             more",
            posted.reason_in_use()
        );
        let stack = posted.stack.clone();
        context.found(&FREED_WHILE_IN_USE, FindingParts { object, numbers, stack, related: Vec::new() });
    }

    /// Handles the deregistration of memory by the program.
    pub(super) fn region_ended(&mut self, context: &mut CheckContext, key: MemoryKey) {
        let stack = context.here();
        if let Some((count, oldest)) = self.requests.users_of(key) {
            let (role, wr_id, posted) = (oldest.role.name(), oldest.wr_id, oldest.stack.clone());
            let owner = self.owner_of(context, oldest.queue);
            let object = self.regions.at(key).map(|region| region.name(key)).unwrap_or_default();
            let numbers = format!(
                "posted requests that use {object}: {count}; the oldest is {role} of {owner}, {wr_id:#x}, {}",
                oldest.reason_in_use()
            );
            let made = self.stack_of_region(key);
            let related = vec![
                related("it was posted here", &posted),
                related("the memory was registered here", &made),
            ];
            let found = FindingParts { object, numbers, stack: stack.clone(), related };
            context.found(&DEREGISTERED_WHILE_IN_USE, found);
        }
        self.regions.end(key, stack);
    }

    /// Handles a request of the peer that was refused or dropped for this reason; it names this memory.
    pub(super) fn key_refused(
        &mut self,
        context: &mut CheckContext,
        qp: u32,
        reason: &str,
        range: &RemoteRange,
    ) {
        let RemoteRange { rkey, address, length_bytes } = *range;
        let key = self.regions.named_by_peer(context.own.key(rkey));
        if reason != MemoryError::UnknownKey.reason() || self.regions.at(key).is_some() {
            return;
        }
        let Some(former) = self.regions.former(key).cloned() else { return };
        let object = former.region.name(key);
        let owner = context.qps.get(&qp).map(|qp| qp.name.clone()).unwrap_or_default();
        let numbers = format!(
            "the peer of {owner} asked for {} at {address:#x} of {object}, which is deregistered",
            counted(length_bytes, "byte")
        );
        let related = vec![
            related("the memory was deregistered here", &former.ended),
            related("the memory was registered here", &former.region.made),
        ];
        context.found(&STALE_RKEY, FindingParts { object, numbers, stack: former.ended, related });
    }

    /// Starts to watch the result of a READ or an atomic that was posted to a queue, if the request is
    /// remembered, and if results come in the order of the posts.
    pub(super) fn watch_answer(&mut self, context: &CheckContext, queue: QueueId, number: u64) {
        let (Some(watchpoints), QueueId::Sends(qp)) = (context.callbacks.watchpoints, queue) else { return };
        let is_ordered =
            context.qps.get(&qp).is_some_and(|qp| matches!(qp.service, "RC" | "XRC" | "XRC_SEND"));
        let Some(request) = self.requests.find(queue, number).filter(|_| is_ordered) else { return };
        let Some(posted) = self.requests.at(request) else { return };
        let words = words_of(posted.spans());
        if words.is_empty() || !self.early_uses.is_wanted(&posted.stack) {
            return;
        }
        if let Some(watch) = (watchpoints.begin)(&words) {
            self.early_uses.watched.push(WatchedResult { watch, request, qp });
        }
    }

    /// Reports the accesses that were seen meanwhile.
    #[inline]
    pub(super) fn report_early_uses(&mut self, context: &mut CheckContext) {
        if !self.early_uses.watched.is_empty() || self.watches_datagram() || self.replaced.is_some() {
            self.take_accesses(context);
        }
    }

    #[cold]
    fn take_accesses(&mut self, context: &mut CheckContext) {
        let Some(watchpoints) = context.callbacks.watchpoints else { return };
        let mut addresses = std::mem::take(&mut self.early_uses.addresses);
        while let Some((watch, word)) = (watchpoints.take)(&mut addresses) {
            let index = self.early_uses.watched.iter().position(|one| one.watch == watch);
            if let Some(index) = index {
                let WatchedResult { request, .. } = self.early_uses.watched.swap_remove(index);
                self.used_early(context, request, word, &addresses);
            } else if !self.replaced_was_read(context, watch, &addresses) {
                self.datagram_read(context, watch, &addresses);
            }
        }
        self.early_uses.addresses = addresses;
    }

    /// Reports that the program has used the first or the last word of a request's destination.
    fn used_early(&mut self, context: &mut CheckContext, request: u64, word: usize, addresses: &[u64]) {
        let Some(posted) = self.requests.at(request).filter(|posted| !posted.is_freed) else { return };
        let object = self.owner_of(context, posted.queue);
        let (role, wr_id, bytes) = (posted.role.name(), posted.wr_id, posted.bytes());
        let end = if word == 0 { "beginning" } else { "end" };
        let numbers = format!(
            "the program used memory at the {end} of the {bytes} bytes that {role} of {object}, {wr_id:#x}, \
             stores, and had not polled its completion"
        );
        let related = vec![related("it was posted here", &posted.stack)];
        let stack = context.stack_of(addresses);
        context.found(&READ_RESULT_EARLY, FindingParts { object, numbers, stack, related });
    }

    /// Handles an event of a queue pair's peer, which may have told the program that the request before it,
    /// with a fence behind it, is over.
    #[inline]
    pub(super) fn on_peer_message(&mut self, context: &CheckContext, qp: u32, event: &QpEvent<'_>) {
        let stores = |event: &QpEvent<'_>| match event {
            QpEvent::RemoteAccess { class, .. } => *class != OperationClass::Read,
            _ => false,
        };
        if !self.early_uses.watched.is_empty() && stores(event) {
            self.retain_watches(context, |one, _| one.qp != qp);
        }
    }

    /// Does the same as [`on_peer_message`](Self::on_peer_message) for a message whose completion the
    /// program polls.
    #[inline]
    pub(super) fn on_peer_message_polled(&mut self, context: &CheckContext, completion: &WorkCompletion) {
        if !self.early_uses.watched.is_empty() && completion.opcode.is_recv() {
            self.retain_watches(context, |one, _| one.qp != completion.qp_num);
        }
    }

    /// Ends the watches of requests that are over, or whose memory the program has given back.
    #[inline]
    pub(super) fn end_watches(&mut self, context: &CheckContext) {
        if self.early_uses.watched.is_empty() {
            return;
        }
        self.retain_watches(context, |one, memory| {
            memory.requests.at(one.request).is_some_and(|posted| {
                let is_registered = |key| memory.regions.at(key).is_some();
                !posted.is_freed && posted.parts.iter().all(|part| is_registered(part.key))
            })
        });
    }

    fn retain_watches(&mut self, context: &CheckContext, stays: impl Fn(&WatchedResult, &Memory) -> bool) {
        let mut watched = std::mem::take(&mut self.early_uses.watched);
        watched.retain(|one| {
            let stays = stays(one, self);
            if let Some(watchpoints) = context.callbacks.watchpoints.filter(|_| !stays) {
                (watchpoints.end)(one.watch);
            }
            stays
        });
        self.early_uses.watched = watched;
    }
}
