//! Objects of libmrc: contexts, hints and queue pairs. Its completion queues and channels are those of verbs.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_device::outside::fork_generation::{Generation, PerProcess};

use super::domains::{UseCount, UseGuard};
use super::queue_pair::Qp;
use crate::abi::plain::ForwardedStruct;
use crate::abi::{ibv_context, ibv_qp, mrc_context, mrc_qp, mrc_qp_hint, mrc_qp_hint_attr};
use crate::entry::arguments::Trusted;
use crate::entry::handles::{
    CObject, DataPathObject, HandleIdentity, RegisteredObject, SharedStruct, hand_out, shown, take_back,
};
use crate::platform::Errno;

/// Addresses of MRC queue pairs, by those of their `ibv_qp`, which asynchronous events name.
static OWNERS: PerProcess<Mutex<BTreeMap<usize, usize>>> = PerProcess::new(|_| Mutex::default());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context of libmrc.
#[repr(C)]
pub(crate) struct MrcContext {
    c: SharedStruct<mrc_context>,
    context: ForwardedStruct<*mut ibv_context>,
    /// Version of the API that the program was built with.
    version: u32,
    uses: UseCount,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for MrcContext {
    type C = mrc_context;
}

impl RegisteredObject for MrcContext {
    const KIND: &'static str = "MRC context";

    fn identity(c: &mrc_context) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl MrcContext {
    /// Creates one of a context of verbs, for a program that was built with a version of the API.
    pub(crate) fn new(context: *mut ibv_context, version: u32) -> MrcContext {
        let c = mrc_context { context };
        MrcContext {
            c: SharedStruct::new(c),
            context: ForwardedStruct(context),
            version,
            uses: UseCount::default(),
        }
    }

    /// Returns the program's pointer to its context of verbs.
    pub(crate) const fn context_pointer(&self) -> *mut ibv_context {
        self.context.0
    }

    /// Returns the version of the API that the program was built with.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Returns the uses by queue pairs and hints.
    pub(crate) const fn uses(&self) -> &UseCount {
        &self.uses
    }
}

/// A hint about the queue pairs that a program is about to make.
#[repr(C)]
pub(crate) struct MrcHint {
    c: SharedStruct<mrc_qp_hint>,
    attributes: Mutex<ForwardedStruct<mrc_qp_hint_attr>>,
    uses: UseCount,
    _context_use: UseGuard,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for MrcHint {
    type C = mrc_qp_hint;
}

impl RegisteredObject for MrcHint {
    const KIND: &'static str = "MRC hint";

    fn identity(c: &mrc_qp_hint) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl MrcHint {
    pub(crate) fn new(context: &MrcContext, attributes: mrc_qp_hint_attr) -> MrcHint {
        MrcHint {
            c: SharedStruct::new(mrc_qp_hint { context: context.context_pointer() }),
            attributes: Mutex::new(ForwardedStruct(attributes)),
            uses: UseCount::default(),
            _context_use: context.uses().begin(),
        }
    }

    pub(crate) fn attributes(&self) -> mrc_qp_hint_attr {
        lock(&self.attributes).0
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut mrc_qp_hint_attr)) {
        change(&mut lock(&self.attributes).0);
    }

    /// Returns the uses by queue pairs.
    pub(crate) const fn uses(&self) -> &UseCount {
        &self.uses
    }
}

/// An MRC queue pair.
#[repr(C)]
pub(crate) struct MrcQp {
    c: SharedStruct<mrc_qp>,
    generation: Generation,
    qp: Arc<Qp>,
    /// The hint that it was given, and its use.
    hint: Mutex<Option<(ForwardedStruct<*mut mrc_qp_hint>, UseGuard)>>,
    _context_use: UseGuard,
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for MrcQp {
    type C = mrc_qp;
}

impl RegisteredObject for MrcQp {
    const KIND: &'static str = "MRC queue pair";

    fn identity(c: &mrc_qp) -> HandleIdentity {
        HandleIdentity::new(c.context, 0)
    }
}

impl DataPathObject for MrcQp {
    #[inline]
    fn generation(&self) -> Generation {
        self.generation
    }
}

impl MrcQp {
    /// Gives the program an MRC queue pair around a queue pair of verbs.
    pub(crate) fn hand_out(context: &MrcContext, pointer: *mut ibv_qp, qp: Arc<Qp>) -> *mut mrc_qp {
        let made = hand_out(MrcQp {
            c: SharedStruct::new(mrc_qp { qp: pointer, context: context.context_pointer() }),
            generation: Generation::own(),
            qp,
            hint: Mutex::new(None),
            _context_use: context.uses().begin(),
        });
        lock(&OWNERS).insert(pointer.addr(), made.expose_provenance());
        made
    }

    /// Takes back an MRC queue pair whose queue pair of verbs is destroyed.
    pub(crate) fn take_back(pointer: *mut mrc_qp, inner: *mut ibv_qp) {
        lock(&OWNERS).remove(&inner.addr());
        take_back::<MrcQp>(pointer);
    }

    /// Returns the queue pair of verbs.
    pub(crate) const fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Returns the pointer to its `ibv_qp`.
    pub(crate) fn qp_pointer(&self) -> *mut ibv_qp {
        shown!(self.c, qp)
    }

    /// Returns its queue pair of verbs for the data path.
    #[inline]
    pub(crate) fn trusted(&self) -> Trusted<'_, ibv_qp> {
        // SAFETY: the pointer was made with this object, and its queue pair lives as long as the object.
        unsafe { Trusted::new(self.qp_pointer()) }
    }

    /// Gives it a hint.
    pub(crate) fn set_hint(&self, pointer: *mut mrc_qp_hint, hint: &MrcHint) {
        *lock(&self.hint) = Some((ForwardedStruct(pointer), hint.uses().begin()));
    }

    /// Returns the hint that it was given; NULL for none.
    pub(crate) fn hint(&self) -> *mut mrc_qp_hint {
        lock(&self.hint).as_ref().map_or(std::ptr::null_mut(), |(pointer, _)| pointer.0)
    }
}

/// Returns the element of an event as libmrc has it: the MRC queue pair instead of its `ibv_qp`.
pub(crate) fn element_of(element: *mut c_void) -> *mut c_void {
    match lock(&OWNERS).get(&element.addr()) {
        Some(owner) => std::ptr::with_exposed_provenance_mut(*owner),
        None => element,
    }
}

/// Returns the element of an event as verbs has it.
pub(crate) fn inner_of(element: *mut c_void) -> *mut c_void {
    let owners = lock(&OWNERS);
    match owners.iter().find(|(_, owner)| **owner == element.addr()) {
        Some((inner, _)) => std::ptr::with_exposed_provenance_mut(*inner),
        None => element,
    }
}

/// Checks that no queue pairs or hints are left.
///
/// # Errors
/// Fails with EBUSY if there are.
pub(crate) fn check_unused(context: &MrcContext) -> Result<(), Errno> {
    context.uses().check_unused("MRC context", "queue pairs and hints")
}
