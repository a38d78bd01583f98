//! A link in virtual time, with faults from a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_transport::host::Transmit;
use pumice_transport::path::{Flow, Path};
use pumice_transport::wire::{Qpn, icrc};

/// A small generator (splitmix64): the same seed gives the same run.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// True in so many cases of a thousand.
    pub(crate) fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of a list.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// What happens to packets, in cases of a thousand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) loss: u64,
    pub(crate) duplication: u64,
    pub(crate) reordering: u64,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults { loss: 0, duplication: 0, reordering: 0 };
}

/// A packet under way.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) flow: Flow,
    pub(crate) traffic_class: u8,
    pub(crate) bytes: Vec<u8>,
}

const DELAY_NS: u64 = 10_000;
const LATE_NS: u64 = 100_000;

/// The link: packets by time of arrival.
#[derive(Debug)]
pub(crate) struct Link {
    faults: Faults,
    random: Random,
    under_way: BTreeMap<(u64, u64), Frame>,
    serial: u64,
}

impl Link {
    pub(crate) fn new(faults: Faults, seed: u64) -> Link {
        Link { faults, random: Random(seed), under_way: BTreeMap::new(), serial: 0 }
    }

    pub(crate) fn send(&mut self, now_ns: u64, frame: Frame) {
        if self.random.chance(self.faults.duplication) {
            let late_ns = self.random.below(LATE_NS);
            self.enqueue(now_ns + DELAY_NS + late_ns, frame.clone());
        }
        if self.random.chance(self.faults.loss) {
            return;
        }
        let late_ns = if self.random.chance(self.faults.reordering) { self.random.below(LATE_NS) } else { 0 };
        self.enqueue(now_ns + DELAY_NS + late_ns, frame);
    }

    fn enqueue(&mut self, at_ns: u64, frame: Frame) {
        self.serial += 1;
        self.under_way.insert((at_ns, self.serial), frame);
    }

    pub(crate) fn next_arrival_ns(&self) -> Option<u64> {
        self.under_way.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// The next packet that has arrived by now.
    pub(crate) fn arrival(&mut self, now_ns: u64) -> Option<Frame> {
        let entry = self.under_way.first_entry()?;
        (entry.key().0 <= now_ns).then(|| entry.remove())
    }
}

/// The port of one end: room for a few packets, then it has to be emptied onto the link.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) room: usize,
    pub(crate) frames: Vec<Frame>,
    open: bool,
}

impl Transmit for Outbox {
    fn begin(&mut self, path: &Arc<Path>, _destination: Qpn, length_bytes: usize) -> Option<&mut [u8]> {
        assert!(!self.open, "begin while a packet is open");
        self.room = self.room.checked_sub(1)?;
        self.open = true;
        let (flow, traffic_class) = (path.flow, path.traffic_class);
        self.frames.push(Frame { flow, traffic_class, bytes: vec![0xa5; length_bytes] });
        self.frames.last_mut().map(|frame| &mut frame.bytes[..])
    }

    fn seal(&mut self) {
        assert!(std::mem::take(&mut self.open), "seal without begin");
        let frame = self.frames.last_mut().expect("an open packet");
        icrc::seal(&frame.flow, 0, &mut frame.bytes);
    }

    fn abandon(&mut self) {
        assert!(std::mem::take(&mut self.open), "abandon without begin");
        self.frames.pop();
    }
}
