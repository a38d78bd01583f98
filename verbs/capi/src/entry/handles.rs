//! Objects that programs hold: each contains the C structure that the program's pointer leads to.
//!
//! Programs give pointers back, and sometimes wrong ones: to an object that they destroyed, or to a structure
//! that they wrote into. A kernel notices, because it knows objects by handle. Here [`live`] notices: a
//! register has each object that programs hold, by its address, and the fields that identified its structure
//! when the program got it. Calls that make, change, query or destroy objects look there, so they may get any
//! pointer. Calls on the data path do not look: they trust the pointer ([`super::arguments::Trusted`]).

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use pumice_device::outside::fork_generation::Generation;

use crate::abi::ibv_context;
use crate::call_sites::current_call;
pub(crate) use crate::call_sites::current_call::HandleIdentity;
use crate::call_sites::current_call::{HandleEntry, MAX_DESTROYED, current, register};
use crate::check;
use crate::gate::{given_back, handed_out, left_behind, permits};
use crate::log::refusal;
use crate::platform::{Errno, INVALID};

/// An object of this library behind a C pointer.
///
/// # Safety
/// `Self` must be `repr(C)`, and [`CObject::OFFSET`] bytes from its beginning there must be a
/// [`SharedStruct`] structure that is a `C` or begins with one.
pub(crate) unsafe trait CObject: Sized {
    /// Structure that programs see.
    type C;
    /// Offset of the structure in the object.
    const OFFSET: usize = 0;
}

/// An object that is in the register while programs hold it.
pub(crate) trait RegisteredObject: CObject + Any + Send + Sync {
    /// Name of the kind of object in messages.
    const KIND: &'static str;
    /// True if the object lives on when its context is closed, although calls do not find it any more.
    const OUTLIVES_CONTEXT: bool = false;

    /// Returns the fields that identify the object in its structure.
    fn identity(c: &Self::C) -> HandleIdentity;
}

/// An object of the data path, which is found without the register.
pub(crate) trait DataPathObject: RegisteredObject {
    /// Returns the generation of the process that made it.
    fn generation(&self) -> Generation;
}

/// Returns the object behind a program's pointer, if there is one.
///
/// # Errors
/// Fails with EINVAL if the pointer is null, or of the process that this one was forked from, and with ENOENT
/// if no object of this kind is there (any more), or if its structure was changed.
pub(crate) fn live<T: RegisteredObject>(pointer: *mut T::C) -> Result<Arc<T>, Errno> {
    if pointer.is_null() {
        return Err(INVALID.because(|| format!("a null pointer was given where a {} belongs", T::KIND)));
    }
    let address = pointer.addr();
    let found =
        register().live.get(&address).map(|entry| (entry.kind, entry.identity, Arc::clone(&entry.object)));
    let Some((kind, made, object)) = found else { return Err(absent(T::KIND, address, None)) };
    let object = object.downcast::<T>().map_err(|_| absent(T::KIND, address, Some(kind)))?;
    let now = identity_of(&object);
    if now != made {
        return Err(changed(T::KIND, made, now));
    }
    permits(if made.context == 0 { address } else { made.context })?;
    Ok(object)
}

/// Reports whether the object behind a program's pointer belongs not to this process, but to one that it was
/// forked from.
pub(crate) fn is_inherited<T: RegisteredObject>(pointer: *mut T::C) -> bool {
    find::<T>(pointer).is_none() && current_call::is_inherited(pointer.addr())
}

/// Returns the object as [`live`] does, of this process or of one that it was forked from: for fields that
/// never change, and need no lock.
///
/// # Errors
/// Fails as [`live`].
pub(crate) fn live_or_inherited<T: RegisteredObject>(pointer: *mut T::C) -> Result<Arc<T>, Errno> {
    let address = pointer.addr();
    if !pointer.is_null() && find_at::<T>(address).is_none() {
        let inherited = current_call::inherited_at(address).and_then(|object| object.downcast::<T>().ok());
        if let Some(object) = inherited {
            return Ok(object);
        }
    }
    live(pointer)
}

/// Returns the object as [`live`] does, without a message in the log.
pub(crate) fn find<T: RegisteredObject>(pointer: *mut T::C) -> Option<Arc<T>> {
    find_at(pointer.addr())
}

/// Returns the object as [`find`] does, by its address.
pub(crate) fn find_at<T: RegisteredObject>(address: usize) -> Option<Arc<T>> {
    let object = register().live.get(&address).map(|entry| Arc::clone(&entry.object))?;
    object.downcast::<T>().ok()
}

/// Returns the object as [`live`] does, for pointers that may be null.
///
/// # Errors
/// Fails with ENOENT as [`live`].
pub(crate) fn live_or_none<T: RegisteredObject>(pointer: *mut T::C) -> Result<Option<Arc<T>>, Errno> {
    if pointer.is_null() { Ok(None) } else { live(pointer).map(Some) }
}

/// Checks a trusted pointer of the data path: a program that is checked must not access the memory of an
/// object that it has destroyed, where it would wait for a lock for ever, or write.
///
/// # Errors
/// Fails with ENOENT.
#[inline]
pub(crate) fn check_trusted<T>(pointer: *const T) -> Result<(), Errno> {
    if check::is_on() { check_trusted_slow(pointer.addr()) } else { Ok(()) }
}

#[cold]
fn check_trusted_slow(address: usize) -> Result<(), Errno> {
    if address == 0 || check::is_permitted(address) || register().live.contains_key(&address) {
        return Ok(());
    }
    let call = current().map_or("a call of the data path", |made| made.name());
    if check::was_destroyed(call, address) { Err(Errno(libc::ENOENT)) } else { Ok(()) }
}

/// Returns the program's pointer to an object.
pub(crate) fn pointer_to<T: CObject>(object: &Arc<T>) -> *mut T::C {
    Arc::as_ptr(object).wrapping_byte_add(T::OFFSET).cast_mut().cast()
}

fn identity_of<T: RegisteredObject>(object: &Arc<T>) -> HandleIdentity {
    // SAFETY: by `CObject` the structure is there. Programs do not write the fields that identify it while a
    // call reads them.
    T::identity(unsafe { &*pointer_to(object) })
}

#[cold]
fn absent(kind: &str, address: usize, found: Option<&str>) -> Errno {
    let call = current().map_or("a call", |made| made.name());
    check::with_checker(|checker| checker.used(address as u64, call));
    if found.is_none() && current_call::is_inherited(address) {
        return refusal::refuse(kind);
    }
    Errno(libc::ENOENT).because(|| match found {
        Some(found) => format!("{address:#x} is a {found}, but a {kind} belongs here"),
        None => {
            format!("there is no {kind} at {address:#x}: it was destroyed, or this library did not make it")
        }
    })
}

#[cold]
fn changed(kind: &str, made: HandleIdentity, now: HandleIdentity) -> Errno {
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

/// Gives a new object to the program, and returns the pointer to it.
pub(crate) fn hand_out<T: RegisteredObject>(object: T) -> *mut T::C {
    hand_out_shared(&Arc::new(object))
}

/// Gives an object to the program, and returns the pointer to it.
pub(crate) fn hand_out_shared<T: RegisteredObject>(object: &Arc<T>) -> *mut T::C {
    let pointer = pointer_to(object);
    let entry = HandleEntry {
        kind: T::KIND,
        identity: identity_of(object),
        outlives_context: T::OUTLIVES_CONTEXT,
        object: Arc::<T>::clone(object),
    };
    register().live.insert(pointer.addr(), entry);
    handed_out(pointer.addr(), T::KIND);
    pointer
}

/// Drops an object that the program gave back; if another thread is in a call on it, at the end of that call.
pub(crate) fn take_back<T: RegisteredObject>(pointer: *mut T::C) {
    given_back(pointer.addr());
    let (object, _oldest) = {
        let mut register = register();
        let Some(entry) = register.live.remove(&pointer.addr()) else { return };
        register.destroyed.push_back(Arc::downgrade(&entry.object));
        let oldest =
            if register.destroyed.len() > MAX_DESTROYED { register.destroyed.pop_front() } else { None };
        (entry.object, oldest)
    };
    drop(object);
}

/// Removes all objects of a closed context from the register. Their memory stays allocated, because programs
/// may still read it.
pub(crate) fn forget_all_of(context: *mut ibv_context) {
    let is_of = |identity: HandleIdentity| identity.context == context.addr();
    let forgotten: Vec<(usize, HandleEntry)> = {
        let live = &mut register().live;
        let addresses: Vec<usize> =
            live.iter().filter(|(_, entry)| is_of(entry.identity)).map(|(address, _)| *address).collect();
        addresses.iter().filter_map(|address| live.remove(address).map(|entry| (*address, entry))).collect()
    };
    for (address, HandleEntry { object, outlives_context, .. }) in forgotten {
        if !outlives_context {
            left_behind(address);
        }
        std::mem::forget(Arc::downgrade(&object));
        if outlives_context {
            std::mem::forget(object);
        }
    }
}

/// Memory for an object that is not made yet. The device gets its address as a name for the object.
pub(crate) struct ObjectMemory<T>(Arc<MaybeUninit<T>>);

impl<T: CObject> ObjectMemory<T> {
    pub(crate) fn new() -> ObjectMemory<T> {
        ObjectMemory(Arc::new_uninit())
    }

    /// Returns the address of the program's pointer, which [`pointer_of`] converts back to a pointer.
    pub(crate) fn cookie(&self) -> u64 {
        Arc::as_ptr(&self.0).wrapping_byte_add(T::OFFSET).expose_provenance() as u64
    }

    /// Moves the object into the memory.
    pub(crate) fn fill(mut self, object: T) -> Arc<T> {
        if let Some(room) = Arc::get_mut(&mut self.0) {
            room.write(object);
        }
        // SAFETY: it was written: this is the only pointer to it, since it is never cloned.
        unsafe { self.0.assume_init() }
    }
}

/// Returns the program's pointer to the object whose [`ObjectMemory::cookie`] this is.
pub(crate) fn pointer_of<C>(cookie: u64) -> *mut C {
    std::ptr::with_exposed_provenance_mut(cookie as usize)
}

/// A C structure that the program reads, and this library writes, through shared pointers.
#[repr(transparent)]
pub(crate) struct SharedStruct<C>(UnsafeCell<C>);

// SAFETY: all access is to single fields, by `shown!` and `show!`. The verbs API requires programs to
// serialise the calls that write a field with those that read it.
unsafe impl<C> Send for SharedStruct<C> {}
// SAFETY: as above.
unsafe impl<C> Sync for SharedStruct<C> {}

impl<C> SharedStruct<C> {
    pub(crate) const fn new(structure: C) -> SharedStruct<C> {
        SharedStruct(UnsafeCell::new(structure))
    }

    /// Returns a pointer to the structure, to read and write single fields of it.
    pub(crate) const fn as_ptr(&self) -> *mut C {
        self.0.get()
    }
}

/// Reads a field of a [`SharedStruct`] structure: `shown!(self.c, qp_base.state)`.
macro_rules! shown {
    ($shown:expr, $($field:ident).+) => {{
        let structure = $crate::entry::handles::SharedStruct::as_ptr(&$shown);
        // SAFETY: the structure is borrowed, and only this field of it is read.
        unsafe { (&raw const (*structure).$($field).+).read() }
    }};
}
pub(crate) use shown;

/// Writes a field of a [`SharedStruct`] structure: `show!(self.c, qp_base.state = ERROR)`.
macro_rules! show {
    ($shown:expr, $($field:ident).+ = $value:expr) => {{
        let (structure, value) = ($crate::entry::handles::SharedStruct::as_ptr(&$shown), $value);
        // SAFETY: the structure is borrowed, and only this field of it is written.
        unsafe { (&raw mut (*structure).$($field).+).write(value) }
    }};
}
pub(crate) use show;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static DROPPED: AtomicU32 = AtomicU32::new(0);

    #[repr(C)]
    struct Number {
        number: u32,
    }

    #[repr(C)]
    struct TestObject {
        c: SharedStruct<Number>,
    }

    // SAFETY: the first field is the structure.
    unsafe impl CObject for TestObject {
        type C = Number;
    }

    impl RegisteredObject for TestObject {
        const KIND: &'static str = "thing";

        fn identity(c: &Number) -> HandleIdentity {
            HandleIdentity { context: 17, handle: c.number }
        }
    }

    impl Drop for TestObject {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn objects_are_found_until_they_are_given_back_or_their_context_is_closed() {
        let pointer = hand_out(TestObject { c: SharedStruct::new(Number { number: 5 }) });
        let test_object = live::<TestObject>(pointer).unwrap();
        show!(test_object.c, number = 6);
        assert_eq!(live::<TestObject>(pointer).err(), Some(Errno(libc::ENOENT)), "its structure was changed");
        show!(test_object.c, number = 5);
        take_back::<TestObject>(pointer);
        assert_eq!(live::<TestObject>(pointer).err(), Some(Errno(libc::ENOENT)));
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0, "a call is in progress");
        drop(test_object);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
        let room = ObjectMemory::new();
        let cookie = room.cookie();
        let pointer = hand_out_shared(&room.fill(TestObject { c: SharedStruct::new(Number { number: 7 }) }));
        assert_eq!(pointer, pointer_of(cookie));
        forget_all_of(std::ptr::without_provenance_mut(17));
        assert!(live::<TestObject>(pointer).is_err() && live_or_none::<TestObject>(pointer).is_err());
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
        assert_eq!(live::<TestObject>(std::ptr::null_mut()).err(), Some(INVALID));
    }
}
