//! Results of READs and atomics that the program uses before it has polled the completion.
//!
//! The first and the last word of a result's destination are watched, from the post until the program polls
//! the completion, or may know otherwise that the result is there. The owner of the checker provides the
//! accesses; here they become findings.

use pumice_transport::event::QpEvent;
use pumice_transport::types::WorkCompletion;
use pumice_transport::wire::OperationClass;

use super::super::context::{CheckContext, FindingParts, related};
use super::super::kind::READ_RESULT_EARLY;
use super::requests::QueueId;
use super::state::Memory;
use super::watched::{WatchedResult, words_of};

impl Memory {
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
