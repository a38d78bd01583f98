//! Arguments as C passes them: types for the parameters of exported functions and of functions in tables.
//!
//! Each type is a pointer (`repr(transparent)`) that says how the call accesses the memory it points at:
//!
//! | Type | The call | NULL |
//! |---|---|---|
//! | [`In`] | reads a structure or a number | `get` fails, `optional` returns `None` |
//! | [`InOut`] | reads and changes it | as for `In` |
//! | [`Out`] | writes it without reading it | as for `In`, with `required` and `optional` |
//! | [`Array`] | reads several, whose number is another argument | allowed with the number 0 |
//! | [`OutArray`] | writes at most that number | `elements` fails |
//! | [`Bytes`] | reads memory | allowed with the length 0 |
//! | [`OutBytes`] | writes memory | `get` allows it with the length 0, `elements` fails |
//! | [`Text`] | reads a string that ends with NUL | as for `In` |
//! | [`LastingPointer`] | registers memory | allowed, like any address |
//! | [`Trusted`] | uses an object on the data path | `held` fails, also for a parent's object |
//!
//! An exported function with such parameters is a safe function without a single unsafe block:
//!
//! ```ignore
//! pub(crate) extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attributes: Out<'_, ibv_srq_attr>) -> c_int {
//!     status(|| {
//!         let srq = live::<Srq>(srq)?;           // by the register of objects: any pointer may be given
//!         let now = srq.hca().query_srq(srq.handle())?;
//!         attributes.required()?.set(ibv_srq_attr { max_wr: now.max_wr, .. });
//!         Ok(())
//!     })
//! }
//! ```
//!
//! Rust calls such a function with references: `ibv_query_srq(srq, Out::from(&mut attributes))`.
//!
//! **The contract of C.** C makes these values by passing a pointer for a parameter that the header declares;
//! Rust makes them from references. So each is NULL, or points at what the header says: it is aligned, it
//! stays valid until the call returns, and no other thread changes it meanwhile. A program that breaks this
//! has undefined behaviour with any library. The unsafe blocks of this file rely on this contract, and each
//! says on which part of it.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use super::handles::{CObject, DataPathObject, check_trusted};
use crate::log::refusal;
use crate::platform::{Errno, INVALID};

/// Defines a pointer type of C with a lifetime, which can be copied.
macro_rules! argument {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[repr(transparent)]
        pub(crate) struct $name<'a, T>($raw, PhantomData<&'a T>);

        impl<T> Clone for $name<'_, T> {
            #[inline]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<'_, T> {}

        impl<'a, T> $name<'a, T> {
            /// Creates the value from a pointer that is no argument of a call.
            ///
            /// # Safety
            /// The pointer must keep, for `'a`, the contract of C that is described above.
            #[inline]
            #[allow(dead_code, reason = "not every type is needed for such pointers")]
            pub(crate) const unsafe fn new(pointer: $raw) -> $name<'a, T> {
                $name(pointer, PhantomData)
            }
        }
    };
}

argument! {
    /// A structure that a call reads.
    In(*const T)
}
argument! {
    /// A structure that a call reads and changes.
    InOut(*mut T)
}
argument! {
    /// A structure that a call writes. Programs need not have initialised it.
    Out(*mut T)
}
argument! {
    /// The first of several values that a call reads; another argument has their number.
    Array(*const T)
}
argument! {
    /// The first of several values that a call writes; another argument has their number.
    OutArray(*mut T)
}
argument! {
    /// An object of this library on the data path, where there is no time to look it up. It is checked only
    /// for NULL, for being of this process, and, in checked programs, for having been destroyed.
    Trusted(*mut T)
}

/// Memory that a call reads.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bytes<'a>(*const c_void, PhantomData<&'a u8>);

/// Memory that a call writes.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct OutBytes<'a>(*mut c_void, PhantomData<&'a u8>);

/// Memory that a program registers: it stays mapped until the program deregisters it. A call does not access
/// it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct LastingPointer(*mut c_void);

impl LastingPointer {
    /// # Safety
    /// The range that is registered must stay mapped until it is deregistered.
    pub(crate) const unsafe fn new(address: *mut c_void) -> LastingPointer {
        LastingPointer(address)
    }

    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// A string that ends with NUL.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a, T> From<&'a T> for In<'a, T> {
    fn from(from: &'a T) -> In<'a, T> {
        In(from, PhantomData)
    }
}

impl<'a, T> In<'a, T> {
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    #[inline]
    pub(crate) fn get(self) -> Result<&'a T, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// Returns the structure; `None` for NULL.
    #[inline]
    pub(crate) fn optional(self) -> Option<&'a T> {
        // SAFETY: the pointer is null, or points at what the header says, which does not change until the
        // call returns.
        unsafe { self.0.as_ref() }
    }

    /// Returns a copy of a structure that another thread may change meanwhile.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    #[inline]
    pub(crate) fn copied(self) -> Result<T, Errno>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the pointer is not null, so it points at what the header says.
        Ok(unsafe { self.0.read() })
    }

    /// Returns the program's pointer.
    pub(crate) const fn as_ptr(self) -> *const T {
        self.0
    }

    /// Reports whether a structure of `bytes` bytes, a length that the program gives, has only zeros behind
    /// the part that this library knows.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    pub(crate) fn is_zero_behind(self, bytes: usize) -> Result<bool, Errno> {
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: by the program's word this many bytes are there, and they do not change until the call
        // returns.
        let all = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), bytes) };
        Ok(all.get(size_of::<T>()..).unwrap_or_default().iter().all(|byte| *byte == 0))
    }

    /// Returns the structure's first `bytes` bytes, with the rest taken from `otherwise`: programs that were
    /// built with an older header have shorter structures.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    pub(crate) fn beginning(self, bytes: usize, otherwise: T) -> Result<T, Errno>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(INVALID);
        }
        let mut copy = otherwise;
        let bytes = bytes.min(size_of::<T>());
        // SAFETY: the program's structure has at least these bytes, and the copy has room for all of them.
        unsafe { self.0.cast::<u8>().copy_to_nonoverlapping((&raw mut copy).cast(), bytes) };
        Ok(copy)
    }
}

impl<'a, T> From<&'a mut T> for InOut<'a, T> {
    fn from(from: &'a mut T) -> InOut<'a, T> {
        InOut(from, PhantomData)
    }
}

impl<'a, T> InOut<'a, T> {
    /// Returns the pointer as one to another structure at the same address.
    ///
    /// # Safety
    /// The program's structure must be a `U`.
    pub(crate) unsafe fn cast<U>(self) -> InOut<'a, U> {
        InOut(self.0.cast(), PhantomData)
    }

    /// Returns the beginning of the structure as [`In::beginning`] does.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    pub(crate) fn beginning(&self, bytes: usize, otherwise: T) -> Result<T, Errno>
    where
        T: Copy,
    {
        In(self.0.cast_const(), PhantomData).beginning(bytes, otherwise)
    }

    /// Writes the first `bytes` bytes of a structure that was read with [`InOut::beginning`].
    pub(crate) fn put_beginning(&self, value: &T, bytes: usize) {
        if !self.0.is_null() {
            fill(self.0.cast(), value, bytes);
        }
    }

    /// Returns the structure. Call this once per call of the program: the reference must be the only way to
    /// the structure.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    #[inline]
    pub(crate) fn get(self) -> Result<&'a mut T, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// Returns the structure as [`InOut::get`] does; `None` for NULL.
    #[inline]
    pub(crate) fn optional(self) -> Option<&'a mut T> {
        // SAFETY: the pointer is null, or points at what the header says, which only this call accesses until
        // it returns.
        unsafe { self.0.as_mut() }
    }
}

impl<'a, T> From<&'a mut T> for Out<'a, T> {
    fn from(from: &'a mut T) -> Out<'a, T> {
        Out(from, PhantomData)
    }
}

impl<'a, T> Out<'a, T> {
    /// The value NULL: the caller does not want the result.
    #[allow(dead_code, reason = "rooms above pass it")]
    pub(crate) const NULL: Out<'a, T> = Out(ptr::null_mut(), PhantomData);

    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    #[inline]
    pub(crate) fn required(self) -> Result<OutTarget<'a, T>, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// Returns the place to write to; `None` for NULL.
    #[inline]
    pub(crate) fn optional(self) -> Option<OutTarget<'a, T>> {
        if self.0.is_null() { None } else { Some(OutTarget(self.0, PhantomData)) }
    }
}

/// Place of a value that a call writes.
pub(crate) struct OutTarget<'a, T>(*mut T, PhantomData<&'a T>);

impl<T> OutTarget<'_, T> {
    #[inline]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: the pointer is not null, so there is room for a `T`, which only this call accesses until it
        // returns.
        unsafe { self.0.write(value) }
    }

    /// Fills `size` bytes: with `value` as far as it reaches, then with zeros. Programs are older or newer
    /// than this library, and say how large their structure is.
    pub(crate) fn set_within(&self, value: &T, size: usize) {
        fill(self.0.cast(), value, size);
    }
}

/// Fills `size` bytes with a value as far as it reaches, then with zeros.
fn fill<T>(target: *mut u8, value: &T, size: usize) {
    let length = size_of::<T>().min(size);
    // SAFETY: by the program's word `size` bytes are there (see the callers), and `value` has `length` of
    // them.
    unsafe {
        target.write_bytes(0, size);
        ptr::from_ref(value).cast::<u8>().copy_to_nonoverlapping(target, length);
    }
}

impl<'a, T, const COUNT: usize> From<&'a [T; COUNT]> for Array<'a, T> {
    fn from(from: &'a [T; COUNT]) -> Array<'a, T> {
        Array(from.as_ptr(), PhantomData)
    }
}

impl<'a, T> Array<'a, T> {
    /// Returns all values. `count` is the argument that came with the pointer.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null and `count` is not 0.
    #[inline]
    pub(crate) fn get(self, count: usize) -> Result<&'a [T], Errno> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: by the program's word this many values are there, and they do not change until the call
        // returns.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

impl<'a, T> OutArray<'a, T> {
    /// Returns the places of all values. `count` is the argument that came with the pointer.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    #[inline]
    pub(crate) fn elements(self, count: usize) -> Result<OutElements<'a, T>, Errno> {
        if self.0.is_null() {
            Err(INVALID)
        } else {
            Ok(OutElements { next: self.0, left: count, _of: PhantomData })
        }
    }
}

/// Places of several values that a call writes.
pub(crate) struct OutElements<'a, T> {
    next: *mut T,
    left: usize,
    _of: PhantomData<&'a T>,
}

impl<T> OutElements<'_, T> {
    /// Returns the number of values that are still to be written.
    #[inline]
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// Writes the next value; returns false if there is no room left.
    #[inline]
    pub(crate) fn put(&mut self, value: T) -> bool {
        if self.left == 0 {
            return false;
        }
        // SAFETY: one of the elements that the program has room for is left; only this call accesses them
        // until it returns.
        unsafe {
            self.next.write(value);
            self.next = self.next.add(1);
        }
        self.left -= 1;
        true
    }

    /// Writes the next value as [`OutElements::put`] does, for elements of `size` bytes: see
    /// [`OutTarget::set_within`].
    pub(crate) fn put_within(&mut self, value: &T, size: usize) -> bool {
        if self.left == 0 {
            return false;
        }
        fill(self.next.cast(), value, size);
        self.next = self.next.wrapping_byte_add(size);
        self.left -= 1;
        true
    }
}

impl<'a> Bytes<'a> {
    /// Creates the value from a pointer that is no argument of a call.
    ///
    /// # Safety
    /// The pointer must keep, for `'a`, the contract of C that is described above.
    #[inline]
    pub(crate) const unsafe fn new(pointer: *const c_void) -> Bytes<'a> {
        Bytes(pointer, PhantomData)
    }

    /// Returns all bytes. `length` is the argument that came with the pointer.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null and `length` is not 0.
    #[inline]
    pub(crate) fn get(self, length: usize) -> Result<&'a [u8], Errno> {
        Array(self.0.cast(), PhantomData).get(length)
    }

    /// Returns the first eight bytes.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    #[inline]
    pub(crate) fn eight(self) -> Result<[u8; 8], Errno> {
        In(self.0.cast::<[u8; 8]>(), PhantomData).get().copied()
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<'a> From<&'a mut [u8]> for OutBytes<'a> {
    fn from(from: &'a mut [u8]) -> OutBytes<'a> {
        OutBytes(from.as_mut_ptr().cast(), PhantomData)
    }
}

impl<'a> OutBytes<'a> {
    /// Returns the places of all bytes as [`OutArray::elements`] does.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    pub(crate) fn elements(self, length: usize) -> Result<OutElements<'a, u8>, Errno> {
        OutArray(self.0.cast(), PhantomData).elements(length)
    }

    /// Returns all bytes. `length` is the argument that came with the pointer. Call this once per call of the
    /// program.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null and `length` is not 0.
    #[inline]
    pub(crate) fn get(self, length: usize) -> Result<&'a mut [u8], Errno> {
        if length == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: by the program's word this many bytes are there, which only this call accesses until it
        // returns; any value of a byte is valid.
        Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), length) })
    }

    pub(crate) const fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl<'a> From<&'a CStr> for Text<'a> {
    fn from(from: &'a CStr) -> Text<'a> {
        Text(from.as_ptr(), PhantomData)
    }
}

impl<'a> Text<'a> {
    /// Creates the value from a pointer that is no argument of a call.
    ///
    /// # Safety
    /// The pointer must keep, for `'a`, the contract of C that is described above.
    pub(crate) const unsafe fn new(pointer: *const c_char) -> Text<'a> {
        Text(pointer, PhantomData)
    }

    /// # Errors
    /// Fails with EINVAL if the pointer is null.
    pub(crate) fn get(self) -> Result<&'a CStr, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// Returns the string; `None` for NULL.
    pub(crate) fn optional(self) -> Option<&'a CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so it points at a string that ends with NUL, which does not change
        // until the call returns.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}

impl<'a, C> Trusted<'a, C> {
    /// Returns the object.
    ///
    /// # Errors
    /// Fails with EINVAL if the pointer is null, or of the process that this one was forked from, and with
    /// ENOENT if the program is checked and has destroyed the object.
    #[inline]
    pub(crate) fn held<T: DataPathObject<C = C>>(self) -> Result<&'a T, Errno> {
        check_trusted(self.0)?;
        match self.of_any_process::<T>() {
            Some(object) if object.generation().is_own() => Ok(object),
            Some(_) => Err(refusal::refuse(T::KIND)),
            None => Err(INVALID),
        }
    }

    /// Returns the object as [`Trusted::held`] does; `None` where that fails.
    #[inline]
    pub(crate) fn optional<T: DataPathObject<C = C>>(self) -> Option<&'a T> {
        self.held().ok()
    }

    /// Returns an object that never changes, which a forked child may use as its parent does; `None` for
    /// NULL.
    #[inline]
    pub(crate) fn of_any_process<T: CObject<C = C>>(self) -> Option<&'a T> {
        // SAFETY: the pointer is null, or points at a structure of this library, which is the beginning of
        // its object, and the program does not destroy the object while it uses it.
        unsafe { self.0.cast::<T>().as_ref() }
    }

    /// Returns the program's pointer.
    #[allow(dead_code, reason = "rooms above compare pointers")]
    pub(crate) const fn as_ptr(self) -> *mut C {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_refused_or_none() {
        let null = In::<u32>(ptr::null(), PhantomData);
        assert_eq!((null.get(), null.optional()), (Err(INVALID), None));
        assert!(Out::<u32>::NULL.required().is_err() && Out::<u32>::NULL.optional().is_none());
        assert!(InOut::<u32>(ptr::null_mut(), PhantomData).get().is_err());
        let none = Array::<u32>(ptr::null(), PhantomData);
        assert_eq!((none.get(0), none.get(1)), (Ok([].as_slice()), Err(INVALID)));
        assert!(OutArray::<u32>(ptr::null_mut(), PhantomData).elements(1).is_err());
        assert_eq!(Text(ptr::null(), PhantomData).get(), Err(INVALID));
        let nowhere = OutBytes(ptr::null_mut(), PhantomData);
        assert!(nowhere.get(0).is_ok() && nowhere.get(1) == Err(INVALID) && nowhere.is_null());
    }

    #[test]
    fn structures_of_other_lengths_are_read_and_written_as_far_as_they_go() {
        let from = [1_u32, 2, 3];
        assert_eq!(In::from(&from).beginning(8, [7; 3]), Ok([1, 2, 7]));
        assert_eq!(In::from(&from).beginning(99, [7; 3]), Ok(from));
        let mut bytes = [9_u8; 4];
        Out::from(&mut bytes).required().unwrap().set_within(&[1, 2, 3, 4], 2);
        assert_eq!(bytes, [1, 2, 9, 9]);
        let mut wide = [9_u16; 4];
        let first = OutArray(wide.as_mut_ptr().cast::<u8>(), PhantomData);
        let mut elements = first.elements(2).unwrap();
        assert!(elements.put_within(&1, 4) && elements.put_within(&2, 4) && !elements.put_within(&3, 4));
        assert_eq!(wide, [1, 0, 2, 0]);
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        let mut numbers = [0; 3];
        let mut elements = OutArray(numbers.as_mut_ptr(), PhantomData).elements(2).unwrap();
        assert!(elements.put(1) && elements.put(2) && elements.left() == 0 && !elements.put(3));
        assert_eq!(numbers, [1, 2, 0]);
    }
}
