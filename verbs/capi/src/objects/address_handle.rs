//! Address handles.

use std::sync::Arc;

use pumice_device::ground::table::Handle;
use pumice_device::outside::lineage::Generation;
use pumice_transport::path::Path;

use super::usage::Use;
use crate::ground::abi::{ibv_ah, ibv_context};
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, shown};

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: Shown<ibv_ah>,
    generation: Generation,
    handle: Handle,
    domain: Handle,
    path: Arc<Path>,
    _domain_use: Option<Use>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Ah {
    type C = ibv_ah;
}

impl Listed for Ah {
    const KIND: &'static str = "address handle";

    fn identity(c: &ibv_ah) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl OfProcess for Ah {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Ah {
    /// An address handle of a protection domain.
    pub(crate) fn new(
        c: ibv_ah,
        handle: Handle,
        domain: Handle,
        path: Arc<Path>,
        domain_use: Option<Use>,
    ) -> Ah {
        let generation = Generation::own();
        Ah { c: Shown::new(c), generation, handle, domain, path, _domain_use: domain_use }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The path that datagrams through it take.
    #[inline]
    pub(crate) const fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Its protection domain.
    #[inline]
    pub(crate) const fn domain(&self) -> Handle {
        self.domain
    }

    /// The program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }
}
