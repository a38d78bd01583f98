//! Functions of a loaded object, from its table for unwinding stacks.

use std::ops::Range;

/// Header of `.eh_frame_hdr` version 1; addresses are relative to their own place or the table, as four bytes
/// with a sign: all linkers write this form.
const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEAD_BYTES: u64 = 12;
const ENTRY_BYTES: u64 = 8;
/// Offset from the beginning of a function's record to its address.
const TO_FIRST: u64 = 8;

/// Reads four bytes at an address of the object; `None` if they are not in it.
pub(super) type ReadWord<'a> = &'a dyn Fn(u64) -> Option<u32>;

/// The table at an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnwindTable {
    at: u64,
    count: u64,
}

impl UnwindTable {
    /// Finds the table; `None` if it has another form.
    pub(super) fn at(at: u64, read: ReadWord<'_>) -> Option<UnwindTable> {
        let head = read(at)?.to_le_bytes();
        (head == HEAD).then_some(())?;
        Some(UnwindTable { at, count: u64::from(read(at + 8)?) })
    }

    /// Returns the function that contains an address.
    pub(super) fn function_of(&self, address: u64, read: ReadWord<'_>) -> Option<Range<u64>> {
        let entry = |index: u64| self.at + HEAD_BYTES + index * ENTRY_BYTES;
        let relative = |at: u64, to: u64| Some(to.wrapping_add_signed(i64::from(read(at)? as i32)));
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if relative(entry(middle), self.at)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let first = relative(entry(index), self.at)?;
        let record = relative(entry(index) + 4, self.at)?;
        // The record has the address in a form of its own, which is known if it gives the same address.
        let is_known = relative(record + TO_FIRST, record + TO_FIRST)? == first;
        let function = first..first + u64::from(read(record + TO_FIRST + 4)?);
        let is_known = is_known && !is_of_signals(record, read)?;
        (is_known && function.contains(&address)).then_some(function)
    }
}

/// Reports whether a record is of code that returns from a signal handler: it gives an address before the
/// function's.
fn is_of_signals(record: u64, read: ReadWord<'_>) -> Option<bool> {
    const TO_TEXT: u64 = 9;
    let shared = (record + 4).checked_sub(u64::from(read(record + 4)?))?;
    let text = [read(shared + TO_TEXT)?.to_le_bytes(), read(shared + TO_TEXT + 4)?.to_le_bytes()];
    Some(text.as_flattened().iter().take_while(|byte| **byte != 0).any(|byte| *byte == b'S'))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn functions_are_found_by_any_of_their_addresses() {
        // Functions at 0x100 (16 bytes) and 0x200 (32 bytes); the table is at 0, records at 0xc0 and 0xe0.
        let mut words = HashMap::from([(0, u32::from_le_bytes(HEAD)), (8, 2)]);
        for (entry, first, record, bytes) in [(12_u64, 0x100_u32, 0xc0_u32, 16), (20, 0x200, 0xe0, 32)] {
            words.insert(entry, first);
            words.insert(entry + 4, record);
            // The part that records share is at 0x80.
            words.insert(u64::from(record) + 4, (record + 4).wrapping_sub(0x80));
            words.insert(u64::from(record) + 8, first - record - 8);
            words.insert(u64::from(record) + 12, bytes);
        }
        words.extend([(0x89, u32::from_le_bytes(*b"zR\0\x01")), (0x8d, 0)]);
        let read = |at: u64| words.get(&at).copied();
        let table = UnwindTable::at(0, &read).unwrap();
        for (address, function) in [
            (0xff, None),
            (0x100, Some(0x100..0x110)),
            (0x10f, Some(0x100..0x110)),
            (0x110, None),
            (0x21f, Some(0x200..0x220)),
            (0x220, None),
        ] {
            assert_eq!(table.function_of(address, &read), function, "{address:#x}");
        }
        assert!(UnwindTable::at(4, &read).is_none());
        let of_signals = |at: u64| if at == 0x89 { Some(u32::from_le_bytes(*b"zRS\0")) } else { read(at) };
        assert_eq!(table.function_of(0x100, &of_signals), None);
    }
}
