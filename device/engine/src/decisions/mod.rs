//! The decisions about what the device is about to do, and what is delayed because of them.
//!
//! The upper modules ask here what to do with packets, work requests and stores. They know neither fault
//! plans nor seeds; this module in turn knows no object of verbs and no queue pair.

mod deferred_stores;
mod delayed;
mod made;
mod store_buffer;
mod stored;

use std::net::IpAddr;
use std::sync::Arc;

use crate::objects::paced_events::EventPacer;
use pumice_faults::{Arbiter, PortDecisions, ProcessProgress};
use pumice_model::event::{Event, Subscribers};
use pumice_model::fates::CallKey;
use pumice_model::fates::incident::Incident;
use pumice_model::fates::live::{FaultCommand, FaultReply};
use pumice_model::shuffle::{Choice, Shuffle};
use pumice_transport::event::OutgoingPacket;
use pumice_transport::host::{Ended, QpContext};
use pumice_transport::types::{Fate, QpType, WcStatus};
use pumice_transport::wire::Qpn;

pub(crate) use deferred_stores::DeferredStore;
pub(crate) use delayed::{DelayQueue, DelayedCompletion};
pub(crate) use made::PendingCompletion;
pub(crate) use store_buffer::{BufferedPart, Item, StoreBuffer, StoreSource};
pub(crate) use stored::{MemoryRange, Target, local_ranges};

/// Largest number of packets that overtake a datagram.
const MAX_OVERTAKING: u64 = 3;
/// Longest time that a datagram waits for those, in ns.
const OVERTAKING_NS: u64 = 640_000;

/// The parts that decide in one device. By default there are none.
#[derive(Default)]
pub struct Decisions {
    arbiter: Option<Box<dyn Arbiter>>,
    shuffle: Option<Arc<Shuffle>>,
    /// True if the arbiter has to be asked about packets.
    asks_arbiter: bool,
    /// True if a seed decides which datagrams are overtaken.
    reorders_datagrams: bool,
    /// True if the arbiter ever had to be asked about packets: incidents may still be due.
    may_apply_incidents: bool,
    /// The decisions about delayed completions and events.
    pub(crate) delayed: Box<DelayQueue>,
    /// True if the arbiter has to be asked about work requests, or something is delayed.
    delays: bool,
    /// The payload that a shuffled schedule defers.
    pub(crate) stores: Option<Box<StoreBuffer>>,
}

impl Decisions {
    /// Returns the decisions of an arbiter, and of a seed for what the specification leaves open; each is
    /// optional.
    pub fn new(arbiter: Option<Box<dyn Arbiter>>, shuffle: Option<Arc<Shuffle>>) -> Decisions {
        let stores = shuffle.clone().map(|shuffle| Box::new(StoreBuffer::new(shuffle)));
        let mut decisions = Decisions { arbiter, shuffle, stores, ..Decisions::default() };
        decisions.update_packet_flag();
        decisions.delays = decisions.needs_delays();
        decisions
    }

    /// Updates what the arbiter has to be asked about.
    fn update_packet_flag(&mut self) {
        self.asks_arbiter = self.arbiter.as_deref().is_some_and(Arbiter::decides_packets);
        self.may_apply_incidents |= self.asks_arbiter;
    }

    fn needs_delays(&self) -> bool {
        let asks = |arbiter: &dyn Arbiter| arbiter.decides_work() || arbiter.channel_events().is_some();
        self.delayed.any() || self.arbiter.as_deref().is_some_and(asks)
    }

    /// Returns the schedule that decides the order of completion queue events, if there is a seed.
    pub(crate) fn shuffle(&self) -> Option<Arc<Shuffle>> {
        self.shuffle.clone()
    }

    /// Reports whether packets have to be asked about.
    pub(crate) const fn decides_packets(&self) -> bool {
        self.asks_arbiter || self.reorders_datagrams
    }

    /// Lets datagrams overtake each other from now on, if there is a seed. Returns whether that is new: the
    /// port has to carry it out then.
    pub(crate) fn reorder_datagrams(&mut self) -> bool {
        let is_new = self.shuffle.is_some() && !self.reorders_datagrams;
        self.reorders_datagrams |= is_new;
        is_new
    }

    /// Reports whether executed work requests have to be asked about, or completions are delayed.
    #[inline]
    pub(crate) const fn delays(&self) -> bool {
        self.delays || self.reorders_datagrams
    }

    /// Decides what happens to a packet of a queue pair that is about to leave.
    pub(crate) fn packet(
        &mut self,
        qp: &QpContext,
        departure: &OutgoingPacket<'_>,
        events: &Subscribers,
    ) -> Fate {
        let overtaken = self.overtaken(qp, departure);
        let Some(arbiter) = self.arbiter.as_deref_mut().filter(|_| self.asks_arbiter) else {
            return overtaken;
        };
        let qpn = Some(qp.qpn);
        let decided =
            arbiter.packet(qp, departure, &mut |fault| events.emit(&Event::FaultApplied { fault, qpn }));
        overtaken.and(decided)
    }

    /// Decides whether later packets overtake a datagram. Its request completes when it has left, because a
    /// process may end as soon as all its requests have completed.
    fn overtaken(&mut self, qp: &QpContext, departure: &OutgoingPacket<'_>) -> Fate {
        let shuffle = self.shuffle.as_deref().filter(|_| self.reorders_datagrams);
        let Some(shuffle) = shuffle.filter(|_| departure.qp_type == QpType::Ud) else {
            return Fate::default();
        };
        let identity = [qp.ordinal.into(), departure.connection.into(), departure.identity.message];
        let mut random = shuffle.draw(Choice::Overtaking, &identity);
        if !random.chance(shuffle.share_ppm(Choice::Overtaking)) {
            return Fate::default();
        }
        self.delayed.hold_sends(qp.ordinal, self.now_ns().saturating_add(OVERTAKING_NS));
        // At least one.
        let behind_packets = 1 + random.below(MAX_OVERTAKING) as u16;
        Fate { behind_packets, behind_ns: OVERTAKING_NS, ..Fate::default() }
    }

    /// Returns the arbiter if it has to be asked about messages of connection management.
    pub(crate) fn of_messages(&mut self) -> Option<&mut dyn Arbiter> {
        let asks = self.asks_arbiter;
        self.arbiter.as_deref_mut().filter(|_| asks).map(|arbiter| arbiter as &mut dyn Arbiter)
    }

    /// Decides how an executed work request ends; `None`: with success.
    pub(crate) fn work(&mut self, qp: &QpContext, ended: &Ended, events: &Subscribers) -> Option<WcStatus> {
        let qpn = qp.qpn;
        let verdict = self.arbiter.as_deref_mut()?.work(qp.ordinal, ended, &mut |fault| {
            events.emit(&Event::CompletionFaultApplied { fault, qpn });
        });
        let status = verdict.status;
        let is_ordinary = status.is_none() && verdict.delay_ns == 0 && verdict.until.is_empty();
        self.delayed.next = (!is_ordinary).then_some(((qp.ordinal, ended.opcode.is_recv()), verdict));
        status
    }

    /// Delays a completion, if that was decided or an earlier one is delayed; else returns it with the
    /// decision applied.
    pub(crate) fn delay(&mut self, qp: &QpContext, mut made: PendingCompletion) -> Option<PendingCompletion> {
        let Some(arbiter) = &self.arbiter else { return Some(made) };
        let key = (qp.ordinal, made.completion.opcode.is_recv());
        let verdict = self.delayed.verdict_of(key);
        if verdict.status.is_some() && verdict.vendor_err != 0 {
            made.completion.vendor_err = verdict.vendor_err;
        }
        let now_ns = arbiter.clock().now_ns();
        let delay_ns = verdict.delay_ns.max(self.delayed.held_ns(key, now_ns));
        if !self.delayed.has_to_wait(key, delay_ns, &verdict.until) {
            return Some(made);
        }
        let due_ns = now_ns.saturating_add(delay_ns);
        self.delayed.push(key, DelayedCompletion { qp: *qp, made, due_ns, until: verdict.until }, now_ns);
        None
    }

    /// Returns when the next delayed completion, event or store is due, in ns.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let delayed_ns = self.delayed.due_ns().filter(|_| self.delays());
        let Some(stores) = &self.stores else { return delayed_ns };
        [stores.due_ns, stores.deferred.due_ns(), delayed_ns].into_iter().flatten().min()
    }

    /// Reports whether stores are deferred, with completions and responses behind them.
    #[inline]
    pub(crate) fn has_stores(&self) -> bool {
        self.stores.as_ref().is_some_and(|stores| !stores.items.is_empty())
    }

    /// Reports whether stores are deferred that completions and responses overtake.
    #[inline]
    pub(crate) fn has_deferred_stores(&self) -> bool {
        self.stores.as_ref().is_some_and(|stores| !stores.deferred.is_empty())
    }

    /// Reports whether stores are deferred that later accesses may overtake.
    #[inline]
    pub(crate) fn has_any_stores(&self) -> bool {
        let any = |stores: &StoreBuffer| !stores.items.is_empty() || !stores.deferred.is_empty();
        self.stores.as_deref().is_some_and(any)
    }

    /// Reports whether a seed decides what the specification leaves open.
    #[inline]
    pub(crate) const fn is_shuffled(&self) -> bool {
        self.stores.is_some()
    }

    /// Records that a queue pair is halted before a packet.
    pub(crate) fn halted(&mut self, qp: &QpContext) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.halted(qp);
        }
    }

    /// Records that a queue pair was created.
    pub(crate) fn made(&mut self, qp: &QpContext) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.made(qp);
        }
    }

    /// Forgets a queue pair that was destroyed.
    pub(crate) fn forget(&mut self, qp: &QpContext) {
        if let Some(stores) = &mut self.stores {
            stores.forget(qp.ordinal);
        }
        self.drop_delayed(qp.ordinal);
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.forget(qp);
        }
    }

    /// Drops the delayed completions of a queue pair that is reset.
    pub(crate) fn drop_delayed(&mut self, ordinal: u32) {
        for key in [(ordinal, false), (ordinal, true)] {
            while self.delayed.pop(key).is_some() {}
        }
        self.delayed.forget_sends(ordinal);
        self.delayed.next = None;
    }

    /// Reports whether an incident is due for the device now.
    #[inline]
    pub(crate) fn has_incidents(&self) -> bool {
        self.may_apply_incidents && self.arbiter.as_deref().is_some_and(Arbiter::has_incidents)
    }

    /// Takes the incidents that are due for the device now, each with its queue pair.
    pub(crate) fn take_incidents(&mut self) -> Vec<(Qpn, Incident)> {
        self.arbiter.as_deref_mut().map(Arbiter::take_incidents).unwrap_or_default()
    }

    /// Records that a call has returned. Returns whether an incident is due for the device.
    pub(crate) fn called(&mut self, key: &CallKey<'_>, events: &Subscribers) -> bool {
        let Some(arbiter) = &mut self.arbiter else { return false };
        arbiter.called(key, &mut |fault| events.emit(&Event::CallFaultApplied { fault }))
    }

    /// Returns when the next timed incident is due, which needs no packet, in ns.
    pub(crate) fn next_timed_ns(&self) -> Option<u64> {
        self.arbiter.as_deref().and_then(Arbiter::next_timed_ns)
    }

    /// Makes the incidents due whose time has come.
    #[cold]
    pub(crate) fn advance_to_time(&mut self, now_ns: u64, events: &Subscribers) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.advance_to_time(now_ns, &mut |fault| events.emit(&Event::CallFaultApplied { fault }));
        }
    }

    /// Returns the time of the arbiter's clock, in ns; 0 without an arbiter.
    pub(crate) fn now_ns(&self) -> u64 {
        self.arbiter.as_deref().map_or(0, |arbiter| arbiter.clock().now_ns())
    }

    /// Cuts off a port with these addresses until `until_ns`: nothing passes it. Without addresses the
    /// device's only port is meant.
    pub(crate) fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        if let Some(arbiter) = &self.arbiter {
            arbiter.cut_off(port_num, own, until_ns);
        }
    }

    /// Ends [`Decisions::cut_off`] of a port.
    pub(crate) fn rejoin(&self, port_num: u8) {
        if let Some(arbiter) = &self.arbiter {
            arbiter.rejoin(port_num);
        }
    }

    /// Returns what a port has to know to carry out the decisions, if packets have to be asked about.
    pub(crate) fn for_port(&self) -> Option<PortDecisions> {
        self.arbiter.as_deref().filter(|_| self.decides_packets()).map(Arbiter::for_port)
    }

    /// Returns what completion queues ask about their events, if they have to ask.
    pub(crate) fn pacer(&self) -> Option<EventPacer> {
        let arbiter = self.arbiter.as_deref()?;
        Some(EventPacer { faults: arbiter.channel_events()?, clock: arbiter.clock().clone() })
    }

    /// Applies an order of another process of this user to the fault plan.
    pub(crate) fn apply_command(
        &mut self,
        order: &FaultCommand,
        progress: ProcessProgress,
        events: &Subscribers,
    ) -> FaultReply {
        let Some(arbiter) = &mut self.arbiter else {
            return FaultReply::refusing("its device takes no fault plans: open it with an Opening");
        };
        let answer = arbiter.apply_command(order, progress, &mut |change| {
            events.emit(&Event::FaultPlanChanged { change });
        });
        self.update_packet_flag();
        let needs_delays = self.needs_delays();
        let had_delays = std::mem::replace(&mut self.delays, needs_delays);
        let begins = needs_delays && !had_delays;
        if let Some(arbiter) = self.arbiter.as_deref_mut().filter(|_| begins) {
            arbiter.begin_midway();
        }
        answer
    }
}
