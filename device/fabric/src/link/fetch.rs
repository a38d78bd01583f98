//! A port behind an adapter that reads short messages from memory.

use std::fmt;
use std::sync::Arc;

use pumice_model::counters::Counters;
use pumice_model::network::LinkDirection;
use pumice_model::performance::{CostedPacket, Costs};
use pumice_model::port::batch::{GsoBatch, ReceivedBatch, TransmitError};
use pumice_model::port::{Port, PortLayer};

use super::outbound::EgressQueue;
use super::tally::DropTally;

/// A port around a port that charges what a performance model says of short messages whose requests do not
/// carry them: the adapter reads them from memory before they leave. Long messages are charged where they
/// arrive, because no request carries them. Requests stay in order; responses do not wait for fetches.
pub struct FetchPort<P> {
    inner: P,
    costs: Costs,
    fetching: EgressQueue,
    tally: DropTally,
}

impl<P> fmt::Debug for FetchPort<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchPort").finish_non_exhaustive()
    }
}

impl<P: Port> FetchPort<P> {
    /// Creates a port with the costs of a model.
    pub fn new(inner: P, costs: Costs) -> FetchPort<P> {
        FetchPort { inner, costs, fetching: EgressQueue::default(), tally: DropTally::default() }
    }

    fn send_due(&mut self, now_ns: u64) {
        self.fetching.send_due(now_ns, 0, &mut self.inner, &self.tally);
    }

    /// Returns how long the adapter reads a batch from memory, in ns.
    fn fetch_ns(&self, batch: &GsoBatch<'_>) -> u64 {
        let is_short = |packet| CostedPacket::of(packet).is_some_and(|packet| packet.is_short(&self.costs));
        if batch.is_fetched && batch.segments().any(is_short) { self.costs.fetch_ns() } else { 0 }
    }
}

/// Reports whether one of the packets of a batch is a request.
fn has_requests(batch: &GsoBatch<'_>) -> bool {
    batch.segments().any(|packet| CostedPacket::of(packet).is_none_or(|packet| packet.class.is_request()))
}

impl<P: Port> PortLayer for FetchPort<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.send_due(now_ns);
        let fetch_ns = self.fetch_ns(batch);
        if fetch_ns == 0 && (self.fetching.passes(&LinkDirection::NONE) || !has_requests(batch)) {
            return self.inner.transmit(now_ns, batch);
        }
        self.fetching.accept(&LinkDirection::NONE, now_ns.saturating_add(fetch_ns), batch, &self.tally)
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        self.send_due(now_ns);
        self.inner.receive(now_ns, handler)
    }

    fn held_until_ns(&self) -> Option<u64> {
        self.fetching.next_ns(0)
    }

    fn room_at_ns_through(&self) -> Option<u64> {
        self.fetching.room_at_ns().or_else(|| self.inner.room_at_ns())
    }

    fn release_through(&mut self, now_ns: u64) {
        self.fetching.release(now_ns, &mut self.inner, &self.tally);
        self.inner.release(now_ns);
    }

    fn observe_through(&mut self, counters: &Arc<Counters>) {
        self.tally = DropTally::of(counters);
        self.inner.observe(counters);
    }
}
