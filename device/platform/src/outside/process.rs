//! The numbers and the users of this process.

use rustix::process;

use super::host_system::outside;

/// Returns the number of this process.
#[inline]
pub fn number() -> u32 {
    outside().process()
}

/// Returns the number by which the kernel knows this process, for calls about its own memory: this answer
/// cannot be replaced.
pub fn kernel_number() -> libc::pid_t {
    process::Pid::as_raw(Some(process::getpid()))
}

/// Returns the number of the process that started this one.
pub fn parent() -> u32 {
    std::os::unix::process::parent_id()
}

/// Returns the user who owns the files and sockets that this process creates.
pub fn effective_user() -> u32 {
    process::geteuid().as_raw()
}

/// The users and groups of a process, by which the kernel decides what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credentials {
    users: [u32; 2],
    groups: [u32; 2],
}

/// Returns the present credentials of this process.
pub fn credentials() -> Credentials {
    Credentials {
        users: [process::getuid().as_raw(), process::geteuid().as_raw()],
        groups: [process::getgid().as_raw(), process::getegid().as_raw()],
    }
}

/// Returns the user that the kernel names as the sender of this process's datagrams.
pub fn real_user() -> u32 {
    process::getuid().as_raw()
}
