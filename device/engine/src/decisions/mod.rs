//! Who decides about what the device is about to do, and what waits because of that.
//!
//! The rooms above ask here for what becomes of packets, work requests and stores. They know neither plans
//! nor seeds; here is no object of verbs and no queue pair.

mod delayed;
mod made;
mod store_buffer;

use std::net::IpAddr;
use std::sync::Arc;

use pumice_events::{Event, Subscribers};
use pumice_faults::calls::CallKey;
use pumice_faults::live::{LiveAnswer, LiveOrder};
use pumice_faults::shuffle::Shuffle;
use pumice_faults::{Arbiter, ForPort, Incident, Moment};
use pumice_objects::paced_events::EventPacer;
use pumice_transport::event::Departure;
use pumice_transport::host::{Ended, QpContext};
use pumice_transport::types::{Fate, WcStatus};
use pumice_transport::wire::Qpn;

pub(crate) use delayed::{Delayed, DelayedCompletion};
pub(crate) use made::Made;
pub(crate) use store_buffer::{Cut, Item, StoreBuffer, Target, local_ranges};

/// What decides in one device. By default nothing does.
#[derive(Default)]
pub struct Decisions {
    arbiter: Option<Box<dyn Arbiter>>,
    shuffle: Option<Arc<Shuffle>>,
    /// The arbiter wants to be asked about packets.
    asks_about_packets: bool,
    /// It did at some time: something may still be to happen.
    may_befall: bool,
    /// What was decided about completions and events that wait.
    pub(crate) delayed: Box<Delayed>,
    /// The arbiter wants to be asked about work, or something waits.
    delays: bool,
    /// Payload that a shuffled schedule keeps back.
    pub(crate) stores: Option<Box<StoreBuffer>>,
}

impl Decisions {
    /// An arbiter decides, and a seed about what the specification leaves open; each, if there is one.
    pub fn new(arbiter: Option<Box<dyn Arbiter>>, shuffle: Option<Arc<Shuffle>>) -> Decisions {
        let stores = shuffle.clone().map(|shuffle| Box::new(StoreBuffer::new(shuffle)));
        let mut decisions = Decisions { arbiter, shuffle, stores, ..Decisions::default() };
        decisions.look_at_packets();
        decisions.delays = decisions.needs_delays();
        decisions
    }

    /// The arbiter's wishes may have changed.
    fn look_at_packets(&mut self) {
        self.asks_about_packets = self.arbiter.as_deref().is_some_and(Arbiter::asks_about_packets);
        self.may_befall |= self.asks_about_packets;
    }

    fn needs_delays(&self) -> bool {
        let asks = |arbiter: &dyn Arbiter| arbiter.asks_about_work() || arbiter.channel_events().is_some();
        self.delayed.any() || self.arbiter.as_deref().is_some_and(asks)
    }

    /// What decides the order of events of completion queues, if a seed does.
    pub(crate) fn shuffle(&self) -> Option<Arc<Shuffle>> {
        self.shuffle.clone()
    }

    /// Whether packets are asked about.
    pub(crate) const fn asks_about_packets(&self) -> bool {
        self.asks_about_packets
    }

    /// Whether work that was carried out is asked about, or completions wait.
    #[inline]
    pub(crate) const fn delays(&self) -> bool {
        self.delays
    }

    /// What becomes of a packet of a queue pair that is about to leave.
    pub(crate) fn packet(&mut self, qp: &QpContext, departure: &Departure<'_>, events: &Subscribers) -> Fate {
        let Some(arbiter) = self.arbiter.as_deref_mut().filter(|_| self.asks_about_packets) else {
            return Fate::default();
        };
        let qpn = Some(qp.qpn);
        arbiter.packet(qp, departure, &mut |fault| events.emit(&Event::FaultApplied { fault, qpn }))
    }

    /// Whom to ask about messages of connection management, if they are asked about.
    pub(crate) fn of_messages(&mut self) -> Option<&mut dyn Arbiter> {
        let asks = self.asks_about_packets;
        self.arbiter.as_deref_mut().filter(|_| asks).map(|arbiter| arbiter as &mut dyn Arbiter)
    }

    /// How a work request ends that has been carried out; `None`: with success.
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

    /// Puts a completion off, if that was decided or one before it waits; else gives it back, with what was
    /// decided.
    pub(crate) fn delay(&mut self, qp: &QpContext, mut made: Made) -> Option<Made> {
        let Some(arbiter) = &self.arbiter else { return Some(made) };
        let key = (qp.ordinal, made.completion.opcode.is_recv());
        let verdict = self.delayed.verdict_of(key);
        if verdict.status.is_some() {
            made.completion.vendor_err = verdict.vendor_err;
        }
        if !self.delayed.has_to_wait(key, verdict.delay_ns, &verdict.until) {
            return Some(made);
        }
        let now_ns = arbiter.clock().now_ns();
        let due_ns = now_ns.saturating_add(verdict.delay_ns);
        self.delayed.push(key, DelayedCompletion { qp: *qp, made, due_ns, until: verdict.until }, now_ns);
        None
    }

    /// When something that waits is due, in ns.
    #[inline]
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let delayed_ns = self.delayed.due_ns().filter(|_| self.delays);
        match (self.stores.as_ref().and_then(|stores| stores.due_ns), delayed_ns) {
            (Some(stores_ns), Some(delayed_ns)) => Some(stores_ns.min(delayed_ns)),
            (stores_ns, delayed_ns) => stores_ns.or(delayed_ns),
        }
    }

    /// Whether stores wait.
    #[inline]
    pub(crate) fn has_stores(&self) -> bool {
        self.stores.as_ref().is_some_and(|stores| !stores.items.is_empty())
    }

    /// Whether a seed decides what the specification leaves open.
    #[inline]
    pub(crate) const fn is_shuffled(&self) -> bool {
        self.stores.is_some()
    }

    /// A queue pair stands still before a packet.
    pub(crate) fn halted(&mut self, qp: &QpContext) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.halted(qp);
        }
    }

    /// A queue pair was made.
    pub(crate) fn made(&mut self, qp: &QpContext) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.made(qp);
        }
    }

    /// A queue pair was destroyed.
    pub(crate) fn forget(&mut self, qp: &QpContext) {
        if let Some(stores) = &mut self.stores {
            stores.forget(qp.ordinal);
        }
        self.drop_delayed(qp.ordinal);
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.forget(qp);
        }
    }

    /// A queue pair is reset: what waits of it is dropped.
    pub(crate) fn drop_delayed(&mut self, ordinal: u32) {
        for key in [(ordinal, false), (ordinal, true)] {
            while self.delayed.pop(key).is_some() {}
        }
        self.delayed.next = None;
    }

    /// Whether something is to befall the device now.
    #[inline]
    pub(crate) fn has_incidents(&self) -> bool {
        self.may_befall && self.arbiter.as_deref().is_some_and(Arbiter::has_incidents)
    }

    /// What is to befall the device now, and at which queue pair.
    pub(crate) fn take_incidents(&mut self) -> Vec<(Qpn, Incident)> {
        self.arbiter.as_deref_mut().map(Arbiter::take_incidents).unwrap_or_default()
    }

    /// A call has returned: whether something is to befall the device.
    pub(crate) fn called(&mut self, key: &CallKey<'_>, events: &Subscribers) -> bool {
        let Some(arbiter) = &mut self.arbiter else { return false };
        arbiter.called(key, &mut |fault| events.emit(&Event::CallFaultApplied { fault }))
    }

    /// When something is to befall the device, also if it sends nothing.
    pub(crate) fn next_timed_ns(&self) -> Option<u64> {
        self.arbiter.as_deref().and_then(Arbiter::next_timed_ns)
    }

    /// That time has come.
    #[cold]
    pub(crate) fn time_came(&mut self, now_ns: u64, events: &Subscribers) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.time_came(now_ns, &mut |fault| events.emit(&Event::CallFaultApplied { fault }));
        }
    }

    /// The time of the clock that decisions go by; 0 if nothing decides.
    pub(crate) fn now_ns(&self) -> u64 {
        self.arbiter.as_deref().map_or(0, |arbiter| arbiter.clock().now_ns())
    }

    /// Nothing passes a port with these addresses until then; without any: the only port.
    pub(crate) fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        if let Some(arbiter) = &self.arbiter {
            arbiter.cut_off(port_num, own, until_ns);
        }
    }

    /// Something passes a port again.
    pub(crate) fn rejoin(&self, port_num: u8) {
        if let Some(arbiter) = &self.arbiter {
            arbiter.rejoin(port_num);
        }
    }

    /// What a port has to know to carry out what is decided, if packets are asked about.
    pub(crate) fn for_port(&self) -> Option<ForPort> {
        self.arbiter.as_deref().filter(|_| self.asks_about_packets).map(Arbiter::for_port)
    }

    /// What completion queues ask about their events, if they ask.
    pub(crate) fn pacer(&self) -> Option<EventPacer> {
        let arbiter = self.arbiter.as_deref()?;
        Some(EventPacer { faults: arbiter.channel_events()?, clock: arbiter.clock().clone() })
    }

    /// Another process of this user wants that something else is decided.
    pub(crate) fn obey(&mut self, order: &LiveOrder, moment: Moment, events: &Subscribers) -> LiveAnswer {
        let Some(arbiter) = &mut self.arbiter else {
            return LiveAnswer::refusing("its device takes no fault plans: open it with an Opening");
        };
        let answer = arbiter.obey(order, moment, &mut |change| {
            events.emit(&Event::FaultPlanChanged { change });
        });
        self.look_at_packets();
        let needs_delays = self.needs_delays();
        let had_delays = std::mem::replace(&mut self.delays, needs_delays);
        let begins = needs_delays && !had_delays;
        if let Some(arbiter) = self.arbiter.as_deref_mut().filter(|_| begins) {
            arbiter.begin_late();
        }
        answer
    }
}
