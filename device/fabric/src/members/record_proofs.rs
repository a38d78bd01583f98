//! Proofs about the record by which processes find each other.

use std::net::{Ipv4Addr, Ipv6Addr};

use pumice_transport::proofs::{Values, check, check_all};

use super::*;

fn address(from: &mut Values) -> IpAddr {
    match from.bool() {
        true => Ipv4Addr::from_bits(from.u32()).into(),
        false => Ipv6Addr::from_bits(u128::from(from.u64()) << 64 | u128::from(from.u64())).into(),
    }
}

/// Checks that a member index and its pair of bank and process index convert into each other, and that other
/// numbers are rejected.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_member_index_is_a_bank_and_a_process() {
    check_all(|from| {
        let number = from.u16();
        let index = MemberIndex::of_number(number);
        let [process, bank] = number.to_le_bytes();
        assert_eq!(index.is_some(), usize::from(bank) < BANKS && ProcessIndex::new(process).is_of_process());
        let Some(index) = index else { return };
        assert_eq!((index.number(), index.bank(), index.process().value()), (number, bank, process));
        assert_eq!(MemberIndex::new(index.bank(), index.process()), Some(index));
    });
}

/// Checks that an address and its bytes convert into each other, and that no other family is accepted.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(18))]
#[cfg_attr(not(kani), test)]
fn an_address_survives_the_record() {
    check(|from| {
        let address = address(from);
        let (family, bytes) = address_bytes(address);
        assert_eq!(address_from(family, &bytes), Some(address));
        let any = from.u8();
        assert_eq!(address_from(any, &from.bytes()).is_some(), any == 4 || any == 6);
    });
}

/// Checks that a member that was written is read again.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(50))]
#[cfg_attr(not(kani), test)]
fn a_member_survives_the_record() {
    check(|from| {
        let process = ProcessIndex::new(from.between(1, 254) as u8);
        let Some(index) = MemberIndex::new(from.up_to(BANKS as u64 - 1) as u8, process) else { return };
        let one = Member {
            index,
            pid: from.u32(),
            pid_namespace: from.u32(),
            start_ticks: from.u64(),
            address: address(from),
            inode: from.u64(),
        };
        assert_eq!(member(&member_bytes(&one)), Some(one));
    });
}

/// Checks that no bytes make the reader of members panic, and that what it reads is the same after being
/// written and read again.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(50))]
#[cfg_attr(not(kani), test)]
fn any_bytes_are_a_possible_member_or_none() {
    check(|from| {
        let mut bytes: [u8; MEMBER_BYTES] = from.bytes();
        if from.bool() {
            (bytes[1], bytes[2]) = (from.one_of(&[4, 6]), bytes[2] & 0x0f);
        }
        let found = member(&bytes);
        let [process, family, bank, ..] = bytes;
        let has_index = ProcessIndex::new(process).is_of_process() && usize::from(bank) < BANKS;
        assert_eq!(found.is_some(), has_index && matches!(family, 4 | 6));
        if let Some(found) = found {
            assert_eq!(member(&member_bytes(&found)), Some(found));
        }
    });
}

/// Checks that the generation is read from the first bytes of a record of this version, and of no other.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(18))]
#[cfg_attr(not(kani), test)]
fn the_generation_is_in_the_first_bytes() {
    check(|from| {
        let mut begin = [0; BEGIN_BYTES];
        let (number, index) = (from.u64(), from.up_to(7) as usize);
        begin[..8].copy_from_slice(&MAGIC);
        begin[8..].copy_from_slice(&number.to_le_bytes());
        assert_eq!(generation(&begin), Some(number));
        begin[index] = from.u8();
        assert_eq!(generation(&begin).is_some(), begin[index] == MAGIC[index]);
    });
}
