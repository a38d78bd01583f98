//! Receive work queues, and the tables over which the frames of a queue pair are spread. For the device a
//! work queue is a raw packet queue pair that sends nothing.

use std::sync::Arc;

use pumice_device::hca::Hca;
use pumice_device::outside::fork_generation::Generation;
use pumice_device::platform::table::Handle;
use pumice_transport::wire::Qpn;

use super::context::Context;
use super::usage::{UseCount, UseGuard};
use crate::abi::{ibv_context, ibv_rwq_ind_table, ibv_wq};
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, show, shown,
};
use crate::platform::errno::Errno;

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
