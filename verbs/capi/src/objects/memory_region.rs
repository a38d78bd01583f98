//! Memory regions.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::memory::RegionKeys;

use super::context::Context;
use super::dma_handle::Dmah;
use super::pinned::Pinned;
use super::protection_domain::Pd;
use super::usage::Use;
use crate::ground::abi::{ibv_mr, ibv_pd};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, show, shown};

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: Shown<ibv_mr>,
    handle: Handle,
    domain_use: Mutex<Option<Use>>,
    pinned: Mutex<Option<Pinned>>,
    dma_handle_use: Mutex<Option<Use>>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Mr {
    type C = ibv_mr;
}

impl Listed for Mr {
    const KIND: &'static str = "memory region";

    fn identity(c: &ibv_mr) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Mr {
    /// A region of a domain, whose program's pointer is `pd`.
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
            c: Shown::new(c),
            handle: keys.handle,
            domain_use: Mutex::new(domain.begin_use()),
            pinned: Mutex::default(),
            dma_handle_use: Mutex::default(),
        }
    }

    /// Its pages are counted from now on; those before are not.
    pub(crate) fn pin(&self, pages: Option<Pinned>) {
        *self.pinned.lock().unwrap_or_else(PoisonError::into_inner) = pages;
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// It is registered with this DMA handle, which has to stay as long.
    pub(crate) fn keep_dma_handle(&self, dma_handle: &Dmah) {
        let mut kept = self.dma_handle_use.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(dma_handle.begin_use());
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Shows other keys.
    pub(crate) fn show_keys(&self, keys: &RegionKeys) {
        show!(self.c, lkey = keys.lkey);
        show!(self.c, rkey = keys.rkey);
    }

    /// Shows another range.
    pub(crate) fn show_range(&self, addr: *mut c_void, length: usize) {
        show!(self.c, addr = addr);
        show!(self.c, length = length);
    }

    /// It belongs to another protection domain now, whose program's pointer is `pd`.
    pub(crate) fn move_to(&self, domain: &Pd, pd: *mut ibv_pd) {
        show!(self.c, pd = pd);
        *self.domain_use.lock().unwrap_or_else(PoisonError::into_inner) = domain.begin_use();
    }
}
