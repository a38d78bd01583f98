//! Proofs about the window: each packet is new once, and the bitmaps show which packets have arrived.

use alloc::collections::BTreeSet;

use super::receive::{Placement, ReceiveWindow};
use crate::mrc::constants::MPR_UNIT;
use crate::proofs::{check, check_all};
use crate::wire::Psn;

/// Checks the placement of each PSN of the number circle in an empty window by its distance.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_psn_lies_where_its_distance_says() {
    check(|from| {
        let (first, units) = (Psn::new(from.u24()), from.between(1, 255) as u8);
        let distance = from.u24();
        let placement = ReceiveWindow::new(first, units).place(first.plus(distance));
        let width = u32::from(units) * MPR_UNIT;
        let expected = match distance {
            near if near < width => Placement::New(u64::from(near)),
            0x80_0000 => Placement::TooOld,
            ahead if ahead < 0x80_0000 => Placement::Beyond,
            _ => Placement::DuplicateBelow,
        };
        assert_eq!(placement, expected);
    });
}

/// Checks that all orders of arrival of the first packets lead to the same state, at each alignment of the
/// ring and across the wrap of PSNs. The bitmap agrees with a set, and no packet is new twice.
#[cfg_attr(not(kani), test)]
fn packets_in_any_order_are_new_once() {
    check_all(|from| {
        let (skipped, mut left) = (from.up_to(130), [0_u64, 1, 2, 3, 4].to_vec());
        let first = Psn::new(0xff_ff80);
        let mut window = ReceiveWindow::new(first, 1);
        for number in 0..skipped {
            window.insert(number);
            assert_eq!(window.advance(), Some(number));
        }
        let mut arrived = BTreeSet::new();
        while !left.is_empty() {
            let number = skipped + left.remove(from.up_to(left.len() as u64 - 1) as usize);
            let psn = first.plus(number as u32);
            assert_eq!(window.place(psn), Placement::New(number));
            window.insert(number);
            arrived.insert(number);
            let above =
                if number >= window.expected() { Placement::DuplicateAbove } else { Placement::New(0) };
            assert_eq!(window.place(psn), above);
            while let Some(next) = window.advance() {
                assert!(arrived.remove(&next));
                assert_eq!(window.place(first.plus(next as u32)), Placement::DuplicateBelow);
            }
            let base = window.expected();
            let bits =
                (0..64).filter(|bit| arrived.contains(&(base + bit))).fold(0, |bits, bit| bits | 1 << bit);
            assert_eq!((window.bits_from(base), window.above()), (bits, arrived.len() as u32));
        }
        assert_eq!((window.expected(), window.highest()), (skipped + 5, skipped + 5));
        assert_eq!(window.cack_psn(), first.plus(skipped as u32 + 4));
    });
}

/// Checks for all arriving packets and all widths of the window that the bitmaps agree with a set, and that
/// the end of the window never moves back.
#[cfg_attr(not(kani), test)]
fn a_window_agrees_with_a_set() {
    check(|from| {
        let first = Psn::new(from.u24());
        let mut window = ReceiveWindow::new(first, 4);
        let (mut arrived, mut edge) = (BTreeSet::new(), 512);
        for _ in 0..40 {
            if from.up_to(7) == 0 {
                window.set_units(from.between(0, 6) as u8);
            }
            let number = window.expected() + from.up_to(700) / from.between(1, 40);
            match window.place(first.plus(number as u32)) {
                Placement::New(same) => {
                    assert!(same == number && arrived.insert(number));
                    window.insert(number);
                    edge = edge.max(number + 1);
                }
                Placement::DuplicateAbove => assert!(arrived.contains(&number)),
                placement => assert_eq!((placement, number >= edge), (Placement::Beyond, true)),
            }
            while window.advance().is_some() {}
            edge = edge.max(window.expected() + u64::from(window.width()));
            assert!((0..window.expected()).all(|number| arrived.contains(&number)));
            assert!(!arrived.contains(&window.expected()));
            let base = window.expected() + from.up_to(80);
            let bits =
                (0..64).filter(|bit| arrived.contains(&(base + bit))).fold(0, |bits, bit| bits | 1 << bit);
            assert_eq!(window.bits_from(base), bits);
        }
    });
}
