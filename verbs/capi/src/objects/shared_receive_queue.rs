//! Shared receive queues.

use std::ffi::c_void;
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_device::outside::fork_generation::Generation;
use pumice_device::platform::table::Handle;

use super::context::Context;
use super::events::EventSource;
use super::usage::UseGuard;
use crate::abi::zeroed::zero_is_valid;
use crate::abi::{ibv_context, ibv_cq, ibv_pd, ibv_srq, ibv_xrcd};
use crate::entry::handles::{CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

/// `struct ibv_srq` of OFED 1.x: it has more members behind those of today.
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
    c: SharedStruct<ofed_srq>,
    generation: Generation,
    hca: Arc<Hca>,
    handle: Handle,
    events: Arc<EventSource>,
    _domain_use: Option<UseGuard>,
}

// SAFETY: the first field begins with the C structure.
unsafe impl CObject for Srq {
    type C = ibv_srq;
}

impl RegisteredObject for Srq {
    const KIND: &'static str = "shared receive queue";

    fn identity(c: &ibv_srq) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Srq {
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
        domain_use: Option<UseGuard>,
    ) -> Srq {
        let generation = Generation::own();
        Srq { c: SharedStruct::new(c), generation, hca, handle, events, _domain_use: domain_use }
    }

    #[inline]
    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    #[inline]
    pub(crate) fn hca(&self) -> &Hca {
        &self.hca
    }

    /// Returns the source of its asynchronous events.
    pub(crate) fn events(&self) -> &EventSource {
        &self.events
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
