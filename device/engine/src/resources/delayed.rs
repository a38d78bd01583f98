//! Executed work requests, and their completions that come later.

use pumice_transport::host::{Ended, QpContext};
use pumice_transport::types::WcStatus;

use super::tables::Resources;
use crate::decisions::{DelayedCompletion, PendingCompletion};

impl Resources {
    /// Delays an event of the completion queue with this index until `due_ns`.
    #[cold]
    pub(super) fn delay_event(&mut self, cq: u32, due_ns: u64) {
        self.decisions.delayed.push_event(cq, due_ns);
    }

    /// Decides how an executed work request ends; `None`: with success.
    #[cold]
    pub(super) fn judge(&mut self, qp: &QpContext, ended: &Ended) -> Option<WcStatus> {
        self.decisions.work(qp, ended, &self.listeners.subscribers)
    }

    /// Delays a completion, if that was decided or an earlier one is delayed; else returns it.
    #[cold]
    pub(super) fn delay(&mut self, qp: &QpContext, made: PendingCompletion) -> Option<PendingCompletion> {
        self.decisions.delay(qp, made)
    }

    /// Makes the delayed completions that are due.
    #[cold]
    pub(super) fn expire_delayed(&mut self, now_ns: u64) {
        while let Some(one) = self.decisions.delayed.pop_due(now_ns) {
            self.complete_delayed(one);
        }
        while let Some(cq) = self.decisions.delayed.pop_event(now_ns) {
            // A queue that has been destroyed has no events.
            if let Some(entry) = self.objects.cqs.at(cq) {
                entry.cq.fire_due(now_ns);
            }
        }
        self.decisions.delayed.note_due(now_ns);
    }

    /// Makes the delayed completions of a queue pair before an event of it, so that a program that gets the
    /// event finds them.
    #[cold]
    pub(super) fn end_wait_of(&mut self, ordinal: u32) {
        for key in [(ordinal, false), (ordinal, true)] {
            while let Some(one) = self.decisions.delayed.pop(key) {
                self.complete_delayed(one);
            }
        }
    }

    /// Makes the completions of send requests that wait until their datagrams have left, and those behind
    /// them.
    #[cold]
    pub(crate) fn end_held_sends(&mut self) {
        for ordinal in self.decisions.delayed.held_sends() {
            self.decisions.delayed.forget_sends(ordinal);
            while let Some(one) = self.decisions.delayed.pop((ordinal, false)) {
                self.complete_delayed(one);
            }
        }
    }

    fn complete_delayed(&mut self, one: DelayedCompletion) {
        // The completion is made now, and not when the packets came that were handled last.
        self.listeners.batch_time.end();
        self.complete_in_turn(&one.qp, one.made);
    }
}
