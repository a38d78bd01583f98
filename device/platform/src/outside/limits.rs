//! The operating system's limits of locked memory.

use rustix::process::{Resource, getrlimit};

/// Returns the length of a page in bytes. The C library knows it; rustix would read the auxiliary vector of
/// the kernel, whose vDSO is not mapped where the program runs under valgrind.
pub fn page_bytes() -> u64 {
    // SAFETY: the call has no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

/// Returns how many bytes the process may lock (RLIMIT_MEMLOCK); `None`: there is no limit.
pub fn lockable_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}
