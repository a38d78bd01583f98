//! Nodes and leaves of mlx5's trees of bandwidth. What they ask for is checked and has no effect: no link
//! here is shared out.

use crate::ground::abi::{ibv_context, mlx5dv_sched_leaf, mlx5dv_sched_node};
use crate::ground::handles::{Held, Identity, Listed, Shown};

/// An inner node.
#[repr(C)]
pub(crate) struct SchedNode {
    c: Shown<mlx5dv_sched_node>,
}

/// A leaf, which queue pairs belong to.
#[repr(C)]
pub(crate) struct SchedLeaf {
    c: Shown<mlx5dv_sched_leaf>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for SchedNode {
    type C = mlx5dv_sched_node;
}

// SAFETY: as above.
unsafe impl Held for SchedLeaf {
    type C = mlx5dv_sched_leaf;
}

impl Listed for SchedNode {
    const KIND: &'static str = "scheduling node";

    fn identity(c: &mlx5dv_sched_node) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl Listed for SchedLeaf {
    const KIND: &'static str = "scheduling leaf";

    fn identity(c: &mlx5dv_sched_leaf) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl SchedNode {
    pub(crate) fn new(context: *mut ibv_context) -> SchedNode {
        SchedNode { c: Shown::new(mlx5dv_sched_node { context }) }
    }
}

impl SchedLeaf {
    pub(crate) fn new(context: *mut ibv_context) -> SchedLeaf {
        SchedLeaf { c: Shown::new(mlx5dv_sched_leaf { context }) }
    }
}
