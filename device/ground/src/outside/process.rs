//! Which process this is, and whose.

use rustix::process;

use super::answers::outside;

/// The number of this process.
#[inline]
pub fn number() -> u32 {
    outside().process()
}

/// The number by which the kernel knows this process, for calls about its own memory: nothing else answers
/// instead.
pub fn kernel_number() -> libc::pid_t {
    process::Pid::as_raw(Some(process::getpid()))
}

/// The user whose files and sockets this process makes.
pub fn effective_user() -> u32 {
    process::geteuid().as_raw()
}

/// The user that the kernel names as the sender of this process's datagrams.
pub fn real_user() -> u32 {
    process::getuid().as_raw()
}
