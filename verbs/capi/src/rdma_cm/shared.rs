//! The context and the protection domain that all identifiers of a process share.

use std::ffi::c_int;
use std::hash::{BuildHasher, RandomState};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use pumice_device::hca::Hca;

use crate::calls::protection_domain::ibv_alloc_pd;
use crate::ground::abi::{ibv_context, ibv_pd};
use crate::ground::errno::{Errno, errno};
use crate::ground::outcome::pointer;
use crate::ground::process::own_process;
use crate::objects::context::Context;
use crate::objects::device::device_pointer;
use crate::tables::ibv_open_device;

/// Opened when they are first asked for, and then for good: programs compare the pointers.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    /// The program's pointer to the context.
    pub(crate) context: *mut ibv_context,
    /// The domain of identifiers whose program names none.
    pub(crate) pd: *mut ibv_pd,
    process: u32,
    open: &'static Context,
}

// SAFETY: the pointers are to objects that are never freed, and all access to them is shared.
unsafe impl Send for Shared {}

impl Shared {
    pub(crate) fn hca(self) -> &'static Hca {
        self.open.hca()
    }

    fn open() -> Result<Shared, Errno> {
        let context = ibv_open_device(device_pointer());
        if context.is_null() {
            return Err(Errno(errno()));
        }
        // It is never closed.
        let open: &'static Context = Box::leak(Box::new(Context::of(context)?));
        let pd = ibv_alloc_pd(context);
        if pd.is_null() {
            return Err(Errno(errno()));
        }
        Ok(Shared { context, pd, process: own_process(), open })
    }
}

/// Null, or what was opened, which is never freed.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// What the identifiers of this process share, if there were any. It does not wait.
pub(crate) fn if_open() -> Option<Shared> {
    // SAFETY: null, or a leaked box that nobody changes.
    let open = unsafe { SHARED.load(Ordering::Acquire).as_ref() }?;
    (open.process == own_process()).then_some(*open)
}

/// What the identifiers of this process share. A fork has its own: the parent's threads are not there.
///
/// # Errors
/// Those of opening the device.
pub(crate) fn shared() -> Result<Shared, Errno> {
    static OPENING: Mutex<()> = Mutex::new(());
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    // Another thread may have been quicker.
    if let Some(open) = if_open() {
        return Ok(open);
    }
    let open = Shared::open()?;
    SHARED.store(Box::into_raw(Box::new(open)), Ordering::Release);
    Ok(open)
}

/// A number that a peer cannot foresee.
pub(crate) fn random() -> u32 {
    RandomState::new().hash_one(0_u8) as u32
}

/// The contexts that identifiers can be on, ending with NULL.
pub(crate) unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let list = pointer(|| {
        let shared = shared()?;
        // SAFETY: two pointers, zeroed: NULL.
        let list = unsafe { libc::calloc(2, size_of::<*mut ibv_context>()) }.cast::<*mut ibv_context>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: the first of the two.
        unsafe { list.write(shared.context) };
        Ok(list)
    });
    if !num_devices.is_null() {
        // Also when there is none: some programs look at nothing else.
        // SAFETY: the caller's variable.
        unsafe { num_devices.write((!list.is_null()).into()) };
    }
    list
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: NULL, or from `rdma_get_devices`. The context itself stays.
    unsafe { libc::free(list.cast()) }
}
