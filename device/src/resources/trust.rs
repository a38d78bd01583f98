//! How far registered memory is taken to be there.
//!
//! Programs are known to unmap memory first, and to destroy the queue pair that would receive into it and the
//! registration afterwards (UCX does so with datagrams). Hardware holds the pages; here a plain copy would
//! kill the process. Where that can happen, copies ask the kernel, at the price of a system call each.

/// Which memory is taken to be there although this process cannot know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// All but the receives of datagrams, unless they complete on this queue: a thread of the program polls
    /// it, so it wants them.
    Polled(u32),
    /// All but the receives of datagrams: the thread that drives does not know what the program is about.
    Connections,
    /// None: something is about to be destroyed.
    Nothing,
}
