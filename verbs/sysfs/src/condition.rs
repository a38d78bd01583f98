//! What fault plans have done to the ports of devices: the processes that have a device open say so in the
//! file of counters (`device/share/src/published.rs`). A program that has the device open itself is shown
//! what happened to its own, and every other program the worst of what happened to those that live.

use crate::kernel::{Descriptor, monotonic_ns, open_private, process_id, read_private};
use crate::records::{RECORD_BYTES, RECORDS, WORD_BYTES, numbers};

const CONDITIONS_AT: usize = RECORDS * RECORD_BYTES;
const CONDITION_BYTES: usize = 3 * WORD_BYTES + SHOWN_GIDS;
/// Indices of the GID table whose moves are told, and that files show although they are empty.
pub(crate) const SHOWN_GIDS: usize = 8;
/// Whether a condition was ever told.
const TOLD_AT: usize = CONDITIONS_AT + RECORDS * CONDITION_BYTES;
/// Numbers of objects: `ObjectSummary` of the device.
const SUMMARIES_AT: usize = TOLD_AT + WORD_BYTES;
const KINDS: usize = 5;
const SUMMARY_BYTES: usize = KINDS * WORD_BYTES;
/// Conditions that are read at a time, onto the stack.
const AT_A_TIME: usize = 32;
/// The byte of the file that a process locks is as far behind this as its index says.
const FIRST_LOCK: i64 = 1 << 30;
const DOWN: u64 = 1;
const CABLE_OUT: u64 = 2;
const NO_CARRIER: u64 = 4;
/// Room for a line of a file.
pub(crate) const LINE_BYTES: usize = 48;

/// How many objects of each kind the processes have that live, in the file of counters whose name these parts
/// make.
pub(crate) fn objects(file: &[&[u8]]) -> [u64; KINDS] {
    let mut sum = [0; KINDS];
    let Some(file) = open_private(file) else { return sum };
    let mut room = [0_u8; AT_A_TIME * SUMMARY_BYTES];
    for first in (0..RECORDS).step_by(AT_A_TIME) {
        let length = file.read(&mut room, SUMMARIES_AT + first * SUMMARY_BYTES);
        let records = room.get(..length).unwrap_or_default().chunks_exact(SUMMARY_BYTES);
        for (record, index) in records.zip(first..) {
            if record.iter().any(|byte| *byte != 0) && file.is_locked(FIRST_LOCK + index as i64) {
                for (sum, word) in sum.iter_mut().zip(record.chunks_exact(WORD_BYTES)) {
                    let word = word.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
                    *sum = sum.wrapping_add(word);
                }
            }
        }
    }
    sum
}

/// What the port of a device is in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    is_down: bool,
    is_cable_out: bool,
    lacks_carrier: bool,
    /// As `ibv_port_attr` numbers it; 0: that of the profile.
    speed: u64,
    /// 0: those of the profile.
    lanes: u64,
    /// The device is not there.
    pub(crate) is_gone: bool,
    /// One more than the index where the address of each index was; 0: it has not moved. Others: at none of
    /// these.
    gid_origins: [u8; SHOWN_GIDS],
}

impl Condition {
    /// As it is now in the file of counters whose name these parts make; none if the file is not there.
    pub(crate) fn now(file: &[&[u8]]) -> Option<Condition> {
        let file = open_private(file)?;
        let mut told = [0_u8; WORD_BYTES];
        if file.read(&mut told, TOLD_AT) < WORD_BYTES || told == [0; WORD_BYTES] {
            return Some(Condition::default());
        }
        Some(Condition::of_file(&file, process_id(), monotonic_ns()))
    }

    fn of_file(file: &Descriptor, process: u64, now_ns: u64) -> Condition {
        let (mut own, mut worst) = (None, Condition::default());
        let mut room = [0_u8; AT_A_TIME * CONDITION_BYTES];
        for first in (0..RECORDS).step_by(AT_A_TIME) {
            let length = file.read(&mut room, CONDITIONS_AT + first * CONDITION_BYTES);
            let records = room.get(..length).unwrap_or_default().chunks_exact(CONDITION_BYTES);
            for (record, index) in records.zip(first..) {
                let word = |at: usize| record.get(at * WORD_BYTES..).and_then(|bytes| bytes.first_chunk());
                let [bits, back_ns, of] =
                    [0, 1, 2].map(|at| word(at).map_or(0, |word| u64::from_ne_bytes(*word)));
                let gid_origins = *record.last_chunk().unwrap_or(&[0; SHOWN_GIDS]);
                let found = Condition { gid_origins, ..Condition::of_words(bits, back_ns, now_ns) };
                if found != Condition::default() && !file.is_locked(FIRST_LOCK + index as i64) {
                    // The process that it was of has gone.
                    continue;
                }
                worst = worst.with(found);
                if of == process {
                    own = Some(own.unwrap_or(Condition::default()).with(found));
                }
            }
        }
        own.unwrap_or(worst)
    }

    const fn of_words(bits: u64, back_ns: u64, now_ns: u64) -> Condition {
        Condition {
            is_down: bits & DOWN != 0,
            is_cable_out: bits & CABLE_OUT != 0,
            lacks_carrier: bits & NO_CARRIER != 0,
            lanes: bits >> 8 & 0xff,
            speed: bits >> 16 & 0xffff,
            is_gone: back_ns > now_ns,
            gid_origins: [0; SHOWN_GIDS],
        }
    }

    /// The worse of both.
    fn with(self, other: Condition) -> Condition {
        let either = |one: u64, other: u64| if other == 0 { one } else { other };
        Condition {
            is_down: self.is_down || other.is_down,
            is_cable_out: self.is_cable_out || other.is_cable_out,
            lacks_carrier: self.lacks_carrier || other.lacks_carrier,
            speed: either(self.speed, other.speed),
            lanes: either(self.lanes, other.lanes),
            is_gone: self.is_gone || other.is_gone,
            gid_origins: if self.gid_origins == [0; SHOWN_GIDS] {
                other.gid_origins
            } else {
                self.gid_origins
            },
        }
    }

    /// Where an index of the GID table had its address when the device was opened; none: at no index that has
    /// files.
    pub(crate) fn gid_origin(self, index: usize) -> Option<usize> {
        match self.gid_origins.get(index) {
            None | Some(0) => Some(index),
            Some(origin) => Some(usize::from(*origin) - 1).filter(|origin| *origin < SHOWN_GIDS),
        }
    }

    /// The numbers of the state and of the physical state, as verbs have them.
    pub(crate) const fn states(self) -> (u8, u8) {
        match (self.is_down, self.lacks_carrier, self.is_cable_out) {
            (true, ..) => (1, 3),
            (false, true, _) => (1, 2),
            (false, false, true) => (4, 2),
            (false, false, false) => (4, 5),
        }
    }

    /// What a file of the port says now; none if it says what it always does. `whose`: the device, and what
    /// is behind the names of the port's files.
    pub(crate) fn line<'a>(
        self,
        whose: (&[u8], &[u8]),
        file: &[u8],
        room: &'a mut [u8; LINE_BYTES],
    ) -> Option<&'a [u8]> {
        let (state, physical) = self.states();
        let text: &[u8] = match (file, state, physical) {
            (b"state", 1, _) => b"1: DOWN\n",
            (b"phys_state", _, 3) => b"3: Disabled\n",
            (b"phys_state", _, 2) => b"2: Polling\n",
            (b"rate", ..) if self.speed != 0 || self.lanes != 0 => return self.rate(whose, room),
            _ => return None,
        };
        let line = room.get_mut(..text.len())?;
        line.copy_from_slice(text);
        Some(line)
    }

    fn rate<'a>(self, (device, port): (&[u8], &[u8]), room: &'a mut [u8; LINE_BYTES]) -> Option<&'a [u8]> {
        let mut usual = [0_u8; LINE_BYTES];
        let usual = read_private(&[b"/live/", device, b"/rate", port], &mut usual)?;
        let mut usual = numbers(usual);
        let (speed, lanes) = (usual.next()??, usual.next()??);
        let either = |changed: u64, usual: u64| if changed == 0 { usual } else { changed };
        rate(either(self.speed, speed), either(self.lanes, lanes), room)
    }
}

/// A rate as Linux writes it: "100 Gb/sec (4X EDR)\n".
fn rate(speed: u64, lanes: u64, room: &mut [u8; LINE_BYTES]) -> Option<&[u8]> {
    // Of a lane, in tenths of Gbit/s.
    let (tenths, name): (u64, &[u8]) = match speed {
        1 => (25, b"SDR"),
        2 => (50, b"DDR"),
        4 => (100, b"QDR"),
        8 => (100, b"FDR10"),
        16 => (140, b"FDR"),
        32 => (250, b"EDR"),
        64 => (500, b"HDR"),
        128 => (1000, b"NDR"),
        256 => (2000, b"XDR"),
        _ => return None,
    };
    let total = tenths.checked_mul(lanes).filter(|_| lanes < 100)?;
    let mut line = RateLine { room, length: 0 };
    line.number(total / 10);
    if total % 10 != 0 {
        line.put(b".");
        line.number(total % 10);
    }
    line.put(b" Gb/sec (");
    line.number(lanes);
    line.put(b"X ");
    line.put(name);
    line.put(b")\n");
    let RateLine { room, length } = line;
    room.get(..length)
}

/// A line that is being written.
struct RateLine<'a> {
    room: &'a mut [u8; LINE_BYTES],
    length: usize,
}

impl RateLine<'_> {
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(next) = self.room.get_mut(self.length) {
                *next = *byte;
                self.length += 1;
            }
        }
    }

    /// A number below 100,000.
    fn number(&mut self, number: u64) {
        for scale in [10_000, 1_000, 100, 10, 1] {
            if number >= scale || scale == 1 {
                self.put(&[b'0' + (number / scale % 10) as u8]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_written_as_linux_does() {
        let text = |speed, lanes| rate(speed, lanes, &mut [0; LINE_BYTES]).map(<[u8]>::to_vec);
        assert_eq!(text(1, 1).unwrap(), b"2.5 Gb/sec (1X SDR)\n");
        assert_eq!(text(32, 4).unwrap(), b"100 Gb/sec (4X EDR)\n");
        assert_eq!(text(256, 12).unwrap(), b"2400 Gb/sec (12X XDR)\n");
        assert_eq!(text(8, 8).unwrap(), b"80 Gb/sec (8X FDR10)\n");
        for (speed, lanes) in [(0, 4), (3, 4), (256, 255), (65_535, 1)] {
            assert_eq!(text(speed, lanes), None, "{speed} {lanes}");
        }
    }

    #[test]
    fn words_are_a_condition_and_the_worse_one_counts() {
        let down = Condition::of_words(DOWN | 4 << 8, 0, 10);
        let out = Condition::of_words(CABLE_OUT | 64 << 16, 11, 10);
        assert!(!down.is_gone && out.is_gone && !Condition::of_words(0, 11, 11).is_gone);
        assert_eq!(down.states(), (1, 3));
        assert_eq!(out.states(), (4, 2));
        let both = down.with(out);
        assert_eq!((both.states(), both.speed, both.lanes, both.is_gone), ((1, 3), 64, 4, true));
        assert_eq!(Condition::of_words(0, 0, 10), Condition::default());
        let line = |condition: Condition, file: &[u8]| {
            condition.line((b"x", b""), file, &mut [0; LINE_BYTES]).map(<[u8]>::to_vec)
        };
        assert_eq!(line(down, b"state").unwrap(), b"1: DOWN\n");
        assert_eq!(line(out, b"phys_state").unwrap(), b"2: Polling\n");
        assert_eq!(line(out, b"state"), None, "as the tree has it");
        let moved = Condition { gid_origins: [6, 255, 0, 0, 0, 1, 9, 0], ..down };
        assert_eq!(out.with(moved).gid_origins, moved.gid_origins);
        let origins = [0, 1, 2, 5, 6, 8, usize::MAX].map(|index| moved.gid_origin(index));
        assert_eq!(origins, [Some(5), None, Some(2), Some(0), None, Some(8), Some(usize::MAX)]);
        // What any process may have written there is read without harm.
        for bits in [u64::MAX, 1 << 63, 0xffff_ff00] {
            let all = Condition::of_words(bits, u64::MAX, 0);
            for file in [&b"state"[..], b"phys_state", b"rate", b"other"] {
                assert!(line(all, file).is_none_or(|line| line.len() < LINE_BYTES));
            }
        }
    }
}
