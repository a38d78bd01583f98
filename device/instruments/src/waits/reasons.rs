//! Who waits in vain, and why: what one process can know by itself.

use pumice_events::inspect::{ArmedNow, Awaited, Collected, Doing, QpView, QueueNow, Standing, Vain, Waiter};

use super::graph::answer_of;
use super::heard::{State, Stray};
use super::own::has_receives_of_xrc;

impl State {
    pub(super) fn unready_peers(&self, now_ns: u64, before_ns: u64, waiters: &[Waiter]) -> Vec<Vain> {
        let due = self.unready.iter().filter(|(_, one)| one.is_due(now_ns, before_ns));
        due.map(|(qpn, one)| Vain {
            about: Awaited::Request(*qpn),
            sentence: format!(
                "a send request of QP {qpn:#08x} waits: the peer has no receive request for it, and said so \
                 by {} RNR NAKs in {}; rnr_retry 7 means to wait for ever",
                one.naks,
                seconds(now_ns.saturating_sub(one.since_ns))
            ),
            stack: waiters.first().map(|waiter| waiter.stack.clone()).unwrap_or_default(),
        })
        .collect()
    }

    /// Completion queues whose completions wait, and which no thread polls.
    fn unpolled<'a>(
        &'a self,
        before_ns: u64,
        queues: &'a [QueueNow],
        waiters: &'a [Waiter],
    ) -> impl Iterator<Item = &'a QueueNow> {
        let is_polled = |number: u32| waiters.iter().any(|other| other.doing == Doing::Polls(number));
        let is_due = move |number| self.queues.get(&number).is_some_and(|one| one.since_ns <= before_ns);
        queues.iter().filter(move |queue| is_due(queue.number) && !is_polled(queue.number))
    }

    /// A thread polls a queue in which nothing can complete, and completions wait in another one.
    pub(super) fn polls_another(
        &self,
        number: u32,
        before_ns: u64,
        queues: &[QueueNow],
        waiters: &[Waiter],
        waiter: &Waiter,
        objects: &Collected,
    ) -> Option<Vain> {
        let polled = queues.iter().find(|queue| queue.number == number)?;
        if polled.filled > 0 || can_complete(number, objects) {
            return None;
        }
        let other = self.unpolled(before_ns, queues, waiters).find(|queue| queue.number != number)?;
        let (waits, own) = (waiting(other.filled), queue_name(other.number));
        Some(Vain {
            sentence: format!(
                "{waits} in {own}, and the program polls another completion queue, {number}, \
                 in which nothing can complete: no request is posted that completes there"
            ),
            about: Awaited::Completions(other.number),
            stack: waiter.stack.clone(),
        })
    }

    /// A thread sleeps on a channel, and no completion will wake it.
    pub(super) fn sleeps(
        &self,
        channel: u64,
        before_ns: u64,
        queues: &[QueueNow],
        waiters: &[Waiter],
        waiter: &Waiter,
        objects: &Collected,
    ) -> Option<Vain> {
        let own = || queues.iter().filter(|queue| queue.channel == channel);
        let will_wake =
            |queue: &QueueNow| queue.armed == ArmedNow::ForAll && can_complete(queue.number, objects);
        if own().any(will_wake) {
            return None;
        }
        let mut due = self.unpolled(before_ns, queues, waiters);
        let vain = |queue: &QueueNow, why: &str| Vain {
            about: Awaited::Completions(queue.number),
            sentence: format!(
                "{} in {}, and the thread that sleeps in ibv_get_cq_event is not woken: {why}",
                waiting(queue.filled),
                queue_name(queue.number)
            ),
            stack: waiter.stack.clone(),
        };
        if let Some(queue) = own().find(|queue| queue.filled > 0) {
            self.queues.get(&queue.number).filter(|one| one.since_ns <= before_ns)?;
            return Some(match queue.armed {
                ArmedNow::No => vain(
                    queue,
                    "the queue is not armed; call ibv_req_notify_cq, poll once more, and sleep only then",
                ),
                ArmedNow::ForSolicited => vain(
                    queue,
                    "the queue is armed for solicited completions only, and the sender did not set \
                     IBV_SEND_SOLICITED",
                ),
                ArmedNow::ForAll => vain(
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

    /// No peer has answered a request for a connection.
    pub(super) fn unanswered(
        &self,
        now_ns: u64,
        before_ns: u64,
        waiters: &[Waiter],
        others: &[Standing],
    ) -> Vec<Vain> {
        let due = self.asked.iter().filter(|(_, one)| one.since_ns <= before_ns);
        due.map(|(id, one)| Vain {
            about: Awaited::Answer(*id),
            sentence: format!(
                "no answer from {} port {} to a request for a connection, which was sent {} in {}: {}",
                one.to,
                one.port,
                times(one.requests),
                seconds(now_ns.saturating_sub(one.since_ns)),
                answer_of(others, "", one.to, one.port).words
            ),
            stack: sleeps_for_connections(waiters),
        })
        .collect()
    }

    /// A thread waits for a datagram, and what came was for a number that no queue pair has.
    pub(super) fn strayed(
        &mut self,
        before_ns: u64,
        queues: &[QueueNow],
        waiters: &[Waiter],
        objects: &Collected,
    ) -> Option<Vain> {
        let Stray { number, count, .. } = self.stray.take_if(|one| one.since_ns <= before_ns)?;
        let waits_at = |waiter: &&Waiter, cq: u32| match waiter.doing {
            Doing::Polls(number) => number == cq,
            Doing::SleepsOn(channel) => queues.iter().any(|one| one.number == cq && one.channel == channel),
            Doing::SleepsForConnections | Doing::Acknowledges => false,
        };
        let hopes = |qp: &&QpView| qp.service == "UD" && qp.received == 0 && qp.receives_posted != Some(0);
        let (cq, waiter) = objects.qps.iter().filter(hopes).find_map(|qp| {
            let cq = qp.recv_cq?;
            Some((cq, waiters.iter().find(|waiter| waits_at(waiter, cq))?))
        })?;
        let came = if count == 1 { "the one that came".to_owned() } else { format!("the {count} that came") };
        Some(Vain {
            about: Awaited::Completions(cq),
            sentence: format!(
                "a thread waits for a datagram in {}, and {came} had queue pair number {number:#x}, which no \
                 queue pair has: is remote_qpn the qp_num of the receiver?",
                queue_name(cq)
            ),
            stack: waiter.stack.clone(),
        })
    }

    pub(super) fn refused(&mut self, before_ns: u64, waiters: &[Waiter]) -> Option<Vain> {
        let one = self.refused.take_if(|one| one.since_ns <= before_ns)?;
        Some(Vain {
            about: Awaited::Rejected(one.id),
            sentence: format!(
                "the peer {}, and the program goes on waiting: it has to look for RDMA_CM_EVENT_{}, and to \
                 destroy the identifier or ask again",
                one.reason, one.event
            ),
            stack: sleeps_for_connections(waiters),
        })
    }
}

fn sleeps_for_connections(waiters: &[Waiter]) -> Vec<u64> {
    let sleeper = waiters.iter().find(|waiter| waiter.doing == Doing::SleepsForConnections);
    sleeper.map(|waiter| waiter.stack.clone()).unwrap_or_default()
}

/// Whether a request is posted that completes in this queue.
fn can_complete(number: u32, objects: &Collected) -> bool {
    // Of objects that are not in the list nothing is known.
    objects.qps_left_out() > 0
        || has_receives_of_xrc(objects, &[number])
        || objects.qps.iter().any(|qp: &QpView| {
            let receives = qp.recv_cq == Some(number) && qp.receives_posted.is_none_or(|posted| posted > 0);
            let signaled = qp.posted.saturating_sub(qp.ended) > qp.unsignaled;
            receives || (qp.send_cq == Some(number) && signaled)
        })
}

fn queue_name(number: u32) -> String {
    format!("completion queue {number}")
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
