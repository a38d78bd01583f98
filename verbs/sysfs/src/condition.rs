//! The effects of fault plans on the ports of devices, and the file in which the processes count.
//!
//! The effects of fault plans on the ports of devices: the processes that have a device open publish them in
//! the file of counters (`device/fabric/src/registry/published.rs`). A program that has the device open
//! itself sees the condition of its own, and every other program the worst condition of the live processes.

use crate::kernel::{OwnedDescriptor, monotonic_ns, open_private, process_id, read_private};

/// Number of words of a process's record, as `device/fabric/src/registry/published.rs` writes it.
pub(crate) const RECORD_WORDS: usize = 64;
/// Number of records in the file.
pub(crate) const RECORDS: usize = 256;
pub(crate) const WORD_BYTES: usize = 8;
pub(crate) const RECORD_BYTES: usize = RECORD_WORDS * WORD_BYTES;

/// Returns the decimal numbers of a line; `None` for each word that is no number.
pub(crate) fn numbers(line: &[u8]) -> impl Iterator<Item = Option<u64>> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(decimal)
}

fn decimal(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

const CONDITIONS_AT: usize = RECORDS * RECORD_BYTES;
const CONDITION_BYTES: usize = 3 * WORD_BYTES + SHOWN_GIDS;
/// Number of GID table indices whose moves are published, and whose files exist even if they are empty.
const SHOWN_GIDS: usize = 8;
/// Offset of the word that says whether a condition was ever published.
const PUBLISHED_AT: usize = CONDITIONS_AT + RECORDS * CONDITION_BYTES;
/// Offset of the numbers of objects: `ObjectSummary` of the device.
const SUMMARIES_AT: usize = PUBLISHED_AT + WORD_BYTES;
const OBJECT_KINDS: usize = 5;
const SUMMARY_BYTES: usize = OBJECT_KINDS * WORD_BYTES;
/// Number of conditions that are read at a time, onto the stack.
const RECORDS_PER_READ: usize = 32;
/// Offset of the byte of the file that the process with index 0 locks; other processes lock the byte at this
/// offset plus their index.
const FIRST_LOCK: i64 = 1 << 30;
const DOWN: u64 = 1;
const CABLE_OUT: u64 = 2;
const NO_CARRIER: u64 = 4;
/// Maximum length of a line of a file, in bytes.
pub(crate) const LINE_BYTES: usize = 48;

/// Counts the objects of each kind in live processes, from the file of counters whose name consists of these
/// parts.
pub(crate) fn objects(file: &[&[u8]]) -> [u64; OBJECT_KINDS] {
    let mut sum = [0; OBJECT_KINDS];
    let Some(file) = open_private(file) else { return sum };
    let mut buffer = [0_u8; RECORDS_PER_READ * SUMMARY_BYTES];
    for first in (0..RECORDS).step_by(RECORDS_PER_READ) {
        let length = file.read(&mut buffer, SUMMARIES_AT + first * SUMMARY_BYTES);
        let records = buffer.get(..length).unwrap_or_default().chunks_exact(SUMMARY_BYTES);
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

/// The condition of a device's port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PortCondition {
    is_down: bool,
    is_cable_out: bool,
    lacks_carrier: bool,
    /// Speed as `ibv_port_attr` numbers it; 0 for that of the profile.
    speed: u64,
    /// Number of lanes; 0 for that of the profile.
    lanes: u64,
    /// The device is pulled out.
    pub(crate) is_removed: bool,
    /// For each index, one more than the index at which its address was; 0 if it has not moved. Other values
    /// mean none of these indices.
    gid_origins: [u8; SHOWN_GIDS],
}

impl PortCondition {
    /// Reads the present condition from the file of counters whose name consists of these parts; `None` if
    /// there is no such file.
    pub(crate) fn now(file: &[&[u8]]) -> Option<PortCondition> {
        let file = open_private(file)?;
        let mut published = [0_u8; WORD_BYTES];
        if file.read(&mut published, PUBLISHED_AT) < WORD_BYTES || published == [0; WORD_BYTES] {
            return Some(PortCondition::default());
        }
        Some(PortCondition::of_file(&file, process_id(), monotonic_ns()))
    }

    fn of_file(file: &OwnedDescriptor, process: u64, now_ns: u64) -> PortCondition {
        let (mut own, mut worst) = (None, PortCondition::default());
        let mut buffer = [0_u8; RECORDS_PER_READ * CONDITION_BYTES];
        for first in (0..RECORDS).step_by(RECORDS_PER_READ) {
            let length = file.read(&mut buffer, CONDITIONS_AT + first * CONDITION_BYTES);
            let records = buffer.get(..length).unwrap_or_default().chunks_exact(CONDITION_BYTES);
            for (record, index) in records.zip(first..) {
                let word = |at: usize| record.get(at * WORD_BYTES..).and_then(|bytes| bytes.first_chunk());
                let [bits, back_ns, of] =
                    [0, 1, 2].map(|at| word(at).map_or(0, |word| u64::from_ne_bytes(*word)));
                let gid_origins = *record.last_chunk().unwrap_or(&[0; SHOWN_GIDS]);
                let found = PortCondition { gid_origins, ..PortCondition::of_words(bits, back_ns, now_ns) };
                if found != PortCondition::default() && !file.is_locked(FIRST_LOCK + index as i64) {
                    // The process of this record has ended.
                    continue;
                }
                worst = worst.with(found);
                if of == process {
                    own = Some(own.unwrap_or(PortCondition::default()).with(found));
                }
            }
        }
        own.unwrap_or(worst)
    }

    const fn of_words(bits: u64, back_ns: u64, now_ns: u64) -> PortCondition {
        PortCondition {
            is_down: bits & DOWN != 0,
            is_cable_out: bits & CABLE_OUT != 0,
            lacks_carrier: bits & NO_CARRIER != 0,
            lanes: bits >> 8 & 0xff,
            speed: bits >> 16 & 0xffff,
            is_removed: back_ns > now_ns,
            gid_origins: [0; SHOWN_GIDS],
        }
    }

    /// Returns the worse of both conditions.
    fn with(self, other: PortCondition) -> PortCondition {
        let either = |one: u64, other: u64| if other == 0 { one } else { other };
        PortCondition {
            is_down: self.is_down || other.is_down,
            is_cable_out: self.is_cable_out || other.is_cable_out,
            lacks_carrier: self.lacks_carrier || other.lacks_carrier,
            speed: either(self.speed, other.speed),
            lanes: either(self.lanes, other.lanes),
            is_removed: self.is_removed || other.is_removed,
            gid_origins: if self.gid_origins == [0; SHOWN_GIDS] {
                other.gid_origins
            } else {
                self.gid_origins
            },
        }
    }

    /// Returns the index of the GID table at which the address of an index was when the device was opened;
    /// `None` if that index has no files.
    pub(crate) fn gid_origin(self, index: usize) -> Option<usize> {
        match self.gid_origins.get(index) {
            None | Some(0) => Some(index),
            Some(origin) => Some(usize::from(*origin) - 1).filter(|origin| *origin < SHOWN_GIDS),
        }
    }

    /// Returns the numbers of the state and of the physical state, as in verbs.
    pub(crate) const fn states(self) -> (u8, u8) {
        match (self.is_down, self.lacks_carrier, self.is_cable_out) {
            (true, ..) => (1, 3),
            (false, true, _) => (1, 2),
            (false, false, true) => (4, 2),
            (false, false, false) => (4, 5),
        }
    }

    /// Returns the present contents of a file of the port; `None` if they are as always. `whose` is the
    /// device, and the suffix of the port's file names.
    pub(crate) fn line<'a>(
        self,
        whose: (&[u8], &[u8]),
        file: &[u8],
        buffer: &'a mut [u8; LINE_BYTES],
    ) -> Option<&'a [u8]> {
        let (state, physical) = self.states();
        let text: &[u8] = match (file, state, physical) {
            (b"state", 1, _) => b"1: DOWN\n",
            (b"phys_state", _, 3) => b"3: Disabled\n",
            (b"phys_state", _, 2) => b"2: Polling\n",
            (b"rate", ..) if self.speed != 0 || self.lanes != 0 => return self.rate(whose, buffer),
            _ => return None,
        };
        let line = buffer.get_mut(..text.len())?;
        line.copy_from_slice(text);
        Some(line)
    }

    fn rate<'a>(self, (device, port): (&[u8], &[u8]), buffer: &'a mut [u8; LINE_BYTES]) -> Option<&'a [u8]> {
        let mut usual = [0_u8; LINE_BYTES];
        let usual = read_private(&[b"/live/", device, b"/rate", port], &mut usual)?;
        let mut usual = numbers(usual);
        let (speed, lanes) = (usual.next()??, usual.next()??);
        let either = |changed: u64, usual: u64| if changed == 0 { usual } else { changed };
        rate(either(self.speed, speed), either(self.lanes, lanes), buffer)
    }
}

/// Formats a rate as Linux does: "100 Gb/sec (4X EDR)\n".
fn rate(speed: u64, lanes: u64, buffer: &mut [u8; LINE_BYTES]) -> Option<&[u8]> {
    // Speed of a lane, in tenths of Gbit/s.
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
    let mut line = RateLine { buffer, length: 0 };
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
    let RateLine { buffer, length } = line;
    buffer.get(..length)
}

/// A line that is being formatted.
struct RateLine<'a> {
    buffer: &'a mut [u8; LINE_BYTES],
    length: usize,
}

impl RateLine<'_> {
    fn put(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(next) = self.buffer.get_mut(self.length) {
                *next = *byte;
                self.length += 1;
            }
        }
    }

    /// Appends a number below 100,000.
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
    fn numbers_of_a_line_are_read() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b"x"[..], b"1x", b"18446744073709551616", b"-1"] {
            assert_eq!(decimal(wrong), None, "{wrong:?}");
        }
        assert_eq!(numbers(b" 32 x 4\n").collect::<Vec<_>>(), [Some(32), None, Some(4)]);
    }

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
        let down = PortCondition::of_words(DOWN | 4 << 8, 0, 10);
        let out = PortCondition::of_words(CABLE_OUT | 64 << 16, 11, 10);
        assert!(!down.is_removed && out.is_removed && !PortCondition::of_words(0, 11, 11).is_removed);
        assert_eq!(down.states(), (1, 3));
        assert_eq!(out.states(), (4, 2));
        let both = down.with(out);
        assert_eq!((both.states(), both.speed, both.lanes, both.is_removed), ((1, 3), 64, 4, true));
        assert_eq!(PortCondition::of_words(0, 0, 10), PortCondition::default());
        let line = |condition: PortCondition, file: &[u8]| {
            condition.line((b"x", b""), file, &mut [0; LINE_BYTES]).map(<[u8]>::to_vec)
        };
        assert_eq!(line(down, b"state").unwrap(), b"1: DOWN\n");
        assert_eq!(line(out, b"phys_state").unwrap(), b"2: Polling\n");
        assert_eq!(line(out, b"state"), None, "as the tree has it");
        let moved = PortCondition { gid_origins: [6, 255, 0, 0, 0, 1, 9, 0], ..down };
        assert_eq!(out.with(moved).gid_origins, moved.gid_origins);
        let origins = [0, 1, 2, 5, 6, 8, usize::MAX].map(|index| moved.gid_origin(index));
        assert_eq!(origins, [Some(5), None, Some(2), Some(0), None, Some(8), Some(usize::MAX)]);
        // Any process may have written any value, which is read without harm.
        for bits in [u64::MAX, 1 << 63, 0xffff_ff00] {
            let all = PortCondition::of_words(bits, u64::MAX, 0);
            for file in [&b"state"[..], b"phys_state", b"rate", b"other"] {
                assert!(line(all, file).is_none_or(|line| line.len() < LINE_BYTES));
            }
        }
    }
}
