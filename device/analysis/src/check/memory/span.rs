//! Ranges of the process's memory.

/// A range of bytes from `start` up to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSpan {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl ByteSpan {
    pub(super) const fn new(start: u64, bytes: u64) -> ByteSpan {
        ByteSpan { start, end: start.saturating_add(bytes) }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) const fn overlaps(self, other: ByteSpan) -> bool {
        self.start < other.end && other.start < self.end
    }
}
