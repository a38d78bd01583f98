//! What programs wait for in vain, and the one reason that holds it.
//!
//! [`Waits`] is sans-IO: it hears of the device's events, is told of completion queues from time to time, and
//! asks for nothing. When something has been waiting for long, its owner finds out what the threads of the
//! program are doing, and [`Waits::judge`] says who waits in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_events::inspect::{Collected, QpView};
use pumice_events::{Event, Subscriber, Topics};
use pumice_transport::cm::Event as CmEvent;
use pumice_transport::event::QpEvent;
use pumice_transport::mad::CmMessage;

/// What is remembered of each kind; of more nothing is said.
const MOST: usize = 1024;
/// `retries_left` of a sender that waits for a receive for ever.
const FOR_EVER: u8 = 7;
/// Patiences after a judgement until something is looked for again.
const PATIENCES: u64 = 4;
/// How much later than the peer asked for another RNR NAK may come.
const LATE_NS: u64 = 1_000_000_000;

/// A completion queue, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueNow {
    /// Its number in the process.
    pub number: u32,
    /// Names its channel; 0: it has none.
    pub channel: u64,
    /// Completions to be polled.
    pub filled: usize,
    /// How it is armed.
    pub armed: ArmedNow,
}

/// How a completion queue is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArmedNow {
    /// No completion makes an event.
    No,
    /// Solicited completions and failures do.
    ForSolicited,
    /// The next one does.
    ForAll,
}

/// What a thread of the program does again and again, or sleeps in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It polls the completion queue of this number.
    Polls(u32),
    /// It sleeps until the channel has an event.
    SleepsOn(u64),
    /// It sleeps until something happens to a connection.
    SleepsForConnections,
}

/// A thread that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// What it does.
    pub doing: Doing,
    /// Return addresses of the program's frames, innermost first.
    pub stack: Vec<u64>,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Awaited {
    /// A send request of the queue pair of this number.
    Request(u32),
    /// Completions of the completion queue of this number.
    Completions(u32),
    /// An answer to the request for the connection that has this identifier.
    Answer(u32),
    /// A connection that the peer has rejected.
    Rejected(u32),
}

/// Something that is waited for in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vain {
    /// What is waited for.
    pub about: Awaited,
    /// Who waits, and the reason.
    pub sentence: String,
    /// Return addresses of the thread that waits; empty if none was found.
    pub stack: Vec<u64>,
}

impl Vain {
    /// Whether it is about a connection that is not made.
    pub const fn is_of_connection(&self) -> bool {
        matches!(self.about, Awaited::Answer(_) | Awaited::Rejected(_))
    }
}

/// Hears of a device for those who look for waits in vain.
pub struct WaitsSubscriber(pub Arc<Waits>);

/// What is known of the waits of a device.
#[derive(Debug)]
pub struct Waits {
    patience_ns: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Messages for which the peer has no receive, by the number of the queue pair.
    unready: BTreeMap<u32, Unready>,
    /// Completion queues with completions, by number.
    queues: BTreeMap<u32, Unpolled>,
    /// Connections that were asked for, by the identifiers of this side.
    asked: BTreeMap<u32, Asked>,
    /// Connections that the peer has refused, and which no other event has followed since.
    refused: Option<Refused>,
    /// Until then nothing is looked for: what threads do was asked, and that costs them time.
    again_ns: u64,
    /// Of these something was said.
    told: BTreeSet<Awaited>,
}

#[derive(Debug)]
struct Unready {
    psn: u32,
    naks: u64,
    since_ns: u64,
    last_ns: u64,
    wait_ns: u64,
    is_for_ever: bool,
}

#[derive(Debug)]
struct Unpolled {
    filled: usize,
    since_ns: u64,
}

#[derive(Debug)]
struct Asked {
    to: IpAddr,
    port: u16,
    since_ns: u64,
    requests: u32,
}

#[derive(Debug)]
struct Refused {
    id: u32,
    since_ns: u64,
    reason: String,
}

impl Subscriber for WaitsSubscriber {
    fn topics(&self) -> Topics {
        Topics::RECOVERY | Topics::CM | Topics::OBJECTS | Topics::FAULTS
    }

    fn hear(&self, at_ns: u64, event: &Event<'_>) {
        self.0.lock().hear(at_ns, event);
    }
}

impl Waits {
    /// Nothing waits. What waits for `patience_ns` and longer is told.
    pub fn new(patience_ns: u64) -> Waits {
        Waits { patience_ns, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether something waits for long, of which nothing was said. `queues`: all completion queues of
    /// the device.
    pub fn look(&self, now_ns: u64, queues: &[QueueNow]) -> bool {
        let mut state = self.lock();
        state.see(now_ns, queues);
        // Before the patience is over for the first time, nothing can have waited for so long.
        let Some(before_ns) = now_ns.checked_sub(self.patience_ns).filter(|_| now_ns >= state.again_ns)
        else {
            return false;
        };
        let unready = state
            .unready
            .iter()
            .any(|(qpn, one)| one.is_due(now_ns, before_ns) && !state.is_told(Awaited::Request(*qpn)));
        let unpolled = state
            .queues
            .iter()
            .any(|(number, one)| one.since_ns <= before_ns && !state.is_told(Awaited::Completions(*number)));
        // A peer may take longer to answer than a thread to poll.
        let before_ns = before_ns.checked_sub(self.patience_ns / 2);
        let is_due = |since_ns: u64| before_ns.is_some_and(|before_ns| since_ns <= before_ns);
        let asked =
            state.asked.iter().any(|(id, one)| is_due(one.since_ns) && !state.is_told(Awaited::Answer(*id)));
        let refused = state.refused.as_ref().is_some_and(|one| is_due(one.since_ns));
        unready || unpolled || asked || refused
    }

    /// Says what is waited for in vain, once each. `queues`: all completion queues of the device; `waiters`:
    /// threads of the program; `objects`: what there is.
    pub fn judge(
        &self,
        now_ns: u64,
        queues: &[QueueNow],
        waiters: &[Waiter],
        objects: &Collected,
    ) -> Vec<Vain> {
        let mut state = self.lock();
        state.see(now_ns, queues);
        state.again_ns = now_ns.saturating_add(PATIENCES * self.patience_ns);
        let Some(before_ns) = now_ns.checked_sub(self.patience_ns) else { return Vec::new() };
        let mut found = state.unready_peers(now_ns, before_ns, waiters);
        found.extend(waiters.iter().filter_map(|waiter| match waiter.doing {
            Doing::Polls(number) => state.polls_another(number, before_ns, queues, waiters, waiter, objects),
            Doing::SleepsOn(channel) => state.sleeps(channel, before_ns, queues, waiters, waiter, objects),
            Doing::SleepsForConnections => None,
        }));
        if let Some(before_ns) = before_ns.checked_sub(self.patience_ns / 2) {
            found.extend(state.unanswered(now_ns, before_ns, waiters));
            found.extend(state.refused(before_ns, waiters));
        }
        found.retain(|vain| !state.is_told(vain.about) && state.told.insert(vain.about));
        found
    }
}

impl State {
    fn is_told(&self, about: Awaited) -> bool {
        self.told.contains(&about) || self.told.len() >= MOST
    }

    fn hear(&mut self, at_ns: u64, event: &Event<'_>) {
        match event {
            Event::Qp { qp, event: QpEvent::ReceiverNotReady { psn, retries_left, wait_ns } } => {
                let known = self.unready.len() < MOST || self.unready.contains_key(&qp.qpn.value());
                if !known {
                    return;
                }
                let (psn, wait_ns) = (psn.value(), *wait_ns);
                let is_for_ever = *retries_left == FOR_EVER;
                let new = Unready { psn, naks: 0, since_ns: at_ns, last_ns: at_ns, wait_ns, is_for_ever };
                let one = self.unready.entry(qp.qpn.value()).or_insert(new);
                if one.psn != psn {
                    *one = Unready { psn, naks: 0, since_ns: at_ns, last_ns: at_ns, wait_ns, is_for_ever };
                }
                one.naks = one.naks.saturating_add(1);
                (one.last_ns, one.wait_ns) = (at_ns, wait_ns);
            }
            Event::QpDestroyed { qp } => drop(self.unready.remove(&qp.qpn.value())),
            // What a plan does to a queue pair is no fault of the peer's.
            Event::FaultApplied { qpn: Some(qpn), .. } => drop(self.unready.remove(&qpn.value())),
            Event::CmSent { message: CmMessage::Req(request) } => {
                let id = request.local_id.0;
                if self.asked.len() >= MOST && !self.asked.contains_key(&id) {
                    return;
                }
                let to = IpAddr::from(request.primary.remote_gid);
                let port = request.service_id.0 as u16;
                let new = Asked { to, port, since_ns: at_ns, requests: 0 };
                let one = self.asked.entry(id).or_insert(new);
                one.requests = one.requests.saturating_add(1);
            }
            Event::CmReceived { message } => {
                // Each message says that the peer answers.
                if let Some(own) = message.recipient() {
                    self.asked.remove(&own.0);
                }
            }
            Event::CmEvent { event, .. } => {
                self.asked.remove(&event.id().0);
                self.refused = match event {
                    CmEvent::Rejected { id, rejection } => {
                        let reason = rejection.reason.to_string();
                        Some(Refused { id: id.0, since_ns: at_ns, reason })
                    }
                    _ => None,
                };
            }
            _ => {}
        }
    }

    /// Notes since when completions wait.
    fn see(&mut self, now_ns: u64, queues: &[QueueNow]) {
        self.queues.retain(|number, one| {
            queues.iter().any(|queue| queue.number == *number && queue.filled == one.filled)
        });
        for queue in queues.iter().filter(|queue| queue.filled > 0).take(MOST) {
            let new = Unpolled { filled: queue.filled, since_ns: now_ns };
            self.queues.entry(queue.number).or_insert(new);
        }
    }

    fn unready_peers(&self, now_ns: u64, before_ns: u64, waiters: &[Waiter]) -> Vec<Vain> {
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
    fn polls_another(
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
    fn sleeps(
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
    fn unanswered(&self, now_ns: u64, before_ns: u64, waiters: &[Waiter]) -> Vec<Vain> {
        let due = self.asked.iter().filter(|(_, one)| one.since_ns <= before_ns);
        due.map(|(id, one)| Vain {
            about: Awaited::Answer(*id),
            sentence: format!(
                "no answer from {} port {} to a request for a connection, which was sent {} in {}: no \
                 program listens there, or the listener's program has not read its event (CONNECT_REQUEST)",
                one.to,
                one.port,
                times(one.requests),
                seconds(now_ns.saturating_sub(one.since_ns))
            ),
            stack: sleeps_for_connections(waiters),
        })
        .collect()
    }

    fn refused(&mut self, before_ns: u64, waiters: &[Waiter]) -> Option<Vain> {
        let one = self.refused.take_if(|one| one.since_ns <= before_ns)?;
        Some(Vain {
            about: Awaited::Rejected(one.id),
            sentence: format!(
                "the peer rejected the connection ({}), and the program goes on waiting: it has to look for \
                 RDMA_CM_EVENT_REJECTED, and to destroy the identifier or ask again",
                one.reason
            ),
            stack: sleeps_for_connections(waiters),
        })
    }
}

impl Unready {
    fn is_due(&self, now_ns: u64, before_ns: u64) -> bool {
        let is_live = now_ns <= self.last_ns.saturating_add(self.wait_ns).saturating_add(LATE_NS);
        self.is_for_ever && is_live && self.since_ns <= before_ns && self.naks > 1
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
        || objects.qps.iter().any(|qp: &QpView| {
            let receives = qp.recv_cq == Some(number) && qp.receives_posted.is_none_or(|posted| posted > 0);
            receives || (qp.send_cq == Some(number) && qp.posted > qp.ended)
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

#[cfg(test)]
mod tests {
    use pumice_events::inspect::Totals;
    use pumice_transport::host::QpContext;
    use pumice_transport::wire::{Psn, Qpn};

    use super::*;

    const S: u64 = 1_000_000_000;
    const CHANNEL: u64 = 0x1000;

    fn queue(number: u32, channel: u64, filled: usize, armed: ArmedNow) -> QueueNow {
        QueueNow { number, channel, filled, armed }
    }

    fn waiter(doing: Doing) -> Waiter {
        Waiter { doing, stack: vec![7] }
    }

    /// What is said of queues that stay as they are for 3 s, while a thread does this.
    fn said(queues: &[QueueNow], doing: Doing, objects: &Collected) -> Vec<String> {
        let waits = Waits::new(2 * S);
        let looks: Vec<bool> = (0..4).map(|second| waits.look(second * S, queues)).collect();
        let found = waits.judge(3 * S, queues, &[waiter(doing)], objects);
        assert!(found.iter().all(|vain| vain.stack == [7]));
        assert!(found.is_empty() || looks == [false, false, true, true], "{looks:?}");
        assert!(waits.judge(4 * S, queues, &[waiter(doing)], objects).is_empty(), "it is said once");
        found.into_iter().map(|vain| vain.sentence).collect()
    }

    #[test]
    fn a_thread_that_polls_another_queue_is_told_where_the_completion_is() {
        let queues = [queue(1, 0, 1, ArmedNow::No), queue(2, 0, 0, ArmedNow::No)];
        let told = said(&queues, Doing::Polls(2), &Collected::default());
        assert!(told[0].contains("a completion waits in completion queue 1"), "{told:?}");
        assert_eq!(said(&queues, Doing::Polls(1), &Collected::default()), [""; 0]);
        // Objects that are not in the list may complete there.
        let unknown = Totals { qps: 1, ..Totals::default() };
        let objects = Collected { totals: unknown, ..Collected::default() };
        assert_eq!(said(&queues, Doing::Polls(2), &objects), [""; 0]);
    }

    #[test]
    fn a_thread_that_sleeps_is_told_why_nothing_wakes_it() {
        let objects = Collected::default();
        for (armed, why) in [
            (ArmedNow::No, "not armed"),
            (ArmedNow::ForSolicited, "solicited completions only"),
            (ArmedNow::ForAll, "before it was armed"),
        ] {
            let told = said(&[queue(1, CHANNEL, 2, armed)], Doing::SleepsOn(CHANNEL), &objects);
            assert!(told[0].starts_with("2 completions wait") && told[0].contains(why), "{told:?}");
        }
        let queues = [queue(1, CHANNEL, 0, ArmedNow::ForAll), queue(2, 0, 1, ArmedNow::No)];
        let told = said(&queues, Doing::SleepsOn(CHANNEL), &objects);
        assert!(told[0].contains("completion queue 2") && told[0].contains("has no channel"), "{told:?}");
        let queues = [queue(1, CHANNEL, 0, ArmedNow::ForAll)];
        assert_eq!(said(&queues, Doing::SleepsOn(CHANNEL), &objects), [""; 0], "an idle server");
    }

    #[test]
    fn a_queue_that_changes_is_not_waited_for_in_vain() {
        let waits = Waits::new(2 * S);
        for second in 0..20 {
            let filled = 1 + second as usize % 2;
            assert!(!waits.look(second * S, &[queue(1, 0, filled, ArmedNow::No)]));
        }
    }

    #[test]
    fn a_request_that_waits_for_a_receive_for_ever_is_told_while_the_peer_answers() {
        let qp = {
            let qpn = Qpn::new(0x12);
            QpContext { qpn, pd: 0, send_cq: 0, recv_cq: 0, recv_queue: 0, xrcd: 0, ordinal: 0 }
        };
        let hear = |waits: &Waits, at_ns, retries_left| {
            let event = QpEvent::ReceiverNotReady { psn: Psn::new(5), retries_left, wait_ns: S / 10 };
            waits.lock().hear(at_ns, &Event::Qp { qp: &qp, event: &event });
        };
        let waits = Waits::new(2 * S);
        (0..30).for_each(|tenth| hear(&waits, tenth * S / 10, FOR_EVER));
        assert!(waits.look(3 * S, &[]));
        let told = waits.judge(3 * S, &[], &[], &Collected::default());
        assert!(told[0].sentence.contains("30 RNR NAKs in 3.0 s; rnr_retry 7"), "{told:?}");
        for (retries_left, now_ns) in [(6, 3 * S), (FOR_EVER, 9 * S)] {
            let waits = Waits::new(2 * S);
            (0..30).for_each(|tenth| hear(&waits, tenth * S / 10, retries_left));
            assert!(!waits.look(now_ns, &[]), "it has a limit, or has gone on");
        }
    }
}
