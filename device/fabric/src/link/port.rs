//! A port behind a link.

use std::fmt;
use std::sync::Arc;

use pumice_model::counters::Counters;
use pumice_platform::clock::Clock;

use super::inbound::IngressQueue;
use super::outbound::EgressQueue;
use super::tally::DropTally;
use pumice_model::network::Link;
use pumice_model::performance::{ArrivalTimes, Costs};
use pumice_model::port::batch::{GsoBatch, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::{LinkChange, Port, PortLayer};

/// Largest delay, in nanoseconds of real time, with which packets may go on together with those behind them:
/// a call for each packet would be too slow.
pub(crate) const GRAIN_NS: u64 = 10_000;
/// Number of batches that one receive takes from the port below.
const TAKEN_BATCHES: usize = 64;

/// A port around a port that holds packets until they have passed a link, in both directions.
pub struct LinkPort<P> {
    inner: P,
    link: Link,
    /// Link that applies again when a temporary change is over.
    lasting: Link,
    /// Link that the device was opened with.
    first: Link,
    grain_ns: u64,
    /// Clock in real time: packets come later than the time that the caller has read before it polled.
    clock: Option<Clock>,
    outbound: EgressQueue,
    inbound: IngressQueue,
    /// The last receive may have left something in the port below.
    leaves_some: bool,
    tally: DropTally,
}

impl<P> fmt::Debug for LinkPort<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkPort").field("link", &self.link).finish_non_exhaustive()
    }
}

impl<P: Port> LinkPort<P> {
    /// Creates a port behind `link`. In virtual time each packet goes on at its time; otherwise packets that
    /// are due one soon after the other go on together.
    pub fn new(inner: P, link: Link, clock: &Clock) -> LinkPort<P> {
        let clock = (!clock.is_virtual()).then(|| clock.clone());
        LinkPort {
            inner,
            link,
            lasting: link,
            first: link,
            grain_ns: if clock.is_some() { GRAIN_NS } else { 0 },
            clock,
            outbound: EgressQueue::default(),
            inbound: IngressQueue::default(),
            leaves_some: false,
            tally: DropTally::default(),
        }
    }

    /// Charges what packets to this device cost by a performance model. Each one then goes on at its time.
    #[must_use]
    pub fn with_costs(mut self, costs: Option<Costs>) -> LinkPort<P> {
        if let Some(costs) = costs {
            self.grain_ns = 0;
            self.inbound.costs = Some(Box::new(ArrivalTimes::new(costs)));
        }
        self
    }

    /// Takes packets that have come to the port below. Returns true if there was something else than packets.
    fn take(&mut self, now_ns: u64) -> bool {
        let LinkPort { inner, link: Link { ingress, .. }, inbound, tally, leaves_some, clock, .. } = self;
        *leaves_some = false;
        for _ in 0..TAKEN_BATCHES {
            let mut has_arrived = false;
            let was_received = inner.receive(now_ns, &mut |received| {
                has_arrived = true;
                let came_ns = clock.as_ref().map_or(now_ns, Clock::now_ns);
                inbound.accept(ingress, came_ns, received, tally);
            });
            if !was_received || !has_arrived {
                return was_received;
            }
        }
        *leaves_some = true;
        false
    }
}

impl<P: Port> PortLayer for LinkPort<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Returns the limits of the port below. Packets that wait in the link need no ICRC: they get it, if they
    /// need one, when they leave, because their indices in a batch change.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        let limits = self.inner.limits(peer);
        PortLimits { needs_icrc: limits.needs_icrc && self.outbound.passes(&self.link.egress), ..limits }
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        let LinkPort { inner, link: Link { egress, .. }, outbound, tally, grain_ns, .. } = self;
        outbound.send_due(now_ns, *grain_ns, inner, tally);
        if outbound.passes(egress) && (batch.has_icrc || !inner.limits(batch.peer()).needs_icrc) {
            return inner.transmit(now_ns, batch);
        }
        outbound.accept(egress, now_ns, batch, tally)
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        self.outbound.send_due(now_ns, self.grain_ns, &mut self.inner, &self.tally);
        if self.inbound.passes(&self.link.ingress) {
            return self.inner.receive(now_ns, handler);
        }
        self.take(now_ns) || self.inbound.deliver(now_ns, self.grain_ns, handler)
    }

    fn held_until_ns(&self) -> Option<u64> {
        let left_ns = self.leaves_some.then_some(0);
        [self.outbound.next_ns(self.grain_ns), self.inbound.next_ns(self.grain_ns), left_ns]
            .into_iter()
            .flatten()
            .min()
    }

    fn room_at_ns_through(&self) -> Option<u64> {
        self.outbound.room_at_ns().or_else(|| self.inner.room_at_ns())
    }

    fn has_link_through(&self) -> bool {
        true
    }

    /// Changes the link. Packets that were taken keep their times, and no packet overtakes them.
    fn change_link_through(&mut self, change: &LinkChange) {
        match change {
            LinkChange::Permanent(words) => {
                self.link = self.link.with(words);
                self.lasting = self.lasting.with(words);
            }
            LinkChange::Temporary(words) => self.link = self.lasting.with(words),
            LinkChange::TemporaryEnded => self.link = self.lasting,
            LinkChange::Restored => (self.link, self.lasting) = (self.first, self.first),
        }
    }

    fn release_through(&mut self, now_ns: u64) {
        self.outbound.release(now_ns, &mut self.inner, &self.tally);
        self.inner.release(now_ns);
    }

    fn observe_through(&mut self, counters: &Arc<Counters>) {
        self.tally = DropTally::of(counters);
        self.inner.observe(counters);
    }
}
