//! DMA handles: hints for PCIe about how memory will be used. This device is no PCIe device, so they are
//! noted and not used.

use std::sync::Arc;

use super::context::Context;
use super::usage::{Usage, Use};
use crate::ground::abi::{ibv_context, ibv_dmah};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, shown};

/// A DMA handle.
#[repr(C)]
pub(crate) struct Dmah {
    c: Shown<ibv_dmah>,
    usage: Usage,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Dmah {
    type C = ibv_dmah;
}

impl Listed for Dmah {
    const KIND: &'static str = "DMA handle";

    fn identity(c: &ibv_dmah) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl Dmah {
    pub(crate) fn new(context: *mut ibv_context) -> Dmah {
        Dmah { c: Shown::new(ibv_dmah { context }), usage: Usage::default() }
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// For a memory region to keep.
    pub(crate) fn begin_use(&self) -> Use {
        self.usage.begin()
    }

    /// # Errors
    /// EBUSY: memory regions have it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("DMA handle", "memory regions")
    }
}
