//! Memory regions.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::memory::RegionKeys;
use pumice_device::platform::table::Handle;

use super::context::Context;
use super::dma_handle::Dmah;
use super::pinned::PinnedPages;
use super::protection_domain::Pd;
use super::usage::UseGuard;
use crate::abi::{ibv_mr, ibv_pd};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, show, shown};
use crate::platform::errno::Errno;

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: SharedStruct<ibv_mr>,
    handle: Handle,
    domain_use: Mutex<Option<UseGuard>>,
    pinned: Mutex<Option<PinnedPages>>,
    dma_handle_use: Mutex<Option<UseGuard>>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Mr {
    type C = ibv_mr;
}

impl RegisteredObject for Mr {
    const KIND: &'static str = "memory region";

    fn identity(c: &ibv_mr) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl Mr {
    /// Creates a region of a domain, to which the program's pointer is `pd`.
    pub(crate) fn new(
        domain: &Pd,
        pd: *mut ibv_pd,
        keys: RegionKeys,
        addr: *mut c_void,
        length: usize,
    ) -> Mr {
        let c = ibv_mr {
            context: domain.context_pointer(),
            pd,
            addr,
            length,
            handle: keys.handle.index,
            lkey: keys.lkey,
            rkey: keys.rkey,
        };
        Mr {
            c: SharedStruct::new(c),
            handle: keys.handle,
            domain_use: Mutex::new(domain.begin_use()),
            pinned: Mutex::default(),
            dma_handle_use: Mutex::default(),
        }
    }

    /// Sets the pages that count as pinned for it, in place of those before.
    pub(crate) fn pin(&self, pages: Option<PinnedPages>) {
        *self.pinned.lock().unwrap_or_else(PoisonError::into_inner) = pages;
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Records that it is registered with this DMA handle, which has to live as long.
    pub(crate) fn hold_dma_handle(&self, dma_handle: &Dmah) {
        let mut dma_handle_use_slot = self.dma_handle_use.lock().unwrap_or_else(PoisonError::into_inner);
        *dma_handle_use_slot = Some(dma_handle.begin_use());
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Writes other keys into its structure.
    pub(crate) fn show_keys(&self, keys: &RegionKeys) {
        show!(self.c, lkey = keys.lkey);
        show!(self.c, rkey = keys.rkey);
    }

    /// Writes another range into its structure.
    pub(crate) fn show_range(&self, addr: *mut c_void, length: usize) {
        show!(self.c, addr = addr);
        show!(self.c, length = length);
    }

    /// Moves it to another protection domain, to which the program's pointer is `pd`.
    pub(crate) fn move_to(&self, domain: &Pd, pd: *mut ibv_pd) {
        show!(self.c, pd = pd);
        *self.domain_use.lock().unwrap_or_else(PoisonError::into_inner) = domain.begin_use();
    }
}
