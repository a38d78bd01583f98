//! Member indices: a process index, and a bank that tells members with equal process indices apart.
//!
//! A packet names its receiver by the address that it goes to and by a process index. So members with
//! different addresses may have equal process indices, and differ in their banks. Files, locks and names that
//! all members share are ordered by member index. Bank 0 is as large as a registry without banks, and the
//! numbers of its members are their process indices.

use std::fmt;

use pumice_transport::wire::ProcessIndex;

/// Number of banks of a registry. With the 254 process indices of each, 4064 members.
pub(crate) const BANKS: usize = 16;
/// Number of member indices in a bank: one for each top byte of a queue pair number.
pub(crate) const NUMBERS_OF_BANK: usize = 256;

/// The index of a member of a registry: its process index and its bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(u16);

impl MemberIndex {
    /// Returns the member with this process index in this bank; `None` if no member may have it.
    pub(crate) const fn new(bank: u8, process: ProcessIndex) -> Option<MemberIndex> {
        if (bank as usize) < BANKS && process.is_of_process() {
            Some(MemberIndex((bank as u16) << 8 | process.value() as u16))
        } else {
            None
        }
    }

    /// Returns the member with this number; `None` if no member may have it.
    pub fn of_number(number: u16) -> Option<MemberIndex> {
        let [process, bank] = number.to_le_bytes();
        MemberIndex::new(bank, ProcessIndex::new(process))
    }

    /// Returns the member indices with this process index, bank by bank.
    pub(crate) fn all_of(process: ProcessIndex) -> impl Iterator<Item = MemberIndex> {
        (0..BANKS as u8).filter_map(move |bank| MemberIndex::new(bank, process))
    }

    /// Returns all member indices that members may have, in order.
    pub(crate) fn all() -> impl Iterator<Item = MemberIndex> {
        let bank = |bank| ProcessIndex::all().filter_map(move |process| MemberIndex::new(bank, process));
        (0..BANKS as u8).flat_map(bank)
    }

    /// Returns the top byte of the member's queue pair numbers.
    #[inline]
    pub const fn process(self) -> ProcessIndex {
        ProcessIndex::new(self.0 as u8)
    }

    /// Returns the member's bank.
    #[inline]
    pub(crate) const fn bank(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// Returns the member's number, below 4096: no other living member of the registry has it. In bank 0 it
    /// is the process index.
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
