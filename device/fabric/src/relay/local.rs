//! The test which packets of a shared port are for this process.

use pumice_model::port::batch::ReceivedBatch;
use pumice_transport::wire::{ProcessIndex, Qpn, peek};

/// The set of process indices whose packets this process handles: its own and those that it adopted.
#[derive(Debug)]
pub(crate) struct Local([bool; 256]);

impl Local {
    pub(crate) fn new(process: ProcessIndex) -> Local {
        let mut local = Local([false; 256]);
        local.set(process, true);
        local
    }

    pub(crate) fn set(&mut self, process: ProcessIndex, here: bool) {
        if let Some(entry) = self.0.get_mut(usize::from(process)) {
            *entry = here;
        }
    }

    pub(crate) fn contains(&self, process: ProcessIndex) -> bool {
        self.0.get(usize::from(process)).is_some_and(|&here| here)
    }

    /// Reports whether this process handles packets for `process`: an index of the set, none (queue pair 1),
    /// or all (multicast).
    pub(crate) fn is_local(&self, process: ProcessIndex) -> bool {
        process == Qpn::GSI.process() || process == Qpn::MULTICAST.process() || self.contains(process)
    }
}

/// Reports whether this process handles all packets of a batch.
pub(crate) fn is_only_for(received: &ReceivedBatch<'_>, local: &Local) -> bool {
    received.segments().filter_map(peek::process).all(|process| local.is_local(process))
}

/// Reports whether a packet is an XRC request for an SRQ of this process. Another process, which gets the
/// packets of the target, forwards it to the process that has the SRQ.
pub(crate) fn names_srq_of(packet: &[u8], process: ProcessIndex) -> bool {
    peek::srqn(packet).is_some_and(|srqn| ProcessIndex::of_srqn(srqn) == process)
}
