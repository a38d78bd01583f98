//! Faults on the way out of any port.

use std::collections::VecDeque;
use std::sync::Arc;

use pumice_transport::path::Path;

use super::segments;
use super::{GsoBatch, Port, PortLayer, PortLimits, Received, TransmitError};
use crate::event::{Event, Subscribers, Topics};
use crate::faults::{Fate, FaultPlan, Faults, damage};

/// Packets that may be late at a time; more come in time.
const MAX_LATE: usize = 4096;
/// The ECN bits CE.
const CONGESTION_EXPERIENCED: u8 = 0b11;
/// How long to wait after the port below was busy with the rest of a batch.
const BUSY_RETRY_NS: u64 = 100_000;

/// What went wrong so far, in packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Asked to be sent.
    pub sent: u64,
    /// Not sent.
    pub dropped: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// Sent with a bit flipped.
    pub corrupted: u64,
    /// Sent cut short.
    pub truncated: u64,
    /// Held back.
    pub reordered: u64,
    /// Marked CE.
    pub marked: u64,
    /// Lost because the port below refused the rest of a batch that had to be taken apart.
    pub refused: u64,
}

/// A port around a port that harms what is sent. What is received is left alone: put one on each side.
///
/// A batch in which something happens is taken apart; packets whose place in a batch changes keep a right (or
/// wrong) ICRC.
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    faults: Faults,
    /// What was decided for a batch that the port below had no room for.
    decided: Vec<Fate>,
    stats: FaultStats,
    /// Waits for the next packet.
    held: Option<Held>,
    /// Packets that come later.
    late: Vec<Held>,
    /// The rest of a batch after the port below became busy: at most one batch, its duplicates and the packet
    /// held back.
    pending: VecDeque<Run>,
    pending_retry_ns: u64,
    subscribers: Arc<Subscribers>,
}

#[derive(Debug, Clone)]
struct Held {
    path: Path,
    bytes: Vec<u8>,
    copies: usize,
    release_at_ns: u64,
}

/// A batch put together anew.
#[derive(Debug, Clone)]
struct Run {
    path: Path,
    segment_bytes: usize,
    segments: usize,
    bytes: Vec<u8>,
}

impl<P: Port> FaultPort<P> {
    /// A port that sends through `inner`; `subscribers` hear of the faults.
    pub fn new(inner: P, plan: &FaultPlan, subscribers: Arc<Subscribers>) -> FaultPort<P> {
        FaultPort {
            inner,
            faults: Faults::new(plan),
            decided: Vec::new(),
            stats: FaultStats::default(),
            held: None,
            late: Vec::new(),
            pending: VecDeque::new(),
            pending_retry_ns: 0,
            subscribers,
        }
    }

    /// What went wrong so far.
    pub fn stats(&self) -> FaultStats {
        self.stats
    }

    /// The port below.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    /// What happens to the packets of a batch. A busy port is asked again with the same batch: the same
    /// happens to it.
    fn decide(&mut self, batch: &GsoBatch<'_>) -> Vec<Fate> {
        let decided = std::mem::take(&mut self.decided);
        if decided.len() == batch.segments().len() {
            return decided;
        }
        let (from, to) = (batch.path.flow.source, batch.path.flow.destination);
        let decide = |segment: &[u8]| {
            let index = self.faults.count(from, to);
            self.faults.fate(from, to, index, segment.len())
        };
        batch.segments().map(decide).collect()
    }

    /// The batch as it leaves, in runs that the port below can take. What is held back leaves after the next
    /// packet.
    fn take_apart(&mut self, now_ns: u64, batch: &GsoBatch<'_>, fates: &[Fate]) -> VecDeque<Run> {
        let limits = self.inner.limits(batch.peer());
        let mut runs = Runs { limits, runs: VecDeque::new() };
        for ((index, segment), fate) in batch.segments().enumerate().zip(fates) {
            if fate.lost {
                self.stats.dropped += 1;
                continue;
            }
            let index = segments::ip_id(index);
            let mut packet = segment.to_vec();
            // An empty datagram is no packet of a batch.
            let kept_bytes = fate.kept_bytes.map(|bytes| bytes.max(1));
            damage(&mut packet, &Fate { kept_bytes, ..*fate });
            self.stats.corrupted += u64::from(fate.flipped_bit.is_some());
            self.stats.truncated += u64::from(fate.kept_bytes.is_some());
            self.stats.duplicated += u64::from(fate.doubled);
            let mut path = batch.path.clone();
            if fate.marked {
                path.traffic_class |= CONGESTION_EXPERIENCED;
                self.stats.marked += 1;
            }
            let copies = 1 + usize::from(fate.doubled);
            let wait_ns = match (fate.late_ns, fate.swapped_within_ns) {
                (Some(ns), _) if self.late.len() < MAX_LATE => Some(ns),
                (None, Some(ns)) if self.held.is_none() => Some(ns),
                _ => None,
            };
            if let Some(ns) = wait_ns {
                self.stats.reordered += 1;
                segments::renumber(&path.flow, index, 0, &mut packet);
                let held = Held { path, bytes: packet, copies, release_at_ns: now_ns.saturating_add(ns) };
                if fate.late_ns.is_some() {
                    self.late.push(held);
                } else {
                    self.held = Some(held);
                }
                continue;
            }
            for _ in 0..copies {
                runs.push(&path, &packet, index);
            }
            if let Some(held) = self.held.take() {
                for _ in 0..held.copies {
                    runs.push(&held.path, &held.bytes, 0);
                }
            }
        }
        runs.runs
    }

    /// Tells of what was done to a batch.
    fn emit(&self, batch: &GsoBatch<'_>, fates: &[Fate]) {
        if !self.subscribers.listen(Topics::FAULTS) {
            return;
        }
        for (packet, fate) in batch.segments().zip(fates).filter(|(_, fate)| !fate.is_ordinary()) {
            self.subscribers.emit(&Event::FaultApplied { fate, path: batch.path, packet });
        }
    }

    /// Sends what waits. `Busy` leaves the rest waiting; other errors lose a run.
    fn send_pending(&mut self, now_ns: u64) -> Result<(), TransmitError> {
        while let Some(run) = self.pending.front() {
            match self.inner.transmit(now_ns, &run.batch()) {
                Err(TransmitError::Busy) => {
                    self.pending_retry_ns = now_ns.saturating_add(BUSY_RETRY_NS);
                    return Err(TransmitError::Busy);
                }
                Err(_) => self.stats.refused += run.segments as u64,
                Ok(()) => {}
            }
            self.pending.pop_front();
        }
        Ok(())
    }

    /// Sends what is overdue.
    fn catch_up(&mut self, now_ns: u64) -> Result<(), TransmitError> {
        self.send_pending(now_ns)?;
        let mut due: Vec<Held> = self.late.extract_if(.., |late| late.release_at_ns <= now_ns).collect();
        due.extend(self.held.take_if(|held| held.release_at_ns <= now_ns));
        due.sort_by_key(|held| held.release_at_ns);
        for held in due {
            let run = Run::of(&held.path, &held.bytes);
            self.pending.extend(std::iter::repeat_n(run, held.copies));
        }
        self.send_pending(now_ns)
    }
}

impl Run {
    fn of(path: &Path, packet: &[u8]) -> Run {
        Run { path: path.clone(), segment_bytes: packet.len(), segments: 1, bytes: packet.to_vec() }
    }

    fn batch(&self) -> GsoBatch<'_> {
        GsoBatch { path: &self.path, segment_bytes: self.segment_bytes, bytes: &self.bytes }
    }

    fn has_room_for(&self, path: &Path, packet_bytes: usize, limits: &PortLimits) -> bool {
        self.path == *path
            && packet_bytes <= self.segment_bytes
            && self.bytes.len() == self.segments * self.segment_bytes
            && self.segments < limits.max_segments
            && self.bytes.len() + packet_bytes <= limits.max_batch_bytes
    }
}

struct Runs {
    limits: PortLimits,
    runs: VecDeque<Run>,
}

impl Runs {
    /// Adds a packet that had place `index` in its batch; returns it as it will be sent.
    fn push(&mut self, path: &Path, packet: &[u8], index: u16) -> &mut [u8] {
        let limits = &self.limits;
        if self.runs.back().is_some_and(|run| run.has_room_for(path, packet.len(), limits)) {
            if let Some(run) = self.runs.back_mut() {
                run.bytes.extend_from_slice(packet);
                run.segments += 1;
            }
        } else {
            self.runs.push_back(Run::of(path, packet));
        }
        let Some(run) = self.runs.back_mut() else { return &mut [] };
        let start = run.bytes.len() - packet.len();
        let Some(added) = run.bytes.get_mut(start..) else { return &mut [] };
        segments::renumber(&path.flow, index, segments::ip_id(run.segments - 1), added);
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

    fn transmit_through(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.catch_up(now_ns)?;
        let before = (self.stats, self.held.clone(), self.late.len());
        let fates = self.decide(batch);
        self.stats.sent += fates.len() as u64;
        let outcome = if self.held.is_none() && fates.iter().all(Fate::is_ordinary) {
            self.inner.transmit(now_ns, batch)
        } else {
            let mut runs = self.take_apart(now_ns, batch, &fates);
            let first = runs.pop_front().map(|run| self.inner.transmit(now_ns, &run.batch()));
            if matches!(first, None | Some(Ok(()))) {
                self.pending = runs;
                // Part of it is sent, so the rest is this port's business.
                let _ = self.send_pending(now_ns);
            }
            first.unwrap_or(Ok(()))
        };
        if outcome.is_err() {
            self.late.truncate(before.2);
            (self.stats, self.held) = (before.0, before.1);
            self.decided = fates;
        } else {
            self.emit(batch, &fates);
        }
        outcome
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let _ = self.catch_up(now_ns); // busy: later
        self.inner.receive(now_ns, handler)
    }

    fn held_until_ns(&self) -> Option<u64> {
        let held = self.late.iter().chain(&self.held).map(|held| held.release_at_ns).min();
        let pending = (!self.pending.is_empty()).then_some(self.pending_retry_ns);
        [held, pending].into_iter().flatten().min()
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
