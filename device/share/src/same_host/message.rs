//! What processes say to each other about a ring.

use pumice_transport::wire::ProcessIndex;

use crate::member_index::MemberIndex;
use crate::ring::Geometry;

/// Bytes of each message.
pub(super) const MESSAGE_BYTES: usize = 32;

/// Why a process takes no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It uses UDP only, because its user says so.
    UdpOnly = 1,
    /// It cannot map the memory, or the memory may be shortened.
    Memory = 2,
    /// It found in the ring what cannot be true.
    Broken = 3,
    /// It has too many rings.
    TooMany = 4,
    /// It could not open what rings need.
    Unable = 5,
}

impl Refusal {
    fn of(number: u64) -> Option<Refusal> {
        let all = [Refusal::UdpOnly, Refusal::Memory, Refusal::Broken, Refusal::TooMany, Refusal::Unable];
        all.into_iter().find(|refusal| *refusal as u64 == number)
    }
}

/// A message. `number`: which of the inviter's rings it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// The process wants to send through a ring of this size; the memory comes with the message.
    Invite { from: MemberIndex, number: u64, geometry: Geometry },
    /// The process has the ring now; its bell comes with the message. `incarnation` is what stands in the
    /// table for it.
    Accept { from: MemberIndex, number: u64, incarnation: u64 },
    /// The process does not have the ring, or has it no more.
    Refuse { from: MemberIndex, number: u64, refusal: Refusal },
}

impl Message {
    /// As bytes: kind, process index and bank, number, and two more numbers; little-endian.
    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let (kind, from, number, a, b) = match *self {
            Message::Invite { from, number, geometry } => {
                (1_u8, from, number, geometry.slots().into(), geometry.data_bytes().into())
            }
            Message::Accept { from, number, incarnation } => (2, from, number, incarnation, 0),
            Message::Refuse { from, number, refusal } => (3, from, number, refusal as u64, 0),
        };
        let first = u64::from_le_bytes([kind, from.process().value(), from.bank(), 0, 0, 0, 0, 0]);
        let mut bytes = [0; MESSAGE_BYTES];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip([first, number, a, b]) {
            *to = u64::to_le_bytes(word);
        }
        bytes
    }

    /// The message in these bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let [[kind, from, bank, 0, 0, 0, 0, 0], number, a, b] = bytes.as_chunks::<8>().0 else { return None };
        let [number, a, b] = [number, a, b].map(|word| u64::from_le_bytes(*word));
        let from = MemberIndex::new(*bank, ProcessIndex::new(*from))?;
        match (kind, b) {
            (1, _) => {
                let geometry = Geometry::new(u32::try_from(a).ok()?, u32::try_from(b).ok()?)?;
                Some(Message::Invite { from, number, geometry })
            }
            (2, 0) => Some(Message::Accept { from, number, incarnation: a }),
            (3, 0) => Some(Message::Refuse { from, number, refusal: Refusal::of(a)? }),
            _ => None,
        }
    }
}

/// Whether bytes are a message, which is then the same when it is written again.
pub(crate) fn is_message(bytes: &[u8]) -> Option<bool> {
    Message::decode(bytes).map(|message| message.encode() == *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bytes_and_back() {
        let from = MemberIndex::of_number(0x307).unwrap();
        let geometry = Geometry::new(64, 4096).unwrap();
        let all = [
            Message::Invite { from, number: 1 << 40, geometry },
            Message::Accept { from, number: 9, incarnation: u64::MAX },
            Message::Refuse { from, number: 2, refusal: Refusal::Broken },
        ];
        for message in all {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert_eq!(Message::decode(&bytes[1..]), None);
        }
        let good = all[0].encode();
        // Kind, process index, bank, nothing, geometry.
        for (offset, value) in [(0, 9), (1, 0), (1, 255), (2, 16), (3, 1), (16, 65), (19, 1), (24, 1)] {
            let mut bad = good;
            bad[offset] = value;
            assert_eq!(Message::decode(&bad), None, "{value} at {offset}");
        }
        let mut refusal = all[2].encode();
        refusal[16] = 99;
        assert_eq!(Message::decode(&refusal), None);
    }
}
