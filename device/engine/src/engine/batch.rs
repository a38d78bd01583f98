//! The transmit side of the engine: packets become GSO batches.
//!
//! A batch is a run of packets of one size to one peer, sent with one system call. The packet being begun
//! decides whether it joins the open batch or whether that one has to leave first. One batch never mixes
//! processes, because the kernel steers the batch by its first packet.

use std::sync::Arc;

use pumice_fabric::gsi::MadSink;
use pumice_model::counters::Counters;
use pumice_model::port::Port;
use pumice_model::port::batch::{GsoBatch, PacketCost, Peer, PortLimits, TransmitError};
use pumice_transport::host::{Counter, Transmit};
use pumice_transport::path::Path;
use pumice_transport::qp::LaneBatch;
use pumice_transport::types::Fate;
use pumice_transport::wire::{ProcessIndex, Qpn, icrc};

use super::budget::Budget;

impl MadSink for BatchSink<'_> {
    fn count(&mut self, counter: Counter) {
        self.counters.add_under_lock(counter, 1);
    }
}

/// Room for the longest batch: a UDP datagram, in bytes.
const BUFFER_BYTES: usize = 65_536;

/// The limits before the first batch.
const NO_LIMITS: PortLimits = PortLimits {
    max_segments: 0,
    max_batch_bytes: 0,
    receive_buffer_bytes: 0,
    packet_cost: PacketCost::UDP_SOCKET,
    needs_icrc: true,
    waits_for_room: false,
};

/// The open batch and its buffer.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    buffer: Vec<u8>,
    used_bytes: usize,
    /// Length of the packet that was begun last and is not sealed yet.
    begun_bytes: usize,
    segment_bytes: usize,
    segment_count: usize,
    /// True if a shorter packet ended the batch.
    closed: bool,
    path: Option<Arc<Path>>,
    process: ProcessIndex,
    /// Number of the run of batches with this path and this process, from 1.
    series: u64,
    /// True if the first packet names the process; packets of queue pair 1 name none.
    names_process: bool,
    /// The limits of the way to the peer, read when the batch was begun.
    limits: PortLimits,
    /// True if an adapter reads the payload of one of the packets from the program's memory.
    is_fetched: bool,
    /// True if the port could not take the batch: it is sent again before anything else.
    stalled: bool,
    /// The fates of packets of the batch, by their positions; empty without a fault plan.
    fates: Vec<(u16, Fate)>,
}

impl BatchBuilder {
    pub(crate) fn new() -> BatchBuilder {
        BatchBuilder {
            buffer: vec![0; BUFFER_BYTES],
            used_bytes: 0,
            begun_bytes: 0,
            segment_bytes: 0,
            segment_count: 0,
            closed: false,
            path: None,
            process: ProcessIndex::default(),
            series: 0,
            names_process: false,
            limits: NO_LIMITS,
            is_fetched: false,
            stalled: false,
            fates: Vec::new(),
        }
    }

    /// Sets the path and the process of the next batch.
    #[inline]
    fn lead(&mut self, path: &Arc<Path>, process: ProcessIndex) {
        if self.process == process && is_path(self.path.as_ref(), path) {
            return;
        }
        self.process = process;
        self.path = Some(Arc::clone(path));
        self.series += 1;
    }

    /// Reports whether there is a batch that has not left.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.used_bytes != 0 || self.stalled
    }

    /// Returns the room for the packets of a lane, which [`BatchBuilder::fill`] makes a batch of.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [u8] {
        let longest = self.limits.max_batch_bytes.min(self.buffer.len());
        self.buffer.get_mut(..longest).unwrap_or_default()
    }

    /// Makes a batch of the packets in the room, and returns their number and length in bytes.
    #[inline]
    pub(super) fn fill(&mut self, batch: LaneBatch) -> (u32, u64) {
        let LaneBatch { request_bytes, acknowledge_bytes } = batch;
        let packets = if acknowledge_bytes == 0 { 1 } else { 2 };
        self.used_bytes = request_bytes + acknowledge_bytes;
        self.segment_bytes = request_bytes;
        self.segment_count = packets as usize;
        self.closed = packets > 1 && acknowledge_bytes < request_bytes;
        if self.limits.needs_icrc
            && let Some(path) = &self.path
            && let Some((request, rest)) = self.buffer.split_at_mut_checked(request_bytes)
        {
            icrc::seal_for_peers(&path.flow, 0, request);
            if let Some(acknowledgement) = rest.get_mut(..acknowledge_bytes).filter(|_| packets > 1) {
                icrc::seal_for_peers(&path.flow, 1, acknowledgement);
            }
        }
        (packets, self.used_bytes as u64)
    }

    /// Reports whether the port refused the open batch for now.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled
    }
}

/// Reports whether a path is the known one: nearly always it is the same allocation, which need not be read.
#[inline]
fn is_path(known: Option<&Arc<Path>>, path: &Arc<Path>) -> bool {
    known.is_some_and(|known| Arc::ptr_eq(known, path) || **known == **path)
}

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

/// A batch builder at work on a port, into which queue pairs transmit.
pub(crate) struct BatchSink<'a> {
    pub(crate) builder: &'a mut BatchBuilder,
    pub(crate) port: &'a mut dyn Port,
    pub(crate) counters: &'a Counters,
    pub(crate) now_ns: u64,
    /// Number of bytes that may still be sent in this turn, as a receive buffer accounts them.
    pub(crate) quota_bytes: u64,
    /// Cost of the packets that were sealed in this turn, in bytes.
    pub(crate) sealed_cost_bytes: u64,
    pub(crate) sealed_packets: u32,
    pub(crate) sealed_bytes: u64,
    /// True if the queue pair of the turn is unreliable: the port is asked before each batch.
    unreliable: bool,
    /// True if the program has asked for inline data when it created the queue pair of the turn.
    pub(crate) takes_inline: bool,
    /// True if the port does not admit the next batch of this turn.
    pub(crate) held: bool,
}

impl<'a> BatchSink<'a> {
    /// Returns a sink without a quota.
    pub(crate) fn new(
        builder: &'a mut BatchBuilder,
        port: &'a mut dyn Port,
        counters: &'a Counters,
        now_ns: u64,
    ) -> BatchSink<'a> {
        BatchSink {
            builder,
            port,
            counters,
            now_ns,
            quota_bytes: 0,
            sealed_cost_bytes: 0,
            sealed_packets: 0,
            sealed_bytes: 0,
            unreliable: false,
            takes_inline: false,
            held: false,
        }
    }

    /// Starts a new turn with a quota. Batches of an `unreliable` one wait until the port admits them.
    pub(crate) fn turn(&mut self, quota_bytes: u64, unreliable: bool) {
        self.unreliable = unreliable;
        self.takes_inline = false;
        self.held = false;
        self.quota_bytes = quota_bytes;
        self.sealed_cost_bytes = 0;
        self.sealed_packets = 0;
        self.sealed_bytes = 0;
    }

    /// Returns the limits of the way to the peer of the last batch.
    #[inline]
    pub(crate) fn limits(&self) -> &PortLimits {
        &self.builder.limits
    }

    /// Sends the open batch. Returns false if the port is busy and the batch waits.
    pub(crate) fn flush(&mut self) -> bool {
        let builder = &mut *self.builder;
        if builder.used_bytes == 0 {
            builder.stalled = false;
            return true;
        }
        let Some(path) = &builder.path else { return true };
        let Some(bytes) = builder.buffer.get(..builder.used_bytes) else { return true };
        let BatchBuilder { segment_bytes, is_fetched, ref fates, .. } = *builder;
        let has_icrc = builder.limits.needs_icrc;
        let series = if builder.names_process { builder.series } else { 0 };
        let comments = &[];
        let batch = GsoBatch { path, series, segment_bytes, bytes, has_icrc, is_fetched, fates, comments };
        let packets = builder.segment_count as u64;
        match self.port.transmit(self.now_ns, &batch) {
            Ok(()) => {
                self.counters.add_under_lock(Counter::TxBatches, 1);
                self.counters.add_under_lock(Counter::TxPackets, packets);
                self.counters.add_under_lock(Counter::TxBytes, builder.used_bytes as u64);
            }
            Err(TransmitError::Busy) => {
                builder.stalled = true;
                return false;
            }
            // The batch is lost like any packet on the way: the requester's timer decides.
            Err(_) => self.counters.add_under_lock(Counter::TxDropped, packets),
        }
        builder.used_bytes = 0;
        builder.segment_count = 0;
        builder.closed = false;
        builder.is_fetched = false;
        builder.stalled = false;
        builder.fates.clear();
        true
    }

    /// Sends the batch of a lane, as [`BatchSink::flush`] does.
    #[inline]
    pub(super) fn flush_lane(&mut self) {
        let builder = &mut *self.builder;
        let bytes = builder.buffer.get(..builder.used_bytes).unwrap_or_default();
        let is_short = !builder.limits.needs_icrc
            && self.port.transmit_next_of_series(builder.series, builder.segment_bytes, bytes);
        if !is_short {
            self.flush();
            return;
        }
        self.counters.add_under_lock(Counter::TxBatches, 1);
        self.counters.add_under_lock(Counter::TxPackets, builder.segment_count as u64);
        self.counters.add_under_lock(Counter::TxBytes, builder.used_bytes as u64);
        builder.used_bytes = 0;
        builder.segment_count = 0;
        builder.closed = false;
    }

    fn joins(&self, path: &Arc<Path>, process: ProcessIndex, length_bytes: usize) -> bool {
        let builder = &*self.builder;
        !builder.closed
            && length_bytes <= builder.segment_bytes
            && builder.segment_count < builder.limits.max_segments
            && builder.used_bytes + length_bytes <= builder.limits.max_batch_bytes
            && builder.process == process
            && is_path(builder.path.as_ref(), path)
    }

    /// Reports whether a batch on this path to this process belongs to the series of the last one, and the
    /// port allows it to be begun as that one was.
    #[inline]
    fn begins_again(&mut self, path: &Arc<Path>, process: ProcessIndex) -> bool {
        let builder = &*self.builder;
        let again = builder.process == process
            && is_path(builder.path.as_ref(), path)
            && self.port.admits_next_of_series(builder.series);
        let peer = Peer { address: path.flow.destination, process };
        debug_assert!(!again || self.port.limits(peer) == builder.limits, "the way to {peer:?} has changed");
        again
    }

    /// Leads the next batch to a queue pair. Returns false if none of `packets` packets may be begun now.
    #[inline]
    pub(super) fn leads_to(&mut self, path: &Arc<Path>, destination: Qpn, packets: usize) -> bool {
        let process = destination.process();
        self.builder.names_process = destination.index() != Qpn::GSI.index();
        let again = self.builder.names_process && self.begins_again(path, process);
        (again || self.query_limits(path, process)) && self.builder.limits.max_segments >= packets
    }

    /// Reads the limits of the way to a process from the port, and leads the next batch there. Returns false
    /// if no batch may be begun in this turn.
    fn query_limits(&mut self, path: &Arc<Path>, process: ProcessIndex) -> bool {
        let peer = Peer { address: path.flow.destination, process };
        let limits = self.port.limits(peer);
        let asks = self.unreliable || limits.waits_for_room;
        if asks && self.port.group().is_some_and(|group| !group.admits(self.now_ns, peer)) {
            return false;
        }
        self.builder.limits = limits;
        self.builder.lead(path, process);
        true
    }
}

impl Transmit for BatchSink<'_> {
    fn begin(&mut self, path: &Arc<Path>, destination: Qpn, length_bytes: usize) -> Option<&mut [u8]> {
        if self.quota_bytes == 0 {
            return None;
        }
        let process = destination.process();
        let fits = !self.builder.stalled
            && (self.builder.used_bytes == 0 || self.joins(path, process, length_bytes));
        if !fits && !self.flush() {
            return None;
        }
        if self.builder.used_bytes == 0 {
            let names_process = destination.index() != Qpn::GSI.index();
            let again = names_process && self.begins_again(path, process);
            if !again && !self.query_limits(path, process) {
                self.held = true;
                return None;
            }
            self.builder.segment_bytes = length_bytes;
            self.builder.names_process = names_process;
        }
        let builder = &mut *self.builder;
        builder.begun_bytes = length_bytes;
        let start = builder.used_bytes;
        builder.buffer.get_mut(start..start + length_bytes)
    }

    #[inline]
    fn seal(&mut self) {
        let builder = &mut *self.builder;
        let length = std::mem::take(&mut builder.begun_bytes);
        let start = builder.used_bytes;
        let Some(path) = &builder.path else { return };
        let Some(packet) = builder.buffer.get_mut(start..start + length) else { return };
        if builder.limits.needs_icrc {
            // Segmentation offload numbers the packets of a batch from IP ID 0.
            icrc::seal_for_peers(&path.flow, builder.segment_count as u16, packet);
        }
        builder.used_bytes += length;
        builder.segment_count += 1;
        builder.closed = length < builder.segment_bytes;
        let cost = builder.limits.packet_cost.of(length);
        self.quota_bytes = self.quota_bytes.saturating_sub(cost);
        self.sealed_cost_bytes += cost;
        self.sealed_packets += 1;
        self.sealed_bytes += length as u64;
    }

    fn abandon(&mut self) {
        self.builder.begun_bytes = 0;
    }

    #[inline]
    fn note_fetch(&mut self) {
        self.builder.is_fetched |= self.takes_inline;
    }

    #[cold]
    fn apply_fate(&mut self, fate: Fate) {
        // Batches are far shorter than 65536 packets.
        let last = self.builder.segment_count.saturating_sub(1) as u16;
        self.builder.fates.push((last, fate));
    }
}
