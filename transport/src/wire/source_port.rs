//! UDP source ports, by which routers spread flows over several paths.
//!
//! A queue pair uses one port while its path is unchanged, because its packets would be reordered otherwise.
//! Ports are 0xc000…0xffff, chosen as the Linux RDMA core chooses them.

use super::Qpn;

/// Lowest computed source port.
pub const FIRST: u16 = 0xc000;

/// Reports whether a port is in the range of computed ports.
pub const fn is_computed(port: u16) -> bool {
    port >= FIRST
}

/// Returns the source port of a connection: computed from its flow label, or from the two queue pair numbers
/// if it has none. Both ends compute the same one, unless they were given different labels.
pub const fn of_connection(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    match flow_label & 0xf_ffff {
        //= linux:ib_verbs.h#rdma_get_udp_sport
        //| Without a flow label the source port follows from the numbers of both queue pairs.
        0 => from_qpns(local, remote),
        label => from_flow_label(label),
    }
}

/// Returns the source port for an IPv6 flow label (or the 20-bit flow label of an address handle).
pub const fn from_flow_label(flow_label: u32) -> u16 {
    //= linux:ib_verbs.h#rdma_flow_label_to_udp_sport
    //| The 20 bits of the flow label are folded to the 14 low bits of the source port.
    let folded = (flow_label & 0x0_3fff) ^ ((flow_label & 0xf_c000) >> 14);
    folded as u16 | FIRST
}

/// Returns the source port for a flow label of zero, mixed from both queue pair numbers.
pub const fn from_qpns(local: Qpn, remote: Qpn) -> u16 {
    //= linux:ib_verbs.h#rdma_calc_flow_label
    //| The flow label of a connection is mixed from the product of its queue pair numbers.
    let mut mixed = local.value() as u64 * remote.value() as u64;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    from_flow_label((mixed & 0xf_ffff) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_labels_fold_to_fourteen_bits() {
        assert_eq!(from_flow_label(0), 0xc000);
        assert_eq!(from_flow_label(0x3fff), 0xffff);
        assert_eq!(from_flow_label(0x4000), 0xc001);
        assert_eq!(from_flow_label(0xf_ffff), 0xc000 | (0x3fff ^ 0x3f));
        assert_eq!(from_flow_label(0xfff0_0000), 0xc000, "only 20 bits count");
    }

    #[test]
    fn a_label_goes_before_the_numbers() {
        let (local, remote) = (Qpn::new(0x11), Qpn::new(0x12));
        assert_eq!(of_connection(0x1_2345, local, remote), from_flow_label(0x1_2345));
        assert_eq!(of_connection(0, local, remote), 0xc132);
        assert_eq!(of_connection(1 << 20, local, remote), 0xc132, "20 bits are a label");
    }

    #[test]
    fn queue_pair_numbers_are_mixed_symmetrically() {
        assert_eq!(from_qpns(Qpn::new(0x11), Qpn::new(0x12)), 0xc132);
        // 0xffffff² = 0xfffffe000001; folded by 20 bits: 0xfffff1ffffe1; by 40: …ff1e; 0x3f1e ^ 0x3f.
        assert_eq!(from_qpns(Qpn::MULTICAST, Qpn::MULTICAST), 0xff21);
        assert_eq!(from_qpns(Qpn::new(77), Qpn::new(1234)), from_qpns(Qpn::new(1234), Qpn::new(77)));
        assert_eq!(from_qpns(Qpn::new(0), Qpn::new(5)), 0xc000);
    }
}
