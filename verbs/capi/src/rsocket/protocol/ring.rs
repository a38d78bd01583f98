//! A ring of bytes that are given out in order and come back in order.

/// A piece of a ring: at most two runs of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct RingPiece {
    /// Offset of its beginning.
    pub(crate) offset: u32,
    /// Number of bytes up to the end of the ring.
    pub(crate) first: u32,
    /// Number of bytes from the beginning of the ring on.
    pub(crate) second: u32,
}

impl RingPiece {
    /// Creates the piece of `length` bytes at `offset` in a ring of `size`.
    pub(crate) fn new(offset: u32, length: u32, size: u32) -> RingPiece {
        let first = length.min(size.saturating_sub(offset));
        RingPiece { offset, first, second: length - first }
    }

    /// Returns the number of all its bytes.
    pub(crate) const fn length(&self) -> u32 {
        self.first + self.second
    }
}

/// The state of a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    size: u32,
    head: u32,
    used: u32,
}

impl Ring {
    /// Creates an empty ring.
    pub(crate) const fn new(size: u32) -> Ring {
        Ring { size, head: 0, used: 0 }
    }

    /// Returns the number of bytes that are not given out.
    pub(crate) const fn room(&self) -> u32 {
        self.size - self.used
    }

    /// Returns the number of bytes that are given out.
    pub(crate) const fn used(&self) -> u32 {
        self.used
    }

    /// Gives out at most `wanted` bytes.
    pub(crate) fn take(&mut self, wanted: u32) -> RingPiece {
        let length = wanted.min(self.room());
        let piece = RingPiece::new(self.head, length, self.size);
        self.used += length;
        self.head = if piece.second > 0 || piece.first == self.size - self.head {
            piece.second
        } else {
            self.head + length
        };
        piece
    }

    /// Takes the oldest bytes back.
    pub(crate) fn release(&mut self, length: u32) {
        self.used = self.used.saturating_sub(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_around_the_ring() {
        let mut ring = Ring::new(10);
        assert_eq!(ring.take(4), RingPiece { offset: 0, first: 4, second: 0 });
        assert_eq!(ring.take(4), RingPiece { offset: 4, first: 4, second: 0 });
        assert_eq!(ring.room(), 2);
        ring.release(4);
        assert_eq!(ring.take(5), RingPiece { offset: 8, first: 2, second: 3 });
        assert_eq!(ring.take(5), RingPiece { offset: 3, first: 1, second: 0 });
        assert_eq!(ring.take(5), RingPiece { offset: 4, first: 0, second: 0 });
        ring.release(10);
        assert_eq!(ring.room(), 10);
        assert_eq!(ring.take(6), RingPiece { offset: 4, first: 6, second: 0 });
        assert_eq!(ring.take(1).offset, 0, "the end of the ring is its beginning");
    }
}
