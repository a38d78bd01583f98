//! Protection domains, and parent domains, which represent one.

use std::sync::Arc;

use pumice_device::platform::table::Handle;

use super::context::Context;
use super::thread_domain::Td;
use super::usage::{UseCount, UseGuard};
use crate::abi::{ibv_context, ibv_pd, ibv_td};
use crate::check;
use crate::entry::handles::{CObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::errno::Errno;

/// A protection domain, or a parent domain that represents one.
#[repr(C)]
pub(crate) struct Pd {
    c: SharedStruct<ibv_pd>,
    handle: Handle,
    /// Uses by objects of a parent domain, and by parent domains of another.
    usage: UseCount,
    /// Uses of the protection domain and of the thread domain by a parent domain.
    parent: Option<(UseGuard, Option<UseGuard>)>,
    /// Address of a parent domain's thread domain, as the program knows it; 0 if it has none.
    thread_domain: usize,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Pd {
    type C = ibv_pd;
}

impl RegisteredObject for Pd {
    const KIND: &'static str = "protection domain";

    fn identity(c: &ibv_pd) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl Pd {
    pub(crate) fn new(context: *mut ibv_context, handle: Handle) -> Pd {
        let c = SharedStruct::new(ibv_pd { context, handle: handle.index });
        Pd { c, handle, usage: UseCount::default(), parent: None, thread_domain: 0 }
    }

    pub(crate) fn parent_of(domain: &Pd, thread: Option<&Td>, thread_domain: *mut ibv_td) -> Pd {
        let parent = Some((domain.usage.begin(), thread.map(Td::begin_use)));
        Pd { parent, thread_domain: thread_domain.addr(), ..Pd::new(domain.context_pointer(), domain.handle) }
    }

    /// Notifies the checker that an object of the domain is for one thread at a time, if the program promised
    /// that.
    pub(crate) fn report_thread_domain<T>(&self, object: *const T) {
        if self.thread_domain != 0 {
            check::for_one_thread(object.addr(), self.thread_domain);
        }
    }

    /// Reports whether it is a parent domain with a thread domain.
    pub(crate) const fn has_thread_domain(&self) -> bool {
        self.thread_domain != 0
    }

    pub(crate) const fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Begins a use, which an object of the domain owns. Uses of protection domains are counted by the
    /// device.
    pub(crate) fn begin_use(&self) -> Option<UseGuard> {
        self.is_parent().then(|| self.usage.begin())
    }

    /// # Errors
    /// Fails with EBUSY if it is a parent domain with objects, or has parent domains.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        if self.is_parent() {
            self.usage.check_unused("parent domain", "objects")
        } else {
            self.usage.check_unused("protection domain", "parent domains")
        }
    }

    /// Returns the program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }

    /// Returns its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }
}
