//! The register of the objects that programs hold, by their address.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use pumice_device::outside::fork_generation::PerProcess;

use crate::abi::ibv_context;

/// Fields that identify an object in its structure: programs read them, and never write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandleIdentity {
    pub(crate) context: usize,
    pub(crate) handle: u32,
}

impl HandleIdentity {
    pub(crate) fn new(context: *mut ibv_context, handle: u32) -> HandleIdentity {
        HandleIdentity { context: context.addr(), handle }
    }

    /// The identity of objects whose structure has no such fields.
    pub(crate) const NONE: HandleIdentity = HandleIdentity { context: 0, handle: 0 };
}

/// An entry of the register.
pub(crate) struct HandleEntry {
    pub(crate) kind: &'static str,
    pub(crate) identity: HandleIdentity,
    pub(crate) outlives_context: bool,
    pub(crate) object: Arc<dyn Any + Send + Sync>,
}

pub(crate) struct HandleRegister {
    pub(crate) live: BTreeMap<usize, HandleEntry>,
    /// Memory of the objects destroyed last. It is not reused soon, so that the pointer to a destroyed object
    /// does not at once lead to another one.
    pub(crate) destroyed: VecDeque<Weak<dyn Any + Send + Sync>>,
}

/// Largest number of destroyed objects whose memory is not freed yet: few, because a program that opens a
/// device again and again must not seem to leak memory.
pub(crate) const MAX_DESTROYED: usize = 32;

static REGISTER: PerProcess<Mutex<HandleRegister>> =
    PerProcess::new(|_| Mutex::new(HandleRegister { live: BTreeMap::new(), destroyed: VecDeque::new() }));

/// Locks the register and returns it.
pub(crate) fn register() -> MutexGuard<'static, HandleRegister> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the object at this address of a process that this one was forked from, if no thread was changing
/// the register at the fork. Only fields of it that never change may be read.
pub(crate) fn inherited_at(address: usize) -> Option<Arc<dyn Any + Send + Sync>> {
    REGISTER.inherited().find_map(|register| {
        let register = match register.try_lock() {
            Ok(register) => register,
            Err(TryLockError::Poisoned(register)) => register.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        register.live.get(&address).map(|entry| Arc::clone(&entry.object))
    })
}

/// Reports whether the object at this address, which is not of this process, is of one that it was forked
/// from.
pub(crate) fn is_inherited(address: usize) -> bool {
    REGISTER.inherited().any(|register| match register.try_lock() {
        Ok(register) => register.live.contains_key(&address),
        Err(TryLockError::Poisoned(register)) => register.into_inner().live.contains_key(&address),
        // A thread of the parent was changing the register at the fork; the child can only have got an object
        // of the parent there.
        Err(TryLockError::WouldBlock) => true,
    })
}

/// Returns the address of the context of the object at this address, if the object has one.
pub(crate) fn context_at(address: usize) -> Option<usize> {
    let found = register().live.get(&address).map(|entry| entry.identity.context);
    found.filter(|context| *context != 0)
}
