//! Packets that leave a device by its link: the queue is the adapter's own, so the device waits when it is
//! full.

use std::collections::VecDeque;

use pumice_transport::host::Counter;
use pumice_transport::path::Path;

use super::held::HeldBatch;
use super::tally::{DropTally, MAX_HELD_BYTES};
use super::wire::wire_bytes;
use pumice_model::network::{LinkDirection, LinkQueue};
use pumice_model::port::Port;
use pumice_model::port::batch::{GsoBatch, PortLimits, TransmitError};

/// Default length of an adapter's queue, in bytes.
pub(crate) const QUEUE_BYTES: u64 = 256 << 10;
/// Time to wait after the port below was busy, in nanoseconds.
const BUSY_RETRY_NS: u64 = 100_000;
/// Time to wait before the port below is asked again whether the receiver has room, in nanoseconds.
const FULL_RETRY_NS: u64 = 10_000;
/// Number of times that a busy port is tried again when all is released at once.
pub(crate) const RELEASE_ATTEMPTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct EgressQueue {
    queue: LinkQueue,
    held: VecDeque<HeldBatch<Path>>,
    held_bytes: usize,
    /// Time until which the device has to wait, if it was refused.
    room_at_ns: Option<u64>,
    /// Time before which the port below takes nothing.
    retry_at_ns: u64,
}

impl EgressQueue {
    /// Reports whether packets pass as if there were no link.
    pub(super) fn passes(&self, direction: &LinkDirection) -> bool {
        direction.is_none() && self.held.is_empty()
    }

    /// Takes a batch into the queue, all of it if there is room for its first byte.
    ///
    /// # Errors
    /// Fails with `Busy` if the queue is full.
    pub(super) fn accept(
        &mut self,
        direction: &LinkDirection,
        now_ns: u64,
        batch: &GsoBatch<'_>,
        tally: &DropTally,
    ) -> Result<(), TransmitError> {
        let most_bytes = direction.queue_bytes.unwrap_or(QUEUE_BYTES);
        let is_long = self.queue.backlog_bytes(direction, now_ns) >= most_bytes;
        if is_long || self.held_bytes >= MAX_HELD_BYTES {
            let drained_ns = self.queue.drained_to_ns(direction, most_bytes / 2);
            let room_at_ns = if is_long { drained_ns } else { self.next_ns(0).unwrap_or(0) };
            self.room_at_ns = Some(room_at_ns.max(now_ns.saturating_add(1)));
            tally.add(Counter::LinkBusy, 1);
            return Err(TransmitError::Busy);
        }
        let is_ipv4 = batch.path.flow.source.is_ipv4();
        let segment_bytes = if batch.segment_bytes == 0 { batch.bytes.len() } else { batch.segment_bytes };
        let mut held = HeldBatch::new(batch.path.clone(), segment_bytes, batch.has_icrc, 0);
        let mut queued = 0;
        for packet in batch.segments() {
            let passage = self.queue.take(direction, now_ns, wire_bytes(is_ipv4, packet.len()) as u64, false);
            queued += u64::from(passage.backlog_bytes > 0);
            held.push(packet, passage.arrives_at_ns);
        }
        tally.add(Counter::LinkQueued, queued);
        self.held_bytes += held.len_bytes();
        self.held.push_back(held);
        Ok(())
    }

    /// Sends the packets that are due, as far as the port below takes them.
    pub(super) fn send_due(&mut self, now_ns: u64, grain_ns: u64, below: &mut dyn Port, tally: &DropTally) {
        if self.room_at_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.room_at_ns = None;
        }
        if self.retry_at_ns > now_ns {
            return;
        }
        while let Some(first) = self.held.front_mut() {
            let packets = first.due(now_ns, grain_ns);
            if packets == 0 {
                return;
            }
            let Err(retry_ns) = send(first, packets, now_ns, below, tally) else {
                self.forget_first_if_over();
                continue;
            };
            self.retry_at_ns = now_ns.saturating_add(retry_ns);
            return;
        }
    }

    /// Sends everything at once. Packets that the port below does not take are lost.
    pub(super) fn release(&mut self, now_ns: u64, below: &mut dyn Port, tally: &DropTally) {
        let mut attempts = RELEASE_ATTEMPTS;
        while let Some(first) = self.held.front_mut()
            && attempts > 0
        {
            let packets = first.packets();
            match send(first, packets, now_ns, below, tally) {
                Ok(()) => self.forget_first_if_over(),
                Err(_) => attempts -= 1,
            }
        }
    }

    fn forget_first_if_over(&mut self) {
        if self.held.front().is_some_and(HeldBatch::is_over)
            && let Some(over) = self.held.pop_front()
        {
            self.held_bytes -= over.len_bytes();
        }
    }

    /// Returns when the next packets are due.
    pub(super) fn next_ns(&self, grain_ns: u64) -> Option<u64> {
        let due_ns = self.held.front().map(|first| first.due_ns(grain_ns).max(self.retry_at_ns));
        [due_ns, self.room_at_ns].into_iter().flatten().min()
    }

    /// Returns until when the device has to wait with the next batch.
    pub(super) fn room_at_ns(&self) -> Option<u64> {
        self.room_at_ns
    }
}

/// Sends the next packets of a batch.
///
/// # Errors
/// Fails if the port below takes none now, with the time until the next attempt, in ns from now.
pub(crate) fn send(
    held: &mut HeldBatch<Path>,
    packets: usize,
    now_ns: u64,
    below: &mut dyn Port,
    tally: &DropTally,
) -> Result<(), u64> {
    let path = held.common.clone();
    let (segment_bytes, had_icrc) = (held.segment_bytes, held.has_icrc);
    let peer = GsoBatch::new(&path, segment_bytes, held.rest()).peer();
    let limits = below.limits(peer);
    if limits.waits_for_room && below.group().is_some_and(|group| !group.admits(now_ns, peer)) {
        return Err(FULL_RETRY_NS);
    }
    let packets = packets.min(fitting(&limits, segment_bytes));
    let has_icrc = had_icrc || limits.needs_icrc;
    let bytes = held.next(packets, &path.flow, limits.needs_icrc);
    match below.transmit(now_ns, &GsoBatch { has_icrc, ..GsoBatch::new(&path, segment_bytes, bytes) }) {
        Err(TransmitError::Busy) => return Err(BUSY_RETRY_NS),
        Err(_) => tally.add(Counter::TxDropped, held.go_on() as u64),
        Ok(()) => {
            held.go_on();
        }
    }
    Ok(())
}

/// Returns how many packets of this size a batch holds.
fn fitting(limits: &PortLimits, segment_bytes: usize) -> usize {
    limits.max_segments.min(limits.max_batch_bytes / segment_bytes.max(1)).max(1)
}
