//! System calls without the C library's functions, the original functions of the C library, and environment
//! variables.
//!
//! Environment variables, copied once, because a program may change its environment later.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// A function of the next object that has it.
pub(crate) struct Original {
    name: &'static CStr,
    /// Address of the function; null until it is known.
    address: AtomicPtr<c_void>,
}

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns its address; null, with errno set, if this C library does not have it.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    /// Resolves the address. Two threads may do this at once, because they find the same one.
    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            set_errno(libc::ENOSYS);
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// Maximum length of a value, in bytes.
pub(crate) const MAX_VALUE_BYTES: usize = 512;

const UNREAD: u8 = 0;
/// State: a thread copies the value.
const COPYING: u8 = 1;
const READY: u8 = 2;
/// State: there is no usable value.
const NONE: u8 = 3;

/// Variable with the folder of the private tree.
pub(crate) static FOLDER: Variable = Variable::new(c"PUMICE_SYSFS");
/// Variable with the path of libpumice.so.
pub(crate) static LIBRARY: Variable = Variable::new(c"PUMICE_LIBRARY");

/// A variable that holds an absolute path. It is written once and read after that.
pub(crate) struct Variable {
    name: &'static CStr,
    state: AtomicU8,
    /// Value, with a NUL at the end.
    text: UnsafeCell<[u8; MAX_VALUE_BYTES + 1]>,
}

// SAFETY: only the thread that moved the state from NEW to COPYING writes, and others read from READY on.
unsafe impl Sync for Variable {}

impl Variable {
    const fn new(name: &'static CStr) -> Variable {
        let text = UnsafeCell::new([0; MAX_VALUE_BYTES + 1]);
        Variable { name, state: AtomicU8::new(UNREAD), text }
    }

    /// Returns the path without a slash at its end, if there is one. `None` while another thread, or code
    /// that a signal has interrupted, copies it: that is before `main`.
    pub(crate) fn value(&self) -> Option<&'static CStr>
    where
        Self: 'static,
    {
        if self.state.load(Ordering::Acquire) == UNREAD {
            self.copy();
        }
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: nothing writes once the state is READY, and variables are statics.
        let text: &'static [u8; MAX_VALUE_BYTES + 1] = unsafe { &*self.text.get() };
        CStr::from_bytes_until_nul(text).ok()
    }

    fn copy(&self) {
        if self.state.compare_exchange(UNREAD, COPYING, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        // SAFETY: the name ends with NUL, and no pointer into the environment is kept beyond this call.
        let found: *const c_char = unsafe { libc::getenv(self.name.as_ptr()) };
        // SAFETY: getenv returns a C string.
        let found = (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_bytes());
        let path = found.and_then(usable);
        if let Some(path) = path {
            // SAFETY: this is the only writer, see `Sync`.
            let text = unsafe { &mut *self.text.get() };
            for (to, from) in text.iter_mut().zip(path) {
                *to = *from;
            }
        }
        self.state.store(if path.is_some() { READY } else { NONE }, Ordering::Release);
    }
}

/// Returns a path as it is put in front of others: absolute, and short enough.
fn usable(mut path: &[u8]) -> Option<&[u8]> {
    while let Some(shorter) = path.strip_suffix(b"/") {
        path = shorter;
    }
    (path.starts_with(b"/") && path.len() <= MAX_VALUE_BYTES).then_some(path)
}

/// Maximum length of the name of a file in the private tree, in bytes.
const NAME_BYTES: usize = 2 * MAX_VALUE_BYTES;

/// A descriptor that is closed when it is dropped.
pub(crate) struct OwnedDescriptor(c_int);

impl OwnedDescriptor {
    /// Takes the descriptor that a system call returned; `None` if the call failed.
    pub(crate) fn of(returned: c_long) -> Option<OwnedDescriptor> {
        let number = c_int::try_from(returned).ok()?;
        (number >= 0).then(|| OwnedDescriptor(number))
    }

    /// Opens a file for reading.
    pub(crate) fn open(path: &CStr) -> Option<OwnedDescriptor> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path is a C string.
        OwnedDescriptor::of(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) })
    }

    pub(crate) const fn number(&self) -> c_int {
        self.0
    }

    /// Reads at an offset, and returns the number of bytes.
    pub(crate) fn read(&self, room: &mut [u8], offset: usize) -> usize {
        // SAFETY: the buffer has this length and may be written.
        let read = unsafe { libc::syscall(libc::SYS_pread64, self.0, room.as_mut_ptr(), room.len(), offset) };
        usize::try_from(read).unwrap_or(0)
    }

    /// Writes at the beginning. Beyond the file size limit, which also counts for files in memory, it only
    /// fails: the signal that would end the program is blocked and taken.
    pub(crate) fn write(&self, text: &[u8]) -> bool {
        let (caused, mut before) = (1_u64 << (libc::SIGXFSZ - 1), 0_u64);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let nothing = std::ptr::null_mut::<u64>();
        // SAFETY: sets of 64 signals, as the kernel has them, a time and bytes that live during the calls,
        // and this value's own descriptor.
        unsafe {
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const caused, &raw mut before, 8);
            let written = libc::syscall(libc::SYS_pwrite64, self.0, text.as_ptr(), text.len(), 0);
            if written < 0 {
                libc::syscall(libc::SYS_rt_sigtimedwait, &raw const caused, nothing, &raw const now, 8);
            }
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, nothing, 8);
            written >= 0
        }
    }

    /// Reports whether another open file has a lock on a byte.
    pub(crate) fn is_locked(&self, byte: i64) -> bool {
        let mut asked = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: byte,
            l_len: 1,
            // The field has to be zero for a lock of an open file description.
            l_pid: 0,
        };
        // SAFETY: the value may be written.
        let status = unsafe { libc::syscall(libc::SYS_fcntl, self.0, libc::F_OFD_GETLK, &raw mut asked) };
        status == 0 && i32::from(asked.l_type) != libc::F_UNLCK
    }
}

impl Drop for OwnedDescriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to this value.
        unsafe { libc::syscall(libc::SYS_close, self.0) };
    }
}

/// The name of a file, as a C string.
pub(crate) struct FileName([u8; NAME_BYTES]);

impl FileName {
    /// Joins these parts, if there is room for them and a NUL.
    pub(crate) fn of(parts: &[&[u8]]) -> Option<FileName> {
        let mut name = FileName([0; NAME_BYTES]);
        let mut length = 0_usize;
        for part in parts {
            let end = length.checked_add(part.len())?;
            name.0.get_mut(length..end)?.copy_from_slice(part);
            length = end;
        }
        (length < NAME_BYTES).then_some(name)
    }

    /// Joins the path of the private tree and these parts.
    pub(crate) fn private(parts: &[&[u8]]) -> Option<FileName> {
        let root = FOLDER.value()?.to_bytes();
        let mut all: [&[u8]; MOST_PARTS] = [&[]; MOST_PARTS];
        all.iter_mut().zip([root].iter().chain(parts)).for_each(|(to, part)| *to = part);
        if parts.len() < MOST_PARTS { FileName::of(&all) } else { None }
    }

    pub(crate) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }

    /// Reports whether the file exists; links are followed.
    pub(crate) fn exists(&self) -> bool {
        let name = self.text().as_ptr();
        // SAFETY: the name is a C string.
        unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, name, libc::F_OK) == 0 }
    }

    /// Creates a folder, if it does not exist.
    pub(crate) fn make_folder(&self) {
        // SAFETY: the name is a C string.
        unsafe { libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, self.text().as_ptr(), 0o700) };
    }

    /// Creates a link, unless the name exists.
    pub(crate) fn make_link(&self, target: &FileName) {
        let (target, name) = (target.text().as_ptr(), self.text().as_ptr());
        // SAFETY: both names are C strings.
        unsafe { libc::syscall(libc::SYS_symlinkat, target, libc::AT_FDCWD, name) };
    }
}

/// Maximum number of parts of a name.
const MOST_PARTS: usize = 8;

/// Reports whether a path exists. Leaves errno unchanged.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn exists(path: *const c_char) -> bool {
    let before = errno();
    // SAFETY: the caller guarantees that it is a C string.
    let found = unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) } == 0;
    set_errno(before);
    found
}

/// Opens a file of the private tree, whose name consists of these parts.
pub(crate) fn open_private(parts: &[&[u8]]) -> Option<OwnedDescriptor> {
    OwnedDescriptor::open(FileName::private(parts)?.text())
}

/// Returns the clock by which conditions of ports are timed (CLOCK_MONOTONIC), in ns.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the value may be written.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Returns this process's id.
pub(crate) fn process_id() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::syscall(libc::SYS_getpid) }).unwrap_or(0)
}

/// Reads a small file of the private tree.
pub(crate) fn read_private<'a>(parts: &[&[u8]], room: &'a mut [u8]) -> Option<&'a mut [u8]> {
    let length = open_private(parts)?.read(room, 0);
    room.get_mut(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_not_too_long() {
        assert_eq!(usable(b"/run/x//"), Some(&b"/run/x"[..]));
        for wrong in [&b""[..], b"/", b"run/x", &[b'/'; MAX_VALUE_BYTES + 1]] {
            assert_eq!(usable(wrong), None);
        }
        let longest = [b"/".as_slice(), &[b'x'; MAX_VALUE_BYTES - 1]].concat();
        assert_eq!(usable(&longest), Some(&longest[..]));
        assert_eq!(usable(&[&longest[..], b"x"].concat()), None);
    }

    #[test]
    fn a_value_is_copied_once() {
        static PATH: Variable = Variable::new(c"PATH");
        static MISSING: Variable = Variable::new(c"PUMICE_NO_SUCH_VARIABLE");
        let first = PATH.value().map(CStr::as_ptr);
        assert_eq!(first, PATH.value().map(CStr::as_ptr));
        assert_eq!(MISSING.value(), None);
    }
}
