//! Receivers that are not ready: what that does to senders.

use pumice_ground::call_stack::Stack;
use pumice_transport::types::WcStatus;

use crate::check::context::{Context, Found, counted, related};
use crate::check::kept::{Kept, Of};
use crate::check::kind::{RNR_RETRIES_ZERO, RNR_RETRY_FOR_EVER};
use crate::check::queues::Qp;
use crate::check::recorded::Related;
use crate::check::told::Check;

/// The value of `rnr_retry` that stands for no limit.
const FOR_EVER: u8 = 7;
/// A wait for receives of the peer that is told.
const LONG_NS: u64 = 1_000_000_000;

/// `rnr_retry` makes a sender wait for ever, or not at all. It is told once of each queue pair.
#[derive(Debug, Default)]
pub(super) struct UnreadyPeers {
    queue_pairs: Kept<QueuePair>,
}

#[derive(Debug, Default)]
struct QueuePair {
    /// The attribute `rnr_retry`, and where it was given.
    rnr_retry: Option<u8>,
    given_at: Stack,
    waits: Waits,
    is_told: bool,
}

/// How long a peer has had no receive for a message.
#[derive(Debug, Default)]
struct Waits {
    /// Of the message; none if the peer always had receives.
    psn: Option<u32>,
    /// RNR NAKs for it.
    naks: u64,
    /// Waits that have ended with another of them.
    waited_ns: u64,
    /// The one that has not ended.
    waits_ns: u64,
}

impl Check for UnreadyPeers {
    fn forget(&mut self, of: Option<Of>) {
        self.queue_pairs.forget(of);
    }

    fn rnr_retry_set(&mut self, context: &mut Context, number: u32, rnr_retry: u8) {
        if context.qps.contains_key(&number) {
            let own = self.queue_pairs.of(Of::Qp(number));
            (own.rnr_retry, own.given_at) = (Some(rnr_retry), context.here());
        }
    }

    fn peer_had_no_receive(&mut self, context: &mut Context, number: u32, psn: u32) {
        if context.qps.contains_key(&number) {
            let own = self.queue_pairs.of(Of::Qp(number));
            if own.waits.psn != Some(psn) {
                own.waits = Waits { psn: Some(psn), ..Waits::default() };
            }
            own.waits.naks = own.waits.naks.saturating_add(1);
        }
    }

    fn waits_for_receive(&mut self, context: &mut Context, number: u32, retries_left: u8, wait_ns: u64) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(Of::Qp(number));
        let ended_ns = std::mem::replace(&mut own.waits.waits_ns, wait_ns);
        own.waits.waited_ns = own.waits.waited_ns.saturating_add(ended_ns);
        let is_long = retries_left == FOR_EVER && own.waits.waited_ns > LONG_NS;
        if !is_long || std::mem::replace(&mut own.is_told, true) {
            return;
        }
        let (object, stack, related) = own.about(qp);
        let numbers = format!(
            "rnr_retry is 7, which is for ever; {object} has waited for {} ms, and the peer has posted no \
             receive for its message: {}",
            own.waits.waited_ns / 1_000_000,
            counted(own.waits.naks, "RNR NAK")
        );
        context.found(&RNR_RETRY_FOR_EVER, Found { object, numbers, stack, related });
    }

    fn send_failed(&mut self, context: &mut Context, number: u32, status: WcStatus) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(Of::Qp(number));
        let is_it = status == WcStatus::RnrRetryExcErr && own.rnr_retry == Some(0) && own.waits.naks > 0;
        if !is_it || std::mem::replace(&mut own.is_told, true) {
            return;
        }
        let (object, stack, related) = own.about(qp);
        let numbers = format!(
            "rnr_retry is 0: {object} ended with {} at the first message for which its peer had no receive",
            status.name()
        );
        context.found(&RNR_RETRIES_ZERO, Found { object, numbers, stack, related });
    }
}

impl QueuePair {
    /// What an entry says of the queue pair: its name, its stack, and others.
    fn about(&self, qp: &Qp) -> (String, Stack, Vec<Related>) {
        let made = vec![related(format!("{} was made here", qp.name), &qp.made)];
        (qp.name.clone(), self.given_at.clone(), made)
    }
}
