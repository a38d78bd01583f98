//! Flow rules of raw packet queue pairs.

use std::sync::Arc;

use super::context::Context;
use crate::abi::{ibv_context, ibv_flow};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

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
