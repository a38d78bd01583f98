//! Receivers that are not ready, and the effect on senders.

use pumice_platform::call_stack::Stack;
use pumice_transport::types::WcStatus;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{RNR_RETRIES_ZERO, RNR_RETRY_FOR_EVER};
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};
use crate::check::queues::Qp;
use crate::check::recorded::RelatedCallSite;

/// Value of `rnr_retry` that stands for no limit.
const FOR_EVER: u8 = 7;
/// Shortest wait for receives of the peer that is reported, in nanoseconds.
const LONG_NS: u64 = 1_000_000_000;

/// The check for values of `rnr_retry` that make a sender wait for ever, or not at all. It reports each queue
/// pair once.
#[derive(Debug, Default)]
pub(super) struct UnreadyPeers {
    queue_pairs: PerQueue<UnreadyState>,
}

#[derive(Debug, Default)]
struct UnreadyState {
    /// Value of the attribute `rnr_retry`, and the call site that set it.
    rnr_retry: Option<u8>,
    given_at: Stack,
    waits: ReceiveWaits,
    is_reported: bool,
}

/// The time for which a peer has had no receive for a message.
#[derive(Debug, Default)]
struct ReceiveWaits {
    /// PSN of the message; `None` if the peer always had receives.
    psn: Option<u32>,
    /// Number of RNR NAKs for the message.
    naks: u64,
    /// Sum of the waits that ended with another RNR NAK, in nanoseconds.
    waited_ns: u64,
    /// Wait that has not ended, in nanoseconds.
    waits_ns: u64,
}

impl Check for UnreadyPeers {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queue_pairs.forget(of);
    }

    fn rnr_retry_set(&mut self, context: &mut CheckContext, number: u32, rnr_retry: u8) {
        if context.qps.contains_key(&number) {
            let own = self.queue_pairs.of(QueueName::Qp(number));
            (own.rnr_retry, own.given_at) = (Some(rnr_retry), context.here());
        }
    }

    fn peer_had_no_receive(&mut self, context: &mut CheckContext, number: u32, psn: u32) {
        if context.qps.contains_key(&number) {
            let own = self.queue_pairs.of(QueueName::Qp(number));
            if own.waits.psn != Some(psn) {
                own.waits = ReceiveWaits { psn: Some(psn), ..ReceiveWaits::default() };
            }
            own.waits.naks = own.waits.naks.saturating_add(1);
        }
    }

    fn waits_for_receive(&mut self, context: &mut CheckContext, number: u32, retries_left: u8, wait_ns: u64) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        let ended_ns = std::mem::replace(&mut own.waits.waits_ns, wait_ns);
        own.waits.waited_ns = own.waits.waited_ns.saturating_add(ended_ns);
        let is_long = retries_left == FOR_EVER && own.waits.waited_ns > LONG_NS;
        if !is_long || std::mem::replace(&mut own.is_reported, true) {
            return;
        }
        let (object, stack, related) = own.about(qp);
        let numbers = format!(
            "rnr_retry is 7, which is for ever; {object} has waited for {} ms, and the peer has posted no \
             receive for its message: {}",
            own.waits.waited_ns / 1_000_000,
            counted(own.waits.naks, "RNR NAK")
        );
        context.found(&RNR_RETRY_FOR_EVER, FindingParts { object, numbers, stack, related });
    }

    fn send_failed(&mut self, context: &mut CheckContext, number: u32, status: WcStatus) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        let is_it = status == WcStatus::RnrRetryExcErr && own.rnr_retry == Some(0) && own.waits.naks > 0;
        if !is_it || std::mem::replace(&mut own.is_reported, true) {
            return;
        }
        let (object, stack, related) = own.about(qp);
        let numbers = format!(
            "rnr_retry is 0: {object} ended with {} at the first message for which its peer had no receive",
            status.name()
        );
        context.found(&RNR_RETRIES_ZERO, FindingParts { object, numbers, stack, related });
    }
}

impl UnreadyState {
    /// Returns the queue pair's name, its stack, and related stacks, for a finding.
    fn about(&self, qp: &Qp) -> (String, Stack, Vec<RelatedCallSite>) {
        let made = vec![related(format!("{} was made here", qp.name), &qp.calls.made)];
        (qp.name.clone(), self.given_at.clone(), made)
    }
}
