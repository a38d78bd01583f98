//! DMA handles: hints for PCIe about how memory will be used. This device is no PCIe device, so they are
//! stored and not used.

use std::sync::Arc;

use super::context::Context;
use super::usage::{UseCount, UseGuard};
use crate::abi::{ibv_context, ibv_dmah};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

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
