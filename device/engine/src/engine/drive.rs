//! The engine itself, and what the thread that holds its lock does with it.

use std::os::fd::RawFd;
use std::sync::Arc;

use pumice_fabric::gsi::Gsi;
use pumice_fabric::xrc::SharedTargets;
use pumice_memory::MappingCheck;
use pumice_model::fates::CallKey;
use pumice_model::inspect::{InspectCursor, InspectPage};
use pumice_model::port::Port;
use pumice_model::port::batch::Peer;
use pumice_platform::error::ResourceError;
use pumice_transport::host::Counter;
use pumice_transport::mrc::constants::DEFAULT_DSCPS;
use pumice_transport::qp::Urgency;
use pumice_transport::types::QpType;
use pumice_transport::wire::Qpn;

use super::acknowledgements::Acknowledgements;
use super::batch::Transmission;
use super::cached_deadline::CachedDeadline;
use super::dispatch::PacketReceivers;
use super::fault_effects::FaultEffects;
use super::mrc::MrcTable;
use super::orders::{Observers, OrderedDevice};
use super::port_conditions::PortConditions;
use super::queue_pairs::{Entries, QpEntry, QueuePairs};
use super::reception::Reception;
use super::targets::TargetOperations;
use super::turns::Turns;
use crate::resources::{MappingCheckPolicy, Resources};

/// Number of batches that one receive call takes from the port before requests and responses get a turn.
const RECEIVE_BATCHES: usize = 8;
/// Number of batches that are taken from the port at most before a message of connection management is
/// handled that has come.
const BATCHES_BEFORE_MESSAGE: usize = 64;

/// Everything behind the lock of an HCA.
pub(crate) struct Engine {
    /// The objects that queue pairs use.
    pub(crate) resources: Resources,
    /// The queue pairs of the protocol's own services.
    pub(crate) queue_pairs: QueuePairs,
    /// The MRC queue pairs, whose indices are reserved in `queue_pairs`.
    pub(crate) mrc: MrcTable,
    /// The port that packets come from and leave by.
    pub(crate) port: Box<dyn Port>,
    /// The connection manager behind queue pair 1.
    pub(crate) gsi: CachedDeadline<Gsi>,
    /// The XRC targets that other processes may share.
    pub(super) targets: SharedTargets,
    /// The queue pairs that wait for a turn or for a time.
    pub(crate) turns: Turns,
    /// The batch that is being built, the budgets of peers, and the counters.
    pub(super) transmission: Transmission,
    /// The acknowledgements that wait for the application.
    pub(super) acknowledgements: Acknowledgements,
    /// The state of receive calls and polls.
    pub(super) reception: Reception,
    /// What a fault plan has caused.
    pub(super) plan_effects: FaultEffects,
    /// What other processes can ask for and start.
    pub(crate) observers: Observers,
}

impl Engine {
    /// # Errors
    /// Fails with `NoMemory` if the memory cannot be allocated.
    pub(crate) fn new(
        resources: Resources,
        queue_pairs: QueuePairs,
        port: Box<dyn Port>,
        gsi: Gsi,
        device_name: String,
    ) -> Result<Engine, ResourceError> {
        let mut engine = Engine {
            transmission: Transmission::new(Arc::clone(&resources.port.counters)),
            resources,
            queue_pairs,
            mrc: MrcTable::new(1, DEFAULT_DSCPS),
            port,
            gsi: CachedDeadline::new(gsi),
            targets: SharedTargets::default(),
            turns: Turns::new()?,
            acknowledgements: Acknowledgements::new(),
            reception: Reception::new(),
            plan_effects: FaultEffects::new(),
            observers: Observers::new(device_name),
        };
        engine.plan_effects.arm(&engine.resources, &mut engine.port);
        Ok(engine)
    }

    /// Reports whether a poll has nothing to do here, as far as that can be seen without the time. Now and
    /// then the answer is no, so that timers are run.
    #[inline]
    pub(crate) fn is_passed_over(&mut self) -> bool {
        let passes = self.reception.may_pass_over() && self.port.is_quiet() && !self.has_backlog();
        self.reception.polled(passes);
        passes
    }

    /// Passes a batch of packets from the port to their queue pairs. Returns whether there were any.
    pub(crate) fn receive(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> bool {
        self.resources.completions.new_completions = false;
        self.reception.was_empty = false;
        if self.plan_effects.outages.is_stopped() && self.plan_effects.is_stopped_at(now_ns, &mut *self.port)
        {
            return false;
        }
        let (mut any, mut came) = self.take_batches(now_ns, checks);
        if self.resources.ethernet.is_some() {
            any |= self.receivers(checks).receive_frames();
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
            if self.resources.rendezvous.is_due {
                self.queue_pairs.post_device_requests(&mut self.resources, &mut self.turns.touched);
            }
            self.settle();
            if !self.turns.responders.is_empty() {
                self.acknowledgements.reply.arrived(now_ns);
            }
        }
        // Stores that a shuffled schedule defers have been given their times.
        self.reception.was_empty = !any && !came && !self.resources.is_shuffled();
        any
    }

    /// Takes batches from the port, until it has none or completions wait. Returns whether there were
    /// packets, and whether there was anything.
    #[inline(always)]
    fn take_batches(&mut self, now_ns: u64, checks: MappingCheckPolicy) -> (bool, bool) {
        let (mut any, mut came) = (false, false);
        let (mut left, mut precedes_message) = (RECEIVE_BATCHES, false);
        while left > 0 {
            left -= 1;
            let Engine { resources, queue_pairs, mrc, port, targets, gsi: management, .. } = self;
            let Engine { transmission: Transmission { budget, .. }, turns: Turns { touched, .. }, .. } = self;
            let arrivals = &mut self.reception.arrivals;
            let entries = Entries { queue_pairs, budget };
            let mut receivers =
                PacketReceivers { entries, mrc, resources, targets, touched, management, checks };
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
                if self.gsi.has_new_request() && self.gsi.take_new_request() {
                    self.woken();
                    continue;
                }
                self.reception.drained_ns = now_ns;
                break;
            }
            if !taken {
                self.apply_command();
            }
            if self.gsi.has_mads() {
                // A message comes by the socket. What its sender sent before may be in a ring: an
                // acknowledgement counts although the connection ends behind it.
                if !std::mem::replace(&mut precedes_message, true) {
                    left = BATCHES_BEFORE_MESSAGE;
                }
            } else if self.resources.completions.new_completions {
                // Completions are waiting: the application gets them before more packets are taken.
                break;
            }
        }
        (any, came)
    }

    /// Returns the receivers of packets and frames, with the policy of their copies.
    #[cold]
    fn receivers(&mut self, checks: MappingCheckPolicy) -> PacketReceivers<'_> {
        let Engine { resources, queue_pairs, mrc, transmission, turns, targets, gsi: management, .. } = self;
        let entries = Entries { queue_pairs, budget: &mut transmission.budget };
        PacketReceivers { entries, mrc, resources, targets, touched: &mut turns.touched, management, checks }
    }

    /// Reports whether the last [`receive`](Engine::receive) found nothing, so that it made nothing due.
    #[inline]
    pub(crate) fn was_last_receive_empty(&self) -> bool {
        self.reception.was_empty
    }

    /// Sends the packets of queue pair 1. Returns false if the port has no more room.
    #[inline]
    pub(super) fn send_mads(&mut self, now_ns: u64) -> bool {
        !self.gsi.wants_to_send() || self.send_waiting_mads(now_ns)
    }

    fn send_waiting_mads(&mut self, now_ns: u64) -> bool {
        let Engine { resources, port, transmission, gsi, .. } = self;
        gsi.forward_detained(now_ns, &mut **port);
        let mut sink = transmission.sink(&mut **port, now_ns);
        sink.turn(u64::MAX, false);
        let Resources { port, decisions, .. } = resources;
        let sent = gsi.send_mads(&port.ports, decisions.of_messages(), &mut sink);
        sent && (sink.sealed_packets == 0 || sink.flush())
    }

    /// Returns the number of batches received so far.
    pub(crate) fn received_batches(&self) -> u64 {
        self.transmission.counters.value(Counter::RxBatches)
    }

    /// Determines for every queue pair that something happened to what it has to do next.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if !self.is_settled() {
            self.settle_all();
        }
    }

    /// Reports whether nothing has happened that [`settle`](Engine::settle) would have to handle: the usual
    /// answer, since a call asks several times.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.turns.touched.is_empty()
            && self.resources.completions.qp_failures.is_empty()
            && !self.transmission.budget.has_released()
            && !self.targets.has_ended()
            && !self.resources.decisions.has_incidents()
    }

    fn settle_all(&mut self) {
        if self.resources.decisions.has_incidents() {
            self.apply_incidents();
        }
        while !self.resources.completions.qp_failures.is_empty() {
            self.apply_failures();
        }
        let Engine { queue_pairs, transmission, resources, targets, .. } = self;
        if targets.has_ended() {
            let entries = &mut Entries { queue_pairs, budget: &mut transmission.budget };
            targets.reap(entries, &mut resources.host(MappingCheck::Assumed));
        }
        while let Some(index) = self.turns.touched.pop() {
            self.note(index);
        }
        while let Some(index) = self.transmission.budget.pop_released() {
            self.turns.senders.push(index);
        }
    }

    fn note(&mut self, index: u32) {
        let Some(entry) = self.queue_pairs.at_mut(index) else {
            let Engine { mrc, queue_pairs, resources, turns, .. } = self;
            return mrc.note(index, queue_pairs, resources, turns);
        };
        self.targets.publish_failure(
            &mut entry.qp,
            &mut entry.sharing,
            &mut self.resources.host(MappingCheck::Assumed),
        );
        if entry.qp.wants_to_send() {
            self.turns.senders.push(index);
        }
        if entry.qp.response_urgency() > Urgency::None {
            self.turns.responders.push(index);
        }
        self.turns.deadlines.register(index, entry.qp.deadline_ns());
        entry.account(&mut self.transmission.budget);
        if entry.qp.take_moved() {
            let peer = entry.qp.peer();
            let peer = peer.map(|(address, number)| Peer { address, process: number.process() });
            self.set_peer(index, peer, false);
        }
    }

    /// Moves queue pairs to ERR whose completion queue overran.
    fn apply_failures(&mut self) {
        for failure in std::mem::take(&mut self.resources.completions.qp_failures) {
            if let Some((index, entry)) = self.queue_pairs.by_number(failure.qpn) {
                // If the record of a shared target cannot be locked, the target is gone, or the process that
                // has the lock finds the same failure.
                let _ = entry.with(&mut self.resources.host(MappingCheck::Assumed), |qp, host| {
                    qp.enter_error(Some(failure.cause), host);
                });
                self.turns.touched.push(index);
            } else if let Some((index, entry)) = self.mrc.by_number(failure.qpn) {
                entry.enter_error(Some(failure.cause), &mut self.resources.host(MappingCheck::Assumed));
                self.turns.touched.push(index);
            }
        }
    }

    /// Applies the incidents that are due. Then the queue pairs continue that were halted for them.
    #[cold]
    fn apply_incidents(&mut self) {
        let due = self.resources.decisions.take_incidents();
        let now_ns = self.resources.decisions.now_ns();
        for (qpn, one) in &due {
            one.apply(self, *qpn, now_ns);
        }
        for (qpn, _) in due {
            if let Some((index, entry)) = self.queue_pairs.by_number(qpn) {
                entry.qp.go_on();
                self.touch(index);
            }
        }
    }

    /// Applies the incidents that waited for the return of this call.
    pub(crate) fn called(&mut self, key: &CallKey<'_>) {
        if self.resources.called(key) {
            self.settle();
        }
    }

    /// Notes that the application did something with a queue pair, which may want to send now.
    pub(crate) fn touch(&mut self, index: u32) {
        self.turns.touched.push(index);
    }

    /// Notes that the application posted send requests to a queue pair.
    #[inline]
    pub(crate) fn posted(&mut self, index: u32, now_ns: u64) {
        match self.departure_delay_ns(index) {
            // In the usual case nothing else about the queue pair has changed.
            None if self.queue_pairs.at_mut(index).is_some_and(|entry| entry.qp.wants_to_send()) => {
                self.turns.senders.push(index);
            }
            None => self.touch(index),
            Some(delay_ns) => {
                self.turns.held.push(index);
                self.turns.hold_until(now_ns.saturating_add(delay_ns));
            }
        }
        self.acknowledgements.reply.posted(now_ns);
    }

    /// Keeps the posted beginning of a list: it leaves with the rest, or when another thread drives. Returns
    /// false if it has to leave by itself.
    #[inline]
    pub(crate) fn holds_beginning(&mut self, index: u32) -> bool {
        if self.resources.is_shuffled() {
            return false;
        }
        if self.queue_pairs.at_mut(index).is_some_and(|entry| entry.qp.wants_to_send()) {
            self.turns.senders.push(index);
        }
        true
    }

    /// Lets the requests leave with the next turn that a shuffled schedule delays.
    pub(crate) fn end_holding(&mut self) {
        if self.resources.is_shuffled() {
            self.turns.end_holding();
        }
    }

    /// Returns how long a shuffled schedule delays what was just posted to a queue pair, in ns.
    #[inline]
    fn departure_delay_ns(&mut self, index: u32) -> Option<u64> {
        if !self.resources.is_shuffled() {
            return None;
        }
        let ordinal = self.queue_pairs.at_mut(index)?.qp.context().ordinal;
        self.resources.departure_delay_ns(ordinal)
    }

    /// Reports whether packets wait for the port, which has said when it has room again.
    pub(super) fn waits_for_port(&self) -> bool {
        self.transmission.waits_for(&*self.port)
    }

    /// Reports whether something waits to be sent and perhaps can be sent now.
    pub(crate) fn has_backlog(&self) -> bool {
        if self.plan_effects.outages.is_stopped() || self.waits_for_port() {
            return false;
        }
        let responds = !self.turns.responders.is_empty()
            && self.acknowledgements.reply.deadline_ns().is_none()
            && !self.resources.has_buffered();
        let waits = !self.turns.senders.is_empty()
            || self.transmission.builder.is_stalled()
            || self.gsi.has_backlog();
        responds || waits || self.resources.ethernet.as_ref().is_some_and(|ethernet| ethernet.has_looped())
    }

    /// Gives back the share that a destroyed queue pair had of its peer's budget.
    pub(crate) fn release_budget(&mut self, entry: &mut QpEntry) {
        entry.release(&mut self.transmission.budget);
    }

    /// Updates the budget for a queue pair that was connected to a peer, or was reset.
    pub(crate) fn set_peer(&mut self, index: u32, peer: Option<Peer>, reset: bool) {
        let Engine { queue_pairs, transmission: Transmission { budget, .. }, port, .. } = self;
        let Some(entry) = queue_pairs.at_mut(index) else { return };
        if reset || peer.is_some() {
            entry.release(budget);
        }
        if let Some(peer) = peer {
            entry.peer = Some(budget.join(peer, &port.limits(peer)));
        }
    }

    /// Tells the port that a thread waited for its descriptors, and one of them is readable.
    pub(crate) fn woken(&mut self) {
        if let Some(group) = self.port.group() {
            group.woken();
        }
    }

    /// Returns the transport service of a queue pair.
    pub(crate) fn queue_pair_type(&mut self, qpn: Qpn) -> Option<QpType> {
        self.queue_pairs.by_number(qpn).map(|(_, entry)| entry.qp.qp_type())
    }

    /// Returns the number of queue pairs, MRC's included.
    pub(crate) fn queue_pair_count(&self) -> u32 {
        self.queue_pairs.count() + self.mrc.count()
    }

    /// Returns the descriptors to poll(2) for readability. They change when multicast groups are joined and
    /// left, and when raw packet queue pairs are created and destroyed.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.port.descriptors();
        all.extend(self.resources.ethernet.iter().flat_map(|ethernet| ethernet.descriptors()));
        all
    }

    /// Returns the application's operations on XRC domains and targets.
    pub(crate) fn target_operations(&mut self) -> TargetOperations<'_> {
        let Engine { queue_pairs, transmission, resources, port, targets, .. } = self;
        let entries = Entries { queue_pairs, budget: &mut transmission.budget };
        TargetOperations { entries, resources, port: &mut **port, targets }
    }

    /// Returns the conditions of the ports.
    pub(crate) fn port_conditions(&mut self) -> PortConditions<'_> {
        PortConditions { resources: &mut self.resources, port: &mut *self.port }
    }

    /// Receives packets of MRC from the other UDP port as well, from now on.
    #[cold]
    pub(crate) fn listen_for_mrc(&mut self) {
        self.mrc.listen(&mut *self.port);
    }

    /// Prepares the device for its first queue pair of datagrams: a seed may let them overtake each other.
    pub(crate) fn prepare_datagrams(&mut self) {
        self.plan_effects.prepare_datagrams(&mut self.resources, &mut self.port);
    }

    /// Returns a page of the objects, beginning at `cursor`. `looks`: whether to determine what threads wait
    /// for.
    #[cold]
    pub(crate) fn inspect(&mut self, cursor: InspectCursor, looks: bool) -> InspectPage {
        let (observers, mut device) = self.ordered();
        observers.inspect(&mut device, cursor, looks)
    }

    /// Carries out the orders that have come.
    #[cold]
    fn apply_command(&mut self) {
        let (observers, mut device) = self.ordered();
        observers.apply_command(&mut device);
    }

    /// Returns the observers, and what their orders read and change.
    fn ordered(&mut self) -> (&mut Observers, OrderedDevice<'_>) {
        let Engine { observers, resources, queue_pairs, mrc, gsi, port, plan_effects, .. } = self;
        (observers, OrderedDevice { resources, queue_pairs, mrc, gsi, port, plan_effects })
    }
}
