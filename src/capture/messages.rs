//! Rebuilds the messages of a queue pair from its packets: the first and the last one, and the
//! acknowledgement.

use std::collections::HashMap;

use pumice_device::trace::{Message, RequestEnd, Setback, SetbackKind};
use pumice_transport::types::{SendOpcode, WR_OPCODES, WcStatus};
use pumice_transport::wire::{HeaderSet, NakCode, OpcodeInfo, Operation, Position, Syndrome, rnr_timer_ns};

use super::plan::Sighting;

/// Length of the operand of an atomic, in bytes.
const ATOMIC_BYTES: u32 = 8;
/// Mask of the 24 bits of a PSN.
const PSN_MASK: u32 = 0x00ff_ffff;
/// Value of the attribute `rnr_retry` for unlimited retries.
const RETRIES_FOR_EVER: u8 = 7;
/// Maximum number of setbacks that a message stores.
const MAX_SETBACKS: usize = 64;

/// The messages that are being rebuilt.
#[derive(Debug, Default)]
pub(super) struct MessageTracker {
    all: Vec<Message>,
    /// Number of transmissions of each PSN.
    sent: HashMap<u32, u32>,
    /// Messages before this index are over.
    over: usize,
    /// Time at which the last packet was sent, in ns.
    sent_ns: u64,
}

impl MessageTracker {
    /// Adds a request packet that was sent; returns its message, and the number of its transmission.
    pub(super) fn sent(&mut self, at_ns: u64, one: &Sighting) -> (u64, u32) {
        self.sent_ns = at_ns;
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
        if !one.info.service.is_reliable() {
            // Without acknowledgements, a message is over when it has been sent.
            message.end = end(at_ns, WcStatus::Success);
        }
        (message.number, transmission)
    }

    fn begin(&mut self, at_ns: u64, one: &Sighting) {
        let number = self.all.len() as u64;
        let bytes = match one.info.operation {
            Operation::ReadRequest => one.memory.map_or(0, |(_, length)| length),
            _ if one.info.headers.contains(HeaderSet::ATOMIC_ETH) => ATOMIC_BYTES,
            _ => 0,
        };
        self.all.push(Message {
            number,
            wr_id: number,
            opcode: opcode(one.info) as u8,
            bytes,
            psn: one.psn,
            packets: 1,
            posted_ns: at_ns,
            first_packet_ns: Some(at_ns),
            ..Message::default()
        });
    }

    /// Adds an answer that arrived.
    pub(super) fn answered(&mut self, at_ns: u64, one: &Sighting) {
        let Some((syndrome, _)) = one.answer else { return };
        let ends_message = matches!(one.info.position, Position::Last | Position::Only);
        if matches!(Syndrome::from_byte(syndrome), Syndrome::Ack { .. }) && ends_message {
            self.acknowledge(at_ns, one.psn);
        }
        let status = match Syndrome::from_byte(syndrome) {
            Syndrome::Nak(NakCode::InvalidRequest) => WcStatus::RemInvReqErr,
            Syndrome::Nak(NakCode::RemoteAccess) => WcStatus::RemAccessErr,
            Syndrome::Nak(NakCode::RemoteOperation) => WcStatus::RemOpErr,
            Syndrome::Nak(NakCode::Sequence) => {
                return self.set_back(at_ns, one.psn, SetbackKind::SequenceNak);
            }
            Syndrome::RnrNak { timer_code } => {
                let wait_ns = rnr_timer_ns(timer_code);
                // A capture does not show how many retries are left.
                let kind = SetbackKind::ReceiverNotReady { wait_ns, retries_left: RETRIES_FOR_EVER };
                return self.set_back(at_ns, one.psn, kind);
            }
            _ => return,
        };
        if let Some(message) = self.of_psn(one.psn).filter(|message| message.end.is_none()) {
            message.end = end(at_ns, status);
        }
    }

    /// Adds a setback to the message with this PSN and those behind it.
    fn set_back(&mut self, at_ns: u64, psn: u32, kind: SetbackKind) {
        let silent_since_ns = self.sent_ns;
        for message in self.all.iter_mut().skip(self.over).take(MAX_SEARCHED_MESSAGES) {
            let own = ahead(message.psn, psn) < message.packets;
            let is_behind = ahead(psn, message.psn) < 1 << 23;
            if (own || is_behind) && message.setbacks.len() < MAX_SETBACKS {
                message.setbacks.push(Setback { at_ns, kind, is_own: own, silent_since_ns });
            }
        }
    }

    /// Ends all messages up to this PSN.
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

    /// Returns the latest message that begins at this PSN or before it.
    fn of_psn(&mut self, psn: u32) -> Option<&mut Message> {
        self.all
            .iter_mut()
            .rev()
            .take(MAX_SEARCHED_MESSAGES)
            .find(|message| ahead(message.psn, psn) < 1 << 23)
    }

    pub(super) fn finish(self) -> Vec<Message> {
        self.all
    }
}

/// Maximum number of messages that are searched for the one that a packet belongs to.
const MAX_SEARCHED_MESSAGES: usize = 256;

/// Returns the distance from one PSN to another.
const fn ahead(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & PSN_MASK
}

fn end(at_ns: u64, status: WcStatus) -> Option<RequestEnd> {
    Some(RequestEnd { at_ns, status: status as u8, cq: 0, has_completion: false })
}

/// Returns the operation of the work request that sends such a packet.
fn opcode(info: &OpcodeInfo) -> SendOpcode {
    let made = WR_OPCODES.iter().find(|row| row.packets.at(info.position) == Some(info.operation));
    made.map_or(SendOpcode::Send, |row| row.opcode)
}
