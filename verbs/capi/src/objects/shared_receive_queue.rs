//! Shared receive queues.

use std::ffi::c_void;
use std::sync::Arc;

use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_device::outside::lineage::Generation;

use super::context::Context;
use super::events::EventSource;
use super::usage::Use;
use crate::ground::abi::{ibv_context, ibv_cq, ibv_pd, ibv_srq, ibv_xrcd};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, shown};
use crate::ground::zeroed::zero_is_valid;

/// `struct ibv_srq` as OFED 1.x had it: more behind the members of today.
#[repr(C)]
pub(crate) struct ofed_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    mutex: libc::pthread_mutex_t,
    cond: libc::pthread_cond_t,
    events_completed: u32,
    pub(crate) xrc_srq_num: u32,
    pub(crate) xrc_domain: *mut ibv_xrcd,
    pub(crate) xrc_cq: *mut ibv_cq,
}

zero_is_valid!(ofed_srq);

const _: () = assert!(
    std::mem::offset_of!(ofed_srq, events_completed) == std::mem::offset_of!(ibv_srq, events_completed)
        && std::mem::offset_of!(ofed_srq, xrc_srq_num)
            == if cfg!(target_arch = "aarch64") { 132 } else { 124 }
);

/// A shared receive queue.
#[repr(C)]
pub(crate) struct Srq {
    c: Shown<ofed_srq>,
    generation: Generation,
    hca: Arc<Hca>,
    handle: Handle,
    events: Arc<EventSource>,
    _domain_use: Option<Use>,
}

// SAFETY: the first field begins with the C structure.
unsafe impl Held for Srq {
    type C = ibv_srq;
}

impl Listed for Srq {
    const KIND: &'static str = "shared receive queue";

    fn identity(c: &ibv_srq) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl OfProcess for Srq {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Srq {
    pub(crate) fn new(
        c: ofed_srq,
        hca: Arc<Hca>,
        handle: Handle,
        events: Arc<EventSource>,
        domain_use: Option<Use>,
    ) -> Srq {
        let generation = Generation::own();
        Srq { c: Shown::new(c), generation, hca, handle, events, _domain_use: domain_use }
    }

    #[inline]
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        &self.hca
    }

    /// What its asynchronous events are about.
    pub(crate) fn events(&self) -> &EventSource {
        &self.events
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
