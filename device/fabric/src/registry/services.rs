//! The services that the processes of a registry have bound: a file beside the registry, written under its
//! lock.
//!
//! Readers take no lock: each change is a new generation with a checksum, and a file that is read in the
//! middle of a change is read again. Its contents are checked like a packet. A process may bind thousands of
//! services, so adding one costs no more than its own bytes: an entry is written behind the others, then the
//! header that counts it.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_model::port::directory::{DirectoryError, ServiceEntry};
use pumice_transport::cm::ListenScope;
use pumice_transport::mad::ServiceId;
use pumice_transport::types::Gid;
use pumice_transport::wire::ProcessIndex;

use crate::files::folder;
use crate::members::error::SharingError;
use crate::members::member_index::MemberIndex;
use crate::members::record;
use crate::registry::Registry;
use crate::system::{self, File};

/// Name and version of the format.
const MAGIC: [u8; 8] = *b"pumiceV3";
/// Length of the header: magic, generation, number of entries, checksum of the entries. Bytes behind the
/// counted entries are ignored.
const HEADER_BYTES: usize = 8 + 8 + 8 + 8;
const ENTRY_BYTES: usize = 40;
/// Number of services of all processes together. Withdrawing one rewrites all others.
const MAX_ENTRIES: usize = 8192;
/// Number of times that a reader tries again before it asks for the lock.
const ATTEMPTS: u32 = 3;
/// Time that a process waits for the registry's lock.
const PATIENCE: Duration = Duration::from_secs(5);

/// Offset in an entry of the byte that says whether the process listens. It is not in the checksum: one byte
/// is never half written, and it decides only whether requests come directly or are forwarded.
const LISTENS_OFFSET: usize = 2;

/// A service, and the process that has bound it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bound {
    member: MemberIndex,
    entry: ServiceEntry,
    listens: bool,
}

/// The process that binds services, as far as the file needs to know it.
pub(crate) trait Publisher {
    /// Returns its member index.
    fn index(&self) -> MemberIndex;
    /// Reports whether this process joined, and is not a fork child of the one that did.
    fn is_owner(&self) -> bool;
    /// Returns the registry, whose lock is also the file's.
    fn registry(&self) -> &Registry;
    /// Returns the members whose owners live, this one included. The registry is locked.
    ///
    /// # Errors
    /// Fails if the registry cannot be read.
    fn live_members(&self) -> Result<Vec<MemberIndex>, SharingError>;
}

/// The file of services, cached by one process.
#[derive(Debug)]
pub(crate) struct Services {
    folder: PathBuf,
    name: String,
    /// Open file; `None` until a process binds something.
    file: Option<File>,
    generation: u64,
    entries: Vec<Bound>,
    /// Checksum of the entries.
    sum: u64,
}

impl Services {
    pub(crate) fn new(in_folder: &Path, port: u16) -> Services {
        let name = format!("{}-services", folder::file_name(port));
        Services {
            folder: in_folder.to_owned(),
            name,
            file: None,
            generation: 0,
            entries: Vec::new(),
            sum: 0,
        }
    }

    /// Removes the entries that an earlier owner of a member index has left. The registry is locked.
    pub(crate) fn forget_member(&mut self, member: MemberIndex) {
        if !system::exists(&self.folder.join(&self.name)) {
            return;
        }
        // A file that cannot be read or written counts as empty: a request finds no listener in it.
        if self.read_locked().is_ok() && self.entries.iter().any(|bound| bound.member == member) {
            self.entries.retain(|bound| bound.member != member);
            let _ = self.write_locked();
        }
    }

    /// Adds an entry of this process, unless it overlaps with one of a process that lives.
    pub(crate) fn publish(
        &mut self,
        entry: &ServiceEntry,
        owner: &impl Publisher,
    ) -> Result<(), DirectoryError> {
        self.change(owner, |services| {
            let taken = |services: &Services| {
                services.entries.iter().find(|bound| bound.entry.overlaps(entry)).map(|bound| bound.member)
            };
            if taken(services).is_some() || services.entries.len() >= MAX_ENTRIES {
                // The overlapping entries may belong to dead processes.
                let living = owner.live_members().map_err(broken)?;
                services.entries.retain(|bound| living.contains(&bound.member));
                services.write_locked().map_err(DirectoryError::Os)?;
            }
            if let Some(member) = taken(services) {
                return Err(DirectoryError::Taken { process: member.process() });
            }
            if services.entries.len() >= MAX_ENTRIES {
                return Err(DirectoryError::Full { limit: MAX_ENTRIES });
            }
            let new = Bound { member: owner.index(), entry: *entry, listens: false };
            services.append_locked(new).map_err(DirectoryError::Os)
        })
    }

    /// Removes an entry of this process.
    pub(crate) fn withdraw(&mut self, entry: &ServiceEntry, owner: &impl Publisher) {
        // An entry that could not be removed is removed when the process has gone; until then it leads to a
        // refusal.
        let _ = self.change(owner, |services| {
            if let Some(position) = services.position_of(entry, owner.index()) {
                services.entries.swap_remove(position);
            }
            services.write_locked().map_err(DirectoryError::Os)
        });
    }

    /// Notes that this process listens for a service that it has bound, and steers its requests by `steer`
    /// before others can change anything.
    pub(crate) fn listen(
        &mut self,
        entry: &ServiceEntry,
        owner: &impl Publisher,
        steer: impl FnOnce(&mut Services),
    ) -> Result<(), DirectoryError> {
        self.change(owner, |services| {
            let Some(position) = services.position_of(entry, owner.index()) else { return Ok(()) };
            services.note_listening(position).map_err(DirectoryError::Os)?;
            steer(services);
            Ok(())
        })
    }

    /// Returns the index of an entry of a member.
    fn position_of(&self, entry: &ServiceEntry, member: MemberIndex) -> Option<usize> {
        self.entries.iter().rposition(|bound| bound.member == member && bound.entry == *entry)
    }

    /// Returns the services that processes listen for at an address: the lower halves of service ids whose
    /// upper half is 0, in order, with the members. The registry is locked. Services that differ by more than
    /// their id have to be looked up.
    pub(crate) fn listening(&mut self, address: IpAddr) -> Vec<(u32, MemberIndex)> {
        let there = self.file.is_some() || system::exists(&self.folder.join(&self.name));
        if !there || self.read_locked().is_err() {
            return Vec::new();
        }
        let at = |scope: ListenScope| address.is_unspecified() || scope.serves(Gid::from(address));
        let exact = self.entries.iter().filter(|bound| bound.listens && bound.entry.mask == u64::MAX);
        let mut all: Vec<(u32, MemberIndex)> = exact
            .filter(|bound| at(bound.entry.scope))
            .filter_map(|bound| Some((u32::try_from(bound.entry.service_id.0).ok()?, bound.member)))
            .collect();
        all.sort_unstable();
        // A device with two ports has an entry for each.
        all.dedup();
        let alone = all.chunk_by(|(a, _), (b, _)| a == b).filter(|same| same.len() == 1);
        alone.flatten().copied().collect()
    }

    /// Returns other members that serve a request.
    pub(crate) fn find(
        &mut self,
        service_id: ServiceId,
        local: Gid,
        owner: &impl Publisher,
    ) -> Vec<MemberIndex> {
        if self.refresh(owner).is_err() {
            return Vec::new();
        }
        let serves = |bound: &&Bound| bound.member != owner.index() && bound.entry.serves(service_id, local);
        self.entries.iter().filter(serves).map(|bound| bound.member).collect()
    }

    fn change(
        &mut self,
        owner: &impl Publisher,
        change: impl FnOnce(&mut Services) -> Result<(), DirectoryError>,
    ) -> Result<(), DirectoryError> {
        if !owner.is_owner() {
            return Err(DirectoryError::Os(io::Error::from_raw_os_error(libc::EPERM)));
        }
        owner.registry().lock(PATIENCE).map_err(broken)?;
        let changed = self.read_locked().map_err(DirectoryError::Os).and_then(|()| change(self));
        owner.registry().unlock();
        changed
    }

    /// Reads what changed since the last time.
    fn refresh(&mut self, owner: &impl Publisher) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            if self.file.is_some() {
                if self.is_current() {
                    return Ok(());
                }
            } else if !system::exists(&self.folder.join(&self.name)) {
                return Ok(());
            }
            let bytes = self.read()?;
            if let Some(decoded) = decode(&bytes) {
                self.take(decoded);
                return Ok(());
            }
        }
        owner.registry().lock(PATIENCE).map_err(|_| io::ErrorKind::WouldBlock)?;
        let read = self.read_locked();
        owner.registry().unlock();
        read
    }

    /// Reports whether the file is unchanged since it was read or written here.
    fn is_current(&self) -> bool {
        let mut header = [0; HEADER_BYTES];
        let read = self.file.as_ref().is_some_and(|file| file.read_exact_at(&mut header, 0).is_ok());
        // The whole header is compared: after damage, generation numbers may repeat.
        read && self.generation != 0 && header == encode_header(self.generation, self.entries.len(), self.sum)
    }

    fn take(&mut self, (generation, entries): (u64, Vec<Bound>)) {
        (self.generation, self.entries) = (generation, entries);
        self.sum = sum(&self.entries);
    }

    /// Reads the file, if it was changed. A damaged file counts as empty.
    fn read_locked(&mut self) -> io::Result<()> {
        if !self.is_current() {
            let bytes = self.read()?;
            let decoded = decode(&bytes).unwrap_or((self.generation, Vec::new()));
            self.take(decoded);
        }
        Ok(())
    }

    /// Writes the whole file, by one call: a process that is killed here leaves the old file or the new one.
    fn write_locked(&mut self) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1).max(1);
        self.sum = sum(&self.entries);
        let bytes = encode(self.generation, &self.entries, self.sum);
        let file = self.open()?;
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)
    }

    /// Writes one more entry. A process that is killed in between leaves bytes that the header does not
    /// count.
    fn append_locked(&mut self, new: Bound) -> io::Result<()> {
        let position = self.entries.len();
        if position == 0 {
            self.entries.push(new);
            return self.write_locked();
        }
        let bytes = encode_entry(&new);
        let (generation, sum) =
            (self.generation.wrapping_add(1).max(1), self.sum.wrapping_add(weight(position, &bytes)));
        let file = self.open()?;
        file.write_all_at(&bytes, (HEADER_BYTES + position * ENTRY_BYTES) as u64)?;
        file.write_all_at(&encode_header(generation, position + 1, sum), 0)?;
        (self.generation, self.sum) = (generation, sum);
        self.entries.push(new);
        Ok(())
    }

    /// Writes the byte, then a header that makes other processes read it.
    fn note_listening(&mut self, position: usize) -> io::Result<()> {
        let Some(bound) = self.entries.get_mut(position) else { return Ok(()) };
        bound.listens = true;
        let generation = self.generation.wrapping_add(1).max(1);
        let header = encode_header(generation, self.entries.len(), self.sum);
        let file = self.open()?;
        file.write_all_at(&[1], (HEADER_BYTES + position * ENTRY_BYTES + LISTENS_OFFSET) as u64)?;
        file.write_all_at(&header, 0)?;
        self.generation = generation;
        Ok(())
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let file = self.open()?;
        // Reading one byte more than allowed shows that the file is too long.
        let length = file.about()?.length_bytes.min((HEADER_BYTES + MAX_ENTRIES * ENTRY_BYTES + 1) as u64);
        let mut bytes = vec![0; length as usize];
        match file.read_exact_at(&mut bytes, 0) {
            // The file was made shorter meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
            other => other.map(|()| bytes),
        }
    }

    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            let opened = folder::open(&self.folder, &self.name).map_err(io::Error::other)?;
            self.file = Some(opened);
        }
        self.file.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn broken(error: SharingError) -> DirectoryError {
    DirectoryError::Os(io::Error::other(error))
}

/// Returns an entry's part of the checksum. The checksum is a sum, so that one more entry changes it without
/// the others.
fn weight(position: usize, entry: &[u8; ENTRY_BYTES]) -> u64 {
    let mut entry = *entry;
    entry.iter_mut().skip(LISTENS_OFFSET).take(1).for_each(|listens| *listens = 0);
    record::checksum(&entry).rotate_left(position as u32 % 64).wrapping_mul(2 * position as u64 + 1)
}

fn sum(entries: &[Bound]) -> u64 {
    let weights = entries.iter().enumerate().map(|(position, entry)| weight(position, &encode_entry(entry)));
    weights.fold(0, u64::wrapping_add)
}

fn encode_header(generation: u64, count: usize, sum: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    // The checksum covers the generation as well, so that an old header never fits a new body.
    let numbers = [u64::from_le_bytes(MAGIC), generation, count as u64, sum ^ generation];
    bytes
        .iter_mut()
        .zip(numbers.iter().flat_map(|number| number.to_le_bytes()))
        .for_each(|(to, from)| *to = from);
    bytes
}

fn encode_entry(bound: &Bound) -> [u8; ENTRY_BYTES] {
    let Bound { member, entry, listens } = bound;
    let mut bytes = [0; ENTRY_BYTES];
    let (scope, address) = match entry.scope {
        ListenScope::Everywhere => (0, Gid::ZERO),
        ListenScope::At(address) => (1, address),
        ListenScope::Ipv4 => (2, Gid::ZERO),
        ListenScope::Ipv6 => (3, Gid::ZERO),
    };
    let begin = [member.process().value(), scope, u8::from(*listens), member.bank(), 0, 0, 0, 0];
    let numbers = [begin, entry.service_id.0.to_le_bytes(), entry.mask.to_le_bytes()];
    let all = numbers.into_iter().flatten().chain(address.0);
    bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
    bytes
}

fn encode(generation: u64, entries: &[Bound], sum: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + entries.len() * ENTRY_BYTES);
    bytes.extend(encode_header(generation, entries.len(), sum));
    bytes.extend(entries.iter().flat_map(encode_entry));
    bytes
}

/// Decodes the generation and the entries; `None` if the file is damaged or being written.
fn decode(bytes: &[u8]) -> Option<(u64, Vec<Bound>)> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let (magic, rest) = header.split_first_chunk::<8>()?;
    let (generation, rest) = rest.split_first_chunk::<8>()?;
    let (count, expected) = rest.split_first_chunk::<8>()?;
    let generation = u64::from_le_bytes(*generation);
    let count = usize::try_from(u64::from_le_bytes(*count)).ok().filter(|count| *count <= MAX_ENTRIES)?;
    let (chunks, _) = body.as_chunks::<ENTRY_BYTES>();
    let chunks = chunks.get(..count)?;
    let weights = chunks.iter().enumerate().map(|(position, entry)| weight(position, entry));
    let found = weights.fold(0, u64::wrapping_add) ^ generation;
    let sound = *magic == MAGIC && found.to_le_bytes() == *expected;
    sound.then(|| (generation, chunks.iter().filter_map(entry).collect()))
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Option<Bound> {
    let (&[process, scope, listens, bank, ..], rest) = bytes.split_first_chunk::<8>()?;
    let (service_id, rest) = rest.split_first_chunk::<8>()?;
    let (mask, rest) = rest.split_first_chunk::<8>()?;
    let address = rest.first_chunk::<16>()?;
    let entry = ServiceEntry {
        service_id: ServiceId(u64::from_le_bytes(*service_id)),
        mask: u64::from_le_bytes(*mask),
        scope: match scope {
            0 => ListenScope::Everywhere,
            1 => ListenScope::At(Gid(*address)),
            2 => ListenScope::Ipv4,
            3 => ListenScope::Ipv6,
            _ => return None,
        },
    };
    let member = MemberIndex::new(bank, ProcessIndex::new(process))?;
    Some(Bound { member, entry, listens: listens != 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(index: u8) -> MemberIndex {
        MemberIndex::new(index % 3, ProcessIndex::new(index)).unwrap()
    }

    fn entries() -> Vec<Bound> {
        (1..=5_u8)
            .map(|process| {
                let service_id = ServiceId(u64::from(process) << 16);
                let scopes = [
                    ListenScope::Everywhere,
                    ListenScope::Ipv4,
                    ListenScope::Ipv6,
                    ListenScope::At(Gid([process; 16])),
                ];
                let scope = scopes[usize::from(process) % scopes.len()];
                Bound {
                    member: nth(process),
                    entry: ServiceEntry { service_id, mask: !u64::from(process), scope },
                    listens: process % 2 == 0,
                }
            })
            .collect()
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding() {
        for entries in [Vec::new(), entries()] {
            let mut bytes = encode(7, &entries, sum(&entries));
            assert_eq!(decode(&bytes), Some((7, entries.clone())));
            // An entry that was written and is not counted yet.
            bytes.extend([0x77; ENTRY_BYTES + 3]);
            assert_eq!(decode(&bytes), Some((7, entries)));
        }
    }

    #[test]
    fn appending_gives_the_file_that_writing_gives() {
        let folder = std::env::temp_dir().join(format!("pumice-services-test-{}", std::process::id()));
        let mut services = Services::new(&folder, 4791);
        for entry in entries() {
            services.append_locked(entry).unwrap();
        }
        let generation = services.generation;
        assert_eq!(services.read().unwrap(), encode(generation, &entries(), sum(&entries())));
        assert!(services.is_current());
        // Another process does the same.
        let mut other = Services::new(&folder, 4791);
        other.read_locked().unwrap();
        other.append_locked(Bound { member: nth(9), ..entries()[0] }).unwrap();
        assert!(!services.is_current());
        services.read_locked().unwrap();
        assert_eq!((services.entries.len(), services.sum), (6, other.sum));
        services.entries.swap_remove(1);
        services.write_locked().unwrap();
        other.read_locked().unwrap();
        assert_eq!((&other.entries, other.sum), (&services.entries, services.sum));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn listening_is_seen_by_others_and_leads_to_one_process_only() {
        let folder = std::env::temp_dir().join(format!("pumice-listening-test-{}", std::process::id()));
        let (mut services, mut other) = (Services::new(&folder, 4791), Services::new(&folder, 4791));
        let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
        let at = |process, port: u64, scope| {
            let service_id = ServiceId(0x0106_0000 + port);
            Bound {
                member: nth(process),
                entry: ServiceEntry { service_id, mask: u64::MAX, scope },
                listens: false,
            }
        };
        let bound = [
            at(3, 9, ListenScope::Everywhere),
            at(1, 7, ListenScope::At(gid("10.0.0.1"))),
            at(2, 7, ListenScope::At(gid("10.0.0.2"))),
            at(4, 8, ListenScope::Ipv6),
        ];
        for new in bound {
            services.append_locked(new).unwrap();
        }
        other.read_locked().unwrap();
        let listening = |of: &mut Services, address: &str| of.listening(address.parse().unwrap());
        assert_eq!(listening(&mut other, "10.0.0.1"), []);
        for bound in bound {
            let position = services.position_of(&bound.entry, bound.member).unwrap();
            services.note_listening(position).unwrap();
        }
        assert_eq!(listening(&mut other, "10.0.0.1"), [(0x0106_0007, nth(1)), (0x0106_0009, nth(3))]);
        assert_eq!(listening(&mut other, "10.0.0.2"), [(0x0106_0007, nth(2)), (0x0106_0009, nth(3))]);
        assert_eq!(listening(&mut other, "10.0.0.3"), [(0x0106_0009, nth(3))]);
        assert_eq!(
            listening(&mut other, "::"),
            [(0x0106_0008, nth(4)), (0x0106_0009, nth(3))],
            "7 is ambiguous"
        );
        let part = ServiceEntry { mask: !0xffff, ..bound[0].entry };
        services.append_locked(Bound { member: nth(5), entry: part, listens: true }).unwrap();
        assert_eq!(listening(&mut other, "10.0.0.3"), [(0x0106_0009, nth(3))], "a range is no service");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn damage_and_half_a_change_are_noticed() {
        let bytes = encode(7, &entries(), sum(&entries()));
        for offset in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 0x10;
            let listens =
                offset.checked_sub(HEADER_BYTES).is_some_and(|at| at % ENTRY_BYTES == LISTENS_OFFSET);
            assert_eq!(decode(&damaged).is_some(), listens, "byte {offset}");
            assert_eq!(decode(&bytes[..offset]), None, "cut at {offset}");
        }
        // The header of one generation with the entries of the next.
        let next = encode(8, &entries()[1..], sum(&entries()[1..]));
        let torn = [&bytes[..HEADER_BYTES], &next[HEADER_BYTES..]].concat();
        assert_eq!(decode(&torn), None);
    }
}
