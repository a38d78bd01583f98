//! What the operating system says about memory that is locked.

use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    page_size() as u64
}

/// Bytes that the process may lock (RLIMIT_MEMLOCK); `None`: as many as it likes.
pub fn lockable_bytes() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}
