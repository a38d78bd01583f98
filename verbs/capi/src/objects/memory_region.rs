//! Memory regions and memory windows.
//!
//! A window's structure has its new key as soon as a bind is posted: programs give it to their peers at once.
//! A bind that is refused or flushed changes no key, which the program learns from a completion. When such a
//! completion is polled, the structures of windows with binds on its queue pair get the device's keys again.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::hca::Hca;
use pumice_device::memory::RegionKeys;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::table::Handle;
use pumice_transport::wire::Qpn;

use super::Context;
use super::device_memory::{Dmah, PinnedPages};
use super::domains::{Pd, UseGuard};
use crate::abi::{ibv_context, ibv_mr, ibv_mw, ibv_pd};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, show, shown};
use crate::platform::Errno;

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

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: SharedStruct<ibv_mw>,
    handle: Handle,
    _domain_use: Option<UseGuard>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Mw {
    type C = ibv_mw;
}

impl RegisteredObject for Mw {
    const KIND: &'static str = "memory window";

    fn identity(c: &ibv_mw) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl Mw {
    pub(crate) fn new(c: ibv_mw, handle: Handle, domain_use: Option<UseGuard>) -> Mw {
        Mw { c: SharedStruct::new(c), handle, _domain_use: domain_use }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }

    fn show_key(&self, key: u32) {
        show!(self.c, rkey = key);
    }
}

/// Writes the key of a posted bind into the program's copy of a window's structure.
pub(crate) fn show_key_of(mw: *mut ibv_mw, key: u32) {
    // SAFETY: the program has given this structure to the call that binds it, which writes its key.
    unsafe { (&raw mut (*mw).rkey).write(key) }
}

/// A bind that was posted; it is not known here whether it was executed.
struct PendingBind {
    qpn: Qpn,
    window: Arc<Mw>,
    new_rkey: u32,
    hca: Arc<Hca>,
}

static PENDING: PerProcess<Mutex<Vec<PendingBind>>> = PerProcess::new(|_| Mutex::default());
/// Number of posted binds, so that polling need not take the lock to find none.
static PENDING_COUNT: AtomicUsize = AtomicUsize::new(0);

fn pending() -> MutexGuard<'static, Vec<PendingBind>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PendingBind {
    /// Returns the key that the device has for the window now.
    fn key(&self) -> Option<u32> {
        self.hca.window_key(self.window.handle)
    }

    fn is_of(&self, window: &Mw) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.window), window)
    }
}

/// Keeps the entries for which `keep` returns true.
fn retain(keep: impl FnMut(&PendingBind) -> bool) {
    let mut all = pending();
    all.retain(keep);
    PENDING_COUNT.store(all.len(), Ordering::Release);
}

/// Writes the new key into the window, because a bind is about to be posted to a queue pair.
pub(crate) fn show_posted(qpn: Qpn, hca: &Arc<Hca>, window: &Arc<Mw>, new_rkey: u32) {
    window.show_key(new_rkey);
    // A window needs one entry, and binds that were executed need none.
    retain(|entry| !entry.is_of(window) && entry.key() != Some(entry.new_rkey));
    let mut all = pending();
    all.push(PendingBind { qpn, window: Arc::clone(window), new_rkey, hca: Arc::clone(hca) });
    PENDING_COUNT.store(all.len(), Ordering::Release);
}

/// Restores keys after a completion with an error of a queue pair was polled: all its binds were executed,
/// refused or flushed.
#[cold]
pub(crate) fn show_refused(qpn: u32) {
    show_again(|entry| entry.qpn.value() == qpn);
}

/// Restores the key after a bind for which [`show_posted`] was called was not posted.
#[cold]
pub(crate) fn show_not_posted(window: &Mw) {
    show_again(|entry| entry.is_of(window));
}

/// Writes the device's keys into the windows' structures.
fn show_again(concerns: impl Fn(&PendingBind) -> bool) {
    if PENDING_COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    retain(|entry| {
        if !concerns(entry) {
            return true;
        }
        if let Some(key) = entry.key() {
            entry.window.show_key(key);
        }
        false
    });
}

/// Removes the entries of a window that is about to be freed.
pub(crate) fn forget(window: &Mw) {
    if PENDING_COUNT.load(Ordering::Acquire) != 0 {
        retain(|entry| !entry.is_of(window));
    }
}

/// Removes the entries of a context that is about to be closed, with all its windows.
pub(crate) fn forget_all_of(context: *mut ibv_context) {
    if PENDING_COUNT.load(Ordering::Acquire) != 0 {
        retain(|entry| entry.window.context_pointer() != context);
    }
}
