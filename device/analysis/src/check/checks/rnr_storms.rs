//! The check for receivers whose RNR NAKs ask for so short a wait that the peer sends the same message again
//! and again.

use pumice_model::event::Event;
use pumice_transport::event::QpEvent;
use pumice_transport::wire::{Syndrome, rnr_timer_ns};

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::RNR_STORM;
use crate::check::notified::Check;
use crate::check::per_queue::{PerQueue, QueueName};

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
