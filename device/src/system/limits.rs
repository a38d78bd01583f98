//! What the operating system says about memory that is locked.

use rustix::process::{Resource, getrlimit};

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1)
}

/// Bytes that the process may lock (RLIMIT_MEMLOCK); `None`: as many as it likes.
pub fn lockable_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}
