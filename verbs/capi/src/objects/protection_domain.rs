//! Protection domains, and parent domains that stand for one.

use std::sync::Arc;

use pumice_device::ground::table::Handle;

use super::context::Context;
use super::thread_domain::Td;
use super::usage::{Usage, Use};
use crate::ground::abi::{ibv_context, ibv_pd, ibv_td};
use crate::ground::check;
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, shown};

/// A protection domain, or a parent domain that stands for one.
#[repr(C)]
pub(crate) struct Pd {
    c: Shown<ibv_pd>,
    handle: Handle,
    /// The objects of a parent domain, and the parent domains of another.
    usage: Usage,
    /// Of a parent domain: of the protection domain and of the thread domain.
    parent: Option<(Use, Option<Use>)>,
    /// Of a parent domain: the program's pointer to its thread domain; 0 if it has none.
    thread_domain: usize,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Pd {
    type C = ibv_pd;
}

impl Listed for Pd {
    const KIND: &'static str = "protection domain";

    fn identity(c: &ibv_pd) -> Identity {
        Identity::new(c.context, c.handle)
    }
}

impl Pd {
    pub(crate) fn new(context: *mut ibv_context, handle: Handle) -> Pd {
        let c = Shown::new(ibv_pd { context, handle: handle.index });
        Pd { c, handle, usage: Usage::default(), parent: None, thread_domain: 0 }
    }

    pub(crate) fn parent_of(domain: &Pd, thread: Option<&Td>, thread_domain: *mut ibv_td) -> Pd {
        let parent = Some((domain.usage.begin(), thread.map(Td::begin_use)));
        Pd { parent, thread_domain: thread_domain.addr(), ..Pd::new(domain.context_pointer(), domain.handle) }
    }

    /// Tells the checker that an object of the domain is for one thread at a time, if the program promised
    /// that.
    pub(crate) fn tell_thread_of<T>(&self, object: *const T) {
        if self.thread_domain != 0 {
            check::for_one_thread(object.addr(), self.thread_domain);
        }
    }

    /// Whether it is a parent domain with a thread domain.
    pub(crate) const fn has_thread_domain(&self) -> bool {
        self.thread_domain != 0
    }

    pub(crate) const fn is_parent(&self) -> bool {
        self.parent.is_some()
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// For an object of the domain to keep. Protection domains are counted by the device.
    pub(crate) fn begin_use(&self) -> Option<Use> {
        self.is_parent().then(|| self.usage.begin())
    }

    /// # Errors
    /// EBUSY: it is a parent domain with objects, or has parent domains.
    pub(crate) fn check_unused(&self) -> Result<(), Errno> {
        if self.is_parent() {
            self.usage.check_unused("parent domain", "objects")
        } else {
            self.usage.check_unused("protection domain", "parent domains")
        }
    }

    /// The program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }

    /// Its context.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }
}
