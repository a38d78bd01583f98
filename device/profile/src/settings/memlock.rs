//! How much memory a program may pin.

use pumice_ground::quantity::size;
use serde::{Deserialize, Serialize};

/// The limit on the pages of all registered memory of a process. Adapters pin these pages, and the kernel
/// counts them against RLIMIT_MEMLOCK (drivers/infiniband/core/umem.c, `ib_umem_get`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memlock {
    /// RLIMIT_MEMLOCK of the process, as `ulimit -l` shows it.
    Ulimit,
    /// This many bytes.
    Bytes(u64),
}

impl Memlock {
    /// `ulimit`, or a number of bytes.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(value: &str) -> Result<Memlock, &'static str> {
        if value == "ulimit" {
            return Ok(Memlock::Ulimit);
        }
        size(value).map(Memlock::Bytes).ok_or("it is ulimit, or a number of bytes as in 64KiB or 8MiB")
    }
}
