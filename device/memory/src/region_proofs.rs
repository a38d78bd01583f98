//! Proofs about the checks of a registration.

use pumice_transport::proofs::check;
use pumice_transport::types::Access;

use super::{PAGE_BYTES, RegionTable, wraps};

/// Checks that a range wraps if, and only if, its last byte is beyond the last address.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_range_wraps_if_its_last_byte_is_beyond_the_last_address() {
    check(|from| {
        let (first, length) = (from.u64(), from.u64());
        let last = u128::from(first) + u128::from(length.max(1)) - 1;
        assert_eq!(wraps(first, length), last > u128::from(u64::MAX));
    });
}

/// Checks that a range that does not wrap can be registered, unless it has no page or is everything.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(4))]
#[cfg_attr(not(kani), test)]
fn a_range_that_does_not_wrap_can_be_registered() {
    check(|from| {
        let length = from.up_to(u64::MAX - 1);
        let most = u64::MAX - length.saturating_sub(1);
        let (address, iova) = (from.up_to(most), from.up_to(most));
        if length == 0 && address % PAGE_BYTES == 0 {
            return;
        }
        assert!(RegionTable::check_range(address, length, iova, Access::all() - Access::ON_DEMAND).is_ok());
    });
}

/// Checks that the rights of a region let a peer change nothing that the owner may not, and that optional
/// ones do no harm.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_peer_may_change_only_what_the_owner_may() {
    check(|from| {
        // Bits without a meaning are left to tests: the sentence about them has a number in it.
        let bits = from.u32() & (Access::all().bits() | Access::OPTIONAL_RANGE);
        let checked = RegionTable::check_access(Access::from_bits_retain(bits));
        let remote = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let asked = Access::from_bits_truncate(bits);
        assert_eq!(checked.is_ok(), !asked.intersects(remote) || asked.contains(Access::LOCAL_WRITE));
        assert!(checked.is_err() || checked == Ok(asked));
    });
}
