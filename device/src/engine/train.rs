//! The transmit side of the engine: packets become trains.
//!
//! A train is a run of packets of one size to one peer process, sent with one system call (UDP
//! segmentation offload). The packet being begun decides whether it joins the open train or whether
//! that one has to leave first.

use pumice_transport::host::{Counter, Transmit};
use pumice_transport::path::Path;
use pumice_transport::wire::{Qpn, icrc};

use super::budget::packet_cost_bytes;
use crate::counters::Counters;
use crate::gsi::MailSink;
use crate::port::{Port, Train, TransmitError};

impl MailSink for Sink<'_> {
    fn count(&mut self, counter: Counter) {
        self.counters.add(counter, 1);
    }
}

/// Room for the longest train: a UDP datagram.
const BUFFER_BYTES: usize = 65_536;

/// The open train.
#[derive(Debug)]
pub(crate) struct TrainBuilder {
    buffer: Vec<u8>,
    used_bytes: usize,
    /// Bytes of the packet begun last and not yet sealed.
    begun_bytes: usize,
    segment_bytes: usize,
    segment_count: usize,
    /// A shorter packet ended the train.
    closed: bool,
    path: Option<Path>,
    slot: u8,
    /// The port could not take the train: it is sent again before anything else.
    stalled: bool,
}

impl TrainBuilder {
    pub(crate) fn new() -> TrainBuilder {
        TrainBuilder {
            buffer: vec![0; BUFFER_BYTES],
            used_bytes: 0,
            begun_bytes: 0,
            segment_bytes: 0,
            segment_count: 0,
            closed: false,
            path: None,
            slot: 0,
            stalled: false,
        }
    }

    /// The port refused the open train for now.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }
}

/// The train builder at work on a port: what queue pairs transmit into.
pub(crate) struct Sink<'a> {
    pub(crate) builder: &'a mut TrainBuilder,
    pub(crate) port: &'a mut dyn Port,
    pub(crate) counters: &'a Counters,
    pub(crate) now_ns: u64,
    /// What may still be sent in this turn, in bytes as a receive buffer accounts them.
    pub(crate) quota_bytes: u64,
    /// Cost of what was sealed in this turn.
    pub(crate) sealed_cost_bytes: u64,
    pub(crate) sealed_packets: u32,
    /// The turn is a queue pair's whose packets nobody acknowledges: the port is asked before each train.
    unreliable: bool,
    /// The port does not admit the next train of this turn.
    pub(crate) held: bool,
}

impl<'a> Sink<'a> {
    /// A sink without a quota yet.
    pub(crate) fn new(
        builder: &'a mut TrainBuilder,
        port: &'a mut dyn Port,
        counters: &'a Counters,
        now_ns: u64,
    ) -> Sink<'a> {
        Sink {
            builder,
            port,
            counters,
            now_ns,
            quota_bytes: 0,
            sealed_cost_bytes: 0,
            sealed_packets: 0,
            unreliable: false,
            held: false,
        }
    }

    /// Starts a new turn with a quota. Trains of an `unreliable` one wait until the port admits them.
    pub(crate) fn turn(&mut self, quota_bytes: u64, unreliable: bool) {
        self.unreliable = unreliable;
        self.held = false;
        self.quota_bytes = quota_bytes;
        self.sealed_cost_bytes = 0;
        self.sealed_packets = 0;
    }

    /// Sends the open train. False: the port is busy and the train waits.
    pub(crate) fn flush(&mut self) -> bool {
        let builder = &mut *self.builder;
        if builder.used_bytes == 0 {
            builder.stalled = false;
            return true;
        }
        let Some(path) = &builder.path else { return true };
        let Some(bytes) = builder.buffer.get(..builder.used_bytes) else { return true };
        let train = Train { path, segment_bytes: builder.segment_bytes, bytes };
        let packets = builder.segment_count as u64;
        match self.port.transmit(self.now_ns, &train) {
            Ok(()) => {
                self.counters.add(Counter::TxTrains, 1);
                self.counters.add(Counter::TxPackets, packets);
                self.counters.add(Counter::TxBytes, builder.used_bytes as u64);
            }
            Err(TransmitError::Busy) => {
                builder.stalled = true;
                return false;
            }
            // Lost like any packet on the way: the requester's timer decides.
            Err(_) => self.counters.add(Counter::TxDropped, packets),
        }
        builder.used_bytes = 0;
        builder.segment_count = 0;
        builder.closed = false;
        builder.stalled = false;
        true
    }

    fn joins(&self, path: &Path, slot: u8, length_bytes: usize) -> bool {
        let builder = &*self.builder;
        let limits = self.port.limits();
        !builder.closed
            && length_bytes <= builder.segment_bytes
            && builder.segment_count < limits.max_segments
            && builder.used_bytes + length_bytes <= limits.max_train_bytes
            && builder.slot == slot
            && builder.path.as_ref() == Some(path)
    }
}

impl Transmit for Sink<'_> {
    fn begin(&mut self, path: &Path, destination: Qpn, length_bytes: usize) -> Option<&mut [u8]> {
        if self.quota_bytes == 0 {
            return None;
        }
        // One train never mixes processes, because the kernel steers it by its first packet.
        let slot = destination.process().value();
        let fits =
            !self.builder.stalled && (self.builder.used_bytes == 0 || self.joins(path, slot, length_bytes));
        if !fits && !self.flush() {
            return None;
        }
        let begins = self.builder.used_bytes == 0;
        if begins && self.unreliable && !self.port.admits(self.now_ns, path.flow.destination, slot) {
            self.held = true;
            return None;
        }
        let builder = &mut *self.builder;
        if begins {
            builder.segment_bytes = length_bytes;
            builder.slot = slot;
            if builder.path.as_ref() != Some(path) {
                builder.path = Some(path.clone());
            }
        }
        builder.begun_bytes = length_bytes;
        let start = builder.used_bytes;
        builder.buffer.get_mut(start..start + length_bytes)
    }

    fn seal(&mut self) {
        let builder = &mut *self.builder;
        let length = std::mem::take(&mut builder.begun_bytes);
        let start = builder.used_bytes;
        let Some(path) = &builder.path else { return };
        let Some(packet) = builder.buffer.get_mut(start..start + length) else { return };
        // Segmentation offload numbers the packets of a train from IP ID 0.
        icrc::seal_for_peers(&path.flow, builder.segment_count as u16, packet);
        builder.used_bytes += length;
        builder.segment_count += 1;
        builder.closed = length < builder.segment_bytes;
        let cost = packet_cost_bytes(length);
        self.quota_bytes = self.quota_bytes.saturating_sub(cost);
        self.sealed_cost_bytes += cost;
        self.sealed_packets += 1;
    }

    fn abandon(&mut self) {
        self.builder.begun_bytes = 0;
    }
}
