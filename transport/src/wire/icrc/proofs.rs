//! Proofs about the window from which the IPv4 identification is recovered.

use super::window::{IcrcVerdict, WINDOW_TO_UDP_PAYLOAD, divide_by_x, inverse_power, multiply, recover};
use crate::proofs::{Values, check, check_all};

/// The polynomials 1, x and x^32.
const ONE: u32 = 0x8000_0000;
const X: u32 = ONE >> 1;
const X_32: u32 = power(4);

/// Computes x^(8 · bytes) by squaring.
const fn power(mut bytes: usize) -> u32 {
    let mut product = ONE;
    let mut square = ONE >> 8;
    while bytes > 0 {
        if bytes % 2 == 1 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        bytes /= 2;
    }
    product
}

/// The window bytes of an ACK, of a datagram for queue pair 1 and of a full packet, with the power of each.
const WINDOWS: [(usize, u32); 3] = [with_power(20), with_power(280), with_power(4112)];

const fn with_power(packet_bytes: usize) -> (usize, u32) {
    let bytes = packet_bytes + WINDOW_TO_UDP_PAYLOAD;
    (bytes, power(bytes))
}

/// Division by x and multiplication by x are inverse, and 1 is the neutral element.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(34))]
#[cfg_attr(not(kani), test)]
fn division_of_polynomials_undoes_multiplication() {
    check(|from| {
        let polynomial = from.u32();
        assert_eq!(multiply(divide_by_x(polynomial), X), polynomial);
        assert_eq!(divide_by_x(multiply(polynomial, X)), polynomial);
        assert_eq!((multiply(polynomial, ONE), multiply(ONE, polynomial)), (polynomial, polynomial));
    });
}

/// The table's entries are each the one before divided by x^32; every length that a packet can have has an
/// entry.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(34))]
#[cfg_attr(not(kani), test)]
fn the_table_of_inverse_powers_is_right() {
    check_all(|from| {
        let bytes = usize::from(from.u16());
        let entry = inverse_power(bytes);
        assert_eq!(entry.is_some(), bytes % 4 == 0 && bytes <= 9216 + WINDOW_TO_UDP_PAYLOAD);
        if let (Some(entry), Some(next)) = (entry, inverse_power(bytes + 4)) {
            assert_eq!(multiply(next, X_32), entry);
        }
        if bytes == 0 {
            assert_eq!(entry, Some(ONE));
        }
    });
}

fn window(from: &mut Values) -> (usize, u32) {
    from.one_of(&WINDOWS)
}

/// A difference caused by an identification leads to that identification; a difference of 0 needs no
/// recovery.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(34))]
#[cfg_attr(not(kani), test)]
fn the_identification_of_the_sender_is_found() {
    check(|from| {
        let ((bytes, power), assumed, sent) = (window(from), from.u16(), from.u16());
        let difference = multiply(u32::from((assumed ^ sent).swap_bytes()), power);
        let verdict = if sent == 0 { IcrcVerdict::Exact } else { IcrcVerdict::Recovered { ip_id: sent } };
        assert_eq!(recover(true, assumed, difference, bytes), verdict);
        assert_eq!(recover(false, assumed, difference, bytes), IcrcVerdict::Bad);
    });
}

/// A difference outside of the identification is not explained by any identification.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(34))]
#[cfg_attr(not(kani), test)]
fn damage_elsewhere_is_not_taken_for_an_identification() {
    check(|from| {
        let ((bytes, power), assumed) = (window(from), from.u16());
        let damage = from.between(1, 0xffff) as u32;
        let difference = multiply(damage << 16 | u32::from(from.u16()), power);
        assert_eq!(recover(true, assumed, difference, bytes), IcrcVerdict::Bad);
    });
}
