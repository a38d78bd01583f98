//! An indirect key as the table of keys has it: what it leads to, and what was found wrong with its data.

use std::cell::Cell;

use pumice_transport::host::MemoryError;
use pumice_transport::types::{Access, KeyLayout, KeyPiece, KeySignature, SignedBlocks};

use super::signature::{Field, SignatureError};

/// What an indirect key is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndirectKeyInit {
    /// Most pieces of a layout.
    pub most_pieces: u16,
    /// Peers may invalidate it (SEND with invalidate).
    pub is_invalidated_by_peers: bool,
    /// It may have signatures.
    pub has_signatures: bool,
}

/// An indirect key.
#[derive(Debug)]
pub(super) struct IndirectKey {
    pub(super) init: IndirectKeyInit,
    pub(super) access: Access,
    pub(super) layout: Option<Layout>,
    /// It was configured, and not invalidated since.
    pub(super) is_open: bool,
    pub(super) signature: Option<KeySignature>,
    /// Its blocks on the wire once the requests that were posted have been executed.
    pub(super) posted_wire: Option<SignedBlocks>,
    /// The field that is arriving.
    arriving: Cell<Field>,
    /// The first error in its data that no call has asked for.
    error: Cell<Option<SignatureError>>,
}

/// A layout in which an offset is found quickly.
#[derive(Debug)]
pub(super) struct Layout {
    pieces: Vec<KeyPiece>,
    /// Where each piece ends in a round.
    ends: Vec<u64>,
    rounds: u32,
    length: u64,
}

/// A part of a piece: the key of its region, the address there, and bytes.
pub(super) struct Part {
    pub(super) lkey: u32,
    pub(super) address: u64,
    pub(super) length: u64,
}

impl Layout {
    /// None: more bytes than an address can say.
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

    pub(super) fn check(&self, offset: u64, length: u64) -> Result<(), MemoryError> {
        let is_inside = offset <= self.length && length <= self.length - offset;
        if is_inside { Ok(()) } else { Err(MemoryError::OutOfRange) }
    }

    /// Calls `visit` for each part that these bytes are. Every part has a byte at least, so that a packet has
    /// as many parts as bytes at most.
    pub(super) fn for_each_part(
        &self,
        offset: u64,
        length: u64,
        mut visit: impl FnMut(Part) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        self.check(offset, length)?;
        let (mut at, mut left) = (offset, length);
        while left > 0 {
            let part = self.part_at(at, left).ok_or(MemoryError::OutOfRange)?;
            (at, left) = (at + part.length, left - part.length);
            visit(part)?;
        }
        Ok(())
    }

    /// The part that begins at an offset, of `most` bytes at most.
    pub(super) fn part_at(&self, offset: u64, most: u64) -> Option<Part> {
        let round_bytes = *self.ends.last()?;
        let round = offset.checked_div(round_bytes)?;
        let within = offset - round * round_bytes;
        // Empty pieces end where others begin.
        let index = self.ends.partition_point(|end| *end <= within);
        let (piece, left) = (self.pieces.get(index)?, self.ends.get(index)? - within);
        let stride = u64::from(piece.length) + u64::from(piece.skip);
        let into = round.checked_mul(stride)?.checked_add(u64::from(piece.length) - left)?;
        let address = piece.address.checked_add(into)?;
        Some(Part { lkey: piece.lkey, address, length: left.min(most) })
    }

    /// Calls `visit` for each piece as far as it reaches over all rounds.
    pub(super) fn for_each_piece(
        &self,
        mut visit: impl FnMut(Part) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        let before_last = u64::from(self.rounds.saturating_sub(1));
        for KeyPiece { address, length, skip, lkey } in self.pieces.iter().copied() {
            let stride = u64::from(length) + u64::from(skip);
            let length = before_last.checked_mul(stride).and_then(|bytes| bytes.checked_add(length.into()));
            visit(Part { lkey, address, length: length.ok_or(MemoryError::OutOfRange)? })?;
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

    /// The layout, if it has one and these bytes are inside.
    pub(super) fn layout(&self, offset: u64, length: u64) -> Result<&Layout, MemoryError> {
        let layout = self.layout.as_ref().ok_or(MemoryError::OutOfRange)?;
        layout.check(offset, length)?;
        Ok(layout)
    }

    /// Its blocks on the wire, now or once what was posted has been executed.
    pub(super) fn wire(&self, posted: bool) -> Option<SignedBlocks> {
        if posted { self.posted_wire } else { self.signature?.wire }
    }

    /// The first error stays until it is asked for.
    pub(super) fn note_error(&self, error: SignatureError) {
        self.error.set(self.error.get().or(Some(error)));
    }

    pub(super) fn has_error(&self) -> bool {
        self.error.get().is_some()
    }

    pub(super) fn take_error(&self) -> Option<SignatureError> {
        self.error.take()
    }

    /// Puts bytes of a field at their place, and gives what is there of it.
    pub(super) fn collect(&self, skipped: usize, bytes: &[u8]) -> Field {
        let mut field = if skipped == 0 { Field::default() } else { self.arriving.get() };
        if let Some(place) = field.get_mut(skipped..).and_then(|field| field.get_mut(..bytes.len())) {
            place.copy_from_slice(bytes);
        }
        self.arriving.set(field);
        field
    }
}
