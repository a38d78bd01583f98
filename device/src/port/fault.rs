//! Faults on the way out of any port.

use std::collections::VecDeque;

use pumice_transport::path::Path;

use super::random::{self, Random};
use super::segments;
use super::{GsoBatch, Port, PortLayer, PortLimits, Received, TransmitError};

/// How long to wait after the port below was busy with the rest of a train.
const BUSY_RETRY_NS: u64 = 100_000;

/// What goes wrong, in parts per million per packet; at most one thing happens to a packet, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultConfig {
    /// Of the generator behind all probabilities.
    pub seed: u64,
    /// A packet is not sent.
    pub drop_ppm: u32,
    /// A packet is sent twice.
    pub duplicate_ppm: u32,
    /// A packet is sent with one random bit of the UDP payload flipped.
    pub corrupt_ppm: u32,
    /// A packet is held back until the next one has been sent, or `hold_ns` have passed.
    pub reorder_ppm: u32,
    /// See `reorder_ppm`.
    pub hold_ns: u64,
}

impl Default for FaultConfig {
    /// Nothing goes wrong; packets would be held for a millisecond.
    fn default() -> FaultConfig {
        FaultConfig {
            seed: 0,
            drop_ppm: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            reorder_ppm: 0,
            hold_ns: 1_000_000,
        }
    }
}

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
    /// Held back.
    pub reordered: u64,
    /// Lost because the port below refused the rest of a train that had to be taken apart.
    pub refused: u64,
}

/// A port around a port that damages what is sent. What is received is left alone: put one on each side.
///
/// A train in which something happens is taken apart; packets whose place in a train changes keep a right (or
/// wrong) ICRC.
#[derive(Debug)]
pub struct FaultPort<P> {
    inner: P,
    config: FaultConfig,
    random: Random,
    stats: FaultStats,
    held: Option<Held>,
    /// The rest of a train after the port below became busy: at most one train, its duplicates and the packet
    /// held back.
    pending: VecDeque<Run>,
    pending_retry_ns: u64,
}

#[derive(Debug, Clone)]
struct Held {
    path: Path,
    bytes: Vec<u8>,
    release_at_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pass,
    Drop,
    Duplicate,
    Corrupt { bit: u64 },
    Hold,
}

/// A train put together anew.
#[derive(Debug)]
struct Run {
    path: Path,
    segment_bytes: usize,
    segments: usize,
    bytes: Vec<u8>,
}

impl<P: Port> FaultPort<P> {
    /// A port that sends through `inner`.
    pub fn new(inner: P, config: FaultConfig) -> FaultPort<P> {
        FaultPort {
            inner,
            config,
            random: Random::new(config.seed),
            stats: FaultStats::default(),
            held: None,
            pending: VecDeque::new(),
            pending_retry_ns: 0,
        }
    }

    /// What went wrong so far.
    pub fn stats(&self) -> FaultStats {
        self.stats
    }

    /// Changes what goes wrong from now on. The seed is not used again.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut FaultConfig)) {
        change(&mut self.config);
    }

    /// The port below.
    pub fn inner(&self) -> &P {
        &self.inner
    }

    fn fate(&mut self, packet_bytes: usize) -> Fate {
        let config = self.config;
        let random = &mut self.random;
        let (drop, duplicate) = (random.chance(config.drop_ppm), random.chance(config.duplicate_ppm));
        let (corrupt, bit) = (random.chance(config.corrupt_ppm), random.below(packet_bytes as u64 * 8));
        let hold = random.chance(config.reorder_ppm);
        match () {
            () if drop => Fate::Drop,
            () if duplicate => Fate::Duplicate,
            () if corrupt => Fate::Corrupt { bit },
            () if hold => Fate::Hold,
            () => Fate::Pass,
        }
    }

    /// The train as it leaves, in runs that the port below can take. What is held back leaves after the next
    /// packet.
    fn take_apart(&mut self, now_ns: u64, train: &GsoBatch<'_>, fates: &[Fate]) -> VecDeque<Run> {
        let limits = self.inner.limits(train.peer());
        let mut runs = Runs { limits, runs: VecDeque::new() };
        for ((index, segment), fate) in train.segments().enumerate().zip(fates) {
            let index = segments::ip_id(index);
            let copies = match fate {
                Fate::Drop => {
                    self.stats.dropped += 1;
                    0
                }
                Fate::Hold if self.held.is_none() => {
                    self.stats.reordered += 1;
                    let mut bytes = segment.to_vec();
                    segments::renumber(&train.path.flow, index, 0, &mut bytes);
                    let release_at_ns = now_ns.saturating_add(self.config.hold_ns);
                    self.held = Some(Held { path: train.path.clone(), bytes, release_at_ns });
                    continue;
                }
                Fate::Duplicate => {
                    self.stats.duplicated += 1;
                    2
                }
                Fate::Corrupt { .. } => {
                    self.stats.corrupted += 1;
                    1
                }
                Fate::Hold | Fate::Pass => 1,
            };
            for _ in 0..copies {
                let sent = runs.push(train.path, segment, index);
                if let Fate::Corrupt { bit } = *fate {
                    random::flip(sent, bit);
                }
            }
            if copies > 0
                && let Some(held) = self.held.take()
            {
                runs.push(&held.path, &held.bytes, 0);
            }
        }
        runs.runs
    }

    /// Sends what waits. `Busy` leaves the rest waiting; other errors lose a run.
    fn send_pending(&mut self, now_ns: u64) -> Result<(), TransmitError> {
        while let Some(run) = self.pending.front() {
            match self.inner.transmit(now_ns, &run.train()) {
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
        if self.held.as_ref().is_some_and(|held| held.release_at_ns <= now_ns)
            && let Some(held) = self.held.take()
        {
            self.pending.push_back(Run::of(&held.path, &held.bytes));
            self.send_pending(now_ns)?;
        }
        Ok(())
    }
}

impl Run {
    fn of(path: &Path, packet: &[u8]) -> Run {
        Run { path: path.clone(), segment_bytes: packet.len(), segments: 1, bytes: packet.to_vec() }
    }

    fn train(&self) -> GsoBatch<'_> {
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
    /// Adds a packet that had place `index` in its train; returns it as it will be sent.
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

    fn transmit_through(&mut self, now_ns: u64, train: &GsoBatch<'_>) -> Result<(), TransmitError> {
        self.catch_up(now_ns)?;
        // A busy port is asked again with the same train: the same must happen to it.
        let before = (self.random.clone(), self.stats, self.held.clone());
        let fates: Vec<Fate> = train.segments().map(|segment| self.fate(segment.len())).collect();
        self.stats.sent += fates.len() as u64;
        let outcome = if self.held.is_none() && fates.iter().all(|&fate| fate == Fate::Pass) {
            self.inner.transmit(now_ns, train)
        } else {
            let mut runs = self.take_apart(now_ns, train, &fates);
            let first = runs.pop_front().map(|run| self.inner.transmit(now_ns, &run.train()));
            if matches!(first, None | Some(Ok(()))) {
                self.pending = runs;
                // Part of it is sent, so the rest is this port's business.
                let _ = self.send_pending(now_ns);
            }
            first.unwrap_or(Ok(()))
        };
        if outcome.is_err() {
            (self.random, self.stats, self.held) = before;
        }
        outcome
    }

    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&Received<'_>)) -> bool {
        let _ = self.catch_up(now_ns); // busy: later
        self.inner.receive(now_ns, handler)
    }

    fn held_until_ns(&self) -> Option<u64> {
        let held = self.held.as_ref().map(|held| held.release_at_ns);
        let pending = (!self.pending.is_empty()).then_some(self.pending_retry_ns);
        [held, pending].into_iter().flatten().min()
    }
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
