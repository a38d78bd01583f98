//! XRC domains, of both generations of the API: `struct ibv_xrcd`, and OFED 1.x's `struct ibv_xrc_domain`,
//! which begins like it. A pointer to one can be used in place of the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::platform::table::Handle;

use super::context::Context;
use crate::abi::{ibv_context, ibv_xrcd};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

/// `struct ibv_xrc_domain` of OFED 1.x.
#[repr(C)]
pub(crate) struct ofed_xrc_domain {
    base: ibv_xrcd,
    handle: u64,
}

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: SharedStruct<ofed_xrc_domain>,
    handle: Handle,
}

// SAFETY: the first field begins with the C structure.
unsafe impl CObject for Xrcd {
    type C = ibv_xrcd;
}

impl RegisteredObject for Xrcd {
    const KIND: &'static str = "XRC domain";

    fn identity(c: &ibv_xrcd) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl Xrcd {
    /// Creates a domain that was opened through a context.
    pub(crate) fn new(context: *mut ibv_context, handle: Handle) -> Xrcd {
        let c = ofed_xrc_domain { base: ibv_xrcd { context }, handle: u64::from(handle.index) };
        Xrcd { c: SharedStruct::new(c), handle }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the context through which it was opened.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, base.context)
    }

    /// # Errors
    /// Fails with EINVAL, which does not happen for a live domain.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }
}

/// Addresses of the open domains that were opened by OFED 1.x's call. A program that has one was built with
/// OFED's header, and its `struct ibv_qp_init_attr` ends with a domain; without one, the program's header is
/// not known.
static OPENED_BY_OFED: PerProcess<Mutex<BTreeSet<usize>>> = PerProcess::new(|_| Mutex::default());

fn opened_by_ofed() -> MutexGuard<'static, BTreeSet<usize>> {
    OPENED_BY_OFED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a domain was opened by OFED 1.x's call.
pub(crate) fn mark_ofed(domain: *mut ibv_xrcd) {
    opened_by_ofed().insert(domain.addr());
}

/// Records that a domain was closed.
pub(crate) fn forget_ofed(domain: *mut ibv_xrcd) {
    opened_by_ofed().remove(&domain.addr());
}

/// Reports whether the program has a domain of OFED 1.x's call open.
pub(crate) fn is_ofed_program() -> bool {
    !opened_by_ofed().is_empty()
}

/// Reports whether this is an open domain of OFED 1.x's call.
pub(crate) fn is_open_by_ofed(domain: *mut ibv_xrcd) -> bool {
    opened_by_ofed().contains(&domain.addr())
}
