//! Path MTU: the largest payload of one packet.

/// The five InfiniBand path MTUs; discriminants are the verbs enumeration (1…5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// All MTUs, ascending.
    pub const ALL: [Mtu; 5] = [Mtu::Mtu256, Mtu::Mtu512, Mtu::Mtu1024, Mtu::Mtu2048, Mtu::Mtu4096];

    /// Header bytes that a path MTU leaves room for below the link MTU: 40 IPv6, 8 UDP, 12 BTH, 16 RETH and 4
    /// ICRC, as rdma_rxe computes it.
    pub const LINK_OVERHEAD_BYTES: u32 = 80;

    /// Returns the payload bytes of a full packet: 256, 512, 1024, 2048 or 4096.
    pub const fn bytes(self) -> usize {
        128 << (self as u8)
    }

    /// Returns the MTU with this verbs number (1…5).
    pub const fn from_verbs(number: u32) -> Option<Mtu> {
        match number {
            1 => Some(Mtu::Mtu256),
            2 => Some(Mtu::Mtu512),
            3 => Some(Mtu::Mtu1024),
            4 => Some(Mtu::Mtu2048),
            5 => Some(Mtu::Mtu4096),
            _ => None,
        }
    }

    /// Returns the MTU with this many payload bytes.
    pub fn from_bytes(bytes: usize) -> Option<Mtu> {
        Mtu::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// Returns the largest path MTU that fits a link MTU in bytes; `None` below 336.
    pub fn largest_for_link(link_mtu_bytes: u32) -> Option<Mtu> {
        //= linux:rxe.c#rxe_set_mtu
        //| The active MTU is the largest one that leaves room for the headers of a packet.
        let room = link_mtu_bytes.checked_sub(Mtu::LINK_OVERHEAD_BYTES)? as usize;
        Mtu::ALL.into_iter().rev().find(|mtu| mtu.bytes() <= room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_mtu_thresholds_are_those_of_rxe() {
        let expected = [
            (335, None),
            (336, Some(Mtu::Mtu256)),
            (592, Some(Mtu::Mtu512)),
            (1104, Some(Mtu::Mtu1024)),
            (1500, Some(Mtu::Mtu1024)),
            (2128, Some(Mtu::Mtu2048)),
            (4175, Some(Mtu::Mtu2048)),
            (4176, Some(Mtu::Mtu4096)),
            (65536, Some(Mtu::Mtu4096)),
        ];
        for (link, mtu) in expected {
            assert_eq!(Mtu::largest_for_link(link), mtu, "link MTU {link}");
        }
    }

    #[test]
    fn verbs_numbers_and_bytes_are_inverses() {
        for mtu in Mtu::ALL {
            assert_eq!(Mtu::from_verbs(mtu as u32), Some(mtu));
            assert_eq!(Mtu::from_bytes(mtu.bytes()), Some(mtu));
        }
        assert_eq!(Mtu::from_verbs(0), None);
        assert_eq!(Mtu::from_verbs(6), None);
    }
}
