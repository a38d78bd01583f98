//! Proofs about handles and the table that they name objects of.

use pumice_transport::proofs::{Values, check};

use super::{Handle, Table};

/// The capacity of the table here, and the steps of a proof.
const CAPACITY: u32 = 2;
const STEPS: usize = 5;

fn handle(from: &mut Values) -> Handle {
    Handle { index: from.u32(), generation: from.u32() }
}

/// Proves that packing and unpacking a handle are each other's inverse.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_handle_survives_packing() {
    check(|from| {
        let (handle, packed) = (handle(from), from.u64());
        assert_eq!(Handle::unpack(handle.pack()), handle);
        assert_eq!(Handle::unpack(packed).pack(), packed);
        assert!(handle.generation == 0 || handle.pack() != 0);
    });
}

/// Proves that a handle that no insertion returned names nothing, in an empty table or in one of its entries.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(4))]
#[cfg_attr(not(kani), test)]
fn a_handle_of_chance_names_nothing() {
    check(|from| {
        let mut table = Table::new("test object", CAPACITY);
        let own = table.insert(7_u8);
        assert!(own.is_ok());
        let Ok(own) = own else { return };
        let other = if from.bool() { handle(from) } else { Handle { generation: from.u32(), ..own } };
        assert_eq!(table.get(other).is_some(), other == own);
        assert_eq!(table.remove(other).is_some(), other == own);
        assert_eq!(table.len(), usize::from(other != own));
        assert_eq!(table.at(own.index).is_some(), other != own);
    });
}

/// Proves that after any additions and removals a handle names its object until that is removed, and nothing
/// then.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(7))]
#[cfg_attr(not(kani), test)]
fn a_handle_names_its_object_until_that_is_removed() {
    check(|from| {
        let mut table = Table::new("test object", CAPACITY);
        // Every handle there was, its object, and whether that still exists.
        let mut handles = [None; STEPS];
        let mut count = 0;
        for step in 0..STEPS {
            let chosen = from.up_to(STEPS as u64 - 1) as usize;
            if from.bool() && count < CAPACITY as usize {
                let handle = table.insert(step).ok();
                assert!(handle.is_some_and(|handle| handle.generation != 0 && handle.index < CAPACITY));
                handles[step] = handle.map(|handle| (handle, true));
                count += 1;
            } else if let Some((handle, is_there)) = &mut handles[chosen] {
                assert_eq!(table.remove(*handle), is_there.then_some(chosen));
                count -= usize::from(*is_there);
                *is_there = false;
            }
            for (object, entry) in handles.iter().enumerate() {
                let Some((handle, is_there)) = entry else { continue };
                assert_eq!(table.get(*handle), is_there.then_some(&object));
            }
            assert_eq!((table.len(), table.is_empty()), (count, count == 0));
        }
    });
}
