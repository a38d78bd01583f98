//! Results of READs and atomics that the program uses before it has polled the completion.
//!
//! The first and the last word of where a result goes are watched, from the post until the program polls the
//! completion, or may know otherwise that it is there. The accesses come from who watches; here they become
//! findings.

use pumice_transport::event::QpEvent;
use pumice_transport::types::WorkCompletion;

use super::super::context::{Context, Found, related};
use super::super::kind::READ_RESULT_EARLY;
use super::requests::QueueId;
use super::state::Memory;
use super::watched::{Watched, words_of};

impl Memory {
    /// A READ or an atomic was posted to a queue: its result is watched if it is remembered, and comes in the
    /// order of the posts.
    pub(super) fn watch_answer(&mut self, context: &Context, queue: QueueId, number: u64) {
        let (Some(watchpoints), QueueId::Sends(qp)) = (context.means.watchpoints, queue) else { return };
        let is_ordered =
            context.qps.get(&qp).is_some_and(|qp| matches!(qp.service, "RC" | "XRC" | "XRC_SEND"));
        let Some(request) = self.requests.find(queue, number).filter(|_| is_ordered) else { return };
        let Some(posted) = self.requests.at(request) else { return };
        let words = words_of(posted.spans());
        if words.is_empty() || !self.early_uses.is_wanted(&posted.stack) {
            return;
        }
        if let Some(watch) = (watchpoints.begin)(&words) {
            self.early_uses.watched.push(Watched { watch, request, qp });
        }
    }

    /// Tells of the accesses that were seen meanwhile.
    #[inline]
    pub(super) fn tell_early_uses(&mut self, context: &mut Context) {
        if !self.early_uses.watched.is_empty() {
            self.take_accesses(context);
        }
    }

    #[cold]
    fn take_accesses(&mut self, context: &mut Context) {
        let Some(watchpoints) = context.means.watchpoints else { return };
        let mut addresses = std::mem::take(&mut self.early_uses.addresses);
        while let Some((watch, word)) = (watchpoints.take)(&mut addresses) {
            let index = self.early_uses.watched.iter().position(|one| one.watch == watch);
            if let Some(index) = index {
                let Watched { request, .. } = self.early_uses.watched.swap_remove(index);
                self.used_early(context, request, word, &addresses);
            }
        }
        self.early_uses.addresses = addresses;
    }

    /// The program has used the first or the last word of where the result of a request goes.
    fn used_early(&mut self, context: &mut Context, request: u64, word: usize, addresses: &[u64]) {
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
        context.found(&READ_RESULT_EARLY, Found { object, numbers, stack, related });
    }

    /// Something came from the peer of a queue pair: it may have told the program that the request before it
    /// is over, which had a fence behind it.
    #[inline]
    pub(super) fn peer_may_have_told(&mut self, context: &Context, qp: u32, event: &QpEvent<'_>) {
        if !self.early_uses.watched.is_empty() && matches!(event, QpEvent::RemoteAccess { .. }) {
            self.retain_watches(context, |one, _| one.qp != qp);
        }
    }

    /// As [`peer_may_have_told`](Self::peer_may_have_told), of a message whose completion the program polls.
    #[inline]
    pub(super) fn peer_has_told(&mut self, context: &Context, completion: &WorkCompletion) {
        if !self.early_uses.watched.is_empty() && completion.opcode.is_recv() {
            self.retain_watches(context, |one, _| one.qp != completion.qp_num);
        }
    }

    /// Ends the watches of requests that are over, or whose memory the program has given back.
    #[inline]
    pub(super) fn end_watches(&mut self, context: &Context) {
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

    fn retain_watches(&mut self, context: &Context, stays: impl Fn(&Watched, &Memory) -> bool) {
        let mut watched = std::mem::take(&mut self.early_uses.watched);
        watched.retain(|one| {
            let stays = stays(one, self);
            if let Some(watchpoints) = context.means.watchpoints.filter(|_| !stays) {
                (watchpoints.end)(one.watch);
            }
            stays
        });
        self.early_uses.watched = watched;
    }
}
