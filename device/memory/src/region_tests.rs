//! What registration accepts, and what the keys then open.

use pumice_transport::host::{MemoryError, RemoteKey};
use pumice_transport::wire::Qpn;

use super::*;

const REMOTE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// Registers made-up addresses; nothing in these tests touches the memory.
fn register(
    table: &mut RegionTable,
    address: u64,
    length: u64,
    iova: u64,
    access: Access,
) -> Result<RegionKeys, ResourceError> {
    // SAFETY: the range is only located, never accessed.
    unsafe { table.register(7, address, length, iova, access) }
}

fn key(rkey: u32) -> RemoteKey {
    RemoteKey { rkey, pd: 7, qpn: Qpn::new(0x11) }
}

#[test]
fn an_access_must_lie_inside_the_range() {
    let mut table = RegionTable::new(8);
    let keys = register(&mut table, 0x7000, 0x100, 0x5000_0000, REMOTE).unwrap();
    let locate = |address, length| table.locate_remote(key(keys.rkey), address, length, Access::REMOTE_READ);
    assert_eq!(locate(0x5000_0000, 0x100), Ok(0x7000));
    assert_eq!(locate(0x5000_0010, 0xf0), Ok(0x7010));
    assert_eq!(locate(0x5000_0100, 0), Ok(0x7100));
    for (address, length) in [
        (0x5000_0000, 0x101),
        (0x5000_0101, 0),
        (0x4fff_ffff, 1),
        (0x4fff_ffff, 2),
        (0x5000_0001, u64::MAX),
        (0x5000_00ff, u64::MAX - 0x5000_00fe),
        (0, 1),
        (u64::MAX, 1),
    ] {
        assert_eq!(locate(address, length), Err(MemoryError::OutOfRange), "{length} at {address:#x}");
    }
}

#[test]
fn a_region_may_end_at_the_end_of_the_iova_space_but_not_wrap() {
    let mut table = RegionTable::new(8);
    let top = u64::MAX - 0xff;
    let keys = register(&mut table, 0x7000, 0x100, top, REMOTE).unwrap();
    let locate = |address, length| table.locate_local(7, keys.lkey, address, length, true);
    assert_eq!(locate(u64::MAX, 1), Ok(0x70ff));
    assert_eq!(locate(u64::MAX, 2), Err(MemoryError::OutOfRange));
    assert_eq!(locate(0, 1), Err(MemoryError::OutOfRange));
    assert_eq!(register(&mut table, 0x7000, 0x101, top, REMOTE).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(register(&mut table, top, 0x101, 0, REMOTE).unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn registration_checks_flags_and_keeps_optional_ones_harmless() {
    let mut table = RegionTable::new(8);
    for bad in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC, Access::from_bits_retain(0x400)] {
        assert_eq!(register(&mut table, 0x7000, 8, 0, bad).unwrap_err().errno(), libc::EINVAL, "{bad:?}");
    }
    let optional = Access::from_bits_retain(1 << 25) | Access::RELAXED_ORDERING;
    let keys = register(&mut table, 0x7000, 8, 0x7000, optional).unwrap();
    assert_eq!(table.region(keys.handle).unwrap().access, Access::RELAXED_ORDERING);
    register(&mut table, 0, u64::MAX, 0, Access::ON_DEMAND).unwrap();
    assert_eq!(register(&mut table, 0, u64::MAX, 0, Access::empty()).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(register(&mut table, 8, u64::MAX, 0, Access::ON_DEMAND).unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn length_zero_inside_a_page_registers_and_opens_nothing() {
    let mut table = RegionTable::new(8);
    let keys = register(&mut table, 0x7040, 0, 0x7040, REMOTE).unwrap();
    assert_eq!(table.locate_local(7, keys.lkey, 0x7040, 1, false), Err(MemoryError::OutOfRange));
    assert_eq!(table.locate_local(7, keys.lkey, 0x7040, 0, false), Ok(0x7040));
    for (address, access) in [(0x7000, REMOTE), (0, REMOTE), (0x7000, REMOTE | Access::ON_DEMAND)] {
        let refused = register(&mut table, address, 0, 0x7040, access).unwrap_err();
        assert_eq!(refused.errno(), libc::EINVAL, "no page, at {address:#x}");
    }
}

#[test]
fn keys_of_gone_regions_are_refused_while_their_index_is_reused() {
    let mut table = RegionTable::new(1);
    let mut seen = Vec::new();
    for _ in 0..256 {
        let keys = register(&mut table, 0x7000, 8, 0x7000, REMOTE).unwrap();
        assert_ne!(keys.rkey, 0);
        for stale in &seen {
            assert_eq!(
                table.locate_remote(key(*stale), 0x7000, 1, Access::empty()),
                Err(MemoryError::UnknownKey)
            );
        }
        assert!(!seen.contains(&keys.rkey));
        seen.push(keys.rkey);
        table.deregister(keys.handle).unwrap();
    }
    for key in [0, 0xff, 0x100, u32::MAX] {
        assert_eq!(table.locate_local(7, key, 0x7000, 1, false), Err(MemoryError::UnknownKey));
    }
}

#[test]
fn keys_begin_where_the_seed_says_and_every_index_has_one() {
    let first = |seed| {
        let mut table = RegionTable::new(8);
        table.set_first_key(seed);
        let keys: Vec<u32> =
            (0..8).map(|_| register(&mut table, 0x7000, 8, 0x7000, REMOTE).unwrap().rkey).collect();
        for rkey in &keys {
            assert_eq!(table.locate_remote(key(*rkey), 0x7000, 1, Access::empty()), Ok(0x7000));
            assert!(table.locate_remote(key(rkey ^ 1), 0x7000, 1, Access::empty()).is_err());
        }
        keys
    };
    // The seeds of the lowest and the highest first key.
    for seed in [0, (1 << 24) - 9, u64::MAX, 0x1234_5678_9abc_def0] {
        assert_eq!(first(seed), first(seed));
        assert!(first(seed).iter().all(|key| *key > 0xff));
    }
    assert_ne!(first(3)[0] >> 8, first(4)[0] >> 8);
    let low_bytes = |seed| first(seed).iter().map(|key| key & 0xff).collect::<Vec<_>>();
    assert_ne!(low_bytes(3), low_bytes(4));
}

#[test]
fn domain_and_rights_are_checked() {
    let mut table = RegionTable::new(8);
    let keys = register(&mut table, 0x7000, 8, 0x7000, Access::REMOTE_READ).unwrap();
    assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 8, false), Ok(0x7000));
    assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 8, true), Err(MemoryError::AccessDenied));
    assert_eq!(table.locate_local(8, keys.lkey, 0x7000, 8, false), Err(MemoryError::WrongDomain));
    let remote = |pd, access| table.locate_remote(RemoteKey { pd, ..key(keys.rkey) }, 0x7000, 8, access);
    assert_eq!(remote(7, Access::REMOTE_READ), Ok(0x7000));
    assert_eq!(remote(7, Access::REMOTE_WRITE), Err(MemoryError::AccessDenied));
    assert_eq!(remote(8, Access::REMOTE_READ), Err(MemoryError::WrongDomain));
}

#[test]
fn zero_based_regions_count_from_zero() {
    let mut table = RegionTable::new(8);
    let keys = register(&mut table, 0x7000, 8, 0x7000, REMOTE | Access::ZERO_BASED).unwrap();
    assert_eq!(table.locate_local(7, keys.lkey, 4, 4, true), Ok(0x7004));
    assert_eq!(table.locate_local(7, keys.lkey, 0x7000, 4, true), Err(MemoryError::OutOfRange));
}

#[test]
fn rereg_changes_only_what_it_is_asked_to_or_nothing() {
    let mut table = RegionTable::new(8);
    let keys = register(&mut table, 0x7000, 8, 0x7000, REMOTE).unwrap();
    let before = table.region(keys.handle).unwrap();
    let mut rereg = |change| {
        // SAFETY: the range is only located, never accessed.
        let result = unsafe { table.rereg(keys.handle, change) };
        (result, table.region(keys.handle).unwrap())
    };
    let bad = [
        RegionChange { translation: Some((0, 8, 0)), ..RegionChange::default() },
        RegionChange { translation: Some((0x9000, 0, 0x9000)), ..RegionChange::default() },
        RegionChange { translation: Some((u64::MAX, 2, 0)), pd: Some(9), access: None },
        RegionChange { pd: Some(9), access: Some(Access::REMOTE_WRITE), translation: None },
    ];
    for change in bad {
        let (result, now) = rereg(change);
        assert_eq!(result.unwrap_err().errno(), libc::EINVAL);
        assert_eq!(now, before);
    }
    let (result, now) = rereg(RegionChange { pd: Some(9), ..RegionChange::default() });
    assert_eq!((result, now), (Ok(keys), RegionInfo { pd: 9, ..before }));
    let (_, now) = rereg(RegionChange { access: Some(Access::LOCAL_WRITE), ..RegionChange::default() });
    assert_eq!(now, RegionInfo { pd: 9, access: Access::LOCAL_WRITE, ..before });
    let (_, now) = rereg(RegionChange { translation: Some((0x9000, 4, 0xa000)), ..RegionChange::default() });
    assert_eq!((now.address, now.length, now.iova), (0x9000, 4, 0xa000));
    assert_eq!(table.locate_local(9, keys.lkey, 0xa002, 2, true), Ok(0x9002));
}

#[test]
fn keys_that_are_apart_open_the_region_either_way_until_it_ends() {
    let mut table = RegionTable::new(8);
    table.set_first_key(5);
    let together = register(&mut table, 0x7000, 0x100, 0, REMOTE).unwrap();
    assert_eq!(together.lkey, together.rkey);
    table.set_keys_apart(true);
    let apart = register(&mut table, 0x9000, 0x100, 0, REMOTE).unwrap();
    assert_ne!(apart.lkey, apart.rkey);
    for number in [apart.lkey, apart.rkey] {
        assert_eq!(table.locate_remote(key(number), 0, 0x100, Access::REMOTE_READ), Ok(0x9000));
        assert_eq!(table.locate_local(7, number, 0, 0x100, true), Ok(0x9000));
    }
    assert!(
        table.regions().any(|(keys, _)| keys == apart) && table.regions().any(|(keys, _)| keys == together)
    );
    table.deregister(apart.handle).unwrap();
    let mut numbers = vec![apart.lkey, apart.rkey];
    for _ in 0..100 {
        for number in &numbers {
            let located = table.locate_remote(key(*number), 0, 1, Access::REMOTE_READ);
            assert_eq!(located, Err(MemoryError::UnknownKey), "{number:#x}");
        }
        let next = register(&mut table, 0x9000, 0x100, 0, REMOTE).unwrap();
        table.deregister(next.handle).unwrap();
        numbers = vec![next.lkey, next.rkey];
    }
}
