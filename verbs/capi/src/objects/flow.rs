//! Flow rules of raw packet queue pairs.

use std::sync::Arc;

use super::context::Context;
use crate::ground::abi::{ibv_context, ibv_flow};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, shown};

/// A flow rule.
#[repr(C)]
pub(crate) struct Flow {
    c: Shown<ibv_flow>,
    id: u32,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Flow {
    type C = ibv_flow;
}

impl Listed for Flow {
    const KIND: &'static str = "flow rule";

    fn identity(c: &ibv_flow) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Flow {
    /// The rule that the device calls `id`.
    pub(crate) fn new(context: *mut ibv_context, id: u32) -> Flow {
        Flow { c: Shown::new(ibv_flow { comp_mask: 0, context, handle: id }), id }
    }

    /// What the device calls it.
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }
}
