//! Proofs about the bounds of a grant.

use pumice_transport::host::MemoryError;
use pumice_transport::proofs::{Values, check};
use pumice_transport::types::Access;

use super::{Backing, Grant};

/// Returns a range whose addresses do not wrap, as registration makes sure.
fn grant(from: &mut Values) -> Grant {
    let length = from.u64();
    let most = u64::MAX - length.saturating_sub(1);
    Grant {
        key: 1,
        apart: 0,
        pd: 1,
        address: from.up_to(most),
        iova: from.up_to(most),
        length,
        access: Access::all(),
        backing: Backing::Mapped,
        live: true,
        qpn: None,
        watched: None,
    }
}

/// Checks that an access is located if, and only if, all of its bytes are in the range; each is then at its
/// own address.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn an_access_is_located_if_all_of_it_is_in_the_range() {
    check(|from| {
        let grant = grant(from);
        let address = match from.bool() {
            true => grant.iova.wrapping_add(from.up_to(grant.length)),
            false => from.u64(),
        };
        let length = from.u64();
        let (first, wide) = (u128::from(grant.iova), |number: u64| u128::from(number));
        let is_inside = wide(address) >= first && wide(address) + wide(length) <= first + wide(grant.length);
        // Behind the last byte of a range that ends with the address space is address 0, where nothing is.
        let is_end = length == 0 && address.wrapping_sub(grant.iova) == grant.length;
        let located = grant.locate(address, length);
        assert_eq!(located.is_ok(), is_inside || is_end);
        match located {
            Ok(located) if length > 0 => {
                assert_eq!(wide(located) - wide(grant.address), wide(address) - first);
                assert!(wide(located) + wide(length) <= wide(grant.address) + wide(grant.length));
            }
            Ok(_) => {}
            Err(error) => assert_eq!(error, MemoryError::OutOfRange),
        }
    });
}

/// Checks that a part of a located access is located as well, and as far behind its beginning.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_part_of_an_access_is_inside_the_access() {
    check(|from| {
        let grant = grant(from);
        let (offset, length) = (from.up_to(grant.length), from.u64());
        let address = grant.iova.wrapping_add(offset);
        let Ok(located) = grant.locate(address, length) else { return };
        let skipped = from.up_to(length);
        let part = grant.locate(address.wrapping_add(skipped), from.up_to(length - skipped));
        assert_eq!(part, Ok(located.wrapping_add(skipped)));
    });
}

/// Checks that memory that is paged on demand is not taken for memory that stays, and that rights say which
/// it is.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn memory_on_demand_does_not_stay_mapped() {
    check(|from| {
        let access = Access::from_bits_retain(from.u32());
        let backing = Backing::of(access);
        assert_eq!(backing == Backing::OnDemand, access.contains(Access::ON_DEMAND));
        assert_eq!(backing.stays_mapped(), !access.contains(Access::ON_DEMAND));
    });
}
