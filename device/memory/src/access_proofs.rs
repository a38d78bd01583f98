//! Proofs about the bytes of scatter/gather lists.

use pumice_transport::host::MemoryError;
use pumice_transport::proofs::{Values, check};
use pumice_transport::types::Sge;

use super::{inside, walk};

/// Number of elements of a list.
const ELEMENTS: usize = 3;

fn sge(from: &mut Values) -> Sge {
    Sge { address: from.u64(), length: from.u32(), lkey: from.u32() }
}

/// Checks that a part of a buffer has an address if, and only if, it ends no later than the buffer and the
/// addresses.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_part_of_a_buffer_ends_with_it() {
    check(|from| {
        let sge = sge(from);
        let offset = if from.bool() { from.up_to(sge.length.into()) } else { from.u64() };
        let length = if from.bool() { from.u32().into() } else { from.u64() };
        let is_inside = u128::from(offset) + u128::from(length) <= u128::from(sge.length);
        let address = sge.address.checked_add(offset).filter(|_| is_inside);
        assert_eq!(inside(&sge, offset, length), address.ok_or(MemoryError::OutOfRange));
    });
}

/// Checks that a walk visits the bytes that are asked for, once and in order, or fails because the buffers
/// are short.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(5))]
#[cfg_attr(not(kani), test)]
fn a_walk_visits_each_byte_once_and_in_order() {
    check(|from| {
        let mut sges = [sge(from), sge(from), sge(from)];
        for (index, sge) in sges.iter_mut().enumerate() {
            // The key says which element it is.
            sge.lkey = index as u32;
            if from.bool() {
                sge.length &= 0xf;
            }
        }
        let whole: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        let begin = if from.bool() { from.up_to(whole) } else { from.u64() };
        let length = if from.bool() { from.up_to(whole) } else { from.u64() };
        let before = |element: u32| -> u64 {
            sges.iter().filter(|sge| sge.lkey < element).map(|sge| u64::from(sge.length)).sum()
        };
        let (mut visited, mut parts) = (0, 0);
        let outcome = walk(&sges, begin, length, |sge, start, bytes| {
            assert!(bytes > 0 && start + bytes <= u64::from(sge.length));
            assert_eq!(before(sge.lkey) + start, begin + visited);
            visited += bytes;
            parts += 1;
            Ok(())
        });
        let fits = u128::from(begin) + u128::from(length) <= u128::from(whole);
        assert_eq!(outcome.is_ok(), fits || length == 0);
        assert_eq!(visited == length, outcome.is_ok());
        assert!(parts <= ELEMENTS);
    });
}

/// Checks that a walk ends with the first part that fails, and with its error.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(5))]
#[cfg_attr(not(kani), test)]
fn a_walk_ends_with_the_first_part_that_fails() {
    check(|from| {
        let sges = [sge(from), sge(from), sge(from)];
        let whole: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
        let good = from.up_to(ELEMENTS as u64);
        let mut parts = 0;
        let outcome = walk(&sges, 0, whole, |_, _, _| {
            parts += 1;
            if parts > good { Err(MemoryError::AccessDenied) } else { Ok(()) }
        });
        let count = sges.iter().filter(|sge| sge.length > 0).count() as u64;
        assert_eq!(parts, count.min(good + 1));
        assert_eq!(outcome, if count > good { Err(MemoryError::AccessDenied) } else { Ok(()) });
    });
}
