//! Messages of a queue pair, from its packets: the first and the last one, and the acknowledgement.

use std::collections::HashMap;

use pumice_device::trace::{End, Message};
use pumice_transport::types::{SendOpcode, WcStatus};
use pumice_transport::wire::{Operation, Position, Service};

use super::plan::Sighting;

/// What an atomic exchanges.
const ATOMIC_BYTES: u32 = 8;
/// Low bits of a PSN.
const PSN_MASK: u32 = 0x00ff_ffff;
/// Bits of a syndrome that say what it is: 0 an ACK, 3 a NAK.
const KIND: u8 = 0x60;
const NAK: u8 = 0x60;

/// Messages that are being put together.
#[derive(Debug, Default)]
pub(super) struct Messages {
    all: Vec<Message>,
    /// How often each PSN was sent.
    sent: HashMap<u32, u32>,
    /// Messages before this place are over.
    over: usize,
}

impl Messages {
    /// A request was sent: the message it belongs to, and which transmission it is.
    pub(super) fn sent(&mut self, at_ns: u64, one: &Sighting) -> (u64, u32) {
        let times = self.sent.entry(one.psn).or_default();
        *times = times.saturating_add(1);
        let transmission = *times;
        let begins = matches!(one.info.position, Position::First | Position::Only);
        if transmission == 1 && (begins || self.all.is_empty()) {
            self.begin(at_ns, one);
        }
        let Some(message) = self.of_psn(one.psn) else { return (0, transmission) };
        if transmission == 1 {
            message.packets = message.packets.max(ahead(message.psn, one.psn).saturating_add(1));
            message.bytes = message.bytes.saturating_add(one.payload_bytes as u32);
        }
        message.last_packet_ns = Some(at_ns);
        message.packets_sent = message.packets_sent.saturating_add(1);
        message.transmissions = message.transmissions.max(transmission);
        if one.info.service != Service::Rc && one.info.service != Service::Xrc {
            // Without acknowledgements a message is over when it has left.
            message.end = end(at_ns, WcStatus::Success);
        }
        (message.number, transmission)
    }

    fn begin(&mut self, at_ns: u64, one: &Sighting) {
        let number = self.all.len() as u64;
        let bytes = match one.info.operation {
            Operation::ReadRequest => one.memory.map_or(0, |(_, length)| length),
            Operation::CompareSwap | Operation::FetchAdd => ATOMIC_BYTES,
            _ => 0,
        };
        self.all.push(Message {
            number,
            wr_id: number,
            opcode: opcode(one.info.operation) as u8,
            bytes,
            psn: one.psn,
            packets: 1,
            posted_ns: at_ns,
            first_packet_ns: Some(at_ns),
            ..Message::default()
        });
    }

    /// An answer came.
    pub(super) fn answered(&mut self, at_ns: u64, one: &Sighting) {
        let Some((syndrome, _)) = one.answer else { return };
        let whole = matches!(one.info.position, Position::Last | Position::Only);
        if syndrome & KIND == 0 && whole {
            self.acknowledge(at_ns, one.psn);
        }
        // A sequence NAK acknowledges what is before it; the others end the message.
        let status = match (syndrome & KIND, syndrome & !KIND) {
            (NAK, 1) => WcStatus::RemInvReqErr,
            (NAK, 2) => WcStatus::RemAccessErr,
            (NAK, 3) => WcStatus::RemOpErr,
            _ => return,
        };
        if let Some(message) = self.of_psn(one.psn).filter(|message| message.end.is_none()) {
            message.end = end(at_ns, status);
        }
    }

    /// All messages up to this PSN are over.
    fn acknowledge(&mut self, at_ns: u64, psn: u32) {
        while let Some(message) = self.all.get_mut(self.over) {
            let last = message.psn.wrapping_add(message.packets.max(1) - 1) & PSN_MASK;
            if ahead(last, psn) >= 1 << 23 {
                return;
            }
            message.acknowledged_ns.get_or_insert(at_ns);
            message.end = message.end.or(end(at_ns, WcStatus::Success));
            self.over += 1;
        }
    }

    /// The latest message that begins at this PSN or before it.
    fn of_psn(&mut self, psn: u32) -> Option<&mut Message> {
        self.all.iter_mut().rev().take(LOOKED_AT).find(|message| ahead(message.psn, psn) < 1 << 23)
    }

    pub(super) fn finish(self) -> Vec<Message> {
        self.all
    }
}

/// Messages that are looked at for the one that a packet belongs to.
const LOOKED_AT: usize = 4096;

/// PSNs from one to another.
const fn ahead(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & PSN_MASK
}

fn end(at_ns: u64, status: WcStatus) -> Option<End> {
    Some(End { at_ns, status: status as u8, cq: 0, has_completion: false })
}

/// The operation of the work request that makes such a packet.
const fn opcode(operation: Operation) -> SendOpcode {
    match operation {
        Operation::WriteFirst | Operation::WriteMiddle | Operation::WriteLast | Operation::WriteOnly => {
            SendOpcode::RdmaWrite
        }
        Operation::WriteLastImm | Operation::WriteOnlyImm => SendOpcode::RdmaWriteWithImm,
        Operation::SendLastImm | Operation::SendOnlyImm => SendOpcode::SendWithImm,
        Operation::SendLastInvalidate | Operation::SendOnlyInvalidate => SendOpcode::SendWithInvalidate,
        Operation::ReadRequest => SendOpcode::RdmaRead,
        Operation::CompareSwap => SendOpcode::CompareSwap,
        Operation::FetchAdd => SendOpcode::FetchAdd,
        Operation::Flush => SendOpcode::Flush,
        Operation::AtomicWrite => SendOpcode::AtomicWrite,
        _ => SendOpcode::Send,
    }
}
