//! Work requests that have been carried out, and completions of them that come later.

use pumice_transport::host::{Ended, QpContext};
use pumice_transport::types::WcStatus;

use super::tables::Resources;
use crate::decisions::{DelayedCompletion, Made};

impl Resources {
    /// An event of the completion queue with this index comes by then.
    #[cold]
    pub(super) fn delay_event(&mut self, cq: u32, due_ns: u64) {
        self.decisions.delayed.push_event(cq, due_ns);
    }

    /// How a work request ends that has been carried out; `None`: with success.
    #[cold]
    pub(super) fn judge(&mut self, qp: &QpContext, ended: &Ended) -> Option<WcStatus> {
        self.decisions.work(qp, ended, &self.events)
    }

    /// Puts a completion off, if that was decided or one before it waits; else gives it back.
    #[cold]
    pub(super) fn delay(&mut self, qp: &QpContext, made: Made) -> Option<Made> {
        self.decisions.delay(qp, made)
    }

    /// Completions whose time has come are made.
    #[cold]
    pub(super) fn expire_delayed(&mut self, now_ns: u64) {
        while let Some(one) = self.decisions.delayed.pop_due(now_ns) {
            self.complete_delayed(one);
        }
        while let Some(cq) = self.decisions.delayed.pop_event(now_ns) {
            // A queue that has been destroyed has no events.
            if let Some(entry) = self.cqs.at(cq) {
                entry.cq.fire_due(now_ns);
            }
        }
        self.decisions.delayed.note_due(now_ns);
    }

    /// A program that is told of an event of a queue pair finds the completions that came before it.
    #[cold]
    pub(super) fn end_wait_of(&mut self, ordinal: u32) {
        for key in [(ordinal, false), (ordinal, true)] {
            while let Some(one) = self.decisions.delayed.pop(key) {
                self.complete_delayed(one);
            }
        }
    }

    fn complete_delayed(&mut self, one: DelayedCompletion) {
        // It is made now, and not when the packets came that were handled last.
        self.moment.end();
        self.complete_in_turn(&one.qp, one.made);
    }
}
