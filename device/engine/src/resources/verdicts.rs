//! What rules of a fault plan do to work requests that have been carried out, and to their completions.

use pumice_events::Event;
use pumice_faults::Verdict;
use pumice_transport::host::{Ended, QpContext};
use pumice_transport::types::WcStatus;

use super::made::Made;
use super::put_off::Waiting;
use super::tables::Resources;

impl Resources {
    /// An event of the completion queue in this place comes by then.
    #[cold]
    pub(super) fn put_off_event(&mut self, cq: u32, due_ns: u64) {
        if let Some(put_off) = &mut self.put_off {
            put_off.push_event(cq, due_ns);
        }
    }

    /// How a work request ends that has been carried out; `None`: with success.
    #[cold]
    pub(super) fn judge(&mut self, qp: &QpContext, ended: &Ended) -> Option<WcStatus> {
        let Resources { put_off, events, .. } = self;
        let put_off = put_off.as_deref_mut()?;
        let qpn = qp.qpn;
        let verdict = put_off.faults.decide(qp.ordinal, ended, &mut |fault| {
            events.emit(&Event::CompletionFaultApplied { fault, qpn });
        });
        let status = verdict.status;
        let is_ordinary = status.is_none() && verdict.delay_ns == 0 && verdict.until.is_empty();
        put_off.next = (!is_ordinary).then_some(((qp.ordinal, ended.opcode.is_recv()), verdict));
        status
    }

    /// Puts a completion off, if a rule says so or one before it waits; else gives it back, with what a rule
    /// says.
    #[cold]
    pub(super) fn put_off(&mut self, qp: &QpContext, mut made: Made) -> Option<Made> {
        let Some(put_off) = self.put_off.as_deref_mut() else { return Some(made) };
        let key = (qp.ordinal, made.completion.opcode.is_recv());
        let Verdict { vendor_err, delay_ns, until, status } = put_off.verdict_of(key);
        if status.is_some() {
            made.completion.vendor_err = vendor_err;
        }
        if !put_off.has_to_wait(key, delay_ns, &until) {
            return Some(made);
        }
        let now_ns = put_off.now_ns();
        let due_ns = now_ns.saturating_add(delay_ns);
        let waiting = Waiting { qp: *qp, made, due_ns, until };
        put_off.push(key, waiting, now_ns);
        None
    }

    /// Completions whose time has come are made.
    #[cold]
    pub(super) fn expire_put_off(&mut self, now_ns: u64) {
        while let Some(one) = self.put_off.as_mut().and_then(|put_off| put_off.pop_due(now_ns)) {
            self.complete_put_off(one);
        }
        while let Some(cq) = self.put_off.as_mut().and_then(|put_off| put_off.pop_event(now_ns)) {
            // A queue that has been destroyed has no events.
            if let Some(entry) = self.cqs.at(cq) {
                entry.cq.fire_due(now_ns);
            }
        }
        if let Some(put_off) = &mut self.put_off {
            put_off.note_due(now_ns);
        }
    }

    /// A program that is told of an event of a queue pair finds the completions that came before it.
    #[cold]
    pub(super) fn end_wait_of(&mut self, ordinal: u32) {
        for key in [(ordinal, false), (ordinal, true)] {
            while let Some(one) = self.put_off.as_mut().and_then(|put_off| put_off.pop(key)) {
                self.complete_put_off(one);
            }
        }
    }

    fn complete_put_off(&mut self, one: Waiting) {
        self.complete_in_turn(&one.qp, one.made);
    }

    /// A queue pair is reset: what waits of it is dropped.
    pub(super) fn drop_put_off(&mut self, ordinal: u32) {
        let Some(put_off) = &mut self.put_off else { return };
        for key in [(ordinal, false), (ordinal, true)] {
            while put_off.pop(key).is_some() {}
        }
        put_off.next = None;
    }

    /// A queue pair is destroyed.
    pub(super) fn forget_completions_of(&mut self, ordinal: u32) {
        self.drop_put_off(ordinal);
        if let Some(put_off) = &mut self.put_off {
            put_off.faults.forget(ordinal);
        }
    }
}
