//! What this library asks of the operating system and of the C library.
//!
//! Errno values, in which this library's calls report errors.
//!
//! Identity of this process and thread, its settings, and files and descriptors that this library opens.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::fs::{File, TryLockError};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pumice_device::outside::fork_generation::{InheritedOnce, PerProcess};
use pumice_device::outside::output_file::open_private;
use pumice_device::settings::{SettingError, Settings};

use crate::abi::plain::zeroed;

/// An error of a call: a positive errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// The error of a wrong argument.
pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
/// The error of an operation that the device does not have.
pub(crate) const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);

/// Sets this thread's errno.
#[inline]
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno }
}

/// Returns this thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Returns the settings of this process, read at the first call.
///
/// # Errors
/// Fails if one of them is wrong.
pub(crate) fn settings() -> Result<&'static Settings, &'static SettingError> {
    static SETTINGS: InheritedOnce<Result<Settings, SettingError>> = InheritedOnce::new();
    SETTINGS.get_or_init(Settings::from_environment).as_ref()
}

pub(crate) use pumice_device::outside::fork_generation::current_pid;

/// A thread number of the kernel.
pub(crate) type ThreadNumber = libc::pid_t;

thread_local! {
    static OWN_THREAD: Cell<(u32, ThreadNumber)> = const { Cell::new((0, 0)) };
}

/// Returns the number of the calling thread.
pub(crate) fn own_thread() -> ThreadNumber {
    let process = current_pid();
    OWN_THREAD.with(|own| {
        let (of, thread) = own.get();
        if of == process {
            return thread;
        }
        // SAFETY: no memory is involved; thread numbers fit.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) as ThreadNumber };
        own.set((process, thread));
        thread
    })
}

/// Reports whether a thread of this process exists.
pub(crate) fn is_alive(thread: ThreadNumber) -> bool {
    // SAFETY: no signal is sent.
    unsafe { libc::syscall(libc::SYS_tgkill, current_pid(), thread, 0) == 0 }
}

/// Takes the descriptor that a system call has just returned.
///
/// # Errors
/// Fails with the errno of the system call if it failed.
fn new(returned: RawFd) -> Result<OwnedFd, Errno> {
    if returned < 0 {
        return Err(Errno(errno()));
    }
    // SAFETY: the callers pass the result of a system call that makes descriptors, so no other part of the
    // process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(returned) })
}

/// Creates an anonymous file, closed on exec.
///
/// # Errors
/// Fails with the errno of memfd_create(2).
pub(crate) fn anonymous_file(name: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends with NUL.
    new(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) })
}

/// Device and inode of a file.
pub(crate) type FileIdentity = (u64, u64);

/// # Errors
/// Fails with EBADF if the number is no descriptor.
pub(crate) fn identity(descriptor: RawFd) -> Result<FileIdentity, Errno> {
    let mut status: libc::stat = zeroed();
    // SAFETY: the kernel writes a local structure; it refuses a number that is no descriptor.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        return Err(Errno(errno()));
    }
    Ok((status.st_dev, status.st_ino))
}

/// Reports whether reading never waits.
pub(crate) fn is_nonblocking(descriptor: BorrowedFd<'_>) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
}

/// Borrows a descriptor that the program gives for a call.
///
/// # Errors
/// Fails with EBADF for a negative number.
pub(crate) fn given<'a>(descriptor: RawFd) -> Result<BorrowedFd<'a>, Errno> {
    if descriptor < 0 {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: it is not -1. The program keeps it open until the call returns; the system calls that get it
    // refuse a number that is no descriptor.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

/// Takes ownership of a descriptor that the program gives away.
///
/// # Safety
/// The descriptor must be open, and the program must not use it any more.
pub(crate) unsafe fn given_away(descriptor: RawFd) -> OwnedFd {
    // SAFETY: it is open and its user gives it up, as the caller promises.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// The file of the process, once there is one.
pub(crate) type WrittenPath = PerProcess<Mutex<Option<PathBuf>>>;

/// Opens the file of this process for a pattern; `close` closes the file that an earlier device of this
/// process has open.
///
/// The file replaces an older one. While another process writes to it, this one takes a file beside it, with
/// the process number in the name. A process that opens its device again continues its file. Only this user
/// may read it.
pub(crate) fn open_process_file(
    pattern: &Path,
    written: &WrittenPath,
    close: impl FnOnce(),
) -> io::Result<(File, PathBuf)> {
    open_process_file_by(pattern, written, close, open_private)
}

/// Opens the file as [`open_process_file`] does; `open` opens a file for writing, or makes it, and does not
/// truncate it.
pub(crate) fn open_process_file_by(
    pattern: &Path,
    written: &WrittenPath,
    close: impl FnOnce(),
    open: impl Fn(&Path) -> io::Result<File>,
) -> io::Result<(File, PathBuf)> {
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    let own = current_pid();
    if let Some(path) = &*written {
        close();
        let mut file = open(path)?;
        // The file belongs to this process: another process that has the lock got it between two devices of
        // this one and has taken the file.
        if file.try_lock().is_ok() {
            if file.metadata()?.is_file() {
                file.seek(SeekFrom::End(0))?;
            }
            return Ok((file, path.clone()));
        }
    }
    let mut path = expand(pattern, own);
    let mut file = open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            path = with_process_number(&path, own);
            file = open(&path)?;
        }
        // The file system has no locks.
        Err(TryLockError::Error(_)) => {}
    }
    // Pipes and devices (such as /dev/null) cannot be truncated.
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    *written = Some(path.clone());
    Ok((file, path))
}

/// Returns the pattern with the process number for each `%p`.
pub(crate) fn expand(pattern: &Path, process: u32) -> PathBuf {
    use std::ffi::OsStr;
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let number = process.to_string();
    let mut bytes = Vec::new();
    let mut rest: &[u8] = OsStr::as_bytes(pattern.as_os_str());
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"%p") {
            bytes.extend_from_slice(number.as_bytes());
            rest = after;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// Adds the process number: "trace.pcapng" becomes "trace.17.pcapng".
fn with_process_number(path: &Path, process: u32) -> PathBuf {
    match path.extension() {
        Some(extension) => path.with_extension(format!("{process}.{}", extension.to_string_lossy())),
        None => path.with_extension(process.to_string()),
    }
}

pub(crate) mod reserve;
pub(crate) mod system_call;

pub(crate) mod threads;
pub(crate) mod wall_clock;

#[cfg(not(test))]
pub(crate) mod thread_destructors;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_process_have_numbers_of_their_own() {
        let here = own_thread();
        assert_eq!(own_thread(), here);
        assert_eq!(current_pid(), std::process::id());
        let (there, process) = std::thread::spawn(|| (own_thread(), current_pid())).join().unwrap();
        assert_ne!(there, here);
        assert_eq!(process, current_pid());
        assert!(is_alive(here) && !is_alive(ThreadNumber::MAX));
    }

    #[test]
    fn a_child_knows_that_it_is_another() {
        let (parent, thread) = (current_pid(), own_thread());
        // SAFETY: the child only reads its numbers and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let other =
                current_pid() != parent && own_thread() != thread && current_pid() == std::process::id();
            // SAFETY: this ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(if other { 0 } else { 1 }) };
        }
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: the process is a child of this one, and the pointer is to a live variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn names_hold_the_process() {
        assert_eq!(expand(Path::new("/a/%p/x-%p.pcapng"), 17), Path::new("/a/17/x-17.pcapng"));
        assert_eq!(expand(Path::new("%"), 17), Path::new("%"));
        assert_eq!(
            with_process_number(Path::new("/a.b/trace.pcapng"), 17),
            Path::new("/a.b/trace.17.pcapng")
        );
        assert_eq!(with_process_number(Path::new("trace"), 17), Path::new("trace.17"));
    }
}
