//! An indirect key as the table of keys has it: the layout that it leads to, and the errors found in its
//! data.

use std::cell::Cell;

use pumice_transport::host::MemoryError;
use pumice_transport::types::{Access, KeyLayout, KeyPiece, KeySignature, SignedBlocks};

use super::signature::{SignatureError, SignatureField};

/// The properties of a new indirect key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectKeyInit {
    /// Largest number of pieces of a layout.
    pub max_pieces: u16,
    /// Peers may invalidate it (SEND with invalidate).
    pub is_invalidated_by_peers: bool,
    /// The key may have signatures.
    pub has_signatures: bool,
}

/// An indirect key.
#[derive(Debug)]
pub(super) struct IndirectKey {
    pub(super) init: IndirectKeyInit,
    pub(super) access: Access,
    pub(super) layout: Option<Layout>,
    /// The key was configured, and not invalidated since.
    pub(super) is_open: bool,
    pub(super) signature: Option<KeySignature>,
    /// Blocks on the wire once the requests that were posted have been executed.
    pub(super) posted_wire: Option<SignedBlocks>,
    /// Field that is arriving.
    arriving: Cell<SignatureField>,
    /// First error in its data that no call has returned.
    error: Cell<Option<SignatureError>>,
}

/// A layout in which an offset is found quickly.
#[derive(Debug)]
pub(super) struct Layout {
    pieces: Vec<KeyPiece>,
    /// Offset at which each piece ends in a round.
    ends: Vec<u64>,
    rounds: u32,
    length: u64,
}

/// A part of a piece: the key of its region, the address there, and bytes.
pub(super) struct PiecePart {
    pub(super) lkey: u32,
    pub(super) address: u64,
    pub(super) length: u64,
}

impl Layout {
    /// Creates a layout; `None` if it has more bytes than an address can name.
    pub(super) fn new(layout: &KeyLayout) -> Option<Layout> {
        let mut end = 0_u64;
        let mut ends = Vec::with_capacity(layout.pieces.len());
        for piece in &layout.pieces {
            end = end.checked_add(piece.length.into())?;
            ends.push(end);
        }
        let length = end.checked_mul(layout.rounds.into())?;
        Some(Layout { pieces: layout.pieces.clone(), ends, rounds: layout.rounds, length })
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the keys of its pieces.
    pub(super) fn keys(&self) -> impl Iterator<Item = u32> {
        self.pieces.iter().map(|piece| piece.lkey)
    }

    pub(super) fn check(&self, offset: u64, length: u64) -> Result<(), MemoryError> {
        let is_inside = offset <= self.length && length <= self.length - offset;
        if is_inside { Ok(()) } else { Err(MemoryError::OutOfRange) }
    }

    /// Calls `visit` for each part that these bytes are. Every part has a byte at least, so that a packet has
    /// as many parts as bytes at most.
    pub(super) fn for_each_piece_part(
        &self,
        offset: u64,
        length: u64,
        mut visit: impl FnMut(PiecePart) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        self.check(offset, length)?;
        let (mut at, mut left) = (offset, length);
        while left > 0 {
            let part = self.piece_part_at(at, left).ok_or(MemoryError::OutOfRange)?;
            (at, left) = (at + part.length, left - part.length);
            visit(part)?;
        }
        Ok(())
    }

    /// Returns the part that begins at an offset, of `most` bytes at most.
    pub(super) fn piece_part_at(&self, offset: u64, most: u64) -> Option<PiecePart> {
        let round_bytes = *self.ends.last()?;
        let round = offset.checked_div(round_bytes)?;
        let within = offset - round * round_bytes;
        // Empty pieces end where others begin.
        let index = self.ends.partition_point(|end| *end <= within);
        let (piece, left) = (self.pieces.get(index)?, self.ends.get(index)? - within);
        let stride = u64::from(piece.length) + u64::from(piece.skip);
        let into = round.checked_mul(stride)?.checked_add(u64::from(piece.length) - left)?;
        let address = piece.address.checked_add(into)?;
        Some(PiecePart { lkey: piece.lkey, address, length: left.min(most) })
    }

    /// Calls `visit` for each piece as far as it reaches over all rounds.
    pub(super) fn for_each_piece(
        &self,
        mut visit: impl FnMut(PiecePart) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let before_last = u64::from(self.rounds.saturating_sub(1));
        for KeyPiece { address, length, skip, lkey } in self.pieces.iter().copied() {
            let stride = u64::from(length) + u64::from(skip);
            let length = before_last.checked_mul(stride).and_then(|bytes| bytes.checked_add(length.into()));
            visit(PiecePart { lkey, address, length: length.ok_or(MemoryError::OutOfRange)? })?;
        }
        Ok(())
    }
}

impl IndirectKey {
    pub(super) fn new(init: IndirectKeyInit) -> IndirectKey {
        IndirectKey {
            init,
            access: Access::empty(),
            layout: None,
            is_open: false,
            signature: None,
            posted_wire: None,
            arriving: Cell::default(),
            error: Cell::new(None),
        }
    }

    /// Returns the layout, if it has one and these bytes are inside.
    pub(super) fn layout(&self, offset: u64, length: u64) -> Result<&Layout, MemoryError> {
        let layout = self.layout.as_ref().ok_or(MemoryError::OutOfRange)?;
        layout.check(offset, length)?;
        Ok(layout)
    }

    /// Returns its blocks on the wire, now or once what was posted has been executed.
    pub(super) fn wire(&self, posted: bool) -> Option<SignedBlocks> {
        if posted { self.posted_wire } else { self.signature?.wire }
    }

    /// Stores an error, unless there is one already that no call has returned.
    pub(super) fn note_error(&self, error: SignatureError) {
        self.error.set(self.error.get().or(Some(error)));
    }

    pub(super) fn has_error(&self) -> bool {
        self.error.get().is_some()
    }

    pub(super) fn take_error(&self) -> Option<SignatureError> {
        self.error.take()
    }

    /// Puts bytes of a field at their place, and returns the field as far as it has come.
    pub(super) fn collect(&self, skipped: usize, bytes: &[u8]) -> SignatureField {
        let mut field = if skipped == 0 { SignatureField::default() } else { self.arriving.get() };
        if let Some(place) = field.get_mut(skipped..).and_then(|field| field.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
        self.arriving.set(field);
        field
    }
}
