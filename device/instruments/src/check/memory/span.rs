//! Ranges of the process's memory.

/// Bytes from `start` up to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    pub(super) const fn new(start: u64, bytes: u64) -> Span {
        Span { start, end: start.saturating_add(bytes) }
    }

    pub(super) const fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) const fn overlaps(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }
}
