//! What packets need on their way to the port.

use std::sync::Arc;

use pumice_model::counters::Counters;
use pumice_model::port::Port;

use super::batch::{BatchBuilder, BatchSink};
use super::budget::Budget;

/// The batch that is being built, the budgets of the peers, and the counters of what was sent.
pub(crate) struct Transmission {
    /// The counters of the device.
    pub(super) counters: Arc<Counters>,
    /// The batch that the next packet may join.
    pub(super) builder: BatchBuilder,
    /// The bytes that may be in flight to each peer.
    pub(super) budget: Budget,
}

impl Transmission {
    /// Returns a transmission without packets.
    pub(super) fn new(counters: Arc<Counters>) -> Transmission {
        Transmission { counters, builder: BatchBuilder::new(), budget: Budget::default() }
    }

    /// Returns a sink without a quota, from which batches go to a port.
    #[inline]
    pub(super) fn sink<'a>(&'a mut self, port: &'a mut dyn Port, now_ns: u64) -> BatchSink<'a> {
        BatchSink::new(&mut self.builder, port, &self.counters, now_ns)
    }

    /// Reports whether packets wait for the port, which has said when it has room again.
    pub(super) fn waits_for(&self, port: &dyn Port) -> bool {
        self.builder.is_stalled() && port.room_at_ns().is_some()
    }
}
