//! Thread domains. One promises that one thread uses what is made in it. The device's locks are cheap when no
//! other thread wants them, so the promise is noted and not used.

use std::sync::Arc;

use super::context::Context;
use super::usage::{Usage, Use};
use crate::ground::abi::{ibv_context, ibv_td};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, shown};

/// A thread domain.
#[repr(C)]
pub(crate) struct Td {
    c: Shown<ibv_td>,
    usage: Usage,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Td {
    type C = ibv_td;
}

impl Listed for Td {
    const KIND: &'static str = "thread domain";

    fn identity(c: &ibv_td) -> Identity {
        Identity::new(c.context, 0)
    }
}

impl Td {
    pub(crate) fn new(context: *mut ibv_context) -> Td {
        Td { c: Shown::new(ibv_td { context }), usage: Usage::default() }
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(shown!(self.c, context))
    }

    /// For a parent domain to keep.
    pub(crate) fn begin_use(&self) -> Use {
        self.usage.begin()
    }

    /// # Errors
    /// EBUSY: parent domains have it.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        self.usage.check_unused("thread domain", "parent domains")
    }
}
