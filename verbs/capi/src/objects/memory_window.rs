//! Memory windows, and the key that a window's structure shows.
//!
//! A window shows its new key as soon as a bind is posted: programs give it to their peers at once. A bind
//! that is refused or flushed changes no key, and the program learns of it from a completion. When such a
//! completion is polled, the windows with binds on its queue pair show again what the device has.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_device::outside::lineage::PerProcess;
use pumice_transport::wire::Qpn;

use super::context::Context;
use super::usage::Use;
use crate::ground::abi::{ibv_context, ibv_mw};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, show, shown};

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: Shown<ibv_mw>,
    handle: Handle,
    _domain_use: Option<Use>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Mw {
    type C = ibv_mw;
}

impl Listed for Mw {
    const KIND: &'static str = "memory window";

    fn identity(c: &ibv_mw) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Mw {
    pub(crate) fn new(c: ibv_mw, handle: Handle, domain_use: Option<Use>) -> Mw {
        Mw { c: Shown::new(c), handle, _domain_use: domain_use }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }

    fn show_key(&self, key: u32) {
        show!(self.c, rkey = key);
    }
}

/// The program's copy of a window's structure shows the key of a bind that was posted.
pub(crate) fn show_key_of(mw: *mut ibv_mw, key: u32) {
    // SAFETY: the program has given this structure to the call that binds it, which writes its key.
    unsafe { (&raw mut (*mw).rkey).write(key) }
}

/// A bind that was posted; whether it was executed is not known here.
struct Pending {
    qpn: Qpn,
    window: Arc<Mw>,
    new_rkey: u32,
    hca: Arc<Hca>,
}

static PENDING: PerProcess<Mutex<Vec<Pending>>> = PerProcess::new(|_| Mutex::default());
/// How many there are, so that polling need not take the lock to find none.
static PENDING_COUNT: AtomicUsize = AtomicUsize::new(0);

fn pending() -> MutexGuard<'static, Vec<Pending>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pending {
    /// The key that the device has for the window now.
    fn key(&self) -> Option<u32> {
        self.hca.window_key(self.window.handle)
    }

    fn is_of(&self, window: &Mw) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.window), window)
    }
}

/// Keeps those entries for which `keep` says so.
fn retain(keep: impl FnMut(&Pending) -> bool) {
    let mut all = pending();
    all.retain(keep);
    PENDING_COUNT.store(all.len(), Ordering::Release);
}

/// A bind is about to be posted to a queue pair: the window shows its new key.
pub(crate) fn show_posted(qpn: Qpn, hca: &Arc<Hca>, window: &Arc<Mw>, new_rkey: u32) {
    window.show_key(new_rkey);
    // A window needs one entry, and binds that were executed are of no more interest.
    retain(|entry| !entry.is_of(window) && entry.key() != Some(entry.new_rkey));
    let mut all = pending();
    all.push(Pending { qpn, window: Arc::clone(window), new_rkey, hca: Arc::clone(hca) });
    PENDING_COUNT.store(all.len(), Ordering::Release);
}

/// A completion with an error of a queue pair was polled: all its binds were executed, refused or flushed.
#[cold]
pub(crate) fn show_refused(qpn: u32) {
    show_again(|entry| entry.qpn.value() == qpn);
}

/// A bind that [`show_posted`] was called for was not posted.
#[cold]
pub(crate) fn show_not_posted(window: &Mw) {
    show_again(|entry| entry.is_of(window));
}

/// Windows show again what the device has.
fn show_again(concerns: impl Fn(&Pending) -> bool) {
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

/// A window is about to be freed.
pub(crate) fn forget(window: &Mw) {
    if PENDING_COUNT.load(Ordering::Acquire) != 0 {
        retain(|entry| !entry.is_of(window));
    }
}

/// A context is about to be closed, with all its windows.
pub(crate) fn forget_all_of(context: *mut ibv_context) {
    if PENDING_COUNT.load(Ordering::Acquire) != 0 {
        retain(|entry| entry.window.context_pointer() != context);
    }
}
