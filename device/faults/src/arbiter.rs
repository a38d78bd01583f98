//! The one trait by which a device asks what becomes of what it is about to do.

use std::net::IpAddr;
use std::sync::Arc;

use pumice_ground::clock::Clock;
use pumice_transport::event::Departure;
use pumice_transport::host::{Ended, QpContext};
use pumice_transport::mad::CmMessage;
use pumice_transport::types::Fate;
use pumice_transport::wire::Qpn;

use super::calls::{CallFired, CallKey};
use super::change::{Moment, Parts};
use super::completion_events::CompletionEventFaults;
use super::completions::{CompletionFired, Verdict};
use super::decide::Fired;
use super::incident::Incident;
use super::live::{LiveAnswer, LiveChange, LiveOrder};
use super::notes::Notes;
use super::partition::Partitions;
use super::rejection::RejData;
use super::{Faults, PlanAtWork};

/// Decides what becomes of packets, messages of connection management and work requests, and what befalls the
/// device. A device that has none asks nothing.
///
/// `witness` is told of each rule that applies. Whether the device asks must not depend on who listens to
/// its events.
pub trait Arbiter: Send {
    /// Whether packets and messages have to be asked about now.
    fn asks_about_packets(&self) -> bool;
    /// What becomes of a packet of a queue pair that is about to leave.
    fn packet(
        &mut self,
        qp: &QpContext,
        departure: &Departure<'_>,
        witness: &mut dyn FnMut(&Fired<'_>),
    ) -> Fate;
    /// What becomes of a message of connection management from one address to another; `size`: the length of
    /// its packet and of its payload, in bytes.
    fn message(
        &mut self,
        ends: (IpAddr, IpAddr),
        message: &CmMessage,
        size: (u32, u32),
        witness: &mut dyn FnMut(&Fired<'_>),
    ) -> Fate;
    /// What the peer says with the rejection that was decided last.
    fn rejection(&self) -> RejData;
    /// A queue pair stands still before a packet, until what is decided for it has happened.
    fn halted(&mut self, qp: &QpContext);
    /// A queue pair was made.
    fn made(&mut self, qp: &QpContext);
    /// A queue pair was destroyed.
    fn forget(&mut self, qp: &QpContext);

    /// Whether work requests that were carried out have to be asked about now.
    fn asks_about_work(&self) -> bool;
    /// From now on work requests are asked about; some were carried out before.
    fn begin_late(&mut self);
    /// How a work request of the queue pair with this ordinal ends, and when its completion is made.
    fn work(&mut self, qp: u32, ended: &Ended, witness: &mut dyn FnMut(&CompletionFired<'_>)) -> Verdict;
    /// What events of completion channels are asked about, if they are now.
    fn channel_events(&self) -> Option<Arc<CompletionEventFaults>>;

    /// Whether something is to befall the device now.
    fn has_incidents(&self) -> bool;
    /// What is to befall the device now, and at which queue pair.
    fn take_incidents(&mut self) -> Vec<(Qpn, Incident)>;
    /// A call has returned. Whether something is to befall the device.
    fn called(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> bool;
    /// When something is to befall the device, also if it sends nothing: ns of its clock.
    fn next_timed_ns(&self) -> Option<u64>;
    /// That time has come.
    fn time_came(&mut self, now_ns: u64, witness: &mut dyn FnMut(&CallFired<'_>));
    /// The clock that it goes by, which is the device's.
    fn clock(&self) -> &Clock;
    /// Nothing passes a port with these addresses until then; without any: the only port.
    fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64);
    /// Something passes the port again.
    fn rejoin(&self, port_num: u8);

    /// What a port has to know to carry out what is decided.
    fn for_port(&self) -> ForPort;
    /// Another process of this user wants it to decide otherwise; `witness` is told of each change.
    fn obey(
        &mut self,
        order: &LiveOrder,
        moment: Moment,
        witness: &mut dyn FnMut(&LiveChange<'_>),
    ) -> LiveAnswer;
}

/// What a port has to know to carry out what is decided.
#[derive(Debug, Clone)]
pub struct ForPort {
    /// The partitions, which begin and end while the port is used.
    pub partitions: Partitions,
    /// What captures say about packets, if there is a capture.
    pub notes: Option<Notes>,
    /// The seed of draws.
    pub seed: u64,
    /// What the plan calls the process.
    pub tag: String,
    /// The clock of what ends by itself.
    pub clock: Clock,
}

impl Arbiter for PlanAtWork {
    fn asks_about_packets(&self) -> bool {
        self.packets.is_active()
    }

    fn packet(
        &mut self,
        qp: &QpContext,
        departure: &Departure<'_>,
        witness: &mut dyn FnMut(&Fired<'_>),
    ) -> Fate {
        self.packets.decide(qp, departure, witness)
    }

    fn message(
        &mut self,
        ends: (IpAddr, IpAddr),
        message: &CmMessage,
        size: (u32, u32),
        witness: &mut dyn FnMut(&Fired<'_>),
    ) -> Fate {
        self.packets.decide_message(ends, message, size, witness)
    }

    fn rejection(&self) -> RejData {
        self.packets.rejection()
    }

    fn halted(&mut self, qp: &QpContext) {
        self.packets.halted(qp);
    }

    fn made(&mut self, qp: &QpContext) {
        self.packets.made(qp);
    }

    fn forget(&mut self, qp: &QpContext) {
        self.packets.forget(qp);
        self.completions.forget(qp.ordinal);
    }

    fn asks_about_work(&self) -> bool {
        self.completions.is_active()
    }

    fn begin_late(&mut self) {
        self.completions.begin_late();
    }

    fn work(&mut self, qp: u32, ended: &Ended, witness: &mut dyn FnMut(&CompletionFired<'_>)) -> Verdict {
        self.completions.decide(qp, ended, witness)
    }

    fn channel_events(&self) -> Option<Arc<CompletionEventFaults>> {
        let events = &self.completion_events;
        events.is_active().then(|| Arc::clone(events))
    }

    fn has_incidents(&self) -> bool {
        self.packets.has_incidents()
    }

    fn take_incidents(&mut self) -> Vec<(Qpn, Incident)> {
        self.packets.take_incidents()
    }

    fn called(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> bool {
        self.packets.called(key, witness)
    }

    fn next_timed_ns(&self) -> Option<u64> {
        self.packets.next_timed_ns()
    }

    fn time_came(&mut self, now_ns: u64, witness: &mut dyn FnMut(&CallFired<'_>)) {
        self.packets.time_came(now_ns, witness);
    }

    fn clock(&self) -> &Clock {
        self.packets.clock()
    }

    fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64) {
        self.packets.cut_off(port_num, own, until_ns);
    }

    fn rejoin(&self, port_num: u8) {
        self.packets.rejoin(port_num);
    }

    fn for_port(&self) -> ForPort {
        let Faults { seed, tag, .. } = &*self.packets;
        ForPort {
            partitions: self.packets.partitions().clone(),
            notes: self.packets.notes().cloned(),
            seed: *seed,
            tag: tag.clone(),
            clock: self.packets.clock().clone(),
        }
    }

    fn obey(
        &mut self,
        order: &LiveOrder,
        moment: Moment,
        witness: &mut dyn FnMut(&LiveChange<'_>),
    ) -> LiveAnswer {
        let PlanAtWork { packets, completions, completion_events, calls } = self;
        let mut parts = Parts {
            packets,
            completions: Some(completions),
            completion_events: Some(completion_events),
            calls: calls.as_deref(),
        };
        parts.obey(order, moment, witness)
    }
}
