//! XRC domains, of both generations of the API: `struct ibv_xrcd`, and OFED 1.x's `struct ibv_xrc_domain`,
//! which begins like it. A pointer to one serves where the other is asked for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::ground::table::Handle;
use pumice_device::outside::lineage::PerProcess;

use super::context::Context;
use crate::ground::abi::{ibv_context, ibv_xrcd};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, shown};

/// OFED 1.x `struct ibv_xrc_domain`.
#[repr(C)]
pub(crate) struct ofed_xrc_domain {
    base: ibv_xrcd,
    handle: u64,
}

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: Shown<ofed_xrc_domain>,
    handle: Handle,
}

// SAFETY: the first field begins with the C structure.
unsafe impl Held for Xrcd {
    type C = ibv_xrcd;
}

impl Listed for Xrcd {
    const KIND: &'static str = "XRC domain";

    fn identity(c: &ibv_xrcd) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl Xrcd {
    /// A domain that was opened through a context.
    pub(crate) fn new(context: *mut ibv_context, handle: Handle) -> Xrcd {
        let c = ofed_xrc_domain { base: ibv_xrcd { context }, handle: u64::from(handle.index) };
        Xrcd { c: Shown::new(c), handle }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// The context through which it was opened.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, base.context)
    }

    /// # Errors
    /// EINVAL, which a live domain never gives.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }
}

/// Addresses of the domains that were opened by OFED 1.x's call and are open. A program that has one was
/// built with OFED's header, and its `struct ibv_qp_init_attr` ends with a domain; of another program nothing
/// is known.
static OPENED_BY_OFED: PerProcess<Mutex<BTreeSet<usize>>> = PerProcess::new(|_| Mutex::default());

fn opened_by_ofed() -> MutexGuard<'static, BTreeSet<usize>> {
    OPENED_BY_OFED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A domain was opened by OFED 1.x's call.
pub(crate) fn note_ofed(domain: *mut ibv_xrcd) {
    opened_by_ofed().insert(domain.addr());
}

/// A domain was closed.
pub(crate) fn forget_ofed(domain: *mut ibv_xrcd) {
    opened_by_ofed().remove(&domain.addr());
}

/// Whether the program has a domain of OFED 1.x's call open.
pub(crate) fn is_ofed_program() -> bool {
    !opened_by_ofed().is_empty()
}

/// Whether this is a domain of OFED 1.x's call, and open.
pub(crate) fn is_open_by_ofed(domain: *mut ibv_xrcd) -> bool {
    opened_by_ofed().contains(&domain.addr())
}
