//! Receivers that are not ready: what that does to senders, and shared receive queues that run empty.

use pumice_transport::types::WcStatus;

use super::checker::{Checker, Found, counted, related};
use super::kind::{RNR_RETRIES_ZERO, RNR_RETRY_FOR_EVER, SRQ_LIMIT_NEVER_ARMED};
use super::queues::{Qp, RnrWaits, Srq};
use super::stack::Stack;

/// The value of `rnr_retry` that stands for no limit.
const FOR_EVER: u8 = 7;
/// A wait for receives of the peer that is told.
const LONG_NS: u64 = 1_000_000_000;

impl Checker {
    /// A change of a queue pair that succeeded has set `rnr_retry`, be it the program's own call or one that
    /// a call of the connection manager makes.
    pub fn rnr_retry_set(&mut self, number: u32, rnr_retry: u8) {
        let stack = self.here();
        if let Some(qp) = self.qps.get_mut(&number) {
            (qp.rnr_retry, qp.rnr_retry_at) = (Some(rnr_retry), stack);
        }
    }

    /// The peer had no receive for a message.
    pub(super) fn peer_had_no_receive(&mut self, number: u32, psn: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if qp.rnr.psn != Some(psn) {
            qp.rnr = RnrWaits { psn: Some(psn), ..RnrWaits::default() };
        }
        qp.rnr.naks = qp.rnr.naks.saturating_add(1);
    }

    /// That is why nothing is sent for a while. `retries_left`: as the device counts them.
    pub(super) fn waits_for_receive(&mut self, number: u32, retries_left: u8, wait_ns: u64) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        qp.rnr.waited_ns = qp.rnr.waited_ns.saturating_add(std::mem::replace(&mut qp.rnr.waits_ns, wait_ns));
        let is_long = retries_left == FOR_EVER && qp.rnr.waited_ns > LONG_NS;
        if !is_long || std::mem::replace(&mut qp.told_rnr, true) {
            return;
        }
        let (object, stack, related) = told_of(qp);
        let numbers = format!(
            "rnr_retry is 7, which is for ever; {object} has waited for {} ms, and the peer has posted no \
             receive for its message: {}",
            qp.rnr.waited_ns / 1_000_000,
            counted(qp.rnr.naks, "RNR NAK")
        );
        self.found(&RNR_RETRY_FOR_EVER, Found { object, numbers, stack, related });
    }

    /// A send request failed with this status.
    pub(super) fn send_failed(&mut self, number: u32, status: WcStatus) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let is_it = status == WcStatus::RnrRetryExcErr && qp.rnr_retry == Some(0) && qp.rnr.naks > 0;
        if !is_it || std::mem::replace(&mut qp.told_rnr, true) {
            return;
        }
        let (object, stack, related) = told_of(qp);
        let numbers = format!(
            "rnr_retry is 0: {object} ended with {} at the first message for which its peer had no receive",
            status.name()
        );
        self.found(&RNR_RETRIES_ZERO, Found { object, numbers, stack, related });
    }

    /// The program has made a shared receive queue, of which [`Checker::object_made`] was told.
    pub fn srq_made(&mut self, address: u64, handle: u32) {
        let Some(object) = self.objects.at(address) else { return };
        let known = Srq { name: object.name(), made: object.made.clone(), ..Srq::default() };
        self.srqs.insert(self.own.handle(handle), known);
    }

    /// The program has armed the limit of a shared receive queue.
    pub fn srq_limit_armed(&mut self, handle: u32) {
        if let Some(srq) = self.srqs.get_mut(&self.own.handle(handle)) {
            srq.was_armed = true;
        }
    }

    /// A message found no receive, and its queue pair takes them from this queue.
    pub(super) fn srq_was_empty(&mut self, handle: u32) {
        if let Some(srq) = self.srqs.get_mut(&handle).filter(|srq| srq.was_filled) {
            srq.missed = srq.missed.saturating_add(1);
            srq.is_empty = true;
        }
    }

    /// A receive is posted to a shared receive queue.
    pub(super) fn srq_filled(&mut self, handle: u32) {
        let Some(srq) = self.srqs.get_mut(&handle) else { return };
        srq.was_filled = true;
        if std::mem::replace(&mut srq.is_empty, false) && self.looks_for_slow {
            let stack = self.here();
            self.tell_unarmed(handle, stack);
        }
    }

    /// A shared receive queue was destroyed.
    pub(super) fn srq_destroyed(&mut self, handle: u32) {
        if let Some(made) = self.srqs.get(&handle).filter(|srq| srq.is_empty).map(|srq| srq.made.clone()) {
            self.tell_unarmed(handle, made);
        }
        self.srqs.remove(&handle);
    }

    fn tell_unarmed(&mut self, handle: u32, stack: Stack) {
        let Some(srq) = self.srqs.get_mut(&handle).filter(|srq| !srq.was_armed) else { return };
        if std::mem::replace(&mut srq.is_told, true) {
            return;
        }
        let object = srq.name.clone();
        let numbers = format!(
            "{object} was empty when {} came, and its limit was never armed",
            counted(srq.missed, "message")
        );
        let related = vec![related(format!("{object} was made here"), &srq.made)];
        self.found(&SRQ_LIMIT_NEVER_ARMED, Found { object, numbers, stack, related });
    }
}

/// What an entry about `rnr_retry` says of the queue pair: its name, its stack, and others.
fn told_of(qp: &Qp) -> (String, Stack, Vec<super::recorded::Related>) {
    let made = vec![related(format!("{} was made here", qp.name), &qp.made)];
    (qp.name.clone(), qp.rnr_retry_at.clone(), made)
}
