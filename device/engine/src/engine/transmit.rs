//! Transmission of the queue pairs' packets to the port: requests, then responses, each queue pair in its
//! turn.

use pumice_transport::qp::{Progress, Urgency};

use super::batch::BatchSink;
use super::drive::Engine;
use super::queue_pairs::QueuePairs;
use super::schedule::Ready;
use crate::resources::MappingCheckPolicy;

/// Number of bytes that one queue pair may send before the next gets its turn, as the peer's budget counts
/// them.
const TURN_BYTES: u64 = 512 * 1024;
/// Number of batches after which acknowledgements leave although completions keep coming.
const DEFERRED_BATCHES: u32 = 16;
/// Number of bytes that one transmit call sends before other threads get the lock, as the peer's budget
/// counts them.
const TRANSMIT_BYTES: u64 = 4 * 1024 * 1024;
/// The interval in which a queue pair checks again whether its peer has room, in ns.
const HOLD_NS: u64 = 10_000;

/// The time at which responses may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// Responses leave now.
    Now,
    /// Acknowledgements wait: the application is about to see the completions of this batch, and an ACK sent
    /// first would delay it by a system call.
    AfterCompletions,
    /// Acknowledgements wait for a reply after these completions, if the application has the habit of
    /// answering what arrives.
    WithReply,
}

impl Engine {
    /// Sends requests, then responses. Returns whether anything is left that only more turns can send.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        acknowledge: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        if self.outages.is_stopped() && self.is_stopped_at(now_ns) {
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
        if !self.responders.is_empty() && !self.outages.is_stopped() {
            self.transmit_responses(now_ns, Acknowledge::Now, checks);
            self.settle();
        }
    }

    fn transmit_requests(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> bool {
        let Engine { resources, queue_pairs, mrc, port, counters, builder, budget, .. } = self;
        let Engine { senders, deadlines, responders, held, held_until_ns, .. } = self;
        if senders.is_empty() && !builder.is_stalled() {
            return false;
        }
        let mut sink = BatchSink::new(builder, &mut **port, counters, now_ns);
        let mut host = resources.host(checks.of_connections());
        let mut left_bytes = TRANSMIT_BYTES;
        let mut unfinished = false;
        // Each queue pair gets a turn; those that could continue come again behind the others.
        let mut turns = senders.len();
        while turns > 0 && left_bytes > 0 {
            let Some(index) = senders.pop() else { break };
            turns -= 1;
            let Some(entry) = queue_pairs.at_mut(index) else {
                sink.turn(TURN_BYTES.min(left_bytes), false);
                host.listeners.batch_time.continue_at(now_ns);
                let lists = (&mut *senders, &mut *held, &mut *deadlines);
                let continue_at = mrc.transmit((index, now_ns), &mut host, &mut sink, lists);
                left_bytes = left_bytes.saturating_sub(sink.sealed_cost_bytes);
                if sink.held {
                    held_until_ns.get_or_insert(now_ns.saturating_add(HOLD_NS));
                }
                unfinished |= continue_at;
                turns += usize::from(continue_at && sink.sealed_packets > 0);
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
            deadlines.register(index, entry.qp.deadline_ns());
            if progress == Progress::Blocked && sink.held {
                held.push(index);
                held_until_ns.get_or_insert(now_ns.saturating_add(HOLD_NS));
            } else if progress == Progress::Blocked {
                senders.push(index);
                if sink.builder.is_stalled() {
                    break;
                }
                unfinished = true;
                if sink.sealed_packets > 0 {
                    turns += 1;
                }
            }
        }
        // An ACK that follows joins the batch: one system call carries reply and ACK.
        if responders.is_empty() || resources.has_buffered() {
            sink.flush();
        }
        unfinished || sink.builder.is_stalled()
    }

    fn transmit_responses(
        &mut self,
        now_ns: u64,
        acknowledge: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        // The responses would promise what a shuffled schedule has not done yet.
        if self.responders.is_empty() || self.resources.has_buffered() {
            return false;
        }
        self.resources.acknowledges();
        let after_completions =
            acknowledge == Acknowledge::AfterCompletions && self.deferred_batches < DEFERRED_BATCHES;
        self.deferred_batches = if after_completions { self.deferred_batches + 1 } else { 0 };
        let wait = !self.is_modelled
            && (after_completions || (acknowledge == Acknowledge::WithReply && self.reply.holds(now_ns)));
        if !wait {
            self.reply.released();
        }
        if wait && is_only_acknowledgement(&self.responders, &mut self.queue_pairs) {
            if self.builder.is_open() {
                BatchSink::new(&mut self.builder, &mut *self.port, &self.counters, now_ns).flush();
            }
            return false;
        }
        self.transmit_answers(now_ns, wait, checks)
    }

    /// Sends responses; with `wait` those that are only acknowledgements stay.
    fn transmit_answers(&mut self, now_ns: u64, wait: bool, checks: MappingCheckPolicy) -> bool {
        let Engine {
            resources,
            queue_pairs,
            port,
            counters,
            builder,
            responders,
            touched,
            targets,
            held_responders,
            held_until_ns,
            ..
        } = self;
        let mut sink = BatchSink::new(builder, &mut **port, counters, now_ns);
        let mut host = resources.host(checks.of_connections());
        let (mut left_bytes, mut unfinished) = (TRANSMIT_BYTES, false);
        for _ in 0..responders.len() {
            let Some(index) = responders.pop() else { break };
            let Some(entry) = queue_pairs.at_mut(index) else { continue };
            if wait && entry.qp.response_urgency() == Urgency::Acknowledgement {
                responders.push(index);
                continue;
            }
            sink.turn(TURN_BYTES.min(left_bytes), false);
            host.listeners.batch_time.continue_at(now_ns);
            let progress = entry.qp.transmit_responses(now_ns, &mut host, &mut sink);
            entry.traffic.sent(sink.sealed_packets, sink.sealed_bytes);
            targets.publish_failure(&mut entry.qp, &mut entry.sharing, &mut host);
            left_bytes = left_bytes.saturating_sub(sink.sealed_cost_bytes);
            if progress == Progress::Blocked && sink.held {
                held_responders.push(index);
                held_until_ns.get_or_insert(now_ns.saturating_add(HOLD_NS));
            } else if progress == Progress::Blocked {
                responders.push(index);
                unfinished = true;
                if sink.builder.is_stalled() || left_bytes == 0 {
                    break;
                }
            }
            // A response that could not be made has changed more than the list of responses.
            if progress == Progress::Blocked {
                touched.push(index);
            }
        }
        sink.flush();
        unfinished
    }
}

/// Reports whether one acknowledgement is the only answer to send: the usual case after a message that
/// completed something.
#[inline]
fn is_only_acknowledgement(responders: &Ready, queue_pairs: &mut QueuePairs) -> bool {
    let entry = responders.only().and_then(|index| queue_pairs.at_mut(index));
    entry.is_some_and(|entry| entry.qp.response_urgency() == Urgency::Acknowledgement)
}
