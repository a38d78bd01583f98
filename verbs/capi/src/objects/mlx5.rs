//! Objects of mlx5's users: indirect memory keys, bandwidth trees, settings for the memory of queues.
//!
//! Nodes and leaves of mlx5's bandwidth trees. Their parameters are checked and have no effect: no link here
//! is shared out.
//!
//! Settings of mlx5's users for the memory of queues. They do not move the queues of this device; but a user
//! who demands huge pages gets an error if the host has none, as with mlx5.

use std::sync::Arc;

use pumice_device::memory::{IndirectKeyInit, RegionKeys};
use pumice_device::outside::fork_generation::Generation;
use pumice_device::outside::{environment, files};
use pumice_device::platform::table::Handle;
use pumice_device::profile::Vendor;

use super::Context;
use super::domains::{Pd, UseGuard};
use crate::abi::{ibv_context, mlx5dv_mkey, mlx5dv_sched_leaf, mlx5dv_sched_node};
use crate::entry::handles::{CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::Errno;

/// An indirect memory key.
#[repr(C)]
pub(crate) struct Mkey {
    c: SharedStruct<mlx5dv_mkey>,
    generation: Generation,
    handle: Handle,
    init: IndirectKeyInit,
    _domain_use: Option<UseGuard>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Mkey {
    type C = mlx5dv_mkey;
}

impl RegisteredObject for Mkey {
    const KIND: &'static str = "indirect memory key";

    fn identity(c: &mlx5dv_mkey) -> HandleIdentity {
        HandleIdentity::new(c.context, c.lkey)
    }
}

impl DataPathObject for Mkey {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Mkey {
    pub(crate) fn new(domain: &Pd, keys: RegionKeys, init: IndirectKeyInit) -> Mkey {
        let c = mlx5dv_mkey { lkey: keys.lkey, rkey: keys.rkey, context: domain.context_pointer() };
        Mkey {
            c: SharedStruct::new(c),
            generation: Generation::own(),
            handle: keys.handle,
            init,
            _domain_use: domain.begin_use(),
        }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the largest number of pieces of its layout.
    pub(crate) const fn max_pieces(&self) -> usize {
        self.init.max_pieces as usize
    }

    pub(crate) const fn has_signatures(&self) -> bool {
        self.init.has_signatures
    }

    /// Returns its number, by which the device knows it.
    pub(crate) fn key(&self) -> u32 {
        shown!(self.c, lkey)
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}

/// An inner node.
#[repr(C)]
pub(crate) struct SchedNode {
    c: SharedStruct<mlx5dv_sched_node>,
}

/// A leaf, which queue pairs belong to.
#[repr(C)]
pub(crate) struct SchedLeaf {
    c: SharedStruct<mlx5dv_sched_leaf>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for SchedNode {
    type C = mlx5dv_sched_node;
}

// SAFETY: as above.
unsafe impl CObject for SchedLeaf {
    type C = mlx5dv_sched_leaf;
}

impl RegisteredObject for SchedNode {
    const KIND: &'static str = "scheduling node";

    fn identity(c: &mlx5dv_sched_node) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl RegisteredObject for SchedLeaf {
    const KIND: &'static str = "scheduling leaf";

    fn identity(c: &mlx5dv_sched_leaf) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl SchedNode {
    pub(crate) fn new(context: *mut ibv_context) -> SchedNode {
        SchedNode { c: SharedStruct::new(mlx5dv_sched_node { context }) }
    }
}

impl SchedLeaf {
    pub(crate) fn new(context: *mut ibv_context) -> SchedLeaf {
        SchedLeaf { c: SharedStruct::new(mlx5dv_sched_leaf { context }) }
    }
}

/// The variables, and the value that demands huge pages.
pub(crate) const OF_COMPLETION_QUEUES: &str = "MLX_CQ_ALLOC_TYPE";
pub(crate) const OF_QUEUE_PAIRS: &str = "MLX_QP_ALLOC_TYPE";
pub(crate) const OF_SHARED_RECEIVE_QUEUES: &str = "MLX_SRQ_ALLOC_TYPE";
const HUGE_PAGES_ONLY: &str = "HUGE";
/// File with the number of the host's huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Checks that a queue can be in the memory that the variable demands.
///
/// # Errors
/// Fails with ENOMEM if the device looks like mlx5, the variable demands huge pages, and the host has none.
pub(crate) fn check(open: &Context, variable: &'static str) -> Result<(), Errno> {
    if !open.is_of(Vendor::Mellanox)
        || environment::variable(variable).is_none_or(|value| value != HUGE_PAGES_ONLY)
    {
        return Ok(());
    }
    let count = files::fact_text(HUGE_PAGES).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if count.is_some_and(|count| count > 0) {
        return Ok(());
    }
    Err(Errno(libc::ENOMEM).because(|| {
        format!(
            "{variable} is {HUGE_PAGES_ONLY}, and this host has no huge pages; say PREFER_HUGE, or \
             reserve some (vm.nr_hugepages)"
        )
    }))
}
