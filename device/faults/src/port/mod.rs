//! The port around a port that carries out the fates of packets.
//!
//! Injected faults on the way out of any port.

use std::collections::VecDeque;
use std::sync::Arc;

use pumice_model::event::{Event, Subscribers};
use pumice_model::fates::Notes;
use pumice_model::fates::trigger::Partitions;
use pumice_model::port::batch::{GsoBatch, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_model::port::{Port, PortLayer, batch};
use pumice_transport::path::Path;
use pumice_transport::types::Fate;

use self::damage::damage;

/// Largest number of packets that may be late at a time; further ones come in time.
const MAX_DELAYED: usize = 4096;
/// The ECN bits CE.
const CONGESTION_EXPERIENCED: u8 = 0b11;
/// Time to wait after the port below was busy with the rest of a batch, in nanoseconds.
const BUSY_RETRY_NS: u64 = 100_000;
/// Number of times that a busy port is tried again when all is released at once.
const RELEASE_ATTEMPTS: usize = 64;

/// Statistics of the injected faults, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Packets that were to be sent.
    pub sent: u64,
    /// Packets not sent.
    pub dropped: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets sent with a bit flipped.
    pub corrupted: u64,
    /// Packets sent cut short.
    pub truncated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets marked CE.
    pub marked: u64,
    /// Packets lost because the port below refused the rest of a batch that had to be split.
    pub refused: u64,
    /// Packets from a peer that was parted from this device.
    pub refused_arrivals: u64,
}

/// A port around a port that applies the fates decided about packets ([`GsoBatch::fates`]). It decides
/// nothing itself, except that nothing passes to and from peers that are parted from this device.
///
/// A batch with a fate is split; packets whose index in a batch changes keep a right (or wrong) ICRC.
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    partitions: Partitions,
    /// Number of changes of partitions when they were last published to other processes.
    changes_published: u64,
    stats: FaultStats,
    /// Packets that wait for later packets, in the order in which they came.
    held: Vec<HeldPacket>,
    /// Packets that are delayed for a time.
    delayed: Vec<HeldPacket>,
    /// Rest of a batch after the port below became busy: at most one batch, its duplicates and the packets
    /// held back.
    pending: VecDeque<RebuiltBatch>,
    pending_retry_ns: u64,
    /// Notes about packets, and subscribers that are notified of lost ones; `None` without a capture.
    witness: Option<(Notes, Arc<Subscribers>)>,
}

#[derive(Debug, Clone)]
struct HeldPacket {
    path: Path,
    bytes: Vec<u8>,
    comment: Option<Arc<str>>,
    copies: usize,
    /// Number of packets that leave before it.
    behind: u16,
    release_at_ns: u64,
}

/// A rebuilt batch; or, where there is a capture, a packet that is lost at this point.
#[derive(Debug, Clone)]
struct RebuiltBatch {
    is_lost: bool,
    comments: Vec<(u16, Arc<str>)>,
    path: Path,
    segment_bytes: usize,
    segments: usize,
    bytes: Vec<u8>,
}

impl<P: Port> FaultPort<P> {
    /// Creates a port that sends through `inner`.
    pub fn new(inner: P) -> FaultPort<P> {
        FaultPort::of_plan(inner, Partitions::default(), None)
    }

    /// Creates a port with the partitions of a plan. `witness` has the notes about packets, and the
    /// subscribers that are notified of lost ones.
    pub fn of_plan(
        inner: P,
        partitions: Partitions,
        witness: Option<(Notes, Arc<Subscribers>)>,
    ) -> FaultPort<P> {
        FaultPort {
            inner,
            partitions,
            changes_published: 0,
            stats: FaultStats::default(),
            held: Vec::new(),
            delayed: Vec::new(),
            pending: VecDeque::new(),
            pending_retry_ns: 0,
            witness,
        }
    }

    /// Returns the statistics so far.
    pub fn stats(&self) -> FaultStats {
        self.stats
    }

    /// Returns the port below.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// Publishes to the processes that share the port which peers this one is separated from, after a change.
    #[inline]
    fn publish_partitions(&mut self, now_ns: u64) {
        let changes = self.partitions.changes();
        if changes != self.changes_published {
            self.changes_published = changes;
            let holding = self.partitions.holding(now_ns);
            if let Some(directory) = self.inner.group().and_then(|group| group.services()) {
                directory.publish_partitions(now_ns, &holding);
            }
        }
    }

    /// Splits the batch into the runs in which it leaves, which the port below can take.
    fn split_batch(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> VecDeque<RebuiltBatch> {
        let limits = self.inner.limits(batch.peer());
        let mut runs = RebuiltBatches { limits, runs: VecDeque::new() };
        let mut fates = batch.fates.iter().peekable();
        for (index, segment) in batch.segments().enumerate() {
            let index = batch::ip_id(index);
            let mut fate = Fate::default();
            while let Some((_, more)) = fates.next_if(|(packet, _)| *packet <= index) {
                fate = fate.and(*more);
            }
            if fate.lost {
                self.stats.dropped += 1;
                if self.witness.is_some() {
                    let mut run = RebuiltBatch::of(batch.path, segment, self.comment_of(&fate));
                    batch::renumber(&run.path.flow, index, 0, &mut run.bytes);
                    runs.runs.push_back(RebuiltBatch { is_lost: true, ..run });
                }
                continue;
            }
            let Some(left) = self.hold_back(now_ns, batch.path, index, segment, &fate) else { continue };
            for _ in 0..left.copies {
                runs.push(&left.path, &left.bytes, index, left.comment.as_ref());
            }
            for held in overtaken(&mut self.held) {
                for _ in 0..held.copies {
                    runs.push(&held.path, &held.bytes, 0, held.comment.as_ref());
                }
            }
        }
        runs.runs
    }

    /// Applies its fate to a packet; `None` if it is held back.
    fn hold_back(
        &mut self,
        now_ns: u64,
        path: &Path,
        index: u16,
        segment: &[u8],
        fate: &Fate,
    ) -> Option<HeldPacket> {
        let mut bytes = segment.to_vec();
        // An empty datagram is no packet of a batch.
        let kept_bytes = fate.kept_bytes.map(|bytes| bytes.max(1));
        damage(&path.flow, index, &mut bytes, &Fate { kept_bytes, ..*fate });
        self.stats.corrupted += u64::from(fate.flips.is_some());
        self.stats.truncated += u64::from(fate.kept_bytes.is_some());
        self.stats.duplicated += u64::from(fate.copies);
        let mut path = path.clone();
        if fate.marked {
            path.traffic_class |= CONGESTION_EXPERIENCED;
            self.stats.marked += 1;
        }
        if let Some(dscp) = fate.dscp {
            path.traffic_class = dscp << 2 | path.traffic_class & CONGESTION_EXPERIENCED;
        }
        let copies = 1 + usize::from(fate.copies);
        let wait_ns = if fate.delay_ns > 0 { fate.delay_ns } else { fate.behind_ns };
        let waits = fate.delay_ns > 0 || fate.behind_packets > 0;
        let release_at_ns = now_ns.saturating_add(wait_ns);
        let comment = self.comment_of(fate);
        let mut packet =
            HeldPacket { path, bytes, comment, copies, behind: fate.behind_packets, release_at_ns };
        if !waits || self.delayed.len() + self.held.len() >= MAX_DELAYED {
            return Some(packet);
        }
        self.stats.reordered += 1;
        batch::renumber(&packet.path.flow, index, 0, &mut packet.bytes);
        if fate.delay_ns > 0 {
            self.delayed.push(packet);
        } else {
            self.held.push(packet);
        }
        None
    }

    /// Returns the comment about a packet.
    fn comment_of(&self, fate: &Fate) -> Option<Arc<str>> {
        self.witness.as_ref().and_then(|(notes, _)| notes.of(fate.note))
    }

    /// Sends a run, or notifies that it is lost.
    fn send(&mut self, now_ns: u64, run: &RebuiltBatch) -> Result<(), TransmitError> {
        if !run.is_lost {
            return self.inner.transmit(now_ns, &run.batch());
        }
        if let Some((_, subscribers)) = &self.witness {
            let comment = run.comments.first().map_or("", |(_, text)| text);
            subscribers.emit(&Event::PacketLost { path: &run.path, bytes: &run.bytes, comment });
        }
        Ok(())
    }

    /// Sends the runs that wait. `Busy` leaves the rest waiting; other errors lose a run.
    fn send_pending(&mut self, now_ns: u64) -> Result<(), TransmitError> {
        while let Some(run) = self.pending.pop_front() {
            match self.send(now_ns, &run) {
                Err(TransmitError::Busy) => {
                    self.pending_retry_ns = now_ns.saturating_add(BUSY_RETRY_NS);
                    self.pending.push_front(run);
                    return Err(TransmitError::Busy);
                }
                Err(_) => self.stats.refused += run.segments as u64,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Sends the packets that are overdue.
    fn catch_up(&mut self, now_ns: u64) -> Result<(), TransmitError> {
        if self.pending.is_empty() && self.delayed.is_empty() && self.held.is_empty() {
            return Ok(());
        }
        self.send_pending(now_ns)?;
        self.fall_due(now_ns);
        self.send_pending(now_ns)
    }

    /// Queues the packets that are held back until `until_ns` at the latest, to be sent next.
    fn fall_due(&mut self, until_ns: u64) {
        let mut due: Vec<HeldPacket> =
            self.delayed.extract_if(.., |delayed| delayed.release_at_ns <= until_ns).collect();
        due.extend(self.held.extract_if(.., |held| held.release_at_ns <= until_ns));
        due.sort_by_key(|held| held.release_at_ns);
        for held in due {
            let run = RebuiltBatch::of(&held.path, &held.bytes, held.comment);
            self.pending.extend(std::iter::repeat_n(run, held.copies));
        }
    }
}

/// Counts a packet that leaves, and returns those that enough packets have overtaken now, which leave after
/// it.
fn overtaken(held: &mut Vec<HeldPacket>) -> Vec<HeldPacket> {
    for one in held.iter_mut() {
        one.behind = one.behind.saturating_sub(1);
    }
    held.extract_if(.., |one| one.behind == 0).collect()
}

impl RebuiltBatch {
    fn of(path: &Path, packet: &[u8], comment: Option<Arc<str>>) -> RebuiltBatch {
        RebuiltBatch {
            is_lost: false,
            comments: comment.map(|text| (0, text)).into_iter().collect(),
            path: path.clone(),
            segment_bytes: packet.len(),
            segments: 1,
            bytes: packet.to_vec(),
        }
    }

    fn batch(&self) -> GsoBatch<'_> {
        let batch = GsoBatch::new(&self.path, self.segment_bytes, &self.bytes);
        GsoBatch { comments: &self.comments, ..batch }
    }

    fn has_room_for(&self, path: &Path, packet_bytes: usize, limits: &PortLimits) -> bool {
        !self.is_lost
            && self.path == *path
            && packet_bytes <= self.segment_bytes
            && self.bytes.len() == self.segments * self.segment_bytes
            && self.segments < limits.max_segments
            && self.bytes.len() + packet_bytes <= limits.max_batch_bytes
    }
}

struct RebuiltBatches {
    limits: PortLimits,
    runs: VecDeque<RebuiltBatch>,
}

impl RebuiltBatches {
    /// Adds a packet that had the index `index` in its batch, and returns it as it will be sent.
    fn push(&mut self, path: &Path, packet: &[u8], index: u16, comment: Option<&Arc<str>>) -> &mut [u8] {
        let limits = &self.limits;
        if self.runs.back().is_some_and(|run| run.has_room_for(path, packet.len(), limits)) {
            if let Some(run) = self.runs.back_mut() {
                run.comments.extend(comment.map(|text| (batch::ip_id(run.segments), Arc::clone(text))));
                run.bytes.extend_from_slice(packet);
                run.segments += 1;
            }
        } else {
            self.runs.push_back(RebuiltBatch::of(path, packet, comment.cloned()));
        }
        let Some(run) = self.runs.back_mut() else { return &mut [] };
        let start = run.bytes.len() - packet.len();
        let Some(added) = run.bytes.get_mut(start..) else { return &mut [] };
        batch::renumber(&path.flow, index, batch::ip_id(run.segments - 1), added);
        added
    }
}

impl<P: Port> PortLayer for FaultPort<P> {
    type Below = P;

    fn below(&self) -> &P {
        &self.inner
    }

    fn below_mut(&mut self) -> &mut P {
        &mut self.inner
    }

    /// Returns the limits of the port below, with an ICRC: it shows that a packet is damaged, or was sent at
    /// another index.
    fn limits_through(&self, peer: Peer) -> PortLimits {
        PortLimits { needs_icrc: true, ..self.inner.limits(peer) }
    }

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        // Partitions are published before the packet that begins one is dropped: this process may be killed
        // right after it.
        self.publish_partitions(now_ns);
        self.catch_up(now_ns)?;
        if self.held.is_empty() && batch.fates.is_empty() {
            self.inner.transmit(now_ns, batch)?;
            self.stats.sent += batch.segments().len() as u64;
            return Ok(());
        }
        let before = (self.stats, self.held.clone(), self.delayed.len());
        self.stats.sent += batch.segments().len() as u64;
        let mut runs = self.split_batch(now_ns, batch);
        let first = runs.pop_front().map(|run| self.send(now_ns, &run));
        if matches!(first, None | Some(Ok(()))) {
            self.pending = runs;
            // Part of the batch is sent, so this port has to send the rest.
            let _ = self.send_pending(now_ns);
            return Ok(());
        }
        self.delayed.truncate(before.2);
        (self.stats, self.held) = (before.0, before.1);
        first.unwrap_or(Ok(()))
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        let _ = self.catch_up(now_ns); // busy: later
        self.publish_partitions(now_ns);
        if !self.partitions.any() {
            return self.inner.receive(now_ns, handler);
        }
        let (partitions, stats) = (&self.partitions, &mut self.stats);
        self.inner.receive(now_ns, &mut |received| {
            if partitions.part(received.flow.destination, received.flow.source, now_ns) {
                stats.refused_arrivals += received.segments().len() as u64;
            } else {
                handler(received);
            }
        })
    }

    fn release_through(&mut self, now_ns: u64) {
        self.fall_due(u64::MAX);
        for _ in 0..RELEASE_ATTEMPTS {
            if self.send_pending(now_ns).is_ok() {
                break;
            }
        }
        self.inner.release(now_ns);
    }

    fn held_until_ns(&self) -> Option<u64> {
        let held = self.delayed.iter().chain(&self.held).map(|held| held.release_at_ns).min();
        let pending = (!self.pending.is_empty()).then_some(self.pending_retry_ns);
        [held, pending].into_iter().flatten().min()
    }
}

pub mod damage;

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
