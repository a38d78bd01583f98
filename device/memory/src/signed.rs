//! Indirect keys with signatures: the layout in memory, the layout on the wire, and the data in both.
//!
//! Data is counted without fields; local buffers name data. A position on the wire counts the fields of the
//! wire, and so do remote addresses. Nothing is remembered between packets but a field that arrives in parts:
//! the expected field of a block is calculated from memory when its last byte passes. Packets of a message
//! come in order, so its block has arrived then.

use pumice_transport::host::MemoryError;
use pumice_transport::types::{KeySignature, Sge, SignedBlocks};

use super::MappingCheck;
use super::indirect_key::{IndirectKey, Layout};
use super::region_table::RegionTable;
use super::signature::{SignatureError, SignatureField, check, field_of, merged};

/// Length of the longest block, in bytes.
const MAX_BLOCK_BYTES: usize = 4160;

/// Returns the length of data with the fields of these blocks, in bytes.
pub(super) fn with_fields(blocks: Option<SignedBlocks>, data: u64) -> u64 {
    let Some(blocks) = blocks else { return data };
    let fields = data.checked_div(blocks.block_bytes.into()).unwrap_or(0);
    data.saturating_add(fields.saturating_mul(blocks.signature.field_bytes()))
}

/// Returns the length of the data among this number of bytes that have fields.
fn without_fields(blocks: Option<SignedBlocks>, bytes: u64) -> u64 {
    let Some(blocks) = blocks else { return bytes };
    let block = u64::from(blocks.block_bytes);
    let unit = block + blocks.signature.field_bytes();
    bytes / unit * block + (bytes % unit).min(block)
}

/// Reports whether the blocks have the same form, so that their fields can be copied.
fn are_alike(one: SignedBlocks, other: SignedBlocks) -> bool {
    one.block_bytes == other.block_bytes
        && std::mem::discriminant(&one.signature) == std::mem::discriminant(&other.signature)
}

/// An access to memory of a key that has signatures.
pub(super) struct Signed<'a> {
    pub(super) table: &'a RegionTable,
    pub(super) pd: u32,
    pub(super) key: &'a IndirectKey,
    pub(super) layout: &'a Layout,
    pub(super) signature: KeySignature,
    pub(super) check: MappingCheck,
}

impl Signed<'_> {
    /// Checks whether these bytes of the wire are inside.
    pub(super) fn check_range(&self, position: u64, length: u64) -> Result<(), MemoryError> {
        let data = without_fields(self.signature.memory, self.layout.length());
        let all = with_fields(self.signature.wire, data);
        if position <= all && length <= all - position { Ok(()) } else { Err(MemoryError::OutOfRange) }
    }

    /// Copies what leaves on the wire into `out`.
    pub(super) fn read(&self, position: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.check_range(position, out.len() as u64)?;
        let Some(wire) = self.signature.wire else { return self.read_data(position, out, true) };
        let mut rest = out;
        let mut at = position;
        while !rest.is_empty() {
            let (block, within, length) = part(wire, at, rest.len());
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length);
            match within.checked_sub(wire.block_bytes.into()) {
                None => self.read_data(block * u64::from(wire.block_bytes) + within, now, true)?,
                Some(skipped) => {
                    let field = self.field_on_wire(wire, block)?;
                    let bytes = field.get(skipped as usize..).and_then(|field| field.get(..length));
                    now.copy_from_slice(bytes.ok_or(MemoryError::OutOfRange)?);
                }
            }
            (rest, at) = (later, at + length as u64);
        }
        Ok(())
    }

    /// Stores bytes that arrived from the wire.
    pub(super) fn write(&self, position: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.check_range(position, data.len() as u64)?;
        let Some(wire) = self.signature.wire else { return self.write_data(position, data) };
        let mut rest = data;
        let mut at = position;
        while !rest.is_empty() {
            let (block, within, length) = part(wire, at, rest.len());
            let (now, later) = rest.split_at(length);
            match within.checked_sub(wire.block_bytes.into()) {
                None => self.write_data(block * u64::from(wire.block_bytes) + within, now)?,
                Some(skipped) => self.take_field(wire, block, skipped as usize, now)?,
            }
            (rest, at) = (later, at + length as u64);
        }
        Ok(())
    }

    /// Copies data into `out`; with `checks` each block of memory that ends in it is checked.
    fn read_data(&self, at: u64, out: &mut [u8], checks: bool) -> Result<(), MemoryError> {
        let Some(memory) = self.signature.memory else { return self.load(at, out) };
        let size = u64::from(memory.block_bytes);
        let mut rest = out;
        let mut at = at;
        while !rest.is_empty() {
            let (block, within) = (at / size, at % size);
            let length = rest.len().min((size - within) as usize);
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length);
            self.load(self.start_of(memory, block) + within, now)?;
            if checks && within + length as u64 == size && self.signature.check_mask != 0 {
                self.check_block(memory, block)?;
            }
            (rest, at) = (later, at + length as u64);
        }
        Ok(())
    }

    /// Stores data; each block of memory that ends in it gets its field.
    fn write_data(&self, at: u64, data: &[u8]) -> Result<(), MemoryError> {
        let Some(memory) = self.signature.memory else { return self.store(at, data) };
        let size = u64::from(memory.block_bytes);
        let mut rest = data;
        let mut at = at;
        while !rest.is_empty() {
            let (block, within) = (at / size, at % size);
            let (now, later) = rest.split_at(rest.len().min((size - within) as usize));
            self.store(self.start_of(memory, block) + within, now)?;
            if within + now.len() as u64 == size {
                let field = self.calculated(memory, block)?;
                self.store_field(memory, block, field)?;
            }
            (rest, at) = (later, at + now.len() as u64);
        }
        Ok(())
    }

    /// Returns the offset of a block of memory in the layout.
    fn start_of(&self, memory: SignedBlocks, block: u64) -> u64 {
        block.saturating_mul(u64::from(memory.block_bytes) + memory.signature.field_bytes())
    }

    /// Calculates the field of a block from the data.
    fn calculated(&self, blocks: SignedBlocks, block: u64) -> Result<SignatureField, MemoryError> {
        let mut room = [0; MAX_BLOCK_BYTES];
        let data = room.get_mut(..blocks.block_bytes as usize).ok_or(MemoryError::OutOfRange)?;
        self.read_data(block * u64::from(blocks.block_bytes), data, false)?;
        Ok(field_of(&blocks, block, data))
    }

    /// Returns the field that memory has behind a block.
    fn load_field(&self, memory: SignedBlocks, block: u64) -> Result<SignatureField, MemoryError> {
        let mut field = [0; 8];
        let bytes = field.get_mut(..memory.signature.field_bytes() as usize).unwrap_or_default();
        self.load(self.start_of(memory, block) + u64::from(memory.block_bytes), bytes)?;
        Ok(field)
    }

    fn store_field(
        &self,
        memory: SignedBlocks,
        block: u64,
        field: SignatureField,
    ) -> Result<(), MemoryError> {
        let bytes = field.get(..memory.signature.field_bytes() as usize).unwrap_or_default();
        self.store(self.start_of(memory, block) + u64::from(memory.block_bytes), bytes)
    }

    fn check_block(&self, memory: SignedBlocks, block: u64) -> Result<(), MemoryError> {
        let fields = (self.calculated(memory, block)?, self.load_field(memory, block)?);
        self.check_fields(memory, block, fields);
        Ok(())
    }

    fn check_fields(&self, blocks: SignedBlocks, block: u64, fields: (SignatureField, SignatureField)) {
        let offset = block * u64::from(blocks.block_bytes);
        if let Some(error) = check(&blocks, self.signature.check_mask, offset, fields) {
            self.key.note_error(error);
        }
    }

    /// Returns the field that leaves behind a block.
    fn field_on_wire(&self, wire: SignedBlocks, block: u64) -> Result<SignatureField, MemoryError> {
        let calculated = self.calculated(wire, block)?;
        match self.signature.memory.filter(|memory| are_alike(*memory, wire)) {
            Some(memory) if self.signature.copy_mask != 0 => {
                Ok(merged(self.signature.copy_mask, self.load_field(memory, block)?, calculated))
            }
            _ => Ok(calculated),
        }
    }

    /// Handles a part of the field of a block that arrived.
    fn take_field(
        &self,
        wire: SignedBlocks,
        block: u64,
        skipped: usize,
        bytes: &[u8],
    ) -> Result<(), MemoryError> {
        let found = self.key.collect(skipped, bytes);
        if (skipped + bytes.len()) as u64 != wire.signature.field_bytes() {
            return Ok(());
        }
        self.check_fields(wire, block, (self.calculated(wire, block)?, found));
        match self.signature.memory.filter(|memory| are_alike(*memory, wire)) {
            Some(memory) if self.signature.copy_mask != 0 => {
                let calculated = self.calculated(memory, block)?;
                self.store_field(memory, block, merged(self.signature.copy_mask, found, calculated))
            }
            _ => Ok(()),
        }
    }

    fn load(&self, at: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.table.read_layout(self.pd, self.layout, at, out, self.check)
    }

    fn store(&self, at: u64, data: &[u8]) -> Result<(), MemoryError> {
        self.table.write_layout(self.pd, self.layout, at, data, self.check)
    }
}

/// Returns the block at a position, the offset in it, and how many of `most` bytes are of the same kind.
fn part(blocks: SignedBlocks, position: u64, most: usize) -> (u64, u64, usize) {
    let size = u64::from(blocks.block_bytes);
    let unit = size + blocks.signature.field_bytes();
    let (block, within) = (position / unit, position % unit);
    let end = if within < size { size } else { unit };
    (block, within, most.min((end - within) as usize))
}

impl RegionTable {
    /// Reports whether some key was made for signatures.
    #[inline]
    pub const fn has_signatures(&self) -> bool {
        self.signature_keys != 0
    }

    /// Takes the first error that was found in data of an indirect key since the last call; `None` if there
    /// is no such key.
    pub fn take_signature_error(&self, key: u32) -> Option<Option<SignatureError>> {
        self.indirect_key(key).map(IndirectKey::take_error)
    }

    /// Reports whether such an error waits to be taken.
    pub fn has_signature_error(&self, key: u32) -> bool {
        self.indirect_key(key).is_some_and(IndirectKey::has_error)
    }

    /// Returns the length on the wire of the data that a local buffer names: now, or with `posted` when the
    /// requests that were posted have been executed.
    pub fn wire_bytes_of(&self, sge: &Sge, posted: bool) -> u64 {
        let wire = self.indirect_key(sge.lkey).and_then(|key| key.wire(posted));
        let (start, end) = (sge.address, sge.address.saturating_add(sge.length.into()));
        with_fields(wire, end).saturating_sub(with_fields(wire, start))
    }

    /// Walks as [`RegionTable::gather`] and [`RegionTable::scatter`] do, where keys have signatures: calls
    /// `visit` with each buffer and the part of the bytes on the wire that it has, and the offset of that
    /// part.
    #[cold]
    pub(super) fn walk_wire(
        &self,
        sges: &[Sge],
        mut offset: u64,
        mut length: u64,
        mut visit: impl FnMut(&Sge, u64, u64) -> Result<(), MemoryError>,
    ) -> Result<(), MemoryError> {
        for sge in sges {
            let size = self.wire_bytes_of(sge, false);
            if length == 0 {
                break;
            }
            if offset >= size {
                offset -= size;
                continue;
            }
            let now = length.min(size - offset);
            visit(sge, offset, now)?;
            (offset, length) = (0, length - now);
        }
        if length == 0 { Ok(()) } else { Err(MemoryError::OutOfRange) }
    }

    /// Does the work of [`RegionTable::gather`] for what leaves on the wire.
    #[cold]
    pub(super) fn gather_for_wire(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        out: &mut [u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let mut rest = out;
        self.walk_wire(sges, offset, rest.len() as u64, |sge, start, length| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(length as usize);
            rest = later;
            match self.indirect_key(sge.lkey) {
                Some(_) => {
                    let key = RegionTable::locally(sge.lkey, false);
                    self.read_indirect(pd, key, self.wire_position(sge, start)?, now, check)
                }
                None => self.gather_one(pd, sge, start, now, check),
            }
        })
    }

    /// Does the work of [`RegionTable::scatter`] for what came from the wire.
    #[cold]
    pub(super) fn scatter_from_wire(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
        check: MappingCheck,
    ) -> Result<(), MemoryError> {
        let mut rest = data;
        self.walk_wire(sges, offset, rest.len() as u64, |sge, start, length| {
            let (now, later) = rest.split_at(length as usize);
            rest = later;
            match self.indirect_key(sge.lkey) {
                Some(_) => {
                    let key = RegionTable::locally(sge.lkey, true);
                    self.write_indirect(pd, key, self.wire_position(sge, start)?, now, check)
                }
                None => self.scatter_one(pd, sge, start, now, check),
            }
        })
    }

    /// Returns the position on the wire of a byte of a local buffer: `offset` bytes of the wire behind the
    /// buffer's first.
    pub(super) fn wire_position(&self, sge: &Sge, offset: u64) -> Result<u64, MemoryError> {
        let wire = self.indirect_key(sge.lkey).and_then(|key| key.wire(false));
        with_fields(wire, sge.address).checked_add(offset).ok_or(MemoryError::OutOfRange)
    }
}

#[cfg(test)]
#[path = "signed_tests.rs"]
mod tests;
