//! Protection domains, thread domains, XRC domains and address handles, and counts of the uses of an object.
//!
//! Thread domains. One promises that one thread uses the objects that are made in it. The device's locks are
//! cheap when no other thread wants them, so the promise is stored and not used.
//!
//! XRC domains, of both generations of the API: `struct ibv_xrcd`, and OFED 1.x's `struct ibv_xrc_domain`,
//! which begins like it. A pointer to one can be used in place of the other.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::outside::fork_generation::{Generation, PerProcess};
use pumice_device::platform::table::Handle;
use pumice_transport::path::Path;

use super::Context;
use crate::abi::{ibv_ah, ibv_context, ibv_pd, ibv_td, ibv_xrcd};
use crate::check;
use crate::entry::handles::{CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, shown};
use crate::platform::Errno;

/// The uses of an object.
#[derive(Default)]
pub(crate) struct UseCount(Arc<()>);

/// A use of an object, until it is dropped.
pub(crate) struct UseGuard(#[expect(dead_code, reason = "counted by being there")] Arc<()>);

impl UseCount {
    pub(crate) fn begin(&self) -> UseGuard {
        UseGuard(Arc::clone(&self.0))
    }

    /// # Errors
    /// Fails with EBUSY if there are uses by `users`.
    pub(crate) fn check_unused(&self, object: &str, users: &str) -> Result<(), Errno> {
        let count = Arc::strong_count(&self.0) - 1;
        if count == 0 {
            return Ok(());
        }
        Err(Errno(libc::EBUSY).because(|| format!("the {object} has {count} {users}; destroy them first")))
    }
}

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

/// `struct ibv_xrc_domain` of OFED 1.x.
#[repr(C)]
pub(crate) struct ofed_xrc_domain {
    base: ibv_xrcd,
    handle: u64,
}

/// An XRC domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: SharedStruct<ofed_xrc_domain>,
    handle: Handle,
}

// SAFETY: the first field begins with the C structure.
unsafe impl CObject for Xrcd {
    type C = ibv_xrcd;
}

impl RegisteredObject for Xrcd {
    const KIND: &'static str = "XRC domain";

    fn identity(c: &ibv_xrcd) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl Xrcd {
    /// Creates a domain that was opened through a context.
    pub(crate) fn new(context: *mut ibv_context, handle: Handle) -> Xrcd {
        let c = ofed_xrc_domain { base: ibv_xrcd { context }, handle: u64::from(handle.index) };
        Xrcd { c: SharedStruct::new(c), handle }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the context through which it was opened.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, base.context)
    }

    /// # Errors
    /// Fails with EINVAL, which does not happen for a live domain.
    pub(crate) fn context(&self) -> Result<Arc<Context>, Errno> {
        Context::of(self.context_pointer())
    }
}

/// Addresses of the open domains that were opened by OFED 1.x's call. A program that has one was built with
/// OFED's header, and its `struct ibv_qp_init_attr` ends with a domain; without one, the program's header is
/// not known.
static OPENED_BY_OFED: PerProcess<Mutex<BTreeSet<usize>>> = PerProcess::new(|_| Mutex::default());

fn opened_by_ofed() -> MutexGuard<'static, BTreeSet<usize>> {
    OPENED_BY_OFED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a domain was opened by OFED 1.x's call.
pub(crate) fn mark_ofed(domain: *mut ibv_xrcd) {
    opened_by_ofed().insert(domain.addr());
}

/// Records that a domain was closed.
pub(crate) fn forget_ofed(domain: *mut ibv_xrcd) {
    opened_by_ofed().remove(&domain.addr());
}

/// Reports whether the program has a domain of OFED 1.x's call open.
pub(crate) fn is_ofed_program() -> bool {
    !opened_by_ofed().is_empty()
}

/// Reports whether this is an open domain of OFED 1.x's call.
pub(crate) fn is_open_by_ofed(domain: *mut ibv_xrcd) -> bool {
    opened_by_ofed().contains(&domain.addr())
}

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    c: SharedStruct<ibv_ah>,
    generation: Generation,
    handle: Handle,
    domain: Handle,
    path: Arc<Path>,
    _domain_use: Option<UseGuard>,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for Ah {
    type C = ibv_ah;
}

impl RegisteredObject for Ah {
    const KIND: &'static str = "address handle";

    fn identity(c: &ibv_ah) -> HandleIdentity {
        HandleIdentity::new(c.context, c.handle)
    }
}

impl DataPathObject for Ah {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl Ah {
    /// Creates an address handle of a protection domain.
    pub(crate) fn new(
        c: ibv_ah,
        handle: Handle,
        domain: Handle,
        path: Arc<Path>,
        domain_use: Option<UseGuard>,
    ) -> Ah {
        let generation = Generation::own();
        Ah { c: SharedStruct::new(c), generation, handle, domain, path, _domain_use: domain_use }
    }

    pub(crate) const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the path that datagrams through it take.
    #[inline]
    pub(crate) const fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Returns its protection domain.
    #[inline]
    pub(crate) const fn domain(&self) -> Handle {
        self.domain
    }

    /// Returns the program's pointer to its context.
    pub(crate) fn context_pointer(&self) -> *mut ibv_context {
        shown!(self.c, context)
    }
}
