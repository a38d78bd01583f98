//! Which packets of a shared port are for this process.

use super::steering::SLOT_OFFSET;
use crate::port::Received;

/// The top bits of XRC opcodes.
const XRC_OPCODES: u8 = 0xa0;
/// Where the top byte of the SRQ number is in an XRC request.
const SRQ_SLOT_OFFSET: usize = 13;

/// The slots whose packets are for this process to look at: its own and those that it adopted.
#[derive(Debug)]
pub(super) struct Local([bool; 256]);

impl Local {
    pub(super) fn new(slot: u8) -> Local {
        let mut local = Local([false; 256]);
        local.set(slot, true);
        local
    }

    pub(super) fn set(&mut self, slot: u8, here: bool) {
        if let Some(place) = self.0.get_mut(usize::from(slot)) {
            *place = here;
        }
    }

    pub(super) fn contains(&self, slot: u8) -> bool {
        self.0.get(usize::from(slot)).is_some_and(|&here| here)
    }

    /// Whether a packet with this top byte of its queue pair number is for this process to look at: of such a
    /// slot, queue pair 1's, or a multicast packet's.
    pub(super) fn is_local(&self, byte: u8) -> bool {
        byte == 0 || byte == u8::MAX || self.contains(byte)
    }
}

/// Whether all packets of a batch are for this process to look at.
pub(super) fn is_only_for(received: &Received<'_>, local: &Local) -> bool {
    let step = received.segment_bytes.max(1);
    received.bytes.iter().skip(SLOT_OFFSET).step_by(step).all(|&byte| local.is_local(byte))
}

/// Whether a packet is an XRC request for an SRQ of this process: another one, which gets the packets of
/// the target, hands it on to who has the SRQ.
pub(super) fn names_srq_of(packet: &[u8], slot: u8) -> bool {
    let is_xrc = packet.first().is_some_and(|opcode| opcode & 0xe0 == XRC_OPCODES);
    is_xrc && packet.get(SRQ_SLOT_OFFSET) == Some(&slot)
}
