//! The way to another process: a ring, or the reason why there is none.

use pumice_model::port::batch::{CopyReport, CopyWay, GsoBatch};
use pumice_platform::outside::event_fd::EventFd;
use pumice_transport::path::Path;

use super::message::RingRefusal;
use super::paths::{BatchPath, PathNumber, PathNumbers};
use crate::ring::{Broken, Geometry, Producer, RingPushOutcome, Slot, SlotKind};
use crate::system::{self, RingPages};
use pumice_model::port::copy_choice::{CopyChoice, TimedPut};

/// Time that an answer to an invitation is awaited, in nanoseconds.
const INVITATION_TIMEOUT_NS: u64 = 1_000_000_000;
/// Time that UDP is used before the next invitation, in nanoseconds.
const REFUSED_FOR_NS: u64 = 10_000_000_000;
/// Time that a sender waits for a consumer that takes nothing before batches are lost as they would be by
/// UDP, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Time between two checks whether a consumer that takes nothing still lives, in nanoseconds.
const CONSUMER_CHECK_INTERVAL_NS: u64 = 1_000_000;

/// The reason why batches go by UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The process refused the ring.
    Refused(RingRefusal),
    /// The consumer wrote an invalid value.
    Broken,
    /// The process has gone.
    ProcessEnded,
    /// The process did not answer.
    NoAnswer,
    /// There is no memory for a ring, or no message can be sent.
    Impossible,
    /// The limit of rings of this process is reached.
    TooMany,
}

impl Closed {
    /// Returns the reason in words.
    pub(super) fn why(self) -> &'static str {
        match self {
            Closed::Refused(RingRefusal::UdpOnly) => "the other process uses UDP only",
            Closed::Refused(RingRefusal::Memory) => "the other process cannot map the ring",
            Closed::Refused(RingRefusal::Broken) => "the other process found the ring damaged",
            Closed::Refused(RingRefusal::Unable) => "the other process could not open what rings need",
            Closed::Refused(RingRefusal::TooMany) => "the other process has too many rings",
            Closed::Broken => "the ring was found damaged",
            Closed::ProcessEnded => "the process that had the ring has ended",
            Closed::NoAnswer => "the other process has not answered whether it takes a ring",
            Closed::Impossible => "there is no memory for a ring, or the process cannot be asked",
            Closed::TooMany => "this process has rings to as many others as it may",
        }
    }
}

/// The state of the way to a process.
#[derive(Debug)]
pub(super) enum OutboundRing {
    /// The process was invited, and has not answered yet.
    Invited { number: u64, invited_ns: u64, producer: Box<Producer<RingPages>> },
    /// Batches go through the ring.
    Open(Box<OpenRing>),
    /// Batches go by UDP, and the process is invited again after a time.
    Closed { closed: Closed, until_ns: u64 },
}

impl OutboundRing {
    /// Returns the state in which batches go by UDP for a while.
    pub(super) fn closed(closed: Closed, now_ns: u64) -> OutboundRing {
        OutboundRing::Closed { closed, until_ns: now_ns.saturating_add(REFUSED_FOR_NS) }
    }

    /// Reports whether the process should be invited (again).
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        match self {
            OutboundRing::Invited { invited_ns, .. } => {
                now_ns.saturating_sub(*invited_ns) >= INVITATION_TIMEOUT_NS
            }
            OutboundRing::Open(_) => false,
            OutboundRing::Closed { until_ns, .. } => now_ns >= *until_ns,
        }
    }
}

/// Result of putting a batch into a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// The batch is in the ring.
    Done,
    /// The ring is full, and the batch is lost.
    Lost,
}

/// The producer of a ring that the other process has accepted.
#[derive(Debug)]
pub(super) struct OpenRing {
    number: u64,
    producer: Producer<RingPages>,
    paths: PathNumbers,
    doorbell: EventFd,
    copies: CopyChoice,
    /// Incarnation number of the consumer.
    pub(super) incarnation: u64,
    /// Time since which the ring has had no room.
    full_since_ns: Option<u64>,
    checked_ns: u64,
}

/// The answer to whether a batch may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingRoom {
    Yes,
    No,
    /// The ring has no room, and the caller has to find out whether the consumer lives.
    CheckConsumer,
}

impl OpenRing {
    pub(super) fn new(
        number: u64,
        producer: Producer<RingPages>,
        doorbell: EventFd,
        incarnation: u64,
        copies: CopyChoice,
    ) -> OpenRing {
        OpenRing {
            number,
            producer,
            paths: PathNumbers::default(),
            doorbell,
            copies,
            incarnation,
            full_since_ns: None,
            checked_ns: 0,
        }
    }

    /// Returns the number of the ring among those of this process.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns what is known about the copies of long batches.
    pub(super) fn copies(&self) -> CopyReport {
        self.copies.report()
    }

    /// Returns the size of the ring.
    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        self.producer.geometry()
    }

    /// Reports whether the path was described in the ring.
    #[inline]
    pub(super) fn knows(&self, path: &Path) -> bool {
        matches!(self.paths.find(path), PathNumber::Known(_))
    }

    /// Writes invalid bytes into the ring.
    #[cfg(test)]
    pub(super) fn scribble(&mut self) {
        self.producer.scribble();
        self.doorbell.set();
    }

    /// Reports whether a batch of this length fits now, with the description of its path.
    #[inline]
    pub(super) fn has_room(&mut self, batch_bytes: u32) -> bool {
        let has_room = self.producer.has_room(2, batch_bytes) == Ok(true);
        if has_room {
            self.full_since_ns = None;
        } else {
            self.copies.note_full();
        }
        has_room
    }

    /// Reports whether a batch fits as [`OpenRing::has_room`] does, and for how long it is worth while to
    /// wait.
    ///
    /// # Errors
    /// Fails if the consumer wrote an invalid value.
    #[inline]
    pub(super) fn room(&mut self, now_ns: u64, batch_bytes: u32) -> Result<RingRoom, Broken> {
        if self.producer.has_room(2, batch_bytes)? {
            self.full_since_ns = None;
            return Ok(RingRoom::Yes);
        }
        self.copies.note_full();
        let since_ns = *self.full_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) >= PATIENCE_NS {
            return Ok(RingRoom::Yes);
        }
        if now_ns.saturating_sub(self.checked_ns.max(since_ns)) < CONSUMER_CHECK_INTERVAL_NS {
            return Ok(RingRoom::No);
        }
        self.checked_ns = now_ns;
        Ok(RingRoom::CheckConsumer)
    }

    /// Puts a batch into the ring, and wakes the consumer if it sleeps.
    ///
    /// # Errors
    /// Fails if the consumer wrote an invalid value.
    #[inline]
    pub(super) fn put(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<PutOutcome, Broken> {
        let number = match self.paths.find_of_series(batch.series, batch.path) {
            PathNumber::Known(number) => number,
            PathNumber::New(number) => {
                if self.describe(number, batch.path)? == PutOutcome::Lost {
                    return Ok(PutOutcome::Lost);
                }
                number
            }
        };
        self.put_numbered(now_ns, number, batch)
    }

    /// Puts a batch whose path was described into the ring, as [`OpenRing::put`] does. Returns `None` if the
    /// path was not described, or if the consumer wrote an invalid value, which [`OpenRing::put`] finds
    /// again.
    #[inline]
    pub(super) fn put_on_known_path(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Option<PutOutcome> {
        let PathNumber::Known(number) = self.paths.find_of_series(batch.series, batch.path) else {
            return None;
        };
        self.put_numbered(now_ns, number, batch).ok()
    }

    #[inline]
    fn put_numbered(&mut self, now_ns: u64, number: u8, batch: &GsoBatch<'_>) -> Result<PutOutcome, Broken> {
        let length_bytes = batch.bytes.len() as u32;
        let whole = if batch.segment_bytes == 0 { length_bytes } else { batch.segment_bytes as u32 };
        let slot = Slot {
            kind: if batch.has_icrc { SlotKind::Sealed } else { SlotKind::Unsealed },
            path: number,
            segment_bytes: whole.min(length_bytes),
            length_bytes,
        };
        match self.copies.way_of(now_ns, length_bytes) {
            None => self.push(&slot, batch.bytes, CopyWay::Cached),
            Some(way) => self.push_long(&slot, batch.bytes, way),
        }
    }

    /// Puts a short batch without ICRC of the series of the last batch into the ring, and wakes the consumer
    /// if it sleeps. Returns false if it has to be put there by [`OpenRing::put`].
    #[inline]
    pub(super) fn put_short(&mut self, series: u64, segment_bytes: usize, bytes: &[u8]) -> bool {
        let Some(path) = self.paths.number_of_series(series) else { return false };
        let length_bytes = bytes.len() as u32;
        let segment_bytes = (segment_bytes as u32).min(length_bytes);
        let slot = Slot { kind: SlotKind::Unsealed, path, segment_bytes, length_bytes };
        match self.producer.push_short(&slot, bytes) {
            Some(RingPushOutcome::Done) => true,
            Some(RingPushOutcome::DoneWake) => {
                self.doorbell.set();
                true
            }
            Some(RingPushOutcome::Full) | None => false,
        }
    }

    #[cold]
    fn describe(&mut self, number: u8, path: &Path) -> Result<PutOutcome, Broken> {
        let Some(bytes) = BatchPath::of(path).encode() else { return Ok(PutOutcome::Lost) };
        let length_bytes = bytes.len() as u32;
        let slot = Slot { kind: SlotKind::Path, path: number, segment_bytes: length_bytes, length_bytes };
        let put = self.push(&slot, &bytes, CopyWay::Cached)?;
        if put == PutOutcome::Done {
            self.paths.learn(path);
        }
        Ok(put)
    }

    /// Puts a batch of a long message into the ring, and times it while that decides between the ways.
    fn push_long(&mut self, slot: &Slot, bytes: &[u8], way: CopyWay) -> Result<PutOutcome, Broken> {
        if !self.copies.is_timed() {
            let outcome = self.push(slot, bytes, way)?;
            self.copies.note(slot.length_bytes);
            return Ok(outcome);
        }
        let begun_ns = system::monotonic_ns();
        let (written_bytes, taken_bytes) = self.producer.progress()?;
        let outcome = self.push(slot, bytes, way)?;
        let ended_ns = system::monotonic_ns();
        if outcome == PutOutcome::Done {
            let length_bytes = slot.length_bytes;
            self.copies.note_timed(TimedPut { begun_ns, ended_ns, length_bytes, written_bytes, taken_bytes });
        }
        Ok(outcome)
    }

    #[inline]
    fn push(&mut self, slot: &Slot, bytes: &[u8], way: CopyWay) -> Result<PutOutcome, Broken> {
        match self.producer.push_by(slot, bytes, way)? {
            RingPushOutcome::Done => {}
            RingPushOutcome::DoneWake => self.doorbell.set(),
            RingPushOutcome::Full => return Ok(PutOutcome::Lost),
        }
        Ok(PutOutcome::Done)
    }
}
