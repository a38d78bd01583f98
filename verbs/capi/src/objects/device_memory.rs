//! Memory that programs get from the device, and pages that an adapter would pin.
//!
//! Pages that an adapter would pin: those of registered memory, counted against a limit if the user sets one
//! (`--memlock`).
//!
//! Buffers that the device allocates for a program. They are plain memory, which this device accesses
//! fastest.
//!
//! DMA handles: hints for PCIe about how memory will be used. This device is no PCIe device, so they are
//! stored and not used.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_device::memory::{DeviceMemory, DeviceMemoryPool};
use pumice_device::outside::fork_generation::{Generation, PerProcess};
use pumice_device::outside::process::{lockable_bytes, page_bytes};
use pumice_device::settings::MemlockLimit;
use pumice_transport::types::Access;

use super::Context;
use super::domains::{UseCount, UseGuard};
use crate::abi::{ibv_buf, ibv_context, ibv_dm, ibv_dmah, ibv_pd};
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, is_inherited, shown,
};
use crate::log::settings::{profile, settings};
use crate::platform::{Errno, INVALID, current_pid};

/// Device memory that a child may allocate through contexts that it inherited: as much as one device has.
static OF_CHILD: PerProcess<DeviceMemoryPool> =
    PerProcess::new(|_| DeviceMemoryPool::new(profile().map_or(0, |profile| profile.limits.max_dm_size)));

/// Allocates through a context that this process inherited. It needs no state of the parent, and rdma-core's
/// own tests allocate in children.
///
/// # Errors
/// Fails as [`DeviceMemoryPool::allocate`].
pub(crate) fn allocate_in_child(length: u64, log_align: u32) -> Result<Arc<DeviceMemory>, Errno> {
    Ok(OF_CHILD.allocate(length, log_align)?)
}

/// Device memory of a program.
#[repr(C)]
pub(crate) struct Dm {
    c: SharedStruct<ibv_dm>,
    generation: Generation,
    memory: Arc<DeviceMemory>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Dm {
    type C = ibv_dm;
}

impl RegisteredObject for Dm {
    const KIND: &'static str = "device memory";

    fn identity(c: &ibv_dm) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Dm {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Dm {
    pub(crate) fn new(c: ibv_dm, memory: Arc<DeviceMemory>) -> Dm {
        Dm { c: SharedStruct::new(c), generation: Generation::own(), memory }
    }

    pub(crate) const fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    /// Returns its handle in the command file.
    pub(crate) fn handle(&self) -> u32 {
        shown!(self.c, handle)
    }

    /// Reports whether a child allocated it through a context that it inherited: no command file has it.
    pub(crate) fn is_of_inherited_context(&self) -> bool {
        is_inherited::<Context>(shown!(self.c, context))
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}

/// Length of [`BufferPages`] in bytes.
const PAGES_BYTES: usize = 1 << 16;

/// Memory of the largest page that kernels have, or of several pages: programs may give parts of a buffer
/// other uses by page.
#[repr(C, align(65536))]
struct BufferPages([u8; PAGES_BYTES]);

/// A buffer, which owns its memory.
#[repr(C)]
pub(crate) struct Buffer {
    c: SharedStruct<ibv_buf>,
    _memory: Vec<MaybeUninit<BufferPages>>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Buffer {
    type C = ibv_buf;
}

impl RegisteredObject for Buffer {
    const KIND: &'static str = "buffer";

    fn identity(_c: &ibv_buf) -> HandleIdentity {
        HandleIdentity::NONE
    }
}

impl Buffer {
    /// Creates a buffer of whole pages for a protection domain.
    ///
    /// # Errors
    /// Fails with ENOMEM if there is no memory.
    pub(crate) fn new(pd: *mut ibv_pd, size: usize) -> Result<Buffer, Errno> {
        let mut memory: Vec<MaybeUninit<BufferPages>> = Vec::new();
        memory
            .try_reserve_exact(size.div_ceil(PAGES_BYTES).max(1))
            .map_err(|_| Errno(libc::ENOMEM).because(|| format!("no memory for a buffer of {size} bytes")))?;
        let c = ibv_buf { addr: memory.as_mut_ptr().cast(), size, pd, dmabuf_fd: -1 };
        Ok(Buffer { c: SharedStruct::new(c), _memory: memory })
    }

    /// Returns the address of its first byte.
    pub(crate) fn address(&self) -> *mut c_void {
        shown!(self.c, addr)
    }

    /// # Errors
    /// Fails with EINVAL if the range is not all of this buffer, or if the domain is not the one that it was
    /// allocated for.
    pub(crate) fn check_registration(
        &self,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
    ) -> Result<(), Errno> {
        if pd != shown!(self.c, pd) {
            return Err(INVALID.because(|| {
                "the buffer was allocated for another protection domain (ibv_alloc_buf)".into()
            }));
        }
        let (begin, size) = (self.address(), shown!(self.c, size));
        let offset = addr.addr().checked_sub(begin.addr());
        if offset.is_none_or(|offset| offset > size || length > size - offset) {
            return Err(INVALID.because(|| {
                format!("{length} bytes at {addr:p} are not all of the buffer of {size} bytes at {begin:p}")
            }));
        }
        Ok(())
    }
}

/// A DMA handle.
#[repr(C)]
pub(crate) struct Dmah {
    c: SharedStruct<ibv_dmah>,
    usage: UseCount,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Dmah {
    type C = ibv_dmah;
}

impl RegisteredObject for Dmah {
    const KIND: &'static str = "DMA handle";

    fn identity(c: &ibv_dmah) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl Dmah {
    pub(crate) fn new(context: *mut ibv_context) -> Dmah {
        Dmah { c: SharedStruct::new(ibv_dmah { context }), usage: UseCount::default() }
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Begins a use, which a memory region owns.
    pub(crate) fn begin_use(&self) -> UseGuard {
        self.usage.begin()
    }

    /// # Errors
    /// Fails with EBUSY if memory regions use it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("DMA handle", "memory regions")
    }
}

/// Number of pages of all regions of this process in the low half, and above it the process, because a child
/// begins without pinned pages.
static PINNED: AtomicU64 = AtomicU64::new(0);

const PAGES: u64 = (1 << 40) - 1;

/// Pages that a region pins, until it is dropped.
pub(crate) struct PinnedPages {
    process: u32,
    pages: u64,
}

impl PinnedPages {
    /// Counts the pages of a range. Returns `None` if there is no limit, or if the region is paged on demand.
    ///
    /// # Errors
    /// Fails with ENOMEM if the limit would be exceeded (`ib_umem_get` of Linux).
    pub(crate) fn take(address: u64, length: u64, rights: Access) -> Result<Option<PinnedPages>, Errno> {
        let Some(memlock) = settings()?.memlock.filter(|_| !rights.contains(Access::ON_DEMAND)) else {
            return Ok(None);
        };
        let page = page_bytes();
        let end = address.saturating_add(length).div_ceil(page);
        let pages = end.saturating_sub(address / page).min(PAGES);
        let limit_bytes = match memlock {
            MemlockLimit::Bytes(bytes) => Some(bytes),
            MemlockLimit::Ulimit => lockable_bytes(),
        };
        let process = current_pid();
        let room = limit_bytes.map_or(PAGES, |bytes| (bytes / page).min(PAGES));
        let taken = PINNED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let all = held(word, process).saturating_add(pages);
            (all <= room).then(|| of(process, all))
        });
        match taken {
            Ok(_) => Ok(Some(PinnedPages { process, pages })),
            Err(word) => {
                let before = held(word, process);
                let kib = |pages: u64| pages.saturating_mul(page / 1024);
                let whose = match memlock {
                    MemlockLimit::Bytes(_) => "--memlock",
                    MemlockLimit::Ulimit => "RLIMIT_MEMLOCK",
                };
                Err(Errno(libc::ENOMEM).because(|| {
                    format!(
                        "a region of {} KiB is refused: an adapter pins its pages, {} KiB are registered \
                         already, and {whose} permits {} KiB; raise it (ulimit -l unlimited; docker run \
                         --ulimit memlock=-1), or register less",
                        kib(pages),
                        kib(before),
                        kib(room)
                    )
                }))
            }
        }
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        let give_back = |word: u64| {
            let is_own = word >> 40 == u64::from(self.process & PROCESS);
            is_own.then(|| of(self.process, (word & PAGES).saturating_sub(self.pages)))
        };
        let _ = PINNED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give_back);
    }
}

/// Mask of a process number; Linux has numbers below 2²².
const PROCESS: u32 = (1 << 24) - 1;

/// Returns the word for a number of pages of a process.
const fn of(process: u32, pages: u64) -> u64 {
    ((process & PROCESS) as u64) << 40 | pages & PAGES
}

/// Returns the number of pages that the word has for a process.
const fn held(word: u64, process: u32) -> u64 {
    if word >> 40 == (process & PROCESS) as u64 { word & PAGES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_begins_without_pages() {
        let word = of(4711, 12);
        assert_eq!((held(word, 4711), held(word, 4712)), (12, 0));
        assert_eq!(held(of(1 << 22, PAGES), 1 << 22), PAGES);
    }
}
