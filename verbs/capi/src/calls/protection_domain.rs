//! Protection domains.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_device::ground::table::Handle;

use crate::ground::abi::{ibv_context, ibv_pd};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, live, take_back};
use crate::ground::outcome::{pointer, status};
use crate::objects::command_file::Owned;
use crate::objects::context::Context;

/// Counts who uses an object that the device does not know, or knows by another one.
#[derive(Default)]
pub(crate) struct Usage(Arc<()>);

/// One use, until it is dropped.
pub(crate) struct Use(#[expect(dead_code, reason = "counted by being there")] Arc<()>);

impl Usage {
    pub(crate) fn begin(&self) -> Use {
        Use(Arc::clone(&self.0))
    }

    /// # Errors
    /// EBUSY: `users` exist.
    pub(crate) fn check_unused(&self, object: &str, users: &str) -> Result<(), Errno> {
        let count = Arc::strong_count(&self.0) - 1;
        if count == 0 {
            return Ok(());
        }
        Err(Errno(libc::EBUSY).because(|| format!("the {object} has {count} {users}; destroy them first")))
    }
}

/// A protection domain, or a parent domain that stands for one.
#[repr(C)]
pub(crate) struct Pd {
    c: Shown<ibv_pd>,
    handle: Handle,
    /// The objects of a parent domain, and the parent domains of another.
    usage: Usage,
    /// Of a parent domain: of the protection domain and of the thread domain.
    parent: Option<(Use, Option<Use>)>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Pd {
    type C = ibv_pd;
}

impl Listed for Pd {
    const KIND: &'static str = "protection domain";

    fn identity(c: &ibv_pd) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Pd {
    pub(crate) fn new(context: *mut ibv_context, handle: Handle) -> Pd {
        let c = Shown::new(ibv_pd { context, handle: handle.index });
        Pd { c, handle, usage: Usage::default(), parent: None }
    }

    pub(crate) fn parent_of(domain: &Pd, thread: Option<Use>) -> Pd {
        let parent = Some((domain.usage.begin(), thread));
        Pd { parent, ..Pd::new(domain.context_pointer(), domain.handle) }
    }

    pub(crate) const fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// For an object of the domain to keep. Protection domains are counted by the device.
    pub(crate) fn begin_use(&self) -> Option<Use> {
        self.is_parent().then(|| self.usage.begin())
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
        Ok(hand_out(Pd::new(context, handle)))
    })
}

/// Deallocates a protection domain or a parent domain.
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status(|| {
        // SAFETY: null or a live domain.
        let domain = unsafe { live::<Pd>(pd) }?;
        if domain.is_parent() {
            domain.usage.check_unused("parent domain", "objects")?;
        } else {
            domain.usage.check_unused("protection domain", "parent domains")?;
            let context = domain.context()?;
            context.hca().dealloc_pd(domain.handle)?;
            context.disown(Owned::ProtectionDomain(domain.handle.pack()));
        }
        // SAFETY: the program gives it back.
        unsafe { take_back::<Pd>(pd) };
        Ok(())
    })
}
