//! The trait through which a device asks a fault plan what to do with packets, work requests and itself.

use std::net::IpAddr;
use std::sync::Arc;

use pumice_platform::clock::Clock;
use pumice_transport::event::OutgoingPacket;
use pumice_transport::host::{Ended, QpContext};
use pumice_transport::mad::CmMessage;
use pumice_transport::types::Fate;
use pumice_transport::wire::Qpn;

use super::change::{PlanParts, ProcessProgress};
use super::completion_events::CompletionEventFaults;
use super::completions::CompletionVerdict;
use super::{ActivePlan, Faults};
use pumice_model::fates::fired::{CallFired, CompletionFired, Fired, RejData};
use pumice_model::fates::incident::Incident;
use pumice_model::fates::live::{FaultCommand, FaultReply, RuleChange};
use pumice_model::fates::trigger::Partitions;
use pumice_model::fates::{CallKey, Notes};

/// Decides what happens to packets, messages of connection management, work requests and the device itself. A
/// device without an arbiter has no faults.
///
/// `witness` is called with each rule that applies. Whether the device asks must not depend on who subscribes
/// to its events.
pub trait Arbiter: Send {
    /// Reports whether the device has to ask about packets and messages now.
    fn decides_packets(&self) -> bool;
    /// Decides what happens to a packet of a queue pair that is about to leave.
    fn packet(
        &mut self,
        qp: &QpContext,
        departure: &OutgoingPacket<'_>,
        witness: &mut dyn FnMut(&Fired<'_>),
    ) -> Fate;
    /// Decides what happens to a message of connection management from one address to another; `size` is the
    /// length of its packet and of its payload, in bytes.
    fn message(
        &mut self,
        ends: (IpAddr, IpAddr),
        message: &CmMessage,
        size: (u32, u32),
        witness: &mut dyn FnMut(&Fired<'_>),
    ) -> Fate;
    /// Returns the private data of the rejection that was decided last.
    fn rejection(&self) -> RejData;
    /// Records that a queue pair is halted before a packet until the incident that was decided for it has
    /// happened.
    fn halted(&mut self, qp: &QpContext);
    /// Records that a queue pair was created.
    fn made(&mut self, qp: &QpContext);
    /// Forgets a queue pair that was destroyed.
    fn forget(&mut self, qp: &QpContext);

    /// Reports whether the device has to ask about executed work requests now.
    fn decides_work(&self) -> bool;
    /// Starts asking about work requests, some of which were executed before.
    fn begin_midway(&mut self);
    /// Decides how a work request of the queue pair with this ordinal ends, and when its completion is made.
    fn work(
        &mut self,
        qp: u32,
        ended: &Ended,
        witness: &mut dyn FnMut(&CompletionFired<'_>),
    ) -> CompletionVerdict;
    /// Returns the rules about events of completion channels, if there are any now.
    fn channel_events(&self) -> Option<Arc<CompletionEventFaults>>;

    /// Reports whether an incident is due for the device now.
    fn has_incidents(&self) -> bool;
    /// Takes the incidents that are due for the device now, each with its queue pair.
    fn take_incidents(&mut self) -> Vec<(Qpn, Incident)>;
    /// Records that a call has returned. Returns whether an incident is due for the device.
    fn called(&mut self, key: &CallKey<'_>, witness: &mut dyn FnMut(&CallFired<'_>)) -> bool;
    /// Returns when the next timed incident is due, which needs no packet: ns of the device's clock.
    fn next_timed_ns(&self) -> Option<u64>;
    /// Makes the incidents due whose time has come.
    fn advance_to_time(&mut self, now_ns: u64, witness: &mut dyn FnMut(&CallFired<'_>));
    /// Returns the clock of the arbiter, which is the device's.
    fn clock(&self) -> &Clock;
    /// Cuts off a port with these addresses until `until_ns`: nothing passes it. Without addresses the
    /// device's only port is meant.
    fn cut_off(&self, port_num: u8, own: Vec<IpAddr>, until_ns: u64);
    /// Ends [`Arbiter::cut_off`] of a port.
    fn rejoin(&self, port_num: u8);

    /// Returns the data that a port needs to carry out the decisions.
    fn for_port(&self) -> PortDecisions;
    /// Applies an order of another process of this user to the plan; `witness` is called with each change.
    fn apply_command(
        &mut self,
        order: &FaultCommand,
        progress: ProcessProgress,
        witness: &mut dyn FnMut(&RuleChange<'_>),
    ) -> FaultReply;
}

/// The data that a port needs to carry out the decisions of an [`Arbiter`].
#[derive(Debug, Clone)]
pub struct PortDecisions {
    /// The partitions, which begin and end while the port is used.
    pub partitions: Partitions,
    /// The notes about packets for captures, if there is a capture.
    pub notes: Option<Notes>,
    /// The seed of random draws.
    pub seed: u64,
    /// The tag of the process in fault plans.
    pub tag: String,
    /// The clock by which partitions and other timed changes end.
    pub clock: Clock,
}

impl Arbiter for ActivePlan {
    fn decides_packets(&self) -> bool {
        self.packets.is_active()
    }

    fn packet(
        &mut self,
        qp: &QpContext,
        departure: &OutgoingPacket<'_>,
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

    fn decides_work(&self) -> bool {
        self.completions.is_active()
    }

    fn begin_midway(&mut self) {
        self.completions.begin_midway();
    }

    fn work(
        &mut self,
        qp: u32,
        ended: &Ended,
        witness: &mut dyn FnMut(&CompletionFired<'_>),
    ) -> CompletionVerdict {
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

    fn advance_to_time(&mut self, now_ns: u64, witness: &mut dyn FnMut(&CallFired<'_>)) {
        self.packets.advance_to_time(now_ns, witness);
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

    fn for_port(&self) -> PortDecisions {
        let Faults { seed, tag, .. } = &*self.packets;
        PortDecisions {
            partitions: self.packets.partitions().clone(),
            notes: self.packets.notes().cloned(),
            seed: *seed,
            tag: tag.clone(),
            clock: self.packets.clock().clone(),
        }
    }

    fn apply_command(
        &mut self,
        order: &FaultCommand,
        progress: ProcessProgress,
        witness: &mut dyn FnMut(&RuleChange<'_>),
    ) -> FaultReply {
        let ActivePlan { packets, completions, completion_events, calls } = self;
        let mut parts = PlanParts {
            packets,
            completions: Some(completions),
            completion_events: Some(completion_events),
            calls: calls.as_deref(),
        };
        parts.apply_command(order, progress, witness)
    }
}
