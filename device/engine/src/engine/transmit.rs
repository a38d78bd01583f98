//! Transmission of the queue pairs' packets to the port: requests, then responses, each queue pair in its
//! turn.

use pumice_transport::qp::{Progress, Urgency};
use pumice_transport::types::QpCapacity;

use super::acknowledgements::Acknowledge;
use super::batch::{BatchSink, Transmission};
use super::drive::Engine;
use super::queue_pairs::QueuePairs;
use super::schedule::Ready;
use crate::resources::MappingCheckPolicy;

/// Number of bytes that one queue pair may send before the next gets its turn, as the peer's budget counts
/// them.
const TURN_BYTES: u64 = 512 * 1024;
/// Number of bytes that one transmit call sends before other threads get the lock, as the peer's budget
/// counts them.
const TRANSMIT_BYTES: u64 = 4 * 1024 * 1024;
/// The interval in which a queue pair checks again whether its peer has room, in ns.
const HOLD_NS: u64 = 10_000;

impl Engine {
    /// Sends requests, then responses. Returns whether anything is left that only more turns can send.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        acknowledge: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        if self.plan_effects.outages.is_stopped() && self.plan_effects.is_stopped_at(now_ns, &mut *self.port)
        {
            return false;
        }
        self.settle();
        self.send_mads(now_ns);
        let requests_left = self.transmit_requests(now_ns, checks);
        let responses_left = self.transmit_responses(now_ns, acknowledge, checks);
        self.settle();
        (requests_left || responses_left) && !self.waits_for_port()
    }

    /// Sends responses before anything else: the peer waits for them, and no thread of this process does.
    pub(crate) fn transmit_waiting_responses(&mut self, now_ns: u64, checks: MappingCheckPolicy) {
        if !self.turns.responders.is_empty() && !self.plan_effects.outages.is_stopped() {
            self.transmit_responses(now_ns, Acknowledge::Now, checks);
            self.settle();
        }
    }

    fn transmit_requests(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> bool {
        let Engine { resources, queue_pairs, mrc, port, turns, .. } = self;
        let Transmission { counters, builder, budget } = &mut self.transmission;
        if turns.senders.is_empty() && !builder.is_stalled() {
            return false;
        }
        let mut sink = BatchSink::new(builder, &mut **port, counters, now_ns);
        let mut host = resources.host(checks.of_connections());
        let mut left_bytes = TRANSMIT_BYTES;
        let mut unfinished = false;
        // Each queue pair gets a turn; those that could continue come again behind the others.
        let mut left_turns = turns.senders.len();
        while left_turns > 0 && left_bytes > 0 {
            let Some(index) = turns.senders.pop() else { break };
            left_turns -= 1;
            let Some(entry) = queue_pairs.at_mut(index) else {
                sink.turn(TURN_BYTES.min(left_bytes), false);
                host.listeners.batch_time.continue_at(now_ns);
                let continue_at = mrc.transmit((index, now_ns), &mut host, &mut sink, turns);
                left_bytes = left_bytes.saturating_sub(sink.sealed_cost_bytes);
                if sink.held {
                    turns.hold_until(now_ns.saturating_add(HOLD_NS));
                }
                unfinished |= continue_at;
                left_turns += usize::from(continue_at && sink.sealed_packets > 0);
                continue;
            };
            let room = entry.peer.map_or(TURN_BYTES, |peer| budget.room_bytes(peer));
            if room == 0 {
                // Acknowledgements from this peer will make room.
                if let Some(peer) = entry.peer {
                    budget.park(peer, index);
                }
                continue;
            }
            let unreliable = entry.qp.qp_type().is_sent_once();
            sink.turn(TURN_BYTES.min(room).min(left_bytes), unreliable);
            sink.takes_inline = asks_for_inline(entry.qp.capacity());
            host.listeners.batch_time.continue_at(now_ns);
            let progress = entry.qp.transmit_requests(now_ns, &mut host, &mut sink);
            left_bytes = left_bytes.saturating_sub(sink.sealed_cost_bytes);
            entry.traffic.sent(sink.sealed_packets, sink.sealed_bytes);
            if let Some(peer) = entry.peer
                && sink.sealed_packets > 0
            {
                budget.change_limits(peer, sink.limits());
            }
            entry.sent(sink.sealed_cost_bytes, sink.sealed_packets, budget);
            entry.account(budget);
            turns.deadlines.register(index, entry.qp.deadline_ns());
            if progress == Progress::Blocked && sink.held {
                turns.held.push(index);
                turns.hold_until(now_ns.saturating_add(HOLD_NS));
            } else if progress == Progress::Blocked {
                turns.senders.push(index);
                if sink.builder.is_stalled() {
                    break;
                }
                unfinished = true;
                if sink.sealed_packets > 0 {
                    left_turns += 1;
                }
            }
        }
        // An ACK that follows joins the batch: one system call carries reply and ACK.
        if turns.responders.is_empty() || resources.has_buffered() {
            sink.flush();
        }
        unfinished || sink.builder.is_stalled()
    }

    pub(super) fn transmit_responses(
        &mut self,
        now_ns: u64,
        acknowledge: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        // The responses would promise what a shuffled schedule has not done yet.
        if self.turns.responders.is_empty() || self.resources.has_buffered() {
            return false;
        }
        self.resources.acknowledges();
        let wait = self.acknowledgements.defer(acknowledge, now_ns);
        if wait && is_only_acknowledgement(&self.turns.responders, &mut self.queue_pairs) {
            if self.transmission.builder.is_open() {
                self.transmission.sink(&mut *self.port, now_ns).flush();
            }
            return false;
        }
        self.transmit_answers(now_ns, wait, checks)
    }

    /// Sends responses; with `wait` those that are only acknowledgements stay.
    fn transmit_answers(&mut self, now_ns: u64, wait: bool, checks: MappingCheckPolicy) -> bool {
        let Engine { resources, queue_pairs, port, transmission, turns, targets, .. } = self;
        let mut sink = transmission.sink(&mut **port, now_ns);
        let mut host = resources.host(checks.of_connections());
        let (mut left_bytes, mut unfinished) = (TRANSMIT_BYTES, false);
        for _ in 0..turns.responders.len() {
            let Some(index) = turns.responders.pop() else { break };
            let Some(entry) = queue_pairs.at_mut(index) else { continue };
            if wait && entry.qp.response_urgency() == Urgency::Acknowledgement {
                turns.responders.push(index);
                continue;
            }
            sink.turn(TURN_BYTES.min(left_bytes), false);
            host.listeners.batch_time.continue_at(now_ns);
            let progress = entry.qp.transmit_responses(now_ns, &mut host, &mut sink);
            entry.traffic.sent(sink.sealed_packets, sink.sealed_bytes);
            targets.publish_failure(&mut entry.qp, &mut entry.sharing, &mut host);
            left_bytes = left_bytes.saturating_sub(sink.sealed_cost_bytes);
            if progress == Progress::Blocked && sink.held {
                turns.held_responders.push(index);
                turns.hold_until(now_ns.saturating_add(HOLD_NS));
            } else if progress == Progress::Blocked {
                turns.responders.push(index);
                unfinished = true;
                if sink.builder.is_stalled() || left_bytes == 0 {
                    break;
                }
            }
            // A response that could not be made has changed more than the list of responses.
            if progress == Progress::Blocked {
                turns.touched.push(index);
            }
        }
        sink.flush();
        unfinished
    }
}

/// Room for inline data that a scatter element leaves to programs which have not asked for any, in bytes.
const INLINE_BYTES_OF_ELEMENT: u32 = 16;

/// Reports whether a program has asked for inline data when it created the queue pair. One that has not
/// cannot say which requests carry their data: perftest asks for none on an adapter that it does not know.
#[inline]
const fn asks_for_inline(capacity: &QpCapacity) -> bool {
    capacity.max_inline_data > capacity.max_send_sge.saturating_mul(INLINE_BYTES_OF_ELEMENT)
}

/// Reports whether one acknowledgement is the only answer to send: the usual case after a message that
/// completed something.
#[inline]
fn is_only_acknowledgement(responders: &Ready, queue_pairs: &mut QueuePairs) -> bool {
    let entry = responders.only().and_then(|index| queue_pairs.at_mut(index));
    entry.is_some_and(|entry| entry.qp.response_urgency() == Urgency::Acknowledgement)
}
