//! The registry as bytes. They are written by other processes: nothing in them is believed unchecked.

use std::hash::Hasher as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fnv::FnvHasher;

use pumice_transport::wire::ProcessIndex;

use super::members::{Member, Members};

/// Name and version of the format.
const MAGIC: [u8; 8] = *b"pumiceS1";
const HEADER_BYTES: usize = 8 + 8 + 8;
const MEMBER_BYTES: usize = 48;
const SUM_BYTES: usize = 8;

/// The longest record: a process index has a member or an adopter.
pub(super) const MAX_BYTES: usize =
    HEADER_BYTES + ProcessIndex::LAST.value() as usize * MEMBER_BYTES + SUM_BYTES;

/// Header (magic, generation, next process index, numbers of members and of adopted process indices),
/// members, adopted process indices with their adopters, checksum; little-endian.
pub(super) fn encode(members: &Members) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(members.generation.to_le_bytes());
    bytes.extend([
        members.next_process.value(),
        members.iter().count() as u8,
        members.adopted().len() as u8,
        0,
        0,
        0,
        0,
        0,
    ]);
    for member in members.iter() {
        let (family, address) = address_bytes(member.address);
        bytes.extend([member.process.value(), family, 0, 0]);
        bytes.extend(member.pid.to_le_bytes());
        bytes.extend(member.start_ticks.to_le_bytes());
        bytes.extend(member.inode.to_le_bytes());
        bytes.extend(address);
        bytes.extend(member.pid_namespace.to_le_bytes());
        bytes.extend([0; 4]);
    }
    members.adopted().iter().for_each(|&(process, by)| bytes.extend([process.value(), by.value()]));
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// The members in a record; nothing if it is damaged or of another version.
pub(super) fn decode(bytes: &[u8]) -> Option<Members> {
    let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    let (magic, rest) = body.split_first_chunk::<8>()?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (&[next_process, count, adopted, ..], rest) = rest.split_first_chunk::<8>()?;
    let sound = *magic == MAGIC
        && u64::from_le_bytes(*sum) == checksum(body)
        && rest.len() == usize::from(count) * MEMBER_BYTES + usize::from(adopted) * 2;
    if !sound {
        return None;
    }
    let mut members = Members::new(u64::from_le_bytes(*generation), ProcessIndex::new(next_process));
    let (list, pairs) = rest.split_at_checked(usize::from(count) * MEMBER_BYTES)?;
    let (chunks, _) = list.as_chunks::<MEMBER_BYTES>();
    let (pairs, _) = pairs.as_chunks::<2>();
    // These refuse process indices that are no process indices or come twice.
    let sound = chunks.iter().all(|chunk| member(chunk).is_some_and(|member| members.add(member)))
        && pairs.iter().all(|pair| {
            let [process, by] = pair.map(ProcessIndex::new);
            members.adopt(process, by)
        });
    sound.then_some(members)
}

fn member(bytes: &[u8; MEMBER_BYTES]) -> Option<Member> {
    let (&[process, family, _, _], rest) = bytes.split_first_chunk::<4>()?;
    let (pid, rest) = rest.split_first_chunk::<4>()?;
    let (start_ticks, rest) = rest.split_first_chunk::<8>()?;
    let (inode, rest) = rest.split_first_chunk::<8>()?;
    let (address, rest) = rest.split_first_chunk::<16>()?;
    let pid_namespace = rest.first_chunk::<4>()?;
    Some(Member {
        process: ProcessIndex::new(process),
        pid: u32::from_le_bytes(*pid),
        pid_namespace: u32::from_le_bytes(*pid_namespace),
        start_ticks: u64::from_le_bytes(*start_ticks),
        address: address_from(family, address)?,
        inode: u64::from_le_bytes(*inode),
    })
}

/// An address as its family, 4 or 6, and 16 bytes.
pub(crate) fn address_bytes(address: IpAddr) -> (u8, [u8; 16]) {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            (4, [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        IpAddr::V6(address) => (6, address.octets()),
    }
}

/// The inverse of [`address_bytes`].
pub(crate) fn address_from(family: u8, bytes: &[u8; 16]) -> Option<IpAddr> {
    match (family, bytes) {
        (4, &[a, b, c, d, ..]) => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
        (6, &octets) => Some(IpAddr::V6(Ipv6Addr::from(octets))),
        _ => None,
    }
}

/// FNV-1a, the same in every process: finds a write that was cut short, not a forger.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn nth(index: u8) -> ProcessIndex {
        ProcessIndex::new(index)
    }

    fn full() -> Members {
        let mut members = Members::new(77, nth(9));
        for process in ProcessIndex::all().map(ProcessIndex::value) {
            let v6 = IpAddr::V6(Ipv6Addr::from([process; 16]));
            let address = if process % 2 == 0 { IpAddr::from([10, 0, 0, process]) } else { v6 };
            let wide = u64::from(process) << 40;
            let member = Member {
                process: nth(process),
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
        assert!(
            !adopted.adopt(nth(3), nth(1))
                && !adopted.adopt(nth(0), nth(1))
                && !adopted.adopt(nth(200), nth(9)),
            "who can, and of whom"
        );
        for members in [Members::new(0, ProcessIndex::FIRST), full(), adopted] {
            let bytes = encode(&members);
            assert!(bytes.len() <= MAX_BYTES);
            assert_eq!(decode(&bytes), Some(members));
        }
        assert_eq!(encode(&full()).len(), MAX_BYTES);
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = encode(&full());
        for place in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x20;
            assert_eq!(decode(&damaged), None, "byte {place}");
            assert_eq!(decode(&bytes[..place]), None, "cut at {place}");
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
        // no such family.
        for (place, value) in [(7, b'2'), (17, 255), (24 + 48, 1), (24, 0), (24, 255), (25, 9)] {
            let mut bytes = good.clone();
            bytes[place] = value;
            assert_eq!(decode(&seal(bytes)), None, "{value} at {place}");
        }
        assert!(decode(&seal(good)).is_some());
    }
}
