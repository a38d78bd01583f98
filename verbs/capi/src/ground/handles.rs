//! Objects that programs hold: each begins with the C structure that the program's pointer leads to.
//!
//! Programs give pointers back, and sometimes wrong ones: to an object that they destroyed, or with a
//! structure that they wrote into. A kernel finds out, because it knows objects by handle. [`live`] finds out
//! here: a register has each object that programs hold, by its address, and what its structure said when the
//! program got it. Calls that make, change, query or destroy objects look there, so they may be given any
//! pointer. Calls on the data path do not look: they trust the pointer ([`super::arguments::Trusted`]).

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;

use pumice_device::outside::lineage::Generation;

use super::abi::ibv_context;
use super::check;
use super::errno::{Errno, INVALID};
use super::gate::{current, given_back, handed_out, left_behind, permits};
use super::inherited;
pub(crate) use super::register::Identity;
use super::register::{self, Entry, MAX_DESTROYED, register};

/// An object of ours behind a C pointer.
///
/// # Safety
/// `Self` is `repr(C)`, and [`Held::OFFSET`] bytes from its beginning is a [`Shown`] structure that is a `C`
/// or begins with one.
pub(crate) unsafe trait Held: Sized {
    /// The structure that programs see.
    type C;
    /// Where in the object it is.
    const OFFSET: usize = 0;
}

/// An object that is in the register while programs hold it.
pub(crate) trait Listed: Held + Any + Send + Sync {
    /// What messages call it.
    const KIND: &'static str;
    /// Whether it stays when its context is closed, although calls do not find it any more.
    const OUTLIVES_CONTEXT: bool = false;

    /// What names the object in its structure.
    fn identity(c: &Self::C) -> Identity;
}

/// An object of the data path, which is found without the register.
pub(crate) trait OfProcess: Listed {
    /// That of the process that made it.
    fn generation(&self) -> Generation;
}

/// The object behind a program's pointer, if there is one.
///
/// # Errors
/// EINVAL: it is null, or of the process that this one was forked from. ENOENT: no object of this kind is
/// there (any more), or its structure is not as it was.
pub(crate) fn live<T: Listed>(pointer: *mut T::C) -> Result<Arc<T>, Errno> {
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

/// Whether the object behind a program's pointer is none of this process's, but of one that it was forked
/// from.
pub(crate) fn is_inherited<T: Listed>(pointer: *mut T::C) -> bool {
    find::<T>(pointer).is_none() && register::is_inherited(pointer.addr())
}

/// As [`live`], of this process or of one that it was forked from: for what never changes, and needs no lock.
///
/// # Errors
/// As [`live`].
pub(crate) fn live_or_inherited<T: Listed>(pointer: *mut T::C) -> Result<Arc<T>, Errno> {
    let address = pointer.addr();
    if !pointer.is_null() && find_at::<T>(address).is_none() {
        let inherited = register::inherited_at(address).and_then(|object| object.downcast::<T>().ok());
        if let Some(object) = inherited {
            return Ok(object);
        }
    }
    live(pointer)
}

/// As [`live`], without a sentence in the log.
pub(crate) fn find<T: Listed>(pointer: *mut T::C) -> Option<Arc<T>> {
    find_at(pointer.addr())
}

/// As [`find`], by its address.
pub(crate) fn find_at<T: Listed>(address: usize) -> Option<Arc<T>> {
    let object = register().live.get(&address).map(|entry| Arc::clone(&entry.object))?;
    object.downcast::<T>().ok()
}

/// As [`live`], for pointers that may be null.
///
/// # Errors
/// ENOENT: as [`live`].
pub(crate) fn live_or_none<T: Listed>(pointer: *mut T::C) -> Result<Option<Arc<T>>, Errno> {
    if pointer.is_null() { Ok(None) } else { live(pointer).map(Some) }
}

/// On the data path, where pointers are trusted: a program that is checked is not let into the memory of what
/// it has destroyed, where it would wait for a lock for ever, or write.
///
/// # Errors
/// ENOENT.
#[inline]
pub(crate) fn permits_trust<T>(pointer: *const T) -> Result<(), Errno> {
    if check::is_on() { permits_checked(pointer.addr()) } else { Ok(()) }
}

#[cold]
fn permits_checked(address: usize) -> Result<(), Errno> {
    if address == 0 || check::is_permitted(address) || register().live.contains_key(&address) {
        return Ok(());
    }
    let call = current().map_or("a call of the data path", |made| made.name());
    if check::is_gone(call, address) { Err(Errno(libc::ENOENT)) } else { Ok(()) }
}

/// The program's pointer to an object.
pub(crate) fn pointer_to<T: Held>(object: &Arc<T>) -> *mut T::C {
    Arc::as_ptr(object).wrapping_byte_add(T::OFFSET).cast_mut().cast()
}

fn identity_of<T: Listed>(object: &Arc<T>) -> Identity {
    // SAFETY: by `Held` the structure is there. Programs do not write the fields that are looked at while a
    // call reads them.
    T::identity(unsafe { &*pointer_to(object) })
}

#[cold]
fn absent(kind: &str, address: usize, found: Option<&str>) -> Errno {
    let call = current().map_or("a call", |made| made.name());
    check::tell(|checker| checker.used(address as u64, call));
    if found.is_none() && register::is_inherited(address) {
        return inherited::refuse(kind);
    }
    Errno(libc::ENOENT).because(|| match found {
        Some(found) => format!("{address:#x} is a {found}, but a {kind} belongs here"),
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

/// Gives a new object to the program: its pointer.
pub(crate) fn hand_out<T: Listed>(object: T) -> *mut T::C {
    hand_out_shared(&Arc::new(object))
}

/// Gives an object to the program: its pointer.
pub(crate) fn hand_out_shared<T: Listed>(object: &Arc<T>) -> *mut T::C {
    let pointer = pointer_to(object);
    let entry = Entry {
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
pub(crate) fn take_back<T: Listed>(pointer: *mut T::C) {
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

/// A context is closed: what was made in it are no objects any more. Its memory stays for good, because
/// programs may still look at it.
pub(crate) fn forget_all_of(context: *mut ibv_context) {
    let is_of = |identity: Identity| identity.context == context.addr();
    let forgotten: Vec<(usize, Entry)> = {
        let live = &mut register().live;
        let addresses: Vec<usize> =
            live.iter().filter(|(_, entry)| is_of(entry.identity)).map(|(address, _)| *address).collect();
        addresses.iter().filter_map(|address| live.remove(address).map(|entry| (*address, entry))).collect()
    };
    for (address, Entry { object, outlives_context, .. }) in forgotten {
        if !outlives_context {
            left_behind(address);
        }
        std::mem::forget(Arc::downgrade(&object));
        if outlives_context {
            std::mem::forget(object);
        }
    }
}

/// Room for an object. The device gets its address as a name for the object before there is one.
pub(crate) struct Room<T>(Arc<MaybeUninit<T>>);

impl<T: Held> Room<T> {
    pub(crate) fn new() -> Room<T> {
        Room(Arc::new_uninit())
    }

    /// The address of the program's pointer, which [`pointer_of`] makes a pointer again.
    pub(crate) fn cookie(&self) -> u64 {
        Arc::as_ptr(&self.0).wrapping_byte_add(T::OFFSET).expose_provenance() as u64
    }

    /// Puts the object there.
    pub(crate) fn fill(mut self, object: T) -> Arc<T> {
        if let Some(room) = Arc::get_mut(&mut self.0) {
            room.write(object);
        }
        // SAFETY: it was written: this is the only pointer to it, since none is ever given away.
        unsafe { self.0.assume_init() }
    }
}

/// The program's pointer to the object whose [`Room::cookie`] this is.
pub(crate) fn pointer_of<C>(cookie: u64) -> *mut C {
    std::ptr::with_exposed_provenance_mut(cookie as usize)
}

/// A C structure that the program reads, and this library writes, through shared pointers.
#[repr(transparent)]
pub(crate) struct Shown<C>(UnsafeCell<C>);

// SAFETY: all access is to single fields, by `shown!` and `show!`. The verbs API has programs serialise the
// calls that write a field with those that read it.
unsafe impl<C> Send for Shown<C> {}
// SAFETY: as above.
unsafe impl<C> Sync for Shown<C> {}

impl<C> Shown<C> {
    pub(crate) const fn new(structure: C) -> Shown<C> {
        Shown(UnsafeCell::new(structure))
    }

    /// The structure, to read and write single fields of.
    pub(crate) const fn as_ptr(&self) -> *mut C {
        self.0.get()
    }
}

/// Reads a field of a [`Shown`] structure: `shown!(self.c, qp_base.state)`.
macro_rules! shown {
    ($shown:expr, $($field:ident).+) => {{
        let structure = $crate::ground::handles::Shown::as_ptr(&$shown);
        // SAFETY: the structure is borrowed, and only this field of it is read.
        unsafe { (&raw const (*structure).$($field).+).read() }
    }};
}
pub(crate) use shown;

/// Writes a field of a [`Shown`] structure: `show!(self.c, qp_base.state = ERROR)`.
macro_rules! show {
    ($shown:expr, $($field:ident).+ = $value:expr) => {{
        let (structure, value) = ($crate::ground::handles::Shown::as_ptr(&$shown), $value);
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
    struct Thing {
        c: Shown<Number>,
    }

    // SAFETY: the first field is the structure.
    unsafe impl Held for Thing {
        type C = Number;
    }

    impl Listed for Thing {
        const KIND: &'static str = "thing";

        fn identity(c: &Number) -> Identity {
            Identity { context: 17, handle: c.number }
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn objects_are_found_until_they_are_given_back_or_their_context_is_closed() {
        let pointer = hand_out(Thing { c: Shown::new(Number { number: 5 }) });
        let thing = live::<Thing>(pointer).unwrap();
        show!(thing.c, number = 6);
        assert_eq!(live::<Thing>(pointer).err(), Some(Errno(libc::ENOENT)), "its structure was changed");
        show!(thing.c, number = 5);
        take_back::<Thing>(pointer);
        assert_eq!(live::<Thing>(pointer).err(), Some(Errno(libc::ENOENT)));
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0, "a call is in progress");
        drop(thing);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
        let room = Room::new();
        let cookie = room.cookie();
        let pointer = hand_out_shared(&room.fill(Thing { c: Shown::new(Number { number: 7 }) }));
        assert_eq!(pointer, pointer_of(cookie));
        forget_all_of(std::ptr::without_provenance_mut(17));
        assert!(live::<Thing>(pointer).is_err() && live_or_none::<Thing>(pointer).is_err());
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
        assert_eq!(live::<Thing>(std::ptr::null_mut()).err(), Some(INVALID));
    }
}
