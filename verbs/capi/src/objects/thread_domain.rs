//! Thread domains. One promises that one thread uses the objects that are made in it. The device's locks are
//! cheap when no other thread wants them, so the promise is stored and not used.

use std::sync::Arc;

use super::context::Context;
use super::usage::{UseCount, UseGuard};
use crate::abi::{ibv_context, ibv_td};
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    c: SharedStruct<ibv_td>,
    usage: UseCount,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Td {
    type C = ibv_td;
}

impl RegisteredObject for Td {
    const KIND: &'static str = "thread domain";

    fn identity(c: &ibv_td) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl Td {
    pub(crate) fn new(context: *mut ibv_context) -> Td {
        Td { c: SharedStruct::new(ibv_td { context }), usage: UseCount::default() }
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// Begins a use, which a parent domain owns.
    pub(crate) fn begin_use(&self) -> UseGuard {
        self.usage.begin()
    }

    /// # Errors
    /// Fails with EBUSY if parent domains use it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("thread domain", "parent domains")
    }
}
