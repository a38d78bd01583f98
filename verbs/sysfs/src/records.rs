//! The format of the file in which the processes count, and of lines of numbers in the tree.

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
}
