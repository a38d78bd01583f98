//! The partitions that a fault plan imposes on a process, in a file that outlives the process.
//!
//! When a process dies, its peers on this host notice it in the registry and end their connections. Behind a
//! partition they could not know of the death. So a process that a plan separates from others writes the
//! partitions to a file beside the registry, which a peer reads when it finds the process dead. The file
//! stays until another process gets the member index, or the last process has left.

use std::net::IpAddr;

use pumice_model::fates::trigger::Partition;
use pumice_transport::wire::ProcessIndex;

use crate::files::folder::Folder;
use crate::files::sockets::Sockets;
use crate::members::member_index::MemberIndex;
use crate::members::record::{address_bytes, address_from, checksum};
use crate::system;

/// Name and version of the format.
const MAGIC: [u8; 8] = *b"pumiceP1";
/// Maximum number of partitions of a process that are written; further ones are left out.
const MAX_PARTITIONS: usize = 64;
/// Maximum number of addresses of each list of a partition that are written.
const MAX_ADDRESSES: usize = 64;
const ADDRESS_BYTES: usize = 17;
/// Length of the longest file that is read, in bytes.
const MAX_BYTES: usize = 8 + 8 + 1 + MAX_PARTITIONS * (8 + 2 + 2 * MAX_ADDRESSES * ADDRESS_BYTES) + 8;

/// Returns the beginning of the names of these files.
fn stem(sockets: &Sockets) -> String {
    format!("{}-parted", sockets.stem)
}

fn name(sockets: &Sockets, member: MemberIndex) -> String {
    format!("{}{member}", stem(sockets))
}

/// Writes the partitions of the member whose socket has this inode. `now_ns` is the time of the device.
pub(crate) fn write_partitions(
    sockets: &Sockets,
    member: MemberIndex,
    inode: u64,
    now_ns: u64,
    partitions: &[Partition],
) {
    if partitions.is_empty() {
        return forget(sockets, member);
    }
    let host_now_ns = system::monotonic_ns();
    let in_host_time = |partition: &Partition| Partition {
        until_ns: match partition.until_ns {
            u64::MAX => u64::MAX,
            until_ns => host_now_ns.saturating_add(until_ns.saturating_sub(now_ns)),
        },
        ..partition.clone()
    };
    let written: Vec<Partition> = partitions.iter().take(MAX_PARTITIONS).map(in_host_time).collect();
    let bytes = encode(inode, &written);
    let folder: &Folder = &sockets.folder;
    // A failure to write is ignored: the peers notice this process's death then, as without a partition.
    if let Ok(file) = folder.file(&name(sockets, member)) {
        let _ = file.write_all_at(&bytes, 0).and_then(|()| file.set_len(bytes.len() as u64));
    }
}

/// Reports whether a plan separates a member of a process index, whose socket had this inode and which had
/// this address, from one of `peers`.
pub(crate) fn is_partitioned(
    sockets: &Sockets,
    process: ProcessIndex,
    inode: u64,
    address: IpAddr,
    peers: &[IpAddr],
) -> bool {
    let host_now_ns = system::monotonic_ns();
    let holds = |partition: &Partition| {
        host_now_ns < partition.until_ns && peers.iter().any(|peer| partition.parts(address, *peer))
    };
    // Opening would create a file, so only existing files are opened.
    let all = sockets.folder.names();
    let mut written = MemberIndex::all_of(process).map(|member| name(sockets, member));
    written.any(|name| {
        all.contains(&name)
            && read(&sockets.folder, &name)
                .is_some_and(|(of_inode, list)| of_inode == inode && list.iter().any(holds))
    })
}

fn read(folder: &Folder, name: &str) -> Option<(u64, Vec<Partition>)> {
    let mut bytes = vec![0; MAX_BYTES + 1];
    let length = folder.file(name).ok()?.read_at(&mut bytes, 0).ok()?;
    decode(bytes.get(..length)?)
}

/// Removes the file of a member.
pub(crate) fn forget(sockets: &Sockets, member: MemberIndex) {
    sockets.folder.remove(&name(sockets, member));
}

/// Removes the files of members that have no owner. The registry is locked.
pub(crate) fn sweep(sockets: &Sockets, is_taken: impl Fn(MemberIndex) -> bool) {
    let stem = stem(sockets);
    let member_of = |name: &str| MemberIndex::of_number(name.strip_prefix(&stem)?.parse().ok()?);
    let all = sockets.folder.names();
    all.iter().filter_map(|name| member_of(name)).filter(|member| !is_taken(*member)).for_each(|member| {
        forget(sockets, member);
    });
}

/// Encodes the file: magic, inode, the number of partitions; of each its end, the numbers of peers and of own
/// addresses, and these; a checksum. Little-endian.
fn encode(inode: u64, partitions: &[Partition]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(inode.to_le_bytes());
    bytes.push(partitions.len() as u8);
    for partition in partitions {
        bytes.extend(partition.until_ns.to_le_bytes());
        let lists = [&partition.peers, &partition.own].map(|list| list.get(..MAX_ADDRESSES).unwrap_or(list));
        bytes.extend(lists.map(|list| list.len() as u8));
        for address in lists.into_iter().flatten() {
            let (family, address) = address_bytes(*address);
            bytes.push(family);
            bytes.extend(address);
        }
    }
    bytes.extend(checksum(&bytes).to_le_bytes());
    bytes
}

/// Decodes the file; `None` if the bytes are damaged or of another version.
fn decode(bytes: &[u8]) -> Option<(u64, Vec<Partition>)> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return None;
    }
    let (magic, rest) = body.split_first_chunk::<8>()?;
    let (inode, rest) = rest.split_first_chunk::<8>()?;
    let (&count, mut rest) = rest.split_first()?;
    if *magic != MAGIC || usize::from(count) > MAX_PARTITIONS {
        return None;
    }
    let mut partitions = Vec::with_capacity(count.into());
    for _ in 0..count {
        let (until_ns, after) = rest.split_first_chunk::<8>()?;
        let (&[peers, own], after) = after.split_first_chunk::<2>()?;
        let (peers, after) = addresses(after, peers)?;
        let (own, after) = addresses(after, own)?;
        partitions.push(Partition { peers, own, port_num: None, until_ns: u64::from_le_bytes(*until_ns) });
        rest = after;
    }
    rest.is_empty().then_some((u64::from_le_bytes(*inode), partitions))
}

/// Parses `count` addresses, and returns the bytes behind them as well.
fn addresses(bytes: &[u8], count: u8) -> Option<(Vec<IpAddr>, &[u8])> {
    let (list, rest) = bytes.split_at_checked(usize::from(count) * ADDRESS_BYTES)?;
    let (list, _) = list.as_chunks::<ADDRESS_BYTES>();
    let address = |bytes: &[u8; ADDRESS_BYTES]| {
        let (&family, address) = bytes.split_first()?;
        address_from(family, address.first_chunk()?)
    };
    Some((list.iter().map(address).collect::<Option<_>>()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Vec<Partition> {
        let [one, other] = [IpAddr::from([10, 0, 0, 1]), "fd00::2".parse().unwrap()];
        let published_partitions = |peers: &[IpAddr], own: &[IpAddr], until_ns| Partition {
            peers: peers.to_vec(),
            own: own.to_vec(),
            port_num: None,
            until_ns,
        };
        vec![
            published_partitions(&[one, other], &[], 77),
            published_partitions(&[], &[other], u64::MAX),
            published_partitions(&[], &[], 0),
        ]
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding_and_takes_nothing_else() {
        let bytes = encode(9, &some());
        assert_eq!(decode(&bytes), Some((9, some())));
        assert_eq!(decode(&encode(1, &[])), Some((1, Vec::new())));
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), None, "{length}");
        }
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0x80;
            assert_eq!(decode(&damaged), None, "{index}");
        }
        // Every count is checked even if the checksum is right.
        let body = bytes.len() - 8;
        for index in 16..body {
            let mut forged = bytes[..body].to_vec();
            forged[index] = 0xff;
            forged.extend(checksum(&forged).to_le_bytes());
            if let Some((_, partitions)) = decode(&forged) {
                assert_eq!(partitions.len(), 3, "{index}");
            }
        }
    }

    #[test]
    fn the_longest_file_is_read_whole() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let wide = Partition {
            peers: vec![address; MAX_ADDRESSES + 9],
            own: vec![address; MAX_ADDRESSES + 9],
            port_num: None,
            until_ns: 1,
        };
        let bytes = encode(1, &vec![wide; MAX_PARTITIONS]);
        assert_eq!(bytes.len(), MAX_BYTES);
        let (_, partitions) = decode(&bytes).unwrap();
        assert!(partitions.iter().all(|partition| partition.peers.len() == MAX_ADDRESSES));
    }
}
