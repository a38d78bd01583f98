//! Shared receive queues, receive work queues, the tables of these, and flow rules.
//!
//! Receive work queues, and the tables over which the frames of a queue pair are spread. For the device a
//! work queue is a raw packet queue pair that sends nothing.

use std::ffi::c_void;
use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_device::outside::fork_generation::Generation;
use pumice_device::platform::table::Handle;
use pumice_transport::wire::Qpn;

use super::Context;
use super::domains::{UseCount, UseGuard};
use super::events::EventSource;
use crate::abi::plain::zero_is_valid;
use crate::abi::{ibv_context, ibv_cq, ibv_flow, ibv_pd, ibv_rwq_ind_table, ibv_srq, ibv_wq, ibv_xrcd};
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, show, shown,
};
use crate::platform::Errno;

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

/// A receive work queue.
#[repr(C)]
pub(crate) struct Wq {
    c: SharedStruct<ibv_wq>,
    hca: Arc<Hca>,
    number: Qpn,
    /// Its completion queue.
    cq: Handle,
    usage: UseCount,
    generation: Generation,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Wq {
    type C = ibv_wq;
}

impl RegisteredObject for Wq {
    const KIND: &'static str = "work queue";

    fn identity(c: &ibv_wq) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Wq {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Wq {
    pub(crate) fn new(c: ibv_wq, hca: Arc<Hca>, number: Qpn, cq: Handle) -> Wq {
        let generation = Generation::own();
        Wq { c: SharedStruct::new(c), hca, number, cq, usage: UseCount::default(), generation }
    }

    pub(crate) const fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }

    pub(crate) const fn number(&self) -> Qpn {
        self.number
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Returns its state (`IBV_WQS_*`).
    pub(crate) fn state(&self) -> u32 {
        shown!(self.c, state)
    }

    pub(crate) fn show_state(&self, state: u32) {
        show!(self.c, state = state);
    }

    /// # Errors
    /// Fails with EBUSY if tables use it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("work queue", "indirection tables")
    }
}

/// A table of work queues.
#[repr(C)]
pub(crate) struct IndirectionTable {
    c: SharedStruct<ibv_rwq_ind_table>,
    queues: Vec<Qpn>,
    /// Completion queue of the first work queue.
    cq: Handle,
    usage: UseCount,
    _uses: Vec<UseGuard>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for IndirectionTable {
    type C = ibv_rwq_ind_table;
}

impl RegisteredObject for IndirectionTable {
    const KIND: &'static str = "indirection table";

    fn identity(c: &ibv_rwq_ind_table) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl IndirectionTable {
    /// Creates a table; `None` if there is no work queue.
    pub(crate) fn new(context: *mut ibv_context, queues: &[Arc<Wq>]) -> Option<IndirectionTable> {
        let c = ibv_rwq_ind_table { context, ind_tbl_handle: 0, ind_tbl_num: 0, comp_mask: 0 };
        Some(IndirectionTable {
            c: SharedStruct::new(c),
            queues: queues.iter().map(|queue| queue.number).collect(),
            cq: queues.first()?.cq,
            usage: UseCount::default(),
            _uses: queues.iter().map(|queue| queue.usage.begin()).collect(),
        })
    }

    pub(crate) fn queues(&self) -> &[Qpn] {
        &self.queues
    }

    /// Returns the completion queue of the first work queue.
    pub(crate) const fn cq(&self) -> Handle {
        self.cq
    }

    /// Begins a use, which a queue pair owns.
    pub(crate) fn begin_use(&self) -> UseGuard {
        self.usage.begin()
    }

    /// # Errors
    /// Fails with EBUSY if queue pairs use it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("indirection table", "queue pairs")
    }
}

/// A flow rule.
#[repr(C)]
pub(crate) struct Flow {
    c: SharedStruct<ibv_flow>,
    id: u32,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Flow {
    type C = ibv_flow;
}

impl RegisteredObject for Flow {
    const KIND: &'static str = "flow rule";

    fn identity(c: &ibv_flow) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl Flow {
    /// Creates the rule with the device's number `id`.
    pub(crate) fn new(context: *mut ibv_context, id: u32) -> Flow {
        Flow { c: SharedStruct::new(ibv_flow { comp_mask: 0, context, handle: id }), id }
    }

    /// Returns the device's number of the rule.
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
