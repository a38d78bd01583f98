//! Address handles.

use std::sync::Arc;

use pumice_device::outside::fork_generation::Generation;
use pumice_device::platform::table::Handle;
use pumice_transport::path::Path;

use super::usage::UseGuard;
use crate::abi::{ibv_ah, ibv_context};
use crate::entry::handles::{CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, shown};

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: SharedStruct<ibv_ah>,
    generation: Generation,
    handle: Handle,
    domain: Handle,
    path: Arc<Path>,
    _domain_use: Option<UseGuard>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Ah {
    type C = ibv_ah;
}

impl RegisteredObject for Ah {
    const KIND: &'static str = "address handle";

    fn identity(c: &ibv_ah) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Ah {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Ah {
    /// Creates an address handle of a protection domain.
    pub(crate) fn new(
        c: ibv_ah,
        handle: Handle,
        domain: Handle,
        path: Arc<Path>,
        domain_use: Option<UseGuard>,
    ) -> Ah {
        let generation = Generation::own();
        Ah { c: SharedStruct::new(c), generation, handle, domain, path, _domain_use: domain_use }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the path that datagrams through it take.
    #[inline]
    pub(crate) const fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Returns its protection domain.
    #[inline]
    pub(crate) const fn domain(&self) -> Handle {
        self.domain
    }

    /// Returns the program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }
}
