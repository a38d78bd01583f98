//! Receive side scaling: the frames of a queue pair are spread over others by a hash of their addresses, so
//! that the frames of one connection stay together.

use pumice_transport::wire::{FrameFields, Qpn};

/// Length of a key of the Toeplitz hash, in bytes.
pub const RSS_KEY_BYTES: usize = 40;

/// The distribution of a queue pair's frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RssTable {
    /// Queue pairs that get the frames, as many as a power of two.
    pub table: Vec<Qpn>,
    /// Key of the Toeplitz hash.
    pub key: [u8; RSS_KEY_BYTES],
    /// Fields that are hashed (`IBV_RX_HASH_*`), of bits 0 to 7: source and destination of IPv4, of IPv6,
    /// source and destination port of TCP, of UDP.
    pub fields: u64,
}

impl RssTable {
    /// Returns the queue pair that gets a frame. A frame without the fields goes to the first.
    pub fn rss_queue_pair(&self, frame: &FrameFields) -> Option<Qpn> {
        let last = self.table.len().checked_sub(1)?;
        self.table.get(self.hash(frame) as usize & last).copied()
    }

    /// Computes the Toeplitz hash: for each bit of the fields that is set, 32 bits of the key from there on.
    fn hash(&self, frame: &FrameFields) -> u32 {
        let mut hash = 0;
        let mut bit_offset = 0;
        self.for_each_byte(frame, |byte| {
            for bit in (0..8).rev() {
                if byte >> bit & 1 != 0 {
                    hash ^= self.key_at(bit_offset);
                }
                bit_offset += 1;
            }
        });
        hash
    }

    /// Returns 32 bits of the key from a bit on.
    fn key_at(&self, bit: usize) -> u32 {
        let from = bit / 8;
        let five = (from..from + 5).map(|at| self.key.get(at).copied().unwrap_or_default());
        let window = five.fold(0_u64, |all, byte| all << 8 | u64::from(byte));
        (window >> (8 - bit % 8)) as u32
    }

    /// Passes each byte of the fields that are hashed to `take`, sources first.
    fn for_each_byte(&self, frame: &FrameFields, mut take: impl FnMut(u8)) {
        let has = |bit: u32| self.fields >> bit & 1 != 0;
        let mut part = |wanted: bool, bytes: Option<&[u8]>| {
            if wanted {
                bytes.into_iter().flatten().for_each(|byte| take(*byte));
            }
        };
        let (v4, v6) = (frame.ipv4.as_ref(), frame.ipv6.as_ref());
        part(has(0), v4.and_then(|fields| fields.get(..4)));
        part(has(1), v4.and_then(|fields| fields.get(4..8)));
        part(has(2), v6.and_then(|fields| fields.get(..16)));
        part(has(3), v6.and_then(|fields| fields.get(16..32)));
        for (ports, bit) in [(&frame.tcp, 4), (&frame.udp, 6)] {
            part(has(bit), ports.as_ref().and_then(|ports| ports.get(2..)));
            part(has(bit + 1), ports.as_ref().and_then(|ports| ports.get(..2)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key with which makers of adapters verify their hashes.
    const KEY: [u8; RSS_KEY_BYTES] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn spread(fields: u64) -> RssTable {
        RssTable { table: (0x20..0x28).map(Qpn::new).collect(), key: KEY, fields }
    }

    #[test]
    fn the_hash_is_that_of_adapters() {
        // 66.9.149.187:2794 to 161.142.100.80:1766.
        let ipv4 = Some([66, 9, 149, 187, 161, 142, 100, 80, 6, 0, 64, 0]);
        let [s1, s0] = 2794_u16.to_be_bytes();
        let [d1, d0] = 1766_u16.to_be_bytes();
        let frame = FrameFields { ipv4, tcp: Some([d1, d0, s1, s0]), ..FrameFields::default() };
        assert_eq!(spread(0b11).hash(&frame), 0x323e_8fc2);
        assert_eq!(spread(0b11_0011).hash(&frame), 0x51cc_c178);
        assert_eq!(spread(0b11_0011).rss_queue_pair(&frame), Some(Qpn::new(0x20)));
        assert_eq!(spread(0b11).rss_queue_pair(&frame), Some(Qpn::new(0x22)));
    }

    #[test]
    fn what_has_no_fields_goes_to_the_first() {
        assert_eq!(spread(0xff).rss_queue_pair(&FrameFields::default()), Some(Qpn::new(0x20)));
        let none = RssTable { table: Vec::new(), ..spread(0xff) };
        assert_eq!(none.rss_queue_pair(&FrameFields::default()), None);
    }
}
