//! Which packets of a shared port are for this process.

use pumice_transport::wire::{ProcessIndex, peek};

use crate::port::Received;

/// The process indices whose packets are for this process to look at: its own and those that it adopted.
#[derive(Debug)]
pub(super) struct Local([bool; 256]);

impl Local {
    pub(super) fn new(process: u8) -> Local {
        let mut local = Local([false; 256]);
        local.set(process, true);
        local
    }

    pub(super) fn set(&mut self, process: u8, here: bool) {
        if let Some(place) = self.0.get_mut(usize::from(process)) {
            *place = here;
        }
    }

    pub(super) fn contains(&self, process: u8) -> bool {
        self.0.get(usize::from(process)).is_some_and(|&here| here)
    }

    /// Whether a packet with this top byte of its queue pair number is for this process to look at: of such a
    /// process, queue pair 1's, or a multicast packet's.
    pub(super) fn is_local(&self, byte: u8) -> bool {
        byte == 0 || byte == u8::MAX || self.contains(byte)
    }
}

/// Whether all packets of a batch are for this process to look at.
pub(super) fn is_only_for(received: &Received<'_>, local: &Local) -> bool {
    received.segments().filter_map(peek::process).all(|process| local.is_local(process.value()))
}

/// Whether a packet is an XRC request for an SRQ of this process: another one, which gets the packets of
/// the target, forwards it to the process that has the SRQ.
pub(super) fn names_srq_of(packet: &[u8], process: u8) -> bool {
    peek::srqn(packet).is_some_and(|srqn| ProcessIndex::of_srqn(srqn).value() == process)
}
