//! The context and the protection domain that all identifiers of a process share.

use std::hash::{BuildHasher, RandomState};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use pumice_device::hca::Hca;

use super::objects;
use crate::ground::abi::{ibv_context, ibv_pd};
use crate::ground::errno::Errno;
use crate::ground::process::own_process;
use crate::objects::context::Context;

/// Opened when they are first asked for, and then for good: programs compare the pointers.
pub(crate) struct Shared {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    process: u32,
    open: &'static Context,
}

impl Shared {
    pub(crate) fn hca(&self) -> &'static Hca {
        self.open.hca()
    }

    /// The program's pointer to the context.
    pub(crate) const fn context(&self) -> *mut ibv_context {
        self.context
    }

    /// The domain of identifiers whose program names none.
    pub(crate) const fn pd(&self) -> *mut ibv_pd {
        self.pd
    }
}

/// Null, or what was opened, which is never freed.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// What the identifiers of this process share, if there were any. It does not wait.
pub(crate) fn if_open() -> Option<&'static Shared> {
    // SAFETY: null, or the leaked box that `shared` stores, which nothing changes.
    let open = unsafe { SHARED.load(Ordering::Acquire).as_ref() }?;
    (open.process == own_process()).then_some(open)
}

/// What the identifiers of this process share. A fork has its own: the parent's threads are not there.
///
/// # Errors
/// Those of opening the device.
pub(crate) fn shared() -> Result<&'static Shared, Errno> {
    static OPENING: Mutex<()> = Mutex::new(());
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been quicker.
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let (context, open, pd) = objects::open_device()?;
    let open = &*Box::leak(Box::new(Shared { context, pd, process: own_process(), open }));
    SHARED.store(ptr::from_ref(open).cast_mut(), Ordering::Release);
    Ok(open)
}

/// A number that a peer cannot foresee.
pub(crate) fn random() -> u32 {
    RandomState::new().hash_one(0_u8) as u32
}
