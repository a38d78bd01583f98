//! The registry as bytes. Other processes write them, so nothing in them is believed unchecked.

use std::hash::Hasher as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fnv::FnvHasher;
use pumice_transport::wire::ProcessIndex;

use super::member_index::{BANKS, MemberIndex};
use crate::members::member::{Member, Members};

/// Name and version of the format.
const MAGIC: [u8; 8] = *b"pumiceS1";
const HEADER_BYTES: usize = 8 + 8 + 8;
const MEMBER_BYTES: usize = 48;
const SUM_BYTES: usize = 8;

/// Length of the longest record, in bytes: each member index has a member or an adopter.
pub(crate) const MAX_BYTES: usize =
    HEADER_BYTES + BANKS * ProcessIndex::LAST.value() as usize * MEMBER_BYTES + SUM_BYTES;

/// Length of the beginning of a record, which never changes in size: magic and generation.
pub(crate) const BEGIN_BYTES: usize = 8 + 8;

/// Returns the generation in the first bytes of a record; `None` if the record has another version.
pub(crate) fn generation(begin: &[u8; BEGIN_BYTES]) -> Option<u64> {
    let (magic, generation) = begin.split_first_chunk::<8>()?;
    (*magic == MAGIC).then_some(u64::from_le_bytes(*generation.first_chunk()?))
}

/// Encodes the members: a header (magic, generation, next process index, numbers of members and of adopted
/// member indices, whether these have banks), members, adopted member indices with their adopters, checksum;
/// little-endian. Without members in other banks than the first, the result is what older versions read and
/// write.
pub(crate) fn encode(members: &Members) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(members.generation.to_le_bytes());
    let [count, count_high] = (members.iter().count() as u16).to_le_bytes();
    let [adopted, adopted_high] = (members.adopted().len() as u16).to_le_bytes();
    let has_banks = members.adopted().iter().any(|(index, by)| index.bank() != 0 || by.bank() != 0);
    let next_process = members.next_process.value();
    bytes.extend([next_process, count, adopted, count_high, adopted_high, u8::from(has_banks), 0, 0]);
    for member in members.iter() {
        bytes.extend(member_bytes(member));
    }
    for (index, by) in members.adopted() {
        bytes.extend([index, by].map(|each| each.process().value()));
        if has_banks {
            bytes.extend([index, by].map(|each| each.bank()));
        }
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Decodes the members in a record; `None` if it is damaged or of another version.
pub(crate) fn decode(bytes: &[u8]) -> Option<Members> {
    let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    let (magic, rest) = body.split_first_chunk::<8>()?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (&[next_process, count, adopted, count_high, adopted_high, has_banks, ..], rest) =
        rest.split_first_chunk::<8>()?;
    let count = usize::from(u16::from_le_bytes([count, count_high]));
    let adopted = usize::from(u16::from_le_bytes([adopted, adopted_high]));
    let pair_bytes = if has_banks == 0 { 2 } else { 4 };
    let sound = *magic == MAGIC
        && u64::from_le_bytes(*sum) == checksum(body)
        && rest.len() == count * MEMBER_BYTES + adopted * pair_bytes;
    if !sound {
        return None;
    }
    let mut members = Members::new(u64::from_le_bytes(*generation), ProcessIndex::new(next_process));
    let (list, pairs) = rest.split_at_checked(count * MEMBER_BYTES)?;
    let (chunks, _) = list.as_chunks::<MEMBER_BYTES>();
    // The methods that add members refuse invalid and repeated member indices.
    let list: Vec<Member> = chunks.iter().map(member).collect::<Option<_>>()?;
    let sound = members.add_all(list)
        && pairs.chunks_exact(pair_bytes).all(|pair| {
            let index = |process: usize, bank: usize| {
                let bank = if has_banks == 0 { Some(0) } else { pair.get(bank).copied() };
                MemberIndex::new(bank?, ProcessIndex::new(*pair.get(process)?))
            };
            index(0, 2).zip(index(1, 3)).is_some_and(|(index, by)| members.adopt(index, by))
        });
    sound.then_some(members)
}

/// Encodes a member, with zeros behind it.
fn member_bytes(member: &Member) -> [u8; MEMBER_BYTES] {
    let (family, address) = address_bytes(member.address);
    let parts: [&[u8]; 6] = [
        &[member.process().value(), family, member.index.bank(), 0],
        &member.pid.to_le_bytes(),
        &member.start_ticks.to_le_bytes(),
        &member.inode.to_le_bytes(),
        &address,
        &member.pid_namespace.to_le_bytes(),
    ];
    let mut bytes = [0; MEMBER_BYTES];
    for (to, byte) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *byte;
    }
    bytes
}

/// Decodes a member that [`member_bytes`] encoded; `None` if the bytes are not a member.
fn member(bytes: &[u8; MEMBER_BYTES]) -> Option<Member> {
    let (&[process, family, bank, _], rest) = bytes.split_first_chunk::<4>()?;
    let (pid, rest) = rest.split_first_chunk::<4>()?;
    let (start_ticks, rest) = rest.split_first_chunk::<8>()?;
    let (inode, rest) = rest.split_first_chunk::<8>()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let pid_namespace = rest.first_chunk::<4>()?;
    Some(Member {
        index: MemberIndex::new(bank, ProcessIndex::new(process))?,
        pid: u32::from_le_bytes(*pid),
        pid_namespace: u32::from_le_bytes(*pid_namespace),
        start_ticks: u64::from_le_bytes(*start_ticks),
        address: address_from(family, address)?,
        inode: u64::from_le_bytes(*inode),
    })
}

/// Encodes an address as its family, 4 or 6, and 16 bytes.
pub(crate) fn address_bytes(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            (4, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        IpAddr::V6(address) => (6, address.octets()),
    }
}

/// Decodes an address that [`address_bytes`] encoded.
pub(crate) fn address_from(family: u8, bytes: &[u8; 16]) -> Option<IpAddr> {
    match (family, bytes) {
        (4, &[a, b, c, d, ..]) => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        (6, &octets) => Some(IpAddr::V6(Ipv6Addr::from(octets))),
        _ => None,
    }
}

/// Computes the FNV-1a hash, which is the same in every process. It finds a write that was cut short, not a
/// forgery.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(any(test, kani))]
#[path = "record_proofs.rs"]
mod proofs;

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(index: u16) -> MemberIndex {
        MemberIndex::of_number(index).unwrap()
    }

    fn full() -> Members {
        full_of(1)
    }

    fn full_of(banks: u8) -> Members {
        let mut members = Members::new(77, ProcessIndex::new(9));
        for index in MemberIndex::all().filter(|index| index.bank() < banks) {
            let (process, bank) = (index.process().value(), index.bank());
            let v6 = IpAddr::V6(Ipv6Addr::from([process, bank, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]));
            let address = if process % 2 == 0 { IpAddr::from([10, 0, bank, process]) } else { v6 };
            let wide = u64::from(index.number()) << 40;
            let member = Member {
                index,
                pid: 70_000 + u32::from(process),
                pid_namespace: 0xf000_0000,
                start_ticks: wide,
                address,
                inode: wide + 1,
            };
            assert!(members.add(member));
        }
        members
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding() {
        let mut adopted = full();
        assert!(adopted.remove(nth(9)) && adopted.remove(nth(200)));
        assert!(
            adopted.adopt(nth(9), nth(1))
                && adopted.adopt(nth(200), nth(254))
                && !adopted.adopt(nth(9), nth(1))
        );
        assert!(!adopted.adopt(nth(3), nth(1)) && !adopted.adopt(nth(200), nth(9)), "who can, and of whom");
        let mut banks = full_of(16);
        assert!(banks.remove(nth(0x309)) && banks.adopt(nth(0x309), nth(0x101)));
        for members in [Members::new(0, ProcessIndex::FIRST), full(), adopted, banks] {
            let bytes = encode(&members);
            assert!(bytes.len() <= MAX_BYTES);
            assert_eq!(decode(&bytes), Some(members));
        }
        assert_eq!(encode(&full_of(16)).len(), MAX_BYTES);
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = encode(&full());
        for offset in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 0x20;
            assert_eq!(decode(&damaged), None, "byte {offset}");
            assert_eq!(decode(&bytes[..offset]), None, "cut at {offset}");
        }
    }

    #[test]
    fn a_right_checksum_does_not_make_nonsense_true() {
        let seal = |mut body: Vec<u8>| {
            body.truncate(body.len() - SUM_BYTES);
            body.extend(checksum(&body).to_le_bytes());
            body
        };
        let good = encode(&full());
        // Another version; more members than there are; an index twice; index 0; index 255;
        // no such family; no such bank.
        let wrong = [(7, b'2'), (17, 255), (20, 1), (24 + 48, 1), (24, 0), (24, 255), (25, 9), (26, 16)];
        for (offset, value) in wrong {
            let mut bytes = good.clone();
            bytes[offset] = value;
            assert_eq!(decode(&seal(bytes)), None, "{value} at {offset}");
        }
        assert!(decode(&seal(good)).is_some());
    }
}
