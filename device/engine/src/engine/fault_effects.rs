//! What a fault plan has done to the engine and to its port.

use pumice_fabric::LinkPort;
use pumice_faults::port::FaultPort;
use pumice_faults::{PortDecisions, ProcessProgress};
use pumice_model::fates::live::{FaultCommand, FaultReply};
use pumice_model::network::Link;
use pumice_model::port::{NullPort, Port};
use pumice_transport::host::Counter;

use super::cached_deadline::CachedDeadline;
use super::outages::Outages;
use crate::resources::Resources;

/// The outages that a fault plan has caused, and whether the port applies its decisions.
pub(super) struct FaultEffects {
    /// True if the port applies the decisions of a fault plan.
    is_armed: bool,
    /// The outages of the device that a fault plan caused.
    pub(super) outages: CachedDeadline<Outages>,
}

impl FaultEffects {
    /// Returns a device without outages whose port applies no decisions.
    pub(super) fn new() -> FaultEffects {
        FaultEffects { is_armed: false, outages: CachedDeadline::new(Outages::default()) }
    }

    /// Changes the fault plan of a device as another process orders.
    pub(super) fn change_plan(
        &mut self,
        order: &FaultCommand,
        resources: &mut Resources,
        port: &mut Box<dyn Port>,
    ) -> FaultReply {
        let packets = resources.port.counters.value(Counter::TxPackets);
        let progress = ProcessProgress { packets, queue_pairs: resources.queue_pairs_made() };
        let answer = resources.change_plan(order, progress);
        self.arm(resources, port);
        answer
    }

    /// Prepares the device for its first queue pair of datagrams: a seed may let them overtake each other.
    pub(super) fn prepare_datagrams(&mut self, resources: &mut Resources, port: &mut Box<dyn Port>) {
        if resources.decisions.reorder_datagrams() {
            resources.follow_subscribers();
            self.arm(resources, port);
        }
    }

    /// Wraps the port in one that applies fault decisions, if there are any and the port is not wrapped
    /// yet.
    pub(super) fn arm(&mut self, resources: &Resources, port: &mut Box<dyn Port>) {
        self.update_timed_deadline(resources);
        if self.is_armed {
            return;
        }
        let Some(PortDecisions { partitions, notes, seed, tag, clock }) = resources.decisions.for_port()
        else {
            return;
        };
        let witness = notes.map(|notes| (notes, resources.subscribers()));
        let mut bare = std::mem::replace(port, Box::new(NullPort));
        if !bare.has_link() {
            // The plan may change the link settings.
            let link = Link::default().seeded(seed, &tag);
            bare = Box::new(LinkPort::new(bare, link, &clock));
            bare.observe(&resources.port.counters);
        }
        *port = Box::new(FaultPort::of_plan(bare, partitions, witness));
        self.is_armed = true;
    }

    /// Updates when the next timed incident is due.
    pub(super) fn update_timed_deadline(&mut self, resources: &Resources) {
        self.outages.timed_ns = resources.decisions.next_timed_ns();
    }

    /// Reports whether the device is stopped. What arrives meanwhile is lost.
    #[cold]
    pub(super) fn is_stopped_at(&mut self, now_ns: u64, port: &mut dyn Port) -> bool {
        if self.outages.stopped_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.outages.stopped_until_ns = None;
            return false;
        }
        while port.receive(now_ns, &mut |_| {}) {}
        true
    }
}
