//! The policy by which a copy checks whether registered memory is still mapped.

use super::on_demand;

/// The way in which a copy treats memory that is registered and may be unmapped.
///
/// Programs are known to unmap memory first, and to destroy the queue pair that would receive into it and the
/// registration afterwards (UCX does so with datagrams). Hardware holds the pages; here such a copy is a
/// fault, which the guard of copies ends if the program lets it. A copy by the kernel needs no guard, at the
/// price of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MappingCheck {
    /// The memory is taken to be mapped.
    Assumed,
    /// The kernel copies, and reports what is not mapped. Where the kernel does not let the process do this,
    /// the memory is taken to be mapped. Atomics always take it to be mapped, and are guarded.
    ByKernel,
}

impl MappingCheck {
    /// Reports whether the kernel copies.
    #[inline]
    pub(super) fn asks(self) -> bool {
        self == MappingCheck::ByKernel && on_demand::is_available()
    }
}
