//! Arguments as C passes them: types for the parameters of exported functions and of functions in tables.
//!
//! Each type is a pointer (`repr(transparent)`) that says what the call does with what it points at:
//!
//! | Type | The call | Of NULL |
//! |---|---|---|
//! | [`In`] | reads a structure or a number | `get` refuses, `optional` says none |
//! | [`InOut`] | reads and changes it | as above |
//! | [`Out`] | writes it; nothing in it is read | as above, by `required` and `optional` |
//! | [`Array`] | reads several, whose number is another argument | only with the number 0 |
//! | [`OutArray`] | writes at most so many | only with the number 0 |
//! | [`Bytes`] | reads memory | only with the length 0 |
//! | [`OutBytes`] | writes memory | only with the length 0 |
//! | [`Text`] | reads text that ends with NUL | as `In` |
//! | [`Lasting`] | registers memory | as any address |
//! | [`Trusted`] | uses an object on the data path | `held` refuses, and a parent's |
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
//! stays there until the call returns, and no other thread changes it meanwhile. A program that does
//! otherwise has no defined behaviour with any library. This contract is what the unsafe blocks of this file
//! rely on, and each says which part of it.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use super::errno::{Errno, INVALID};
use super::handles::{Held, OfProcess, permits_trust};
use super::inherited;

/// A pointer type of C with a lifetime, which can be copied.
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
            /// For pointers that come by another way than as an argument.
            ///
            /// # Safety
            /// What C promises for an argument, for as long as `'a`: see above.
            #[inline]
            #[allow(dead_code, reason = "not every type is needed for such pointers")]
            pub(crate) const unsafe fn new(pointer: $raw) -> $name<'a, T> {
                $name(pointer, PhantomData)
            }
        }
    };
}

argument! {
    /// What a call reads.
    In(*const T)
}
argument! {
    /// What a call reads and changes.
    InOut(*mut T)
}
argument! {
    /// What a call writes. Programs need not have initialised it.
    Out(*mut T)
}
argument! {
    /// The first of several that a call reads; how many there are is another argument.
    Array(*const T)
}
argument! {
    /// The first of several values that a call writes; how many there are is another argument.
    OutArray(*mut T)
}
argument! {
    /// An object of this library, where there is no time to look it up: the data path. It is not checked but
    /// for NULL, for being of this process, and in checked programs for what they have destroyed.
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

/// Memory that a program registers: it stays mapped until the program deregisters it. A call does not touch
/// it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Lasting(*mut c_void);

impl Lasting {
    /// # Safety
    /// The range that is registered stays mapped until it is deregistered.
    pub(crate) const unsafe fn new(address: *mut c_void) -> Lasting {
        Lasting(address)
    }

    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

/// Text that ends with NUL.
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
    /// EINVAL: it is null.
    #[inline]
    pub(crate) fn get(self) -> Result<&'a T, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// None for NULL.
    #[inline]
    pub(crate) fn optional(self) -> Option<&'a T> {
        // SAFETY: null, or what the header says, which nothing changes until the call returns.
        unsafe { self.0.as_ref() }
    }

    /// A copy, of what another thread may change meanwhile.
    ///
    /// # Errors
    /// EINVAL: it is null.
    #[inline]
    pub(crate) fn copied(self) -> Result<T, Errno>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: not null, so what the header says.
        Ok(unsafe { self.0.read() })
    }

    /// The program's pointer.
    pub(crate) const fn as_ptr(self) -> *const T {
        self.0
    }

    /// Whether a structure of `bytes` bytes, as the program says, has only zeros behind what is known here.
    ///
    /// # Errors
    /// EINVAL: it is null.
    pub(crate) fn is_zero_behind(self, bytes: usize) -> Result<bool, Errno> {
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program says that so many bytes are there, and leaves them until the call returns.
        let all = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), bytes) };
        Ok(all.get(size_of::<T>()..).unwrap_or_default().iter().all(|byte| *byte == 0))
    }

    /// The first `bytes` bytes, and the rest of `otherwise`: programs that were built with an older header
    /// have shorter structures.
    ///
    /// # Errors
    /// EINVAL: it is null.
    pub(crate) fn beginning(self, bytes: usize, otherwise: T) -> Result<T, Errno>
    where
        T: Copy,
    {
        if self.0.is_null() {
            return Err(INVALID);
        }
        let mut copy = otherwise;
        let bytes = bytes.min(size_of::<T>());
        // SAFETY: the program's structure has this beginning, and a copy of all of it has room.
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
    /// As another structure at the same address.
    ///
    /// # Safety
    /// The program's structure is one.
    pub(crate) unsafe fn cast<U>(self) -> InOut<'a, U> {
        InOut(self.0.cast(), PhantomData)
    }

    /// As [`In::beginning`].
    ///
    /// # Errors
    /// EINVAL: it is null.
    pub(crate) fn beginning(&self, bytes: usize, otherwise: T) -> Result<T, Errno>
    where
        T: Copy,
    {
        In(self.0.cast_const(), PhantomData).beginning(bytes, otherwise)
    }

    /// Writes the first `bytes` bytes, which a program's structure has that [`InOut::beginning`] was read
    /// from.
    pub(crate) fn put_beginning(&self, value: &T, bytes: usize) {
        if !self.0.is_null() {
            fill(self.0.cast(), value, bytes);
        }
    }

    /// To be called once by a call: what it gives is the only way to the structure.
    ///
    /// # Errors
    /// EINVAL: it is null.
    #[inline]
    pub(crate) fn get(self) -> Result<&'a mut T, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// As [`InOut::get`]; none for NULL.
    #[inline]
    pub(crate) fn optional(self) -> Option<&'a mut T> {
        // SAFETY: null, or what the header says, which is the call's alone until it returns.
        unsafe { self.0.as_mut() }
    }
}

impl<'a, T> From<&'a mut T> for Out<'a, T> {
    fn from(from: &'a mut T) -> Out<'a, T> {
        Out(from, PhantomData)
    }
}

impl<'a, T> Out<'a, T> {
    /// NULL: the caller does not want to know.
    #[allow(dead_code, reason = "rooms above pass it")]
    pub(crate) const NULL: Out<'a, T> = Out(ptr::null_mut(), PhantomData);

    /// # Errors
    /// EINVAL: it is null.
    #[inline]
    pub(crate) fn required(self) -> Result<OutTarget<'a, T>, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// None for NULL.
    #[inline]
    pub(crate) fn optional(self) -> Option<OutTarget<'a, T>> {
        if self.0.is_null() { None } else { Some(OutTarget(self.0, PhantomData)) }
    }
}

/// Where a call writes.
pub(crate) struct OutTarget<'a, T>(*mut T, PhantomData<&'a T>);

impl<T> OutTarget<'_, T> {
    #[inline]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: not null, so what the header says: room for a `T`, which is the call's until it returns.
        unsafe { self.0.write(value) }
    }

    /// Fills `size` bytes: with `value` as far as it goes, then with zeros. Programs are older or newer than
    /// this library, and say how large their structure is.
    pub(crate) fn set_within(&self, value: &T, size: usize) {
        fill(self.0.cast(), value, size);
    }
}

/// Fills `size` bytes with a value as far as it goes, then with zeros.
fn fill<T>(target: *mut u8, value: &T, size: usize) {
    let length = size_of::<T>().min(size);
    // SAFETY: the program says that `size` bytes are there (see the callers), and `value` has `length` of
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
    /// All of them. `count` is the argument that came with the pointer.
    ///
    /// # Errors
    /// EINVAL: it is null, and `count` is not 0.
    #[inline]
    pub(crate) fn get(self, count: usize) -> Result<&'a [T], Errno> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program says that there are so many, which nothing changes until the call returns.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

impl<'a, T> OutArray<'a, T> {
    /// All of them. `count` is the argument that came with the pointer.
    ///
    /// # Errors
    /// EINVAL: it is null.
    #[inline]
    pub(crate) fn elements(self, count: usize) -> Result<OutElements<'a, T>, Errno> {
        if self.0.is_null() {
            Err(INVALID)
        } else {
            Ok(OutElements { next: self.0, left: count, _of: PhantomData })
        }
    }
}

/// Where a call writes several.
pub(crate) struct OutElements<'a, T> {
    next: *mut T,
    left: usize,
    _of: PhantomData<&'a T>,
}

impl<T> OutElements<'_, T> {
    /// How many are still to be written.
    #[inline]
    pub(crate) const fn left(&self) -> usize {
        self.left
    }

    /// Writes the next one; false if there is no room left.
    #[inline]
    pub(crate) fn put(&mut self, value: T) -> bool {
        if self.left == 0 {
            return false;
        }
        // SAFETY: an element is left of those that the program says are there; they are the call's until it
        // returns.
        unsafe {
            self.next.write(value);
            self.next = self.next.add(1);
        }
        self.left -= 1;
        true
    }

    /// As [`OutElements::put`], for elements of `size` bytes: see [`OutTarget::set_within`].
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
    /// For pointers that come by another way than as an argument.
    ///
    /// # Safety
    /// What C promises for an argument, for as long as `'a`: see above.
    #[inline]
    pub(crate) const unsafe fn new(pointer: *const c_void) -> Bytes<'a> {
        Bytes(pointer, PhantomData)
    }

    /// All of it. `length` is the argument that came with the pointer.
    ///
    /// # Errors
    /// EINVAL: it is null, and `length` is not 0.
    #[inline]
    pub(crate) fn get(self, length: usize) -> Result<&'a [u8], Errno> {
        Array(self.0.cast(), PhantomData).get(length)
    }

    /// The first eight bytes.
    ///
    /// # Errors
    /// EINVAL: it is null.
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
    /// As [`OutArray::elements`].
    ///
    /// # Errors
    /// EINVAL: it is null.
    pub(crate) fn elements(self, length: usize) -> Result<OutElements<'a, u8>, Errno> {
        OutArray(self.0.cast(), PhantomData).elements(length)
    }

    /// All of it. `length` is the argument that came with the pointer. To be called once by a call.
    ///
    /// # Errors
    /// EINVAL: it is null, and `length` is not 0.
    #[inline]
    pub(crate) fn get(self, length: usize) -> Result<&'a mut [u8], Errno> {
        if length == 0 {
            return Ok(&mut []);
        }
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program says that there is so much, which is the call's alone until it returns; any
        // byte is a byte.
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
    /// # Errors
    /// EINVAL: it is null.
    pub(crate) fn get(self) -> Result<&'a CStr, Errno> {
        self.optional().ok_or(INVALID)
    }

    /// None for NULL.
    pub(crate) fn optional(self) -> Option<&'a CStr> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: not null, so text that ends with NUL, which nothing changes until the call returns.
        Some(unsafe { CStr::from_ptr(self.0) })
    }
}

impl<'a, C> Trusted<'a, C> {
    /// The object.
    ///
    /// # Errors
    /// EINVAL: it is null, or of the process that this one was forked from. ENOENT: the program is checked,
    /// and has destroyed it.
    #[inline]
    pub(crate) fn held<T: OfProcess<C = C>>(self) -> Result<&'a T, Errno> {
        permits_trust(self.0)?;
        match self.of_any_process::<T>() {
            Some(object) if object.generation().is_own() => Ok(object),
            Some(_) => Err(inherited::refuse(T::KIND)),
            None => Err(INVALID),
        }
    }

    /// As [`Trusted::held`]; none where that is refused.
    #[inline]
    pub(crate) fn optional<T: OfProcess<C = C>>(self) -> Option<&'a T> {
        self.held().ok()
    }

    /// One that a forked child may use as its parent does: it never changes. None for NULL.
    #[inline]
    pub(crate) fn of_any_process<T: Held<C = C>>(self) -> Option<&'a T> {
        // SAFETY: null, or a structure of this library's, which is the beginning of its object, and the
        // program does not destroy the object while it uses it.
        unsafe { self.0.cast::<T>().as_ref() }
    }

    /// The program's pointer.
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
