//! The limit of memory that a program may pin.

use pumice_platform::quantity::size;
use serde::{Deserialize, Serialize};

/// The limit on the pages of all registered memory of a process. Adapters pin these pages, and the kernel
/// counts them against RLIMIT_MEMLOCK (drivers/infiniband/core/umem.c, `ib_umem_get`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemlockLimit {
    /// The RLIMIT_MEMLOCK of the process, as `ulimit -l` shows it.
    Ulimit,
    /// A limit of this many bytes.
    Bytes(u64),
}

impl MemlockLimit {
    /// Parses `ulimit`, or a number of bytes.
    ///
    /// # Errors
    /// The value is neither.
    pub fn parse(value: &str) -> Result<MemlockLimit, &'static str> {
        if value == "ulimit" {
            return Ok(MemlockLimit::Ulimit);
        }
        size(value).map(MemlockLimit::Bytes).ok_or("it is ulimit, or a number of bytes as in 64KiB or 8MiB")
    }
}
