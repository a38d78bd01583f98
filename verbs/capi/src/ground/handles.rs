//! Objects that programs hold: boxes that begin with their C structure.
//!
//! Programs give pointers back, and sometimes wrong ones: to an object that they destroyed, or with a
//! structure that they wrote into. A kernel finds out, because it knows objects by handle. [`live`] finds out
//! here: a register has the address of each object that programs hold, and what its structure said when they
//! got it. Calls that make, change, query or destroy objects look there. Calls on the data path do not: they
//! trust the pointer.

use std::alloc::{Layout, dealloc};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ground::abi::ibv_context;
use crate::ground::errno::{Errno, INVALID};

/// An object of ours behind a C pointer.
///
/// # Safety
/// `Self` is `repr(C)` and its first field is an `UnsafeCell<C>` or a `C` (or begins with one).
pub(crate) unsafe trait Held: Sized {
    /// The structure that programs see.
    type C;
}

/// An object that is in the register while programs hold it.
pub(crate) trait Listed: Held {
    /// What messages call it.
    const KIND: &'static str;

    /// What names the object in its structure.
    fn identity(c: &Self::C) -> Identity;
}

/// The fields of an object's structure that name it: programs read them, and never write them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    context: usize,
    handle: u32,
}

impl Identity {
    pub(crate) fn new(context: *mut ibv_context, handle: u32) -> Identity {
        Identity { context: context.addr(), handle }
    }

    /// Of objects whose structure names nothing.
    pub(crate) const NONE: Identity = Identity { context: 0, handle: 0 };
}

/// An entry of the register.
struct Entry {
    kind: &'static str,
    identity: Identity,
}

/// Memory of an object that was destroyed.
struct Grave {
    address: usize,
    layout: Layout,
}

struct Register {
    live: BTreeMap<usize, Entry>,
    /// The places of the objects destroyed last. They are not used again soon, so that the pointer to a
    /// destroyed object does not at once lead to another one.
    graves: VecDeque<Grave>,
}

/// Places of destroyed objects that are kept.
const MAX_GRAVES: usize = 256;

static REGISTER: Mutex<Register> = Mutex::new(Register { live: BTreeMap::new(), graves: VecDeque::new() });

fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object behind a program's pointer, as the data path finds it.
///
/// # Safety
/// `pointer` is null, or came from [`hand_out`] for this type and was not taken back.
///
/// # Errors
/// EINVAL: it is null.
#[inline]
pub(crate) unsafe fn held<'a, T: Held>(pointer: *mut T::C) -> Result<&'a T, Errno> {
    // SAFETY: the caller's promise; all access to the object is shared.
    unsafe { pointer.cast::<T>().as_ref() }.ok_or(INVALID)
}

/// As [`held`], for pointers that may be null.
///
/// # Safety
/// As [`held`].
pub(crate) unsafe fn held_or_none<'a, T: Held>(pointer: *mut T::C) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.cast::<T>().as_ref() }
}

/// The object behind a program's pointer, if there is one.
///
/// # Safety
/// No other thread takes the object back meanwhile.
///
/// # Errors
/// EINVAL: it is null. ENOENT: no object of this kind is there (any more), or its structure is not as it was.
pub(crate) unsafe fn live<'a, T: Listed>(pointer: *mut T::C) -> Result<&'a T, Errno> {
    if pointer.is_null() {
        return Err(INVALID.because(|| format!("a null pointer was given where a {} belongs", T::KIND)));
    }
    let found = find(pointer.addr());
    let Some((_, identity)) = found.filter(|(kind, _)| *kind == T::KIND) else {
        return Err(absent(T::KIND, pointer.addr(), found));
    };
    // SAFETY: the register has it as an object of this type, and the caller promises that it stays.
    let (object, now) = unsafe { (&*pointer.cast::<T>(), T::identity(&*pointer)) };
    if now == identity { Ok(object) } else { Err(changed(T::KIND, identity, now)) }
}

/// As [`live`], for pointers that may be null.
///
/// # Safety
/// As [`live`].
///
/// # Errors
/// ENOENT: as [`live`].
pub(crate) unsafe fn live_or_none<'a, T: Listed>(pointer: *mut T::C) -> Result<Option<&'a T>, Errno> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { live(pointer) }.map(Some)
}

fn find(address: usize) -> Option<(&'static str, Identity)> {
    register().live.get(&address).map(|entry| (entry.kind, entry.identity))
}

#[cold]
fn absent(kind: &str, address: usize, found: Option<(&str, Identity)>) -> Errno {
    Errno(libc::ENOENT).because(|| match found {
        Some((found, _)) => format!("{address:#x} is a {found}, but a {kind} belongs here"),
        None => {
            format!("there is no {kind} at {address:#x}: it was destroyed, or this library did not make it")
        }
    })
}

#[cold]
fn changed(kind: &str, made: Identity, now: Identity) -> Errno {
    Errno(libc::ENOENT).because(|| {
        if made.context == now.context {
            let (made, now) = (made.handle, now.handle);
            return format!(
                "the structure of the {kind} has handle {now:#x}, but it was made with {made:#x}"
            );
        }
        format!("the structure of the {kind} names another context than it was made in")
    })
}

/// Gives an object to the program.
pub(crate) fn hand_out<T: Listed>(object: T) -> *mut T::C {
    hand_out_box(Box::new(object))
}

/// Gives a boxed object to the program.
pub(crate) fn hand_out_box<T: Listed>(object: Box<T>) -> *mut T::C {
    let pointer: *mut T::C = Box::into_raw(object).cast();
    // SAFETY: the object begins with the structure, and this is its only pointer.
    let identity = T::identity(unsafe { &*pointer });
    register().live.insert(pointer.addr(), Entry { kind: T::KIND, identity });
    pointer
}

/// Frees an object that the program gave back.
///
/// # Safety
/// `pointer` came from [`hand_out`] for this type, was not taken back, and no thread uses it any more.
pub(crate) unsafe fn take_back<T: Listed>(pointer: *mut T::C) {
    let object = pointer.cast::<T>();
    // SAFETY: the caller's promise; the place is not read as a `T` any more.
    unsafe { object.drop_in_place() };
    let address = object.expose_provenance();
    let oldest = {
        let mut register = register();
        register.live.remove(&address);
        register.graves.push_back(Grave { address, layout: Layout::new::<T>() });
        if register.graves.len() > MAX_GRAVES { register.graves.pop_front() } else { None }
    };
    if let Some(Grave { address, layout }) = oldest {
        // SAFETY: it was boxed with this layout, its contents were dropped above, and nothing leads to it.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(address), layout) };
    }
}

/// Notes that a context is open.
pub(crate) fn list_context(context: *mut ibv_context) {
    let entry = Entry { kind: CONTEXT, identity: Identity::NONE };
    register().live.insert(context.addr(), entry);
}

/// Whether a context is open.
///
/// # Errors
/// EINVAL: it is null. ENOENT: it was closed, or never opened.
pub(crate) fn check_context(context: *mut ibv_context) -> Result<(), Errno> {
    if context.is_null() {
        return Err(INVALID);
    }
    match find(context.addr()) {
        Some((CONTEXT, _)) => Ok(()),
        found => Err(absent(CONTEXT, context.addr(), found)),
    }
}

/// A context is closed: it and what was made in it are no objects any more.
pub(crate) fn forget_context(context: *mut ibv_context) {
    let context = context.addr();
    register().live.retain(|address, entry| *address != context && entry.identity.context != context);
}

const CONTEXT: &str = "context";

/// A C structure that the program reads, and this library writes, through shared pointers.
#[repr(transparent)]
pub(crate) struct Shown<C>(UnsafeCell<C>);

impl<C> Shown<C> {
    pub(crate) const fn new(structure: C) -> Shown<C> {
        Shown(UnsafeCell::new(structure))
    }

    /// The structure, to read and write single fields of.
    pub(crate) const fn as_ptr(&self) -> *mut C {
        self.0.get()
    }
}

/// A structure of numbers and pointers with nothing in it.
///
/// # Safety
/// All bits zero is a valid `T`.
pub(crate) const unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's promise.
    unsafe { std::mem::zeroed() }
}
