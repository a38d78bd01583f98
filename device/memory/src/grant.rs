//! The grant of a key, and the two kinds of memory windows.

use pumice_platform::error::ResourceError;
use pumice_transport::host::MemoryError;
use pumice_transport::types::Access;
use pumice_transport::wire::Qpn;

use super::device_memory::Registration;
use super::file_mapping::FileMapping;
use super::indirect_key::IndirectKey;
use super::watch::{Watch, WatchedRegion};

/// The kind of a memory window (`IBV_MW_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowType {
    /// The device chooses its keys; any queue pair of the domain may use it.
    Type1,
    /// The consumer chooses the low byte of its keys; only the queue pair it was bound on may use it (type
    /// 2B).
    Type2,
}

impl WindowType {
    /// Returns the type with this verbs number (1 or 2).
    ///
    /// # Errors
    /// Fails with `Invalid` for another number.
    pub fn from_verbs(number: u32) -> Result<WindowType, ResourceError> {
        match number {
            1 => Ok(WindowType::Type1),
            2 => Ok(WindowType::Type2),
            other => Err(ResourceError::invalid(format!("memory window type {other} is neither 1 nor 2"))),
        }
    }
}

/// An entry of the table: the grant of one key now, and the kind of its object.
#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) grant: Grant,
    pub(super) kind: EntryKind,
}

/// A range of memory and the rights to it: all that an access reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) key: u32,
    /// Bits in which the key for peers differs; 0 if both keys are one number.
    pub(super) apart: u32,
    pub(super) pd: u32,
    /// Address of the first byte in this process.
    pub(super) address: u64,
    /// Address of the first byte as users of the key give it.
    pub(super) iova: u64,
    pub(super) length: u64,
    pub(super) access: Access,
    /// Kind of the memory behind the range.
    pub(super) backing: Backing,
    /// The key opens the range; false for an unbound window, which opens nothing.
    pub(super) live: bool,
    /// Queue pair that alone may use the key, if it is limited to one.
    pub(super) qpn: Option<Qpn>,
    /// Record of the memory that the region has lost, if the memory is the program's.
    pub(super) watched: Option<&'static WatchedRegion>,
}

/// The kind of memory behind a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backing {
    /// Memory that is mapped, unless the program has taken it away.
    Mapped,
    /// Memory of mapped files, which any process may shorten.
    File,
    /// Memory that the process has mapped there at the time of the access, if there is any.
    OnDemand,
    /// No memory: reads give zeros, and written data is dropped.
    Nothing,
}

impl Backing {
    pub(super) fn of(access: Access) -> Backing {
        if access.contains(Access::ON_DEMAND) { Backing::OnDemand } else { Backing::Mapped }
    }

    /// Reports whether the memory stays mapped as long as the program leaves it there.
    pub(super) const fn stays_mapped(self) -> bool {
        matches!(self, Backing::Mapped | Backing::File)
    }
}

/// The object that lives as long as a region is registered.
#[derive(Debug)]
pub(super) enum BackedBy {
    /// Memory of the program that is pinned, as far as the program lets it be.
    Program {
        _watch: Watch,
    },
    DeviceMemory {
        _registration: Registration,
    },
    File {
        _mapping: FileMapping,
    },
}

#[derive(Debug)]
pub(super) enum EntryKind {
    Region {
        bound_windows: u32,
        /// Object that backs the region; `None` for the program's memory as it is at the time, or for no
        /// memory.
        backed_by: Option<BackedBy>,
    },
    Window {
        window: WindowType,
        region: Option<u32>,
    },
    Indirect(Box<IndirectKey>),
}

impl KeyEntry {
    /// Reports whether it is a region of the program's memory: neither null, nor device memory, nor a file's.
    pub(super) fn is_own_memory(&self) -> bool {
        matches!(self.kind, EntryKind::Region { backed_by: None | Some(BackedBy::Program { .. }), .. })
            && self.grant.backing != Backing::Nothing
    }
}

impl Grant {
    /// Returns the key by which peers name the memory.
    pub(super) const fn rkey(&self) -> u32 {
        self.key ^ self.apart
    }

    /// Reports whether a number is a key of this memory, for either use.
    #[inline]
    pub(super) const fn has_key(&self, key: u32) -> bool {
        self.key == key || self.rkey() == key
    }

    /// Returns the grant of a key by which no access finds memory: of a window that is not bound, or an
    /// indirect key.
    pub(super) const fn of_no_memory(key: u32, pd: u32, backing: Backing) -> Grant {
        Grant {
            key,
            apart: 0,
            pd,
            address: 0,
            iova: 0,
            length: 0,
            access: Access::empty(),
            backing,
            live: false,
            qpn: None,
            watched: None,
        }
    }

    /// Returns the process address of `length` bytes at `address`. Neither sum nor difference can mislead:
    /// `iova + length - 1` does not wrap (checked at registration), so an address below `iova` gives an
    /// offset of at least `length`.
    #[inline]
    pub(super) fn locate(&self, address: u64, length: u64) -> Result<u64, MemoryError> {
        //= linux:rxe_mr.c#mr_check_range
        //| An access lies inside the range of its key.
        let offset = address.wrapping_sub(self.iova);
        if offset > self.length || length > self.length - offset {
            return Err(MemoryError::OutOfRange);
        }
        Ok(self.address.wrapping_add(offset))
    }
}

#[cfg(any(test, kani))]
#[path = "grant_proofs.rs"]
mod proofs;
