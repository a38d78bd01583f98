//! Messages of a queue pair, from its packets: the first and the last one, and the acknowledgement.

use std::collections::HashMap;

use pumice_device::trace::{Message, RequestEnd, Setback, SetbackKind};
use pumice_transport::types::{SendOpcode, WcStatus};
use pumice_transport::wire::{NakCode, Operation, Position, Syndrome, rnr_timer_ns};

use super::plan::Sighting;

/// What an atomic exchanges.
const ATOMIC_BYTES: u32 = 8;
/// Low bits of a PSN.
const PSN_MASK: u32 = 0x00ff_ffff;
/// Of RNR NAKs: the attribute for any number.
const RETRIES_FOR_EVER: u8 = 7;
/// Setbacks that a message keeps.
const MAX_SETBACKS: usize = 64;

/// Messages that are being put together.
#[derive(Debug, Default)]
pub(super) struct Messages {
    all: Vec<Message>,
    /// How often each PSN was sent.
    sent: HashMap<u32, u32>,
    /// Messages before this index are over.
    over: usize,
    /// When the last packet was sent.
    sent_ns: u64,
}

impl Messages {
    /// A request was sent: the message it belongs to, and which transmission it is.
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
        if matches!(Syndrome::from_byte(syndrome), Syndrome::Ack { .. }) && whole {
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
                // A capture does not tell how many retries are left.
                let kind = SetbackKind::ReceiverNotReady { wait_ns, retries_left: RETRIES_FOR_EVER };
                return self.set_back(at_ns, one.psn, kind);
            }
            _ => return,
        };
        if let Some(message) = self.of_psn(one.psn).filter(|message| message.end.is_none()) {
            message.end = end(at_ns, status);
        }
    }

    /// Tells the message with this PSN, and those behind it, what keeps them from going on.
    fn set_back(&mut self, at_ns: u64, psn: u32, kind: SetbackKind) {
        let silent_since_ns = self.sent_ns;
        for message in self.all.iter_mut().skip(self.over).take(LOOKED_AT) {
            let own = ahead(message.psn, psn) < message.packets;
            let is_behind = ahead(psn, message.psn) < 1 << 23;
            if (own || is_behind) && message.setbacks.len() < MAX_SETBACKS {
                message.setbacks.push(Setback { at_ns, kind, is_own: own, silent_since_ns });
            }
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
const LOOKED_AT: usize = 256;

/// PSNs from one to another.
const fn ahead(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & PSN_MASK
}

fn end(at_ns: u64, status: WcStatus) -> Option<RequestEnd> {
    Some(RequestEnd { at_ns, status: status as u8, cq: 0, has_completion: false })
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
