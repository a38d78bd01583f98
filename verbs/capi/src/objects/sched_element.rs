//! Nodes and leaves of mlx5's bandwidth trees. Their parameters are checked and have no effect: no link here
//! is shared out.

use crate::abi::{ibv_context, mlx5dv_sched_leaf, mlx5dv_sched_node};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct};

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
