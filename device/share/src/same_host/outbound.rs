//! The way to another process: a ring, or why there is none.

use pumice_ground::outside::event_fd::EventFd;
use pumice_ports::GsoBatch;
use pumice_transport::path::Path;

use super::message::Refusal;
use super::paths::{BatchPath, Number, PathNumbers};
use crate::ring::{Broken, Geometry, Producer, Pushed, Slot, SlotKind};
use crate::system::RingPages;

/// How long an answer to an invitation is waited for.
const ANSWER_PATIENCE_NS: u64 = 1_000_000_000;
/// How long UDP is used before the next invitation.
const REFUSED_FOR_NS: u64 = 10_000_000_000;
/// How long a sender waits for a consumer that takes nothing, before batches are lost as they would be by
/// UDP.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Time between two looks whether a consumer that takes nothing still lives.
const LOOK_INTERVAL_NS: u64 = 1_000_000;

/// Why batches go by UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// The process said so.
    Refused(Refusal),
    /// The consumer claims what cannot be true.
    Broken,
    /// The process has gone.
    Gone,
    /// The process did not answer.
    NoAnswer,
    /// There is no memory for a ring, or no message can be sent.
    Impossible,
    /// This process has as many rings as it may.
    TooMany,
}

impl Closed {
    /// The reason in words.
    pub(super) fn why(self) -> &'static str {
        match self {
            Closed::Refused(Refusal::UdpOnly) => "the other process uses UDP only",
            Closed::Refused(Refusal::Memory) => "the other process cannot map the ring",
            Closed::Refused(Refusal::Broken) => "the other process found the ring damaged",
            Closed::Refused(Refusal::Unable) => "the other process could not open what rings need",
            Closed::Refused(Refusal::TooMany) => "the other process has too many rings",
            Closed::Broken => "the ring was found damaged",
            Closed::Gone => "the process that had the ring has ended",
            Closed::NoAnswer => "the other process has not answered whether it takes a ring",
            Closed::Impossible => "there is no memory for a ring, or the process cannot be asked",
            Closed::TooMany => "this process has rings to as many others as it may",
        }
    }
}

/// The state of the way to a process.
#[derive(Debug)]
pub(super) enum Outbound {
    /// The process was asked, and has not answered yet.
    Invited { number: u64, asked_ns: u64, producer: Box<Producer<RingPages>> },
    /// Batches go through the ring.
    Open(Box<OpenRing>),
    /// Batches go by UDP, and an invitation is tried again after a time.
    Closed { closed: Closed, until_ns: u64 },
}

impl Outbound {
    /// UDP for a while.
    pub(super) fn closed(closed: Closed, now_ns: u64) -> Outbound {
        Outbound::Closed { closed, until_ns: now_ns.saturating_add(REFUSED_FOR_NS) }
    }

    /// Whether the process should be asked (again).
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        match self {
            Outbound::Invited { asked_ns, .. } => now_ns.saturating_sub(*asked_ns) >= ANSWER_PATIENCE_NS,
            Outbound::Open(_) => false,
            Outbound::Closed { until_ns, .. } => now_ns >= *until_ns,
        }
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is in the ring.
    Done,
    /// The ring is full, and the batch is lost.
    Lost,
}

/// The producer of a ring that the other process has.
#[derive(Debug)]
pub(super) struct OpenRing {
    number: u64,
    producer: Producer<RingPages>,
    paths: PathNumbers,
    bell: EventFd,
    /// The consumer's.
    pub(super) incarnation: u64,
    /// Since when the ring has had no room.
    full_since_ns: Option<u64>,
    looked_ns: u64,
}

/// Whether a batch may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Yes,
    No,
    /// No, and the caller finds out whether the consumer lives.
    NoLook,
}

impl OpenRing {
    pub(super) fn new(
        number: u64,
        producer: Producer<RingPages>,
        bell: EventFd,
        incarnation: u64,
    ) -> OpenRing {
        OpenRing {
            number,
            producer,
            paths: PathNumbers::default(),
            bell,
            incarnation,
            full_since_ns: None,
            looked_ns: 0,
        }
    }

    /// Which of this process's rings it is.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The size of the ring.
    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        self.producer.geometry()
    }

    /// Whether the ring knows this path.
    #[inline]
    pub(super) fn knows(&self, path: &Path) -> bool {
        matches!(self.paths.find(path), Number::Known(_))
    }

    /// Writes nonsense into the ring.
    #[cfg(test)]
    pub(super) fn scribble(&mut self) {
        self.producer.scribble();
        self.bell.set();
    }

    /// Whether a batch of so many bytes fits now, with the description of its path.
    #[inline]
    pub(super) fn has_room(&mut self, batch_bytes: u32) -> bool {
        let has_room = self.producer.has_room(2, batch_bytes) == Ok(true);
        if has_room {
            self.full_since_ns = None;
        }
        has_room
    }

    /// As [`OpenRing::has_room`], and for how long it is worth while to wait.
    ///
    /// # Errors
    /// The consumer claims what cannot be true.
    #[inline]
    pub(super) fn room(&mut self, now_ns: u64, batch_bytes: u32) -> Result<Room, Broken> {
        if self.producer.has_room(2, batch_bytes)? {
            self.full_since_ns = None;
            return Ok(Room::Yes);
        }
        let since_ns = *self.full_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) >= PATIENCE_NS {
            return Ok(Room::Yes);
        }
        if now_ns.saturating_sub(self.looked_ns.max(since_ns)) < LOOK_INTERVAL_NS {
            return Ok(Room::No);
        }
        self.looked_ns = now_ns;
        Ok(Room::NoLook)
    }

    /// Puts a batch into the ring, and wakes the consumer if it sleeps.
    ///
    /// # Errors
    /// The consumer claims what cannot be true.
    #[inline]
    pub(super) fn put(&mut self, batch: &GsoBatch<'_>) -> Result<Put, Broken> {
        let number = match self.paths.find_of_series(batch.series, batch.path) {
            Number::Known(number) => number,
            Number::New(number) => {
                if self.describe(number, batch.path)? == Put::Lost {
                    return Ok(Put::Lost);
                }
                number
            }
        };
        self.put_numbered(number, batch)
    }

    /// The same of a batch whose path is known. `None`: it is not, or the consumer claims what cannot be
    /// true, which [`OpenRing::put`] finds again.
    #[inline]
    pub(super) fn put_on_known_path(&mut self, batch: &GsoBatch<'_>) -> Option<Put> {
        let Number::Known(number) = self.paths.find_of_series(batch.series, batch.path) else { return None };
        self.put_numbered(number, batch).ok()
    }

    #[inline]
    fn put_numbered(&mut self, number: u8, batch: &GsoBatch<'_>) -> Result<Put, Broken> {
        let length_bytes = batch.bytes.len() as u32;
        let whole = if batch.segment_bytes == 0 { length_bytes } else { batch.segment_bytes as u32 };
        let slot = Slot {
            kind: if batch.has_icrc { SlotKind::Sealed } else { SlotKind::Unsealed },
            path: number,
            segment_bytes: whole.min(length_bytes),
            length_bytes,
        };
        self.push(&slot, batch.bytes)
    }

    #[cold]
    fn describe(&mut self, number: u8, path: &Path) -> Result<Put, Broken> {
        let Some(bytes) = BatchPath::of(path).encode() else { return Ok(Put::Lost) };
        let length_bytes = bytes.len() as u32;
        let slot = Slot { kind: SlotKind::Path, path: number, segment_bytes: length_bytes, length_bytes };
        let put = self.push(&slot, &bytes)?;
        if put == Put::Done {
            self.paths.learn(path);
        }
        Ok(put)
    }

    #[inline]
    fn push(&mut self, slot: &Slot, bytes: &[u8]) -> Result<Put, Broken> {
        match self.producer.push(slot, bytes)? {
            Pushed::Done => {}
            Pushed::DoneWake => self.bell.set(),
            Pushed::Full => return Ok(Put::Lost),
        }
        Ok(Put::Done)
    }
}
