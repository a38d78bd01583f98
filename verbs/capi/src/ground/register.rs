//! The register of the objects that programs hold, by their address.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use pumice_device::outside::lineage::PerProcess;

use super::abi::ibv_context;

/// The fields of an object's structure that name it: programs read them, and never write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) context: usize,
    pub(super) handle: u32,
}

impl Identity {
    pub(crate) fn new(context: *mut ibv_context, handle: u32) -> Identity {
        Identity { context: context.addr(), handle }
    }

    /// Of objects whose structure names nothing.
    pub(crate) const NONE: Identity = Identity { context: 0, handle: 0 };
}

/// An entry of the register.
pub(super) struct Entry {
    pub(super) kind: &'static str,
    pub(super) identity: Identity,
    pub(super) outlives_context: bool,
    pub(super) object: Arc<dyn Any + Send + Sync>,
}

pub(super) struct Register {
    pub(super) live: BTreeMap<usize, Entry>,
    /// The memory of the objects destroyed last. It is not used again soon, so that the pointer to a
    /// destroyed object does not at once lead to another one.
    pub(super) destroyed: VecDeque<Weak<dyn Any + Send + Sync>>,
}

/// Destroyed objects whose memory is kept.
pub(super) const MAX_DESTROYED: usize = 256;

static REGISTER: PerProcess<Mutex<Register>> =
    PerProcess::new(|_| Mutex::new(Register { live: BTreeMap::new(), destroyed: VecDeque::new() }));

/// The register, locked.
pub(super) fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object at this address of a process that this one was forked from, if no thread was changing the
/// register at the fork. Of such an object only what never changes may be read.
pub(super) fn inherited_at(address: usize) -> Option<Arc<dyn Any + Send + Sync>> {
    REGISTER.inherited().find_map(|register| {
        let register = match register.try_lock() {
            Ok(register) => register,
            Err(TryLockError::Poisoned(register)) => register.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        register.live.get(&address).map(|entry| Arc::clone(&entry.object))
    })
}

/// Whether the object at this address, which is none of this process, is of one that it was forked from.
pub(super) fn is_inherited(address: usize) -> bool {
    REGISTER.inherited().any(|register| match register.try_lock() {
        Ok(register) => register.live.contains_key(&address),
        Err(TryLockError::Poisoned(register)) => register.into_inner().live.contains_key(&address),
        // A thread of the parent was changing it at the fork. What else would the child have got there?
        Err(TryLockError::WouldBlock) => true,
    })
}

/// The address of the context of the object at this address, if there is one that names it.
pub(super) fn context_at(address: usize) -> Option<usize> {
    let found = register().live.get(&address).map(|entry| entry.identity.context);
    found.filter(|context| *context != 0)
}
