//! The call of the program that a thread is in, and the objects and devices that calls are about.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use pumice_calls::Call;
use pumice_device::hca::EnteredCall;
use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};

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

static NAMES: InheritedOnce<Vec<String>> = InheritedOnce::new();

/// Index among the devices of each open context's device, by the address of the context.
static CONTEXTS: PerProcess<Mutex<BTreeMap<usize, usize>>> = PerProcess::new(|_| Mutex::default());

fn contexts() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the names of the devices of a process that has several, in this order.
pub(crate) fn name_devices(names: Vec<String>) {
    // The devices of a process stay the same.
    NAMES.set(names);
}

/// Returns the name of the device with this index among several.
pub(crate) fn name_of(index: usize) -> Option<&'static str> {
    NAMES.get()?.get(index).map(String::as_str)
}

/// Records that a context of the device with this index was opened.
pub(crate) fn context_opened(context: usize, device: usize) {
    contexts().insert(context, device);
}

/// Records that a context was closed.
pub(crate) fn context_closed(context: usize) {
    contexts().remove(&context);
}

/// Returns the index of the device of a context, or of an object in one, by its address.
pub(crate) fn device_at(address: usize) -> Option<usize> {
    let own = context_at(address).unwrap_or(address);
    contexts().get(&own).copied()
}

/// A call that the program has made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProgramCall {
    /// The call is not examined.
    Internal,
    /// The call has no ordinal.
    Uncounted(Call),
    Counted(EnteredCall),
}

impl ProgramCall {
    /// Returns the call, if it is examined.
    pub(crate) fn call(&self) -> Option<Call> {
        match self {
            ProgramCall::Internal => None,
            ProgramCall::Uncounted(call) => Some(*call),
            ProgramCall::Counted(entered) => Some(entered.call()),
        }
    }

    /// Returns its ordinal among the calls of this name, from 1; 0 if it has none.
    pub(crate) fn ordinal(&self) -> u64 {
        if let ProgramCall::Counted(entered) = self { entered.ordinal() } else { 0 }
    }

    /// Returns its name; empty for one that is not examined.
    pub(crate) fn name(&self) -> &'static str {
        self.call().map_or("", Call::name)
    }
}

thread_local! {
    static CURRENT: Cell<Option<ProgramCall>> = const { Cell::new(None) };
    /// Call whose attempt has ended without a result, until the next attempt.
    static SUSPENDED: Cell<Option<ProgramCall>> = const { Cell::new(None) };
}

/// Returns the call of the program that this thread is in.
pub(crate) fn current() -> Option<ProgramCall> {
    // A thread that is ending makes no calls of the program.
    CURRENT.try_with(Cell::get).unwrap_or(Some(ProgramCall::Internal))
}

pub(crate) fn begin(made: ProgramCall) {
    let _ = CURRENT.try_with(|current| current.set(Some(made)));
}

/// Begins a call as [`begin`] does, unless the thread is in a call of the program. Returns false if it is.
#[inline]
pub(crate) fn begins(made: ProgramCall) -> bool {
    let begins = CURRENT.try_with(|current| {
        let is_first = current.get().is_none();
        if is_first {
            current.set(Some(made));
        }
        is_first
    });
    begins.unwrap_or(false)
}

pub(crate) fn end() -> Option<ProgramCall> {
    CURRENT.try_with(Cell::take).ok().flatten()
}

/// Records a call that continues with another attempt.
pub(crate) fn put_aside(made: ProgramCall) {
    let _ = SUSPENDED.try_with(|between| between.set(Some(made)));
}

/// Takes the call that continues.
pub(crate) fn take_aside() -> Option<ProgramCall> {
    SUSPENDED.try_with(Cell::take).ok().flatten()
}

/// Runs a function whose calls of this library are not the program's.
pub(crate) fn run_internally<T>(run: impl FnOnce() -> T) -> T {
    let before = current();
    if before.is_none() {
        begin(ProgramCall::Internal);
    }
    let outcome = run();
    if before.is_none() {
        end();
    }
    outcome
}
