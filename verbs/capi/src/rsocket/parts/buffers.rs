//! The program's buffers in the parameters of calls.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{iovec, msghdr};

use super::region::ByteRun;
use crate::platform::errno::{Errno, INVALID};

/// A program's pointer to data or to room for data, as a call gets it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct DataPointer(*mut c_void);

/// A program's pointer to a list of buffers, as a call gets it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct VectorsPointer(*const iovec);

/// A buffer of the program, which has as many bytes as it says.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Vector(iovec);

impl DataPointer {
    /// Returns the buffer of this length.
    pub(crate) const fn vector(self, length: usize) -> Vector {
        Vector(iovec { iov_base: self.0, iov_len: length })
    }

    pub(crate) const fn as_ptr(self) -> *mut c_void {
        self.0
    }
}

impl VectorsPointer {
    /// Returns the list of a message.
    pub(crate) const fn of_message(message: &msghdr) -> VectorsPointer {
        VectorsPointer(message.msg_iov)
    }

    /// Returns the list of this number of entries.
    ///
    /// # Errors
    /// Fails with EINVAL for a negative number, one beyond the limit of any system, or a null list of some,
    /// and as [`check`].
    pub(crate) fn list<'a>(self, count: c_int) -> Result<&'a [Vector], Errno> {
        /// The limit `IOV_MAX`.
        const MOST: usize = 1024;
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST).ok_or(INVALID)?;
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the program's list has this many entries until its call returns.
        check(unsafe { std::slice::from_raw_parts(self.0.cast::<Vector>(), count) })
    }
}

/// Checks a list, and returns it.
///
/// # Errors
/// Fails with EINVAL for lengths beyond all memory, and with EFAULT for a null buffer of some bytes.
pub(crate) fn check(list: &[Vector]) -> Result<&[Vector], Errno> {
    let mut all = 0_usize;
    for Vector(one) in list {
        all = all.checked_add(one.iov_len).filter(|all| *all <= isize::MAX as usize).ok_or(INVALID)?;
        if one.iov_base.is_null() && one.iov_len > 0 {
            return Err(Errno(libc::EFAULT));
        }
    }
    Ok(list)
}

/// The program's buffers, used from the first to the last.
pub(crate) struct Buffers<'a> {
    list: &'a [Vector],
    used: usize,
}

impl<'a> Buffers<'a> {
    /// Creates the buffers of a list that was checked.
    pub(crate) const fn new(list: &'a [Vector]) -> Buffers<'a> {
        Buffers { list, used: 0 }
    }

    /// Returns the number of bytes that are left.
    pub(crate) fn left(&self) -> usize {
        let all = self.list.iter().fold(0_usize, |sum, one| sum.saturating_add(one.0.iov_len));
        all.saturating_sub(self.used)
    }

    /// Skips the next bytes, which an earlier attempt of the call has moved.
    pub(crate) fn skip(&mut self, length: usize) {
        self.advance(length, |_, _, _| ());
    }

    /// Advances over the next bytes, run by run: `each` gets a pointer, the length, and the number of bytes
    /// before.
    fn advance(&mut self, length: usize, mut each: impl FnMut(*mut u8, usize, usize)) {
        let mut done = 0;
        while done < length {
            let Some((Vector(first), rest)) = self.list.split_first() else { return };
            let run = (first.iov_len - self.used).min(length - done);
            if run > 0 {
                each(first.iov_base.cast::<u8>().wrapping_add(self.used), run, done);
            }
            done += run;
            self.used += run;
            if self.used == first.iov_len {
                (self.list, self.used) = (rest, 0);
            }
        }
    }

    /// Copies the next bytes to a region.
    pub(crate) fn gather(&mut self, to: ByteRun<'_>) {
        self.advance(to.length(), |from, run, before| {
            // SAFETY: live bytes of the program's buffer, and a part of the run; they may overlap.
            unsafe { ptr::copy(from, to.start().wrapping_add(before), run) };
        });
    }

    /// Copies the next bytes to a slice.
    pub(crate) fn gather_into(&mut self, to: &mut [u8]) {
        let (start, length) = (to.as_mut_ptr(), to.len());
        self.advance(length, |from, run, before| {
            // SAFETY: live bytes of the program's buffer, and a part of the slice; they may overlap.
            unsafe { ptr::copy(from, start.wrapping_add(before), run) };
        });
    }

    /// Copies bytes of a region into the next buffers.
    pub(crate) fn scatter(&mut self, from: ByteRun<'_>) {
        self.advance(from.length(), |to, run, before| {
            // SAFETY: a part of the run, and room in the program's buffer; they may overlap.
            unsafe { ptr::copy(from.start().wrapping_add(before), to, run) };
        });
    }

    /// Copies a slice into the next buffers.
    pub(crate) fn scatter_from(&mut self, from: &[u8]) {
        self.advance(from.len(), |to, run, before| {
            // SAFETY: a part of the slice, and room in the program's buffer; they may overlap.
            unsafe { ptr::copy(from.as_ptr().wrapping_add(before), to, run) };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_in_order_whatever_their_lengths() {
        let mut store = [[0_u8; 3], [0; 3], [0; 3]];
        let list: Vec<Vector> = store
            .iter_mut()
            .zip([3, 0, 2])
            .map(|(one, length)| DataPointer(one.as_mut_ptr().cast()).vector(length))
            .collect();
        let mut into = Buffers::new(&list);
        assert_eq!(into.left(), 5);
        into.scatter_from(b"ab");
        assert_eq!(into.left(), 3);
        into.scatter_from(b"cdefg");
        assert_eq!(into.left(), 0);
        let mut from = Buffers::new(&list);
        let mut gathered = [0; 4];
        from.gather_into(&mut gathered);
        assert_eq!(&gathered, b"abcd");
        assert_eq!(from.left(), 1);
        assert_eq!(store, [*b"abc", [0; 3], *b"de\0"]);
    }

    #[test]
    fn lists_beyond_all_sense_are_refused() {
        let huge = DataPointer(ptr::dangling_mut::<u8>().cast()).vector(usize::MAX);
        let null = DataPointer(ptr::null_mut()).vector(1);
        let list = |pointer: *const Vector, count| VectorsPointer(pointer.cast()).list(count).map(<[_]>::len);
        assert_eq!(list(ptr::null(), 0), Ok(0));
        assert_eq!(list(ptr::null(), 1), Err(INVALID));
        assert_eq!(list(&huge, -1), Err(INVALID));
        assert_eq!(list(&huge, 1025), Err(INVALID));
        assert_eq!(list(&huge, 1), Err(INVALID));
        assert_eq!(list(&null, 1), Err(Errno(libc::EFAULT)));
    }
}
