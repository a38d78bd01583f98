//! Objects that programs hold: boxes that begin with their C structure.

use std::cell::UnsafeCell;

use crate::outcome::{Errno, INVALID};

/// An object of ours behind a C pointer.
///
/// # Safety
/// `Self` is `repr(C)` and its first field is an `UnsafeCell<C>` or a `C` (or begins with one).
pub(crate) unsafe trait Held: Sized {
    /// The structure that programs see.
    type C;
}

/// The object behind a program's pointer.
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

/// Gives an object to the program.
pub(crate) fn hand_out<T: Held>(object: T) -> *mut T::C {
    Box::into_raw(Box::new(object)).cast()
}

/// Frees an object that the program gave back.
///
/// # Safety
/// `pointer` came from [`hand_out`] (or a box of `T`) and nobody uses it any more.
pub(crate) unsafe fn take_back<T: Held>(pointer: *mut T::C) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(pointer.cast::<T>()) });
}

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
