//! Whether a copy looks first if registered memory is still mapped.

use super::on_demand;

/// How a copy treats memory that is registered and may be unmapped.
///
/// Programs are known to unmap memory first, and to destroy the queue pair that would receive into it and the
/// registration afterwards (UCX does so with datagrams). Hardware holds the pages; here a plain copy would
/// kill the process. A copy that asks the kernel reports such memory instead, at the price of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingCheck {
    /// The memory is taken to be mapped.
    Assumed,
    /// The kernel copies, and reports what is not mapped. Where the kernel does not let the process do this,
    /// the memory is taken to be mapped. Atomics always take it to be mapped.
    Asked,
}

impl MappingCheck {
    /// Whether the kernel copies.
    #[inline]
    pub(super) fn asks(self) -> bool {
        self == MappingCheck::Asked && on_demand::is_available()
    }
}
