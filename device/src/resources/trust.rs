//! How far registered memory is taken to be there.
//!
//! Programs are known to unmap memory first, and to destroy the queue pair that would receive into it and the
//! registration afterwards (UCX does so with datagrams). Hardware holds the pages; here a plain copy would kill
//! the process. Where that can happen, copies ask the kernel, at the price of a system call each.

use pumice_transport::host::QpContext;

use super::Resources;

/// Which memory is taken to be there although nobody can know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// All but the receives of datagrams, unless they complete on this queue: a thread of the program polls it, so
    /// it wants them.
    Polled(u32),
    /// All but the receives of datagrams: whoever drives does not know what the program is about.
    Connections,
    /// None: something is about to be destroyed.
    Nothing,
}

impl Resources {
    pub(crate) fn set_trust(&mut self, trust: Trust) {
        self.trust = trust;
        self.memory.set_wary(trust == Trust::Nothing);
    }

    /// Whether the memory of datagrams that this queue pair receives may be taken to be there.
    pub(crate) fn trusts_receives_of(&self, qp: &QpContext) -> bool {
        self.trust == Trust::Polled(qp.recv_cq)
    }

    /// The next copies ask, or trust as far as there is trust.
    pub(crate) fn set_wary(&mut self, wary: bool) {
        self.memory.set_wary(wary || self.trust == Trust::Nothing);
    }
}
