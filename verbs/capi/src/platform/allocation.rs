//! Memory of malloc(3), for values that programs get and free, or give back to be freed.

use std::ffi::c_void;

use super::errno::Errno;

/// A value in memory of malloc, which is freed unless the program gets it. Memory that the value points at is
/// not freed.
pub(crate) struct Allocation<T>(*mut T);

impl<T> Allocation<T> {
    /// # Errors
    /// Fails with ENOMEM.
    pub(crate) fn new(value: T) -> Result<Allocation<T>, Errno> {
        const { assert!(!std::mem::needs_drop::<T>(), "the value is freed, and not dropped") };
        const { assert!(align_of::<T>() <= 2 * size_of::<usize>(), "malloc aligns no further") };
        // SAFETY: malloc takes any size.
        let pointer = unsafe { libc::malloc(size_of::<T>()) }.cast::<T>();
        if pointer.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: new memory with room for one value, aligned as malloc aligns.
        unsafe { pointer.write(value) };
        Ok(Allocation(pointer))
    }

    /// Returns the address of the value.
    pub(crate) const fn as_ptr(&self) -> *mut T {
        self.0
    }

    /// Gives the value to the program.
    pub(crate) const fn into_raw(self) -> *mut T {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl<T> Drop for Allocation<T> {
    fn drop(&mut self) {
        // SAFETY: the memory that `new` allocated, which the program does not have.
        unsafe { free(self.0.cast()) };
    }
}

/// Frees memory with free(3).
///
/// # Safety
/// `memory` is null, or of malloc and not used any more.
pub(crate) unsafe fn free(memory: *mut c_void) {
    // SAFETY: the function's own contract.
    unsafe { libc::free(memory) };
}
