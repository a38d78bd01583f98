//! Which member of a registry: a process index, and a bank that tells members with equal indices apart.
//!
//! A packet names its receiver by the address that it goes to and by a process index. So members with
//! different addresses may have equal process indices, and differ in their banks. Files, locks and names that
//! all members share are ordered by member index. Bank 0 is as large as a registry without banks, and the
//! numbers of its members are their process indices.

use std::fmt;

use pumice_transport::wire::ProcessIndex;

/// Banks of a registry. With the 254 process indices of each, 4064 members.
pub(super) const BANKS: usize = 16;
/// Numbers of a bank: one for each top byte of a queue pair number.
pub(super) const NUMBERS_OF_BANK: usize = 256;

/// Which member of a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(u16);

impl MemberIndex {
    /// The member with this process index in this bank. `None`: no member may have it.
    pub(super) const fn new(bank: u8, process: ProcessIndex) -> Option<MemberIndex> {
        if (bank as usize) < BANKS && process.is_of_process() {
            Some(MemberIndex((bank as u16) << 8 | process.value() as u16))
        } else {
            None
        }
    }

    /// The member with this number. `None`: no member may have it.
    pub fn of_number(number: u16) -> Option<MemberIndex> {
        let [process, bank] = number.to_le_bytes();
        MemberIndex::new(bank, ProcessIndex::new(process))
    }

    /// Those that members with this process index may have, bank by bank.
    pub(super) fn all_of(process: ProcessIndex) -> impl Iterator<Item = MemberIndex> {
        (0..BANKS as u8).filter_map(move |bank| MemberIndex::new(bank, process))
    }

    /// All that members may have, in order.
    pub(super) fn all() -> impl Iterator<Item = MemberIndex> {
        let bank = |bank| ProcessIndex::all().filter_map(move |process| MemberIndex::new(bank, process));
        (0..BANKS as u8).flat_map(bank)
    }

    /// The top byte of the member's queue pair numbers.
    #[inline]
    pub const fn process(self) -> ProcessIndex {
        ProcessIndex::new(self.0 as u8)
    }

    /// Its bank.
    #[inline]
    pub(super) const fn bank(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Its number, below 4096: no other living member of the registry has it. In bank 0, the process index.
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }
}

impl From<MemberIndex> for usize {
    #[inline]
    fn from(member: MemberIndex) -> usize {
        member.0.into()
    }
}

impl fmt::Display for MemberIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_index_is_a_bank_and_a_process_index() {
        let all: Vec<MemberIndex> = MemberIndex::all().collect();
        assert_eq!((all.len(), all.first().map(|first| first.number())), (BANKS * 254, Some(1)));
        assert!(all.is_sorted());
        for member in all {
            assert_eq!(MemberIndex::of_number(member.number()), Some(member));
            assert_eq!(MemberIndex::new(member.bank(), member.process()), Some(member));
            assert!(MemberIndex::all_of(member.process()).any(|each| each == member));
        }
        for wrong in [0, 255, 0x100, 0x1ff, 0x1001, u16::MAX] {
            assert_eq!(MemberIndex::of_number(wrong), None, "{wrong}");
        }
    }
}
