//! Waits in vain and their reasons, as far as one process can know by itself.

use pumice_calls::Call;
use pumice_model::inspect::{
    CqArming, CqSnapshot, InspectedObjects, ProcessStatus, QpView, StalledWait, ThreadActivity, WaitTarget,
    Waiter,
};

use super::graph::connect_outcome;
use super::observed::{ObservedWaits, StrayDatagrams};
use super::words;
use super::words::has_receives_of_xrc;

impl ObservedWaits {
    pub(super) fn unready_peers(&self, now_ns: u64, before_ns: u64, waiters: &[Waiter]) -> Vec<StalledWait> {
        let due = self.unready.iter().filter(|(_, one)| one.is_due(now_ns, before_ns));
        due.map(|(qpn, one)| StalledWait {
            about: WaitTarget::Request(*qpn),
            sentence: format!(
                "a send request of QP {qpn:#08x} waits: the peer has no receive request for it, and said so \
                 by {} RNR NAKs in {}; rnr_retry 7 means to wait for ever",
                one.naks,
                seconds(now_ns.saturating_sub(one.since_ns))
            ),
            stack: waiters.first().map(|waiter| waiter.stack.clone()).unwrap_or_default(),
            is_asleep: false,
        })
        .collect()
    }

    /// Returns the completion queues whose completions wait, and which no thread polls.
    fn unpolled<'a>(
        &'a self,
        before_ns: u64,
        queues: &'a [CqSnapshot],
        waiters: &'a [Waiter],
    ) -> impl Iterator<Item = &'a CqSnapshot> {
        let is_polled =
            |number: u32| waiters.iter().any(|other| other.doing == ThreadActivity::Polls(number));
        let is_due = move |number| self.queues.get(&number).is_some_and(|one| one.since_ns <= before_ns);
        queues.iter().filter(move |queue| is_due(queue.number) && !is_polled(queue.number))
    }

    /// Finds a thread that polls a queue in which nothing can complete, while completions wait in another
    /// one.
    pub(super) fn polls_another(
        &self,
        number: u32,
        before_ns: u64,
        queues: &[CqSnapshot],
        waiters: &[Waiter],
        waiter: &Waiter,
        objects: &InspectedObjects,
    ) -> Option<StalledWait> {
        let polled = queues.iter().find(|queue| queue.number == number)?;
        if polled.filled > 0 || can_complete(number, objects) {
            return None;
        }
        let other = self.unpolled(before_ns, queues, waiters).find(|queue| queue.number != number)?;
        let (waits, own) = (waiting(other.filled), objects.cq_name(other.number));
        let polled = words::nothing_completes(&[number], objects);
        Some(StalledWait {
            sentence: format!("{waits} in {own}, and the program polls {polled}"),
            about: WaitTarget::Completions(other.number),
            stack: waiter.stack.clone(),
            is_asleep: false,
        })
    }

    /// Finds a thread that sleeps on a channel, which no completion will wake.
    pub(super) fn sleeps(
        &self,
        channel: u64,
        before_ns: u64,
        queues: &[CqSnapshot],
        waiters: &[Waiter],
        waiter: &Waiter,
        objects: &InspectedObjects,
    ) -> Option<StalledWait> {
        let own = || queues.iter().filter(|queue| queue.channel == channel);
        let will_wake =
            |queue: &CqSnapshot| queue.armed == CqArming::ForAll && can_complete(queue.number, objects);
        if own().any(will_wake) {
            return None;
        }
        let mut due = self.unpolled(before_ns, queues, waiters);
        let call = waiter.within.as_ref().map(|call| format!("{call}(2)"));
        let call = call.unwrap_or_else(|| Call::ibv_get_cq_event.name().to_owned());
        let vain = |queue: &CqSnapshot, why: &str| StalledWait {
            about: WaitTarget::Completions(queue.number),
            sentence: format!(
                "{} in {}, and the thread that sleeps in {call} is not woken: {why}",
                waiting(queue.filled),
                objects.cq_name(queue.number)
            ),
            stack: waiter.stack.clone(),
            is_asleep: true,
        };
        if let Some(queue) = own().find(|queue| queue.filled > 0) {
            self.queues.get(&queue.number).filter(|one| one.since_ns <= before_ns)?;
            return Some(match queue.armed {
                // A thread in ibv_get_cq_event takes it in a moment.
                _ if queue.unread > 0 && waiter.within.is_none() => return None,
                _ if queue.unread > 0 => vain(queue, &unread(queue.unread)),
                CqArming::No => vain(
                    queue,
                    "the queue is not armed; call ibv_req_notify_cq, poll once more, and sleep only then",
                ),
                CqArming::ForSolicited => vain(
                    queue,
                    "the queue is armed for solicited completions only, and the sender did not set \
                     IBV_SEND_SOLICITED",
                ),
                CqArming::ForAll => vain(
                    queue,
                    "they came before it was armed; poll once more after ibv_req_notify_cq, and sleep \
                     only then",
                ),
            });
        }
        let other = due.find(|queue| queue.channel != channel)?;
        let why = if other.channel == 0 {
            "that queue has no channel, and nothing can complete in those of the channel that it sleeps on"
        } else {
            "that queue has another channel, and nothing can complete in those of the one that it sleeps on"
        };
        Some(vain(other, why))
    }

    /// Finds a request for a connection that no peer has answered.
    pub(super) fn unanswered(
        &self,
        now_ns: u64,
        before_ns: u64,
        waiters: &[Waiter],
        others: &[ProcessStatus],
    ) -> Vec<StalledWait> {
        let due = self.pending_connects.iter().filter(|(_, one)| one.since_ns <= before_ns);
        due.map(|(id, one)| StalledWait {
            about: WaitTarget::Answer(*id),
            sentence: format!(
                "no answer from {} port {} to a request for a connection, which was sent {} in {}: {}",
                one.to,
                one.port,
                times(one.requests),
                seconds(now_ns.saturating_sub(one.since_ns)),
                connect_outcome(others, "", one.to, one.port).words
            ),
            stack: sleeps_for_connections(waiters),
            is_asleep: false,
        })
        .collect()
    }

    /// Finds a thread that waits for a datagram, while datagrams came for a number that no queue pair has.
    pub(super) fn strayed(
        &mut self,
        before_ns: u64,
        queues: &[CqSnapshot],
        waiters: &[Waiter],
        objects: &InspectedObjects,
    ) -> Option<StalledWait> {
        let StrayDatagrams { number, count, .. } = self.stray.take_if(|one| one.since_ns <= before_ns)?;
        let waits_at = |waiter: &&Waiter, cq: u32| match waiter.doing {
            ThreadActivity::Polls(number) => number == cq,
            ThreadActivity::SleepsOn(channel) => {
                queues.iter().any(|one| one.number == cq && one.channel == channel)
            }
            ThreadActivity::SleepsForConnections | ThreadActivity::Acknowledges => false,
        };
        let hopes = |qp: &&QpView| qp.service == "UD" && qp.received == 0 && qp.receives_posted != Some(0);
        let (cq, waiter) = objects.qps.iter().filter(hopes).find_map(|qp| {
            let cq = qp.recv_cq?;
            Some((cq, waiters.iter().find(|waiter| waits_at(waiter, cq))?))
        })?;
        let came = if count == 1 { "the one that came".to_owned() } else { format!("the {count} that came") };
        Some(StalledWait {
            about: WaitTarget::Completions(cq),
            sentence: format!(
                "a thread waits for a datagram in {}, and {came} had queue pair number {number:#x}, which no \
                 queue pair has: is remote_qpn the qp_num of the receiver?",
                objects.cq_name(cq)
            ),
            stack: waiter.stack.clone(),
            is_asleep: false,
        })
    }

    pub(super) fn refused(&mut self, before_ns: u64, waiters: &[Waiter]) -> Option<StalledWait> {
        let one = self.refused.take_if(|one| one.since_ns <= before_ns)?;
        Some(StalledWait {
            about: WaitTarget::Rejected(one.id),
            sentence: format!(
                "the peer {}, and the program goes on waiting: it has to look for RDMA_CM_EVENT_{}, and to \
                 destroy the identifier or ask again",
                one.reason, one.event
            ),
            stack: sleeps_for_connections(waiters),
            is_asleep: false,
        })
    }
}

fn sleeps_for_connections(waiters: &[Waiter]) -> Vec<u64> {
    let sleeper = waiters.iter().find(|waiter| waiter.doing == ThreadActivity::SleepsForConnections);
    sleeper.map(|waiter| waiter.stack.clone()).unwrap_or_default()
}

/// Reports whether a request is posted that completes in this queue.
fn can_complete(number: u32, objects: &InspectedObjects) -> bool {
    // The requests of objects that are not in the list are not known.
    objects.qps_left_out() > 0
        || has_receives_of_xrc(objects, &[number])
        || objects.qps.iter().any(|qp: &QpView| {
            let receives = qp.recv_cq == Some(number) && qp.receives_posted.is_none_or(|posted| posted > 0);
            let signaled = qp.posted.saturating_sub(qp.ended) > qp.unsignaled;
            receives || (qp.send_cq == Some(number) && signaled)
        })
}

/// Returns why a thread is not woken though its channel has events.
fn unread(count: usize) -> String {
    let events = if count == 1 { "an event waits".to_owned() } else { format!("{count} events wait") };
    format!(
        "{events} unread in the channel, and with EPOLLET only a further one would wake it; after each \
         wake-up call ibv_get_cq_event until it fails with EAGAIN"
    )
}

fn waiting(count: usize) -> String {
    if count == 1 { "a completion waits".to_owned() } else { format!("{count} completions wait") }
}

fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

fn seconds(ns: u64) -> String {
    format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10)
}
