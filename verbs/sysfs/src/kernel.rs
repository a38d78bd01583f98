//! System calls without the C library's functions, whose places this object takes.

use std::ffi::{CStr, c_int, c_long};

use crate::variable::{FOLDER, MAX_VALUE_BYTES};

/// Room for the name of a file of the private tree.
const NAME_BYTES: usize = 2 * MAX_VALUE_BYTES;

/// A descriptor that is closed when it is dropped.
pub(crate) struct Descriptor(c_int);

impl Descriptor {
    /// The one that a system call returned; none if it failed.
    pub(crate) fn of(returned: c_long) -> Option<Descriptor> {
        let number = c_int::try_from(returned).ok()?;
        (number >= 0).then_some(Descriptor(number))
    }

    /// Opens a file for reading.
    pub(crate) fn open(path: &CStr) -> Option<Descriptor> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: a C string.
        Descriptor::of(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) })
    }

    pub(crate) const fn number(&self) -> c_int {
        self.0
    }

    /// Reads at an offset; how much was there.
    pub(crate) fn read(&self, room: &mut [u8], offset: usize) -> usize {
        // SAFETY: so many bytes that may be written.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.0, room.as_mut_ptr(), room.len(), offset) };
        usize::try_from(read).unwrap_or(0)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value's own.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// Opens a file of the private tree, whose name is these parts one after the other.
pub(crate) fn open_private(parts: &[&[u8]]) -> Option<Descriptor> {
    let root = FOLDER.value()?.to_bytes();
    let mut name = [0_u8; NAME_BYTES];
    let mut length = 0_usize;
    for part in [root].iter().chain(parts) {
        let end = length.checked_add(part.len())?;
        name.get_mut(length..end)?.copy_from_slice(part);
        length = end;
    }
    // Its NUL must fit as well.
    Descriptor::open(CStr::from_bytes_until_nul(&name).ok()?)
}

/// Reads a small file of the private tree.
pub(crate) fn read_private<'a>(parts: &[&[u8]], room: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let length = open_private(parts)?.read(room, 0);
    room.get_mut(..length)
}
