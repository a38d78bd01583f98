//! Which packets of a shared port are for this process.

use pumice_ports::Received;
use pumice_transport::wire::{ProcessIndex, Qpn, peek};

/// The process indices whose packets are for this process to look at: its own and those that it adopted.
#[derive(Debug)]
pub(super) struct Local([bool; 256]);

impl Local {
    pub(super) fn new(process: ProcessIndex) -> Local {
        let mut local = Local([false; 256]);
        local.set(process, true);
        local
    }

    pub(super) fn set(&mut self, process: ProcessIndex, here: bool) {
        if let Some(entry) = self.0.get_mut(usize::from(process)) {
            *entry = here;
        }
    }

    pub(super) fn contains(&self, process: ProcessIndex) -> bool {
        self.0.get(usize::from(process)).is_some_and(|&here| here)
    }

    /// Whether this process looks at packets for `process`: one of those, none (queue pair 1), or all
    /// (multicast).
    pub(super) fn is_local(&self, process: ProcessIndex) -> bool {
        process == Qpn::GSI.process() || process == Qpn::MULTICAST.process() || self.contains(process)
    }
}

/// Whether all packets of a batch are for this process to look at.
pub(super) fn is_only_for(received: &Received<'_>, local: &Local) -> bool {
    received.segments().filter_map(peek::process).all(|process| local.is_local(process))
}

/// Whether a packet is an XRC request for an SRQ of this process: another one, which gets the packets of
/// the target, forwards it to the process that has the SRQ.
pub(super) fn names_srq_of(packet: &[u8], process: ProcessIndex) -> bool {
    peek::srqn(packet).is_some_and(|srqn| ProcessIndex::of_srqn(srqn) == process)
}
