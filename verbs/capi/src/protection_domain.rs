//! Protection domains.

use std::ffi::c_int;

use pumice_device::table::Handle;

use crate::abi::{ibv_context, ibv_pd};
use crate::context::{Context, Owned};
use crate::object::{Held, Shown, hand_out, held, take_back};
use crate::outcome::{Errno, pointer, status};

/// A protection domain.
#[repr(C)]
pub(crate) struct Pd {
    c: Shown<ibv_pd>,
    handle: Handle,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Pd {
    type C = ibv_pd;
}

impl Pd {
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The program's pointer to its context.
    pub(crate) const fn context_pointer(&self) -> *mut ibv_context {
        // SAFETY: a field of our own structure, set once.
        unsafe { (*self.c.as_ptr()).context }
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<&Context, Errno> {
        // SAFETY: a context outlives its objects.
        unsafe { Context::of(self.context_pointer()) }
    }
}

pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer(|| {
        // SAFETY: null or an open context.
        let open = unsafe { Context::of(context) }?;
        let handle = open.hca().alloc_pd()?;
        open.own(Owned::ProtectionDomain(handle.pack()));
        Ok(hand_out(Pd { c: Shown::new(ibv_pd { context, handle: handle.index }), handle }))
    })
}

pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status(|| {
        // SAFETY: null or a live domain.
        let domain = unsafe { held::<Pd>(pd) }?;
        let context = domain.context()?;
        context.hca().dealloc_pd(domain.handle)?;
        context.disown(Owned::ProtectionDomain(domain.handle.pack()));
        // SAFETY: the program gives it back.
        unsafe { take_back::<Pd>(pd) };
        Ok(())
    })
}
