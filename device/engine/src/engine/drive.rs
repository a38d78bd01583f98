//! The engine itself: what a thread does with it while it holds the lock.

use std::sync::Arc;

use pumice_events::counters::Counters;
use pumice_events::inspect::TellsWaits;
use pumice_events::recording::Recorder;
use pumice_ground::clock::earliest;
use pumice_ground::order;
use pumice_objects::memory::MappingCheck;
use pumice_ports::gsi::Gsi;
use pumice_ports::{Peer, Port};
use pumice_share::xrc::SharedTargets;
use pumice_transport::host::{Counter, PeerProgress};
use pumice_transport::qp::{Progress, QueuePair, Urgency};
use pumice_transport::types::QpType;
use pumice_transport::wire::Qpn;

use super::arrivals::Arrivals;
use super::batch::{BatchBuilder, Sink};
use super::budget::Budget;
use super::dispatch::Receivers;
use super::entries::Entries;
use super::kept::Kept;
use super::outages::Outages;
use super::queue_pairs::{QpEntry, QueuePairs};
use super::reply::ReplyHabit;
use super::schedule::{Deadlines, Ready};
use crate::resources::{MappingCheckPolicy, Resources};

/// Batches that one receive call takes from the port before requests and responses get a turn.
const RECEIVE_BATCHES: usize = 8;
/// What one queue pair may send before the next gets its turn, in bytes as the peer's budget counts them.
const TURN_BYTES: u64 = 512 * 1024;
/// Batches after which acknowledgements leave although completions keep coming.
const DEFERRED_BATCHES: u32 = 16;
/// What one transmit call sends before other threads get the lock, in bytes as the peer's budget counts
/// them.
const TRANSMIT_BYTES: u64 = 4 * 1024 * 1024;
/// Polls in a row that pass over an engine whose port is quiet. A poll that does not reads the clock, looks
/// at timers and perhaps at the socket, and costs as much as four that do.
const MOST_PASSED_OVER: u32 = 7;
/// How long a queue pair waits before it asks again whether its peer has room.
const HOLD_NS: u64 = 10_000;

/// Everything behind the lock of an HCA.
pub(crate) struct Engine {
    pub(crate) resources: Resources,
    pub(crate) queue_pairs: QueuePairs,
    pub(crate) port: Box<dyn Port>,
    counters: Arc<Counters>,
    builder: BatchBuilder,
    pub(super) budget: Budget,
    senders: Ready,
    responders: Ready,
    pub(super) touched: Ready,
    deadlines: Deadlines,
    /// Senders whose receiver has no room, and when they try again.
    held: Ready,
    /// Responders whose requester has no room.
    held_responders: Ready,
    held_until_ns: Option<u64>,
    pub(crate) gsi: Kept<Gsi>,
    /// Batches since acknowledgements began to wait for the application.
    deferred_batches: u32,
    reply: ReplyHabit,
    /// Polls in a row that did nothing because the port was quiet.
    passed_over: u32,
    /// When the port had nothing more, last.
    drained_ns: u64,
    /// The last look found nothing at all: no packet, no order, no message.
    looked_in_vain: bool,
    pub(super) targets: SharedTargets,
    /// The port does what a fault plan decides.
    pub(super) is_armed: bool,
    /// What it is in because of a fault plan.
    pub(super) outages: Kept<Outages>,
    /// What other processes are told that the device is called.
    pub(super) device_name: String,
    /// Tells other processes what threads wait for.
    pub(super) waits: Option<TellsWaits>,
    /// Record what happens when other processes want it.
    pub(super) recorders: Vec<Box<dyn Recorder>>,
    /// Where the order of requests is noted or imposed.
    arrivals: Option<Box<Arrivals>>,
}

/// When responses may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledge {
    /// Now.
    Now,
    /// Acknowledgements wait: the application is about to see the completions of this batch, and an
    /// ACK sent first would delay it by a system call.
    AfterCompletions,
    /// The same after these, if the application has the habit of answering what arrives.
    WithReply,
}

impl Engine {
    pub(crate) fn new(
        resources: Resources,
        queue_pairs: QueuePairs,
        port: Box<dyn Port>,
        gsi: Gsi,
        device_name: String,
    ) -> Engine {
        let mut engine = Engine {
            counters: Arc::clone(&resources.counters),
            resources,
            queue_pairs,
            port,
            builder: BatchBuilder::new(),
            budget: Budget::default(),
            senders: Ready::default(),
            responders: Ready::default(),
            touched: Ready::default(),
            deadlines: Deadlines::default(),
            held: Ready::default(),
            held_responders: Ready::default(),
            held_until_ns: None,
            gsi: Kept::new(gsi),
            deferred_batches: 0,
            reply: ReplyHabit::default(),
            passed_over: 0,
            drained_ns: 0,
            looked_in_vain: false,
            targets: SharedTargets::default(),
            is_armed: false,
            outages: Kept::new(Outages::default()),
            device_name,
            waits: None,
            recorders: Vec::new(),
            arrivals: order::of_process().map(|order| Box::new(Arrivals::new(order))),
        };
        engine.arm();
        engine
    }

    /// Whether a poll has nothing to do here, as far as that can be seen without the time. Now and then the
    /// answer is no, so that timers come up.
    #[inline]
    pub(crate) fn is_passed_over(&mut self) -> bool {
        let passes = self.passed_over < MOST_PASSED_OVER && self.port.is_quiet() && !self.has_backlog();
        self.passed_over = if passes { self.passed_over + 1 } else { 0 };
        passes
    }

    /// Takes a batch of packets from the port to their queue pairs. True if there were any.
    pub(crate) fn receive(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> bool {
        self.resources.new_completions = false;
        self.looked_in_vain = false;
        if self.outages.is_still() && self.stands_still(now_ns) {
            return false;
        }
        let (mut any, mut came) = (false, false);
        for _ in 0..RECEIVE_BATCHES {
            let Engine { resources, queue_pairs, budget, port, touched, targets, gsi, arrivals, .. } = self;
            let entries = Entries { queue_pairs, budget };
            let mut receivers = Receivers { entries, resources, targets, touched, management: gsi, checks };
            let mut taken = false;
            let more = port.receive(now_ns, &mut |received| {
                taken = true;
                match arrivals {
                    None => receivers.receive(now_ns, received),
                    Some(arrivals) => arrivals.take(received),
                }
            });
            if let Some(arrivals) = arrivals {
                any |= arrivals.release(now_ns, &mut receivers);
            }
            targets.flush(&mut **port);
            any |= taken;
            came |= more;
            if !more {
                if self.gsi.has_request_come() && self.gsi.takes_request_that_came() {
                    self.woken();
                    continue;
                }
                self.drained_ns = now_ns;
                break;
            }
            if !taken {
                self.obey();
            }
            // Completions are waiting: let the application have them before more is taken.
            if self.resources.new_completions {
                break;
            }
        }
        if self.resources.ethernet.is_some() {
            any |= self.receive_frames(checks);
        }
        if self.gsi.has_mads() {
            came = true;
            self.resources.release_before_messages();
            let Engine { gsi, port, .. } = self;
            gsi.read_mads(now_ns, &mut **port);
            self.send_mads(now_ns);
        }
        self.resources.time_stores(now_ns);
        if any {
            self.settle();
            if !self.responders.is_empty() {
                self.reply.arrived(now_ns);
            }
        }
        // Stores that a shuffled schedule keeps back have been given their times.
        self.looked_in_vain = !any && !came && !self.resources.is_shuffled();
        any
    }

    /// Whether the last [`receive`](Engine::receive) found nothing, so that nothing is due by it.
    #[inline]
    pub(crate) fn has_looked_in_vain(&self) -> bool {
        self.looked_in_vain
    }

    /// Sends what queue pair 1 has to say. False: the port has no more room.
    #[inline]
    pub(super) fn send_mads(&mut self, now_ns: u64) -> bool {
        !self.gsi.wants_to_send() || self.send_waiting_mads(now_ns)
    }

    fn send_waiting_mads(&mut self, now_ns: u64) -> bool {
        let Engine { resources, port, counters, builder, gsi, .. } = self;
        gsi.forward_detained(now_ns, &mut **port);
        let mut sink = Sink::new(builder, &mut **port, counters, now_ns);
        sink.turn(u64::MAX, false);
        let Resources { ports, decisions, .. } = resources;
        let sent = gsi.send_mads(ports, decisions.of_messages(), &mut sink);
        sent && (sink.sealed_packets == 0 || sink.flush())
    }

    /// Batches received so far.
    pub(crate) fn received_batches(&self) -> u64 {
        self.counters.value(Counter::RxBatches)
    }

    /// Looks at every queue pair that something happened to: what it wants to do next.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.is_settled() {
            self.settle_all();
        }
    }

    /// Whether nothing has happened that would have to be looked at: the usual answer, since a call asks
    /// several times.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.touched.is_empty()
            && self.resources.qp_failures.is_empty()
            && !self.budget.has_released()
            && !self.targets.has_gone()
            && !self.resources.decisions.has_incidents()
    }

    fn settle_all(&mut self) {
        if self.resources.decisions.has_incidents() {
            self.happen();
        }
        while !self.resources.qp_failures.is_empty() {
            self.apply_failures();
        }
        let Engine { queue_pairs, budget, resources, targets, .. } = self;
        if targets.has_gone() {
            targets.reap(&mut Entries { queue_pairs, budget }, &mut resources.host(MappingCheck::Assumed));
        }
        while let Some(index) = self.touched.pop() {
            self.note(index);
        }
        while let Some(index) = self.budget.pop_released() {
            self.senders.push(index);
        }
    }

    fn note(&mut self, index: u32) {
        let Some(entry) = self.queue_pairs.at_mut(index) else { return };
        self.targets.publish_failure(
            &mut entry.qp,
            &mut entry.sharing,
            &mut self.resources.host(MappingCheck::Assumed),
        );
        if entry.qp.wants_to_send() {
            self.senders.push(index);
        }
        if entry.qp.response_urgency() > Urgency::None {
            self.responders.push(index);
        }
        self.deadlines.register(index, entry.qp.deadline_ns());
        entry.account(&mut self.budget);
        if entry.qp.take_moved() {
            let peer = entry.qp.peer();
            let peer = peer.map(|(address, number)| Peer { address, process: number.process() });
            self.set_peer(index, peer, false);
        }
    }

    /// Queue pairs whose completion queue overran go to ERR.
    fn apply_failures(&mut self) {
        for failure in std::mem::take(&mut self.resources.qp_failures) {
            if let Some((index, entry)) = self.queue_pairs.by_number(failure.qpn) {
                // If the record of a shared target cannot be locked, the target is gone, or the process that
                // has the lock finds the same failure.
                let _ = entry.with(&mut self.resources.host(MappingCheck::Assumed), |qp, host| {
                    qp.enter_error(Some(failure.cause), host);
                });
                self.touched.push(index);
            }
        }
    }

    /// The application did something with a queue pair: it may want to send now.
    pub(crate) fn touch(&mut self, index: u32) {
        self.touched.push(index);
    }

    /// The application posted send requests to a queue pair.
    #[inline]
    pub(crate) fn posted(&mut self, index: u32, now_ns: u64) {
        match self.departure_delay_ns(index) {
            // The usual way: nothing else about the queue pair has changed.
            None if self.queue_pairs.at_mut(index).is_some_and(|entry| entry.qp.wants_to_send()) => {
                self.senders.push(index);
            }
            None => self.touch(index),
            Some(delay_ns) => {
                self.held.push(index);
                self.held_until_ns.get_or_insert(now_ns.saturating_add(delay_ns));
            }
        }
        self.reply.posted(now_ns);
    }

    /// The application posted the beginning of a list: it leaves with the rest, or when another thread
    /// drives. False: it has to leave by itself.
    #[inline]
    pub(crate) fn keeps_beginning(&mut self, index: u32) -> bool {
        if self.resources.is_shuffled() {
            return false;
        }
        if self.queue_pairs.at_mut(index).is_some_and(|entry| entry.qp.wants_to_send()) {
            self.senders.push(index);
        }
        true
    }

    /// What a shuffled schedule keeps back leaves with the next turn.
    pub(crate) fn end_holding(&mut self) {
        if self.resources.is_shuffled() && self.held_until_ns.is_some() {
            self.held_until_ns = Some(0);
        }
    }

    /// How long a shuffled schedule keeps back what was just posted to a queue pair.
    #[inline]
    fn departure_delay_ns(&mut self, index: u32) -> Option<u64> {
        if !self.resources.is_shuffled() {
            return None;
        }
        let ordinal = self.queue_pairs.at_mut(index)?.qp.context().ordinal;
        self.resources.departure_delay_ns(ordinal)
    }

    /// Sends requests, then responses. True if anything is left that only more turns can send.
    pub(crate) fn transmit(
        &mut self,
        now_ns: u64,
        acknowledge: Acknowledge,
        checks: MappingCheckPolicy,
    ) -> bool {
        if self.outages.is_still() && self.stands_still(now_ns) {
            return false;
        }
        self.settle();
        self.send_mads(now_ns);
        let requests_left = self.transmit_requests(now_ns, checks);
        let responses_left = self.transmit_responses(now_ns, acknowledge, checks);
        self.settle();
        (requests_left || responses_left) && !self.waits_for_port()
    }

    /// Whether what is to be sent waits for the port, which has told when it has room again.
    fn waits_for_port(&self) -> bool {
        self.builder.is_stalled() && self.port.room_at_ns().is_some()
    }

    /// Sends responses before anything else: the peer waits for them, and no thread of this process does.
    pub(crate) fn transmit_waiting_responses(&mut self, now_ns: u64, checks: MappingCheckPolicy) {
        if !self.responders.is_empty() && !self.outages.is_still() {
            self.transmit_responses(now_ns, Acknowledge::Now, checks);
            self.settle();
        }
    }

    fn transmit_requests(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> bool {
        let Engine {
            resources,
            queue_pairs,
            port,
            counters,
            builder,
            budget,
            senders,
            deadlines,
            responders,
            held,
            held_until_ns,
            ..
        } = self;
        if senders.is_empty() && !builder.is_stalled() {
            return false;
        }
        let mut sink = Sink::new(builder, &mut **port, counters, now_ns);
        let mut host = resources.host(checks.of_connections());
        let mut left_bytes = TRANSMIT_BYTES;
        let mut unfinished = false;
        // Each queue pair gets a turn; those that could go on come again behind the others.
        let mut turns = senders.len();
        while turns > 0 && left_bytes > 0 {
            let Some(index) = senders.pop() else { break };
            turns -= 1;
            let Some(entry) = queue_pairs.at_mut(index) else { continue };
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
            host.moment.goes_on(now_ns);
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
        // They would promise what a shuffled schedule has not done yet.
        if self.responders.is_empty() || self.resources.has_buffered() {
            return false;
        }
        let after_completions =
            acknowledge == Acknowledge::AfterCompletions && self.deferred_batches < DEFERRED_BATCHES;
        self.deferred_batches = if after_completions { self.deferred_batches + 1 } else { 0 };
        let wait = after_completions || (acknowledge == Acknowledge::WithReply && self.reply.holds(now_ns));
        if !wait {
            self.reply.released();
        }
        if wait && is_only_acknowledgement(&self.responders, &mut self.queue_pairs) {
            if self.builder.is_open() {
                Sink::new(&mut self.builder, &mut *self.port, &self.counters, now_ns).flush();
            }
            return false;
        }
        self.transmit_answers(now_ns, wait, checks)
    }

    /// Sends responses; with `wait` none that are only acknowledgements.
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
        let mut sink = Sink::new(builder, &mut **port, counters, now_ns);
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
            host.moment.goes_on(now_ns);
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

    /// Runs timers that are due.
    pub(crate) fn expire(&mut self, now_ns: u64, checks: MappingCheckPolicy) {
        if self.outages.is_still() && self.stands_still(now_ns) {
            return;
        }
        self.expire_outages(now_ns);
        self.resources.expire_waits(now_ns);
        let mut any = self.look_deadline_ns().is_some_and(|at_ns| at_ns <= now_ns);
        if any {
            let Engine { queue_pairs, budget, resources, port, targets, touched, .. } = self;
            let entries = &mut Entries { queue_pairs, budget };
            let host = &mut resources.host(MappingCheck::Assumed);
            targets.look_around(now_ns, entries, host, &mut **port, |index| touched.push(index));
        }
        if self.held_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.held_until_ns = None;
            while let Some(index) = self.held.pop() {
                self.senders.push(index);
            }
            while let Some(index) = self.held_responders.pop() {
                self.responders.push(index);
            }
        }
        while let Some(index) = self.deadlines.pop_due(now_ns) {
            let Some(entry) = self.queue_pairs.at_mut(index) else { continue };
            if entry.qp.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                let peer = peer_progress(&entry.qp, now_ns, self.drained_ns, &mut *self.port);
                let mut host = self.resources.host(checks.of_connections());
                entry.qp.handle_timeout(now_ns, peer, &mut host);
                self.touched.push(index);
            } else {
                let deadline_ns = entry.qp.deadline_ns();
                self.deadlines.register(index, deadline_ns);
            }
            any = true;
        }
        if any {
            self.settle();
        }
        self.reply.expire(now_ns);
        let Engine { gsi, port, .. } = self;
        gsi.expire(now_ns, &mut **port);
        self.send_mads(now_ns);
    }

    /// Whether the engine wants to be driven now though nothing arrives.
    #[inline]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// When the engine wants to be driven though nothing arrives, in ns.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let port_ns = if self.outages.is_still() { None } else { self.port.next_event_ns() };
        earliest([self.own_deadline_ns(), port_ns])
    }

    /// As [`deadline_ns`](Engine::deadline_ns), without the port: when [`expire`](Engine::expire) has
    /// something to do.
    #[inline]
    pub(crate) fn own_deadline_ns(&self) -> Option<u64> {
        if self.outages.is_still() {
            return self.outages.due_ns().filter(|at_ns| *at_ns != u64::MAX);
        }
        earliest([
            self.outages.due_ns(),
            self.deadlines.next_ns(),
            self.held_until_ns,
            self.resources.waits_due_ns(),
            self.gsi.due_ns(),
            self.look_deadline_ns(),
            self.reply.deadline_ns(),
            self.arrivals.as_ref().and_then(|arrivals| arrivals.deadline_ns()),
        ])
    }

    /// When what other processes did to shared domains is looked at.
    fn look_deadline_ns(&self) -> Option<u64> {
        self.targets.look_deadline_ns(self.resources.xrc.shares())
    }

    /// Whether something waits to be sent and perhaps can be sent now.
    pub(crate) fn has_backlog(&self) -> bool {
        if self.outages.is_still() || self.waits_for_port() {
            return false;
        }
        let responds = !self.responders.is_empty()
            && self.reply.deadline_ns().is_none()
            && !self.resources.has_buffered();
        let waits = !self.senders.is_empty() || self.builder.is_stalled() || self.gsi.has_backlog();
        responds || waits || self.has_frames()
    }

    /// Gives back the share that a destroyed queue pair had of its peer's budget.
    pub(crate) fn release_budget(&mut self, entry: &mut QpEntry) {
        entry.release(&mut self.budget);
    }

    /// A queue pair was connected to a peer, or was reset.
    pub(crate) fn set_peer(&mut self, index: u32, peer: Option<Peer>, reset: bool) {
        let Engine { queue_pairs, budget, port, .. } = self;
        let Some(entry) = queue_pairs.at_mut(index) else { return };
        if reset || peer.is_some() {
            entry.release(budget);
        }
        if let Some(peer) = peer {
            entry.peer = Some(budget.join(peer, &port.limits(peer)));
        }
    }

    /// A thread waited for the port's descriptors, and one of them is readable.
    pub(crate) fn woken(&mut self) {
        if let Some(group) = self.port.group() {
            group.woken();
        }
    }

    /// Transport service of a queue pair.
    pub(crate) fn queue_pair_type(&mut self, qpn: Qpn) -> Option<QpType> {
        self.queue_pairs.by_number(qpn).map(|(_, entry)| entry.qp.qp_type())
    }
}

/// Whether one acknowledgement is all that is to be answered: the usual thing after a message that completed
/// something.
#[inline]
fn is_only_acknowledgement(responders: &Ready, queue_pairs: &mut QueuePairs) -> bool {
    let entry = responders.only().and_then(|index| queue_pairs.at_mut(index));
    entry.is_some_and(|entry| entry.qp.response_urgency() == Urgency::Acknowledgement)
}

/// What is known about a peer that a queue pair is about to give up: whether its answer may still lie here,
/// as far as all was taken by `drained_ns`; else what the group knows about its process.
fn peer_progress(qp: &QueuePair, now_ns: u64, drained_ns: u64, port: &mut dyn Port) -> PeerProgress {
    let doubts = qp.doubts_peer_since_ns(now_ns);
    if doubts.is_some() && qp.timer_due_ns().is_some_and(|due_ns| drained_ns < due_ns) {
        return PeerProgress::Unread;
    }
    match (doubts, qp.peer(), port.group()) {
        (Some(since_ns), Some((address, qpn)), Some(group)) => {
            group.peer_progress(now_ns, Peer { address, process: qpn.process() }, since_ns)
        }
        _ => PeerProgress::Unknown,
    }
}
