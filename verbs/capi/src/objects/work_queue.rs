//! Receive work queues, and the tables over which the frames of a queue pair are spread. To the device a
//! work queue is a raw packet queue pair that sends nothing.

use std::sync::Arc;

use pumice_device::ground::table::Handle;
use pumice_device::hca::Hca;
use pumice_device::outside::lineage::Generation;
use pumice_transport::wire::Qpn;

use super::context::Context;
use super::usage::{Usage, Use};
use crate::ground::abi::{ibv_context, ibv_rwq_ind_table, ibv_wq};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, OfProcess, Shown, show, shown};

/// A receive work queue.
#[repr(C)]
pub(crate) struct Wq {
    c: Shown<ibv_wq>,
    hca: Arc<Hca>,
    number: Qpn,
    /// Its completion queue.
    cq: Handle,
    usage: Usage,
    generation: Generation,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Wq {
    type C = ibv_wq;
}

impl Listed for Wq {
    const KIND: &'static str = "work queue";

    fn identity(c: &ibv_wq) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl OfProcess for Wq {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Wq {
    pub(crate) fn new(c: ibv_wq, hca: Arc<Hca>, number: Qpn, cq: Handle) -> Wq {
        let generation = Generation::own();
        Wq { c: Shown::new(c), hca, number, cq, usage: Usage::default(), generation }
    }

    pub(crate) const fn hca(&self) -> &Arc<Hca> {
        &self.hca
    }

    pub(crate) const fn number(&self) -> Qpn {
        self.number
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// `IBV_WQS_*`.
    pub(crate) fn state(&self) -> u32 {
        shown!(self.c, state)
    }

    pub(crate) fn show_state(&self, state: u32) {
        show!(self.c, state = state);
    }

    /// # Errors
    /// EBUSY: tables have it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("work queue", "indirection tables")
    }
}

/// A table of work queues.
#[repr(C)]
pub(crate) struct IndirectionTable {
    c: Shown<ibv_rwq_ind_table>,
    queues: Vec<Qpn>,
    /// Completion queue of the first.
    cq: Handle,
    usage: Usage,
    _uses: Vec<Use>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for IndirectionTable {
    type C = ibv_rwq_ind_table;
}

impl Listed for IndirectionTable {
    const KIND: &'static str = "indirection table";

    fn identity(c: &ibv_rwq_ind_table) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl IndirectionTable {
    /// None: there is no work queue.
    pub(crate) fn new(context: *mut ibv_context, queues: &[Arc<Wq>]) -> Option<IndirectionTable> {
        let c = ibv_rwq_ind_table { context, ind_tbl_handle: 0, ind_tbl_num: 0, comp_mask: 0 };
        Some(IndirectionTable {
            c: Shown::new(c),
            queues: queues.iter().map(|queue| queue.number).collect(),
            cq: queues.first()?.cq,
            usage: Usage::default(),
            _uses: queues.iter().map(|queue| queue.usage.begin()).collect(),
        })
    }

    pub(crate) fn queues(&self) -> &[Qpn] {
        &self.queues
    }

    /// Completion queue of the first work queue.
    pub(crate) const fn cq(&self) -> Handle {
        self.cq
    }

    /// For a queue pair to keep.
    pub(crate) fn begin_use(&self) -> Use {
        self.usage.begin()
    }

    /// # Errors
    /// EBUSY: queue pairs have it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("indirection table", "queue pairs")
    }
}
