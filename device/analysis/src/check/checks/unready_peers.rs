//! Receivers that are not ready when packets come, and the effect on senders.
//!
//! The check for receivers whose RNR NAKs ask for so short a wait that the peer sends the same message again
//! and again.

use pumice_model::event::Event;
use pumice_platform::call_stack::Stack;
use pumice_transport::event::QpEvent;
use pumice_transport::types::{Cause, DropReason, QpState, WcStatus};
use pumice_transport::wire::{Syndrome, rnr_timer_ns};

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{CONNECTED_TOO_LATE, RNR_RETRIES_ZERO, RNR_RETRY_FOR_EVER, RNR_STORM};
use crate::check::notified::{Check, PerQueue, QueueName};
use crate::check::queues::{Modified, Qp};
use crate::check::recorded::RelatedCallSite;

/// The check for peers that send before the queue pair is in RTR.
#[derive(Debug, Default)]
pub(super) struct EarlyPackets {
    counts: PerQueue<u64>,
}

impl Check for EarlyPackets {
    fn forget(&mut self, of: Option<QueueName>) {
        self.counts.forget(of);
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(Cause::PacketDropped { reason, .. }) } = event
            && matches!(reason, DropReason::NotReceiving { .. })
            && context.qps.contains_key(&qp.qpn.value())
        {
            let count = self.counts.of(QueueName::Qp(qp.qpn.value()));
            *count = count.saturating_add(1);
        }
    }

    fn qp_modified(&mut self, context: &mut CheckContext, modified: &Modified<'_>) {
        if !modified.facts.is_done || modified.to != Some(QpState::Rtr) {
            return;
        }
        let Some(qp) = context.qps.get(&modified.number) else { return };
        let stack = modified.stack.clone();
        let found = self.look_at(modified.number, qp, stack);
        found.into_iter().for_each(|one| context.found(&CONNECTED_TOO_LATE, one));
    }

    /// Checks a queue pair that got datagrams and never received them. The sender of a connection notices
    /// itself that the connection is given up.
    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        let Some(qp) = context.qps.get(&number).filter(|qp| qp.service == "UD") else { return };
        let found = self.look_at(number, qp, qp.calls.to_init.clone());
        found.into_iter().for_each(|one| context.found(&CONNECTED_TOO_LATE, one));
    }

    fn is_ended_by_signal(&mut self, context: &mut CheckContext) {
        let all: Vec<u32> = context.qps.iter().map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.qp_destroyed(context, number));
    }
}

impl EarlyPackets {
    /// Returns a finding if packets have come too early, once for each queue pair.
    fn look_at(&mut self, number: u32, qp: &Qp, stack: Stack) -> Option<FindingParts> {
        let count = std::mem::take(self.counts.of(QueueName::Qp(number)));
        let object = qp.name.clone();
        let numbers = format!("{} came to {object} before it was in RTR", counted(count, "packet"));
        let related = vec![related(format!("{object} was made here"), &qp.calls.made)];
        (count > 0).then_some(FindingParts { object, numbers, stack, related })
    }
}

/// Least number of RNR NAKs of a queue pair that are a storm.
const MANY_NAKS: u64 = 1000;
/// Least number of RNR NAKs in a storm for each message that they refuse, on average.
const FOR_EACH: u64 = 16;

/// The check for RNR NAKs that are most of the traffic. It reports each queue pair once: the receiving one,
/// or the sending one if its peer is in another process.
#[derive(Debug, Default)]
pub(super) struct RnrStorms {
    queue_pairs: PerQueue<RnrState>,
}

#[derive(Debug, Default)]
struct RnrState {
    sent: RnrNaks,
    received: RnrNaks,
    /// True if a rule of a fault plan applied to its packets, or a storm was reported.
    is_quiet: bool,
}

/// RNR NAKs of one direction.
#[derive(Debug, Default)]
struct RnrNaks {
    naks: u64,
    /// Number of messages that were refused.
    messages: u64,
    /// PSN of the message that was refused last.
    psn: Option<u32>,
}

impl RnrNaks {
    /// Counts one more RNR NAK, and reports whether they are a storm now.
    fn add(&mut self, psn: u32) -> bool {
        self.naks = self.naks.saturating_add(1);
        if self.psn.replace(psn) != Some(psn) {
            self.messages = self.messages.saturating_add(1);
        }
        self.naks >= MANY_NAKS && self.naks >= self.messages.saturating_mul(FOR_EACH)
    }
}

impl Check for RnrStorms {
    fn forget(&mut self, of: Option<QueueName>) {
        self.queue_pairs.forget(of);
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event } => {
                let number = qp.qpn.value();
                match event {
                    QpEvent::NakSent { syndrome: Syndrome::RnrNak { timer_code }, psn } => {
                        self.refused(context, number, true, *timer_code, psn.value());
                    }
                    QpEvent::NakReceived { syndrome: Syndrome::RnrNak { timer_code }, psn }
                        if !context.is_connected_to_own(number) =>
                    {
                        self.refused(context, number, false, *timer_code, psn.value());
                    }
                    _ => {}
                }
            }
            Event::FaultApplied { qpn: Some(qpn), .. } => {
                let Some(qp) = context.qps.get(&qpn.value()) else { return };
                let ends = [Some(qpn.value()), qp.destination.filter(|_| qp.peer_is_here)];
                for end in ends.into_iter().flatten().filter(|end| context.qps.contains_key(end)) {
                    self.queue_pairs.of(QueueName::Qp(end)).is_quiet = true;
                }
            }
            _ => {}
        }
    }
}

impl RnrStorms {
    /// Handles an RNR NAK that a queue pair has sent (`by_own`) or has got from its peer.
    fn refused(&mut self, context: &mut CheckContext, number: u32, by_own: bool, timer_code: u8, psn: u32) {
        let Some(qp) = context.qps.get(&number) else { return };
        let own = self.queue_pairs.of(QueueName::Qp(number));
        let refusals = if by_own { &mut own.sent } else { &mut own.received };
        if !refusals.add(psn) || std::mem::replace(&mut own.is_quiet, true) {
            return;
        }
        let refusals = if by_own { &own.sent } else { &own.received };
        let (naks, messages) = (counted(refusals.naks, "RNR NAK"), counted(refusals.messages, "message"));
        let (name, wait_us) = (&qp.name, rnr_timer_ns(timer_code) / 1000);
        let timer = format!("{}.{:02} ms", wait_us / 1000, wait_us / 10 % 100);
        let numbers = match by_own {
            true => format!(
                "{name} has sent {naks} for {messages} that found no receive; its min_rnr_timer, \
                 {timer_code}, lets the peer send again after {timer}, which is sooner than receives are \
                 posted"
            ),
            false => format!(
                "{name} has got {naks} for {messages}: the peer's min_rnr_timer, {timer_code}, lets it send \
                 again after {timer}, which is sooner than the peer posts receives"
            ),
        };
        // The receiver has set the timer when it went to RTR.
        let stack = if by_own { qp.calls.to_rtr.clone() } else { qp.calls.to_rts.clone() };
        let related = vec![related(format!("{name} was made here"), &qp.calls.made)];
        let object = name.clone();
        context.found(&RNR_STORM, FindingParts { object, numbers, stack, related });
    }
}

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
