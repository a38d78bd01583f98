//! Messages between processes about a ring.

use pumice_transport::wire::ProcessIndex;

use crate::members::member_index::MemberIndex;
use crate::ring::Geometry;

/// Length of each message, in bytes.
pub(super) const MESSAGE_BYTES: usize = 32;

/// Number of the message that invites to a ring of the present layout. Processes with rings of another layout
/// used other numbers: those they do not know stay without an answer, and batches go by UDP.
const INVITE: u8 = 4;

/// The reason why a process does not accept a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingRefusal {
    /// The process uses UDP only, because its user chose that.
    UdpOnly = 1,
    /// The process cannot map the memory, or the memory may be shortened.
    Memory = 2,
    /// The process found an invalid value in the ring.
    Broken = 3,
    /// The process has too many rings.
    TooMany = 4,
    /// The process could not open the descriptors that rings need.
    Unable = 5,
}

impl RingRefusal {
    fn of(number: u64) -> Option<RingRefusal> {
        let all = [
            RingRefusal::UdpOnly,
            RingRefusal::Memory,
            RingRefusal::Broken,
            RingRefusal::TooMany,
            RingRefusal::Unable,
        ];
        all.into_iter().find(|refusal| *refusal as u64 == number)
    }
}

/// A message about a ring. `number` is that of the ring among the inviter's rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingMessage {
    /// The process offers a ring of this size to send through; the memory comes with the message.
    Invite { from: MemberIndex, number: u64, geometry: Geometry },
    /// The process has accepted the ring; its bell comes with the message. `incarnation` is its number in the
    /// backlog table.
    Accept { from: MemberIndex, number: u64, incarnation: u64 },
    /// The process does not have the ring, or does not have it any more.
    Refuse { from: MemberIndex, number: u64, refusal: RingRefusal },
}

impl RingMessage {
    /// Encodes the message: kind, process index and bank, number, and two more numbers; little-endian.
    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let (kind, from, number, a, b) = match *self {
            RingMessage::Invite { from, number, geometry } => {
                (INVITE, from, number, geometry.slots().into(), geometry.data_bytes().into())
            }
            RingMessage::Accept { from, number, incarnation } => (2, from, number, incarnation, 0),
            RingMessage::Refuse { from, number, refusal } => (3, from, number, refusal as u64, 0),
        };
        let first = u64::from_le_bytes([kind, from.process().value(), from.bank(), 0, 0, 0, 0, 0]);
        let mut bytes = [0; MESSAGE_BYTES];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip([first, number, a, b]) {
            *to = u64::to_le_bytes(word);
        }
        bytes
    }

    /// Decodes a message.
    pub(super) fn decode(bytes: &[u8]) -> Option<RingMessage> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let [[kind, from, bank, 0, 0, 0, 0, 0], number, a, b] = bytes.as_chunks::<8>().0 else { return None };
        let [number, a, b] = [number, a, b].map(|word| u64::from_le_bytes(*word));
        let from = MemberIndex::new(*bank, ProcessIndex::new(*from))?;
        match (*kind, b) {
            (INVITE, _) => {
                let geometry = Geometry::new(u32::try_from(a).ok()?, u32::try_from(b).ok()?)?;
                Some(RingMessage::Invite { from, number, geometry })
            }
            (2, 0) => Some(RingMessage::Accept { from, number, incarnation: a }),
            (3, 0) => Some(RingMessage::Refuse { from, number, refusal: RingRefusal::of(a)? }),
            _ => None,
        }
    }
}

/// Reports whether bytes are a message, and whether it is the same when it is encoded again.
pub(crate) fn is_message(bytes: &[u8]) -> Option<bool> {
    RingMessage::decode(bytes).map(|message| message.encode() == *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bytes_and_back() {
        let from = MemberIndex::of_number(0x307).unwrap();
        let geometry = Geometry::new(64, 4096).unwrap();
        let all = [
            RingMessage::Invite { from, number: 1 << 40, geometry },
            RingMessage::Accept { from, number: 9, incarnation: u64::MAX },
            RingMessage::Refuse { from, number: 2, refusal: RingRefusal::Broken },
        ];
        for message in all {
            let bytes = message.encode();
            assert_eq!(RingMessage::decode(&bytes), Some(message));
            assert_eq!(RingMessage::decode(&bytes[1..]), None);
        }
        let good = all[0].encode();
        // Kind, process index, bank, unused, geometry.
        for (offset, value) in [(0, 9), (1, 0), (1, 255), (2, 16), (3, 1), (16, 65), (19, 1), (24, 1)] {
            let mut bad = good;
            bad[offset] = value;
            assert_eq!(RingMessage::decode(&bad), None, "{value} at {offset}");
        }
        let mut refusal = all[2].encode();
        refusal[16] = 99;
        assert_eq!(RingMessage::decode(&refusal), None);
    }
}
