//! Proofs about fates of packets and path MTUs.

use super::{Fate, Flips, Mtu};
use crate::proofs::{Values, check, check_all};
use crate::wire::Syndrome;

fn fate(from: &mut Values) -> Fate {
    let flips = Flips { count: from.between(1, 9) as u16, first: from.u64(), sealed: from.bool() };
    Fate {
        lost: from.bool(),
        marked: from.bool(),
        copies: from.u8(),
        behind_packets: from.u16(),
        behind_ns: from.u64(),
        delay_ns: from.u64(),
        flips: from.bool().then_some(flips),
        kept_bytes: from.bool().then_some(from.u16()),
        dscp: from.bool().then_some(from.u8()),
        path_mark: from.bool().then_some(from.u8()),
        refused: from.bool().then_some(Syndrome::from_byte(from.u8())),
        notified: from.bool(),
        halted: from.bool(),
        note: from.u32(),
        rejected: from.bool().then_some(from.u16()),
        unanswered: from.bool(),
    }
}

/// Joining a fate with the empty fate on either side leaves it as it is.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn an_ordinary_fate_changes_nothing() {
    check(|from| {
        let fate = fate(from);
        assert_eq!(fate.and(Fate::default()), fate);
        assert_eq!(Fate::default().and(fate), fate);
        assert_eq!(fate.is_ordinary(), fate == Fate::default());
    });
}

/// Joining three fates gives the same result for either order of joining.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn fates_are_joined_in_any_grouping() {
    check(|from| {
        let (first, second, third) = (fate(from), fate(from), fate(from));
        assert_eq!(first.and(second).and(third), first.and(second.and(third)));
    });
}

/// A packet with two fates arrives if, and only if, it arrives with each of them.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_packet_arrives_if_each_of_its_fates_lets_it() {
    check(|from| {
        let (one, other) = (fate(from), fate(from));
        assert_eq!(one.and(other).arrives(), one.arrives() && other.arrives());
        assert_eq!(one.of_packet().arrives(), one.arrives());
        assert!(!one.and(Fate::LOST).arrives());
    });
}

/// Two fates joined are no milder than either: no delay becomes shorter, and later packets stay in front.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn two_fates_are_no_milder_than_one() {
    check(|from| {
        let (one, other) = (fate(from), fate(from));
        let both = one.and(other);
        assert!(both.delay_ns >= one.delay_ns.max(other.delay_ns));
        assert!(both.copies >= one.copies.max(other.copies));
        assert!(both.behind_packets >= one.behind_packets && both.behind_packets >= other.behind_packets);
        assert!(both.behind_ns >= one.behind_ns && both.behind_ns >= other.behind_ns);
        let keeps_no_more = |fate: Fate| fate.kept_bytes.is_none_or(|most| both.kept_bytes <= Some(most));
        assert!(keeps_no_more(one) && keeps_no_more(other));
        assert_eq!(both.kept_bytes.is_some(), one.kept_bytes.is_some() || other.kept_bytes.is_some());
        assert_eq!(
            (both.note == 0, both.marked),
            (one.note == 0 && other.note == 0, one.marked || other.marked)
        );
    });
}

/// The numbers and the bytes of the path MTUs are inverses, and no other number belongs to a path MTU.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(7))]
#[cfg_attr(not(kani), test)]
fn path_mtus_have_numbers_and_bytes() {
    check(|from| {
        let number = if from.bool() { from.up_to(8) as u32 } else { from.u32() };
        let mtu = Mtu::from_verbs(number);
        assert_eq!(mtu.is_some(), (1..=5).contains(&number));
        assert!(mtu.is_none_or(|mtu| mtu as u32 == number && Mtu::from_bytes(mtu.bytes()) == Some(mtu)));
        let bytes = from.u16().into();
        assert!(Mtu::from_bytes(bytes).is_none_or(|mtu| mtu.bytes() == bytes));
    });
}

/// The path MTU of a link leaves room for the headers, and the next larger one would not.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(7))]
#[cfg_attr(not(kani), test)]
fn the_path_mtu_of_a_link_is_the_largest_that_fits() {
    check_all(|from| {
        let link = u32::from(from.u16());
        let found = Mtu::largest_for_link(link);
        let fits = |mtu: Mtu| mtu.bytes() as u32 + Mtu::LINK_OVERHEAD_BYTES <= link;
        for mtu in Mtu::ALL {
            assert_eq!(fits(mtu), found.is_some_and(|largest| mtu <= largest));
        }
    });
}
