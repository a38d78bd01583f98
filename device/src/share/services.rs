//! The services that the processes of a registry have bound: a file beside it, written under its lock.
//!
//! Readers take no lock: each change is a new generation with a checksum, and a file caught in the middle
//! of one is read again. What is in it is checked like a packet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_transport::mad::ServiceId;
use pumice_transport::types::Gid;

use super::membership::Membership;
use super::{ShareError, folder, record};
use crate::gsi::{DirectoryError, ServiceEntry};

/// Name and version of the format.
const MAGIC: [u8; 8] = *b"pumiceV1";
/// Magic, generation, number of entries, checksum of what follows.
const HEADER_BYTES: usize = 8 + 8 + 8 + 8;
const ENTRY_BYTES: usize = 40;
/// Services of all processes together.
const MAX_ENTRIES: usize = 8192;
/// How often a reader looks again before it asks for the lock.
const ATTEMPTS: u32 = 3;
/// How long the registry's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The file as one process knows it.
#[derive(Debug)]
pub(super) struct Services {
    folder: PathBuf,
    name: String,
    /// Not there until somebody binds something.
    file: Option<File>,
    generation: u64,
    entries: Vec<(u8, ServiceEntry)>,
}

impl Services {
    pub(super) fn new(in_folder: &Path, port: u16) -> Services {
        let name = format!("{}-services", folder::file_name(port));
        Services { folder: in_folder.to_owned(), name, file: None, generation: 0, entries: Vec::new() }
    }

    /// Forgets what an earlier owner of a slot has left. The registry is locked.
    pub(super) fn forget_slot(&mut self, slot: u8) {
        if !self.folder.join(&self.name).exists() {
            return;
        }
        // A file that cannot be read or written is as good as none: requests are answered with "nobody".
        if self.read_locked().is_ok() && self.entries.iter().any(|(owner, _)| *owner == slot) {
            self.entries.retain(|(owner, _)| *owner != slot);
            let _ = self.write_locked();
        }
    }

    /// Adds an entry of this process, unless it overlaps with one of a process that lives.
    pub(super) fn publish(
        &mut self,
        entry: &ServiceEntry,
        membership: &Membership,
    ) -> Result<(), DirectoryError> {
        self.change(membership, |services| {
            let own = membership.slot();
            let living = membership.living_slots().map_err(broken)?;
            services.entries.retain(|(slot, _)| living.contains(slot));
            let taken = services.entries.iter().find(|(_, other)| other.overlaps(entry));
            if let Some(&(slot, _)) = taken {
                return Err(DirectoryError::Taken { slot });
            }
            if services.entries.len() >= MAX_ENTRIES {
                return Err(DirectoryError::Full { limit: MAX_ENTRIES });
            }
            services.entries.push((own, *entry));
            Ok(())
        })
    }

    /// Removes an entry of this process.
    pub(super) fn withdraw(&mut self, entry: &ServiceEntry, membership: &Membership) {
        // What stays is removed when the process has gone, and until then leads to a "nobody listens".
        let _ = self.change(membership, |services| {
            let gone = (membership.slot(), *entry);
            if let Some(place) = services.entries.iter().position(|other| *other == gone) {
                services.entries.swap_remove(place);
            }
            Ok(())
        });
    }

    /// Slots of other processes that serve.
    pub(super) fn find(&mut self, service_id: ServiceId, local: Gid, membership: &Membership) -> Vec<u8> {
        if self.refresh(membership).is_err() {
            return Vec::new();
        }
        let serves = |(slot, entry): &&(u8, ServiceEntry)| {
            *slot != membership.slot() && entry.serves(service_id, local)
        };
        self.entries.iter().filter(serves).map(|(slot, _)| *slot).collect()
    }

    fn change(
        &mut self,
        membership: &Membership,
        change: impl FnOnce(&mut Services) -> Result<(), DirectoryError>,
    ) -> Result<(), DirectoryError> {
        if !membership.is_owner() {
            return Err(DirectoryError::Os(io::Error::from_raw_os_error(libc::EPERM)));
        }
        membership.registry().lock(PATIENCE).map_err(broken)?;
        let changed = self.read_locked().map_err(DirectoryError::Os).and_then(|()| {
            change(self)?;
            self.write_locked().map_err(DirectoryError::Os)
        });
        membership.registry().unlock();
        changed
    }

    /// Reads what changed since the last time.
    fn refresh(&mut self, membership: &Membership) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            if let Some(file) = &self.file {
                let mut header = [0; HEADER_BYTES];
                file.read_exact_at(&mut header, 0)?;
                if self.generation != 0 && generation(&header) == Some(self.generation) {
                    return Ok(());
                }
            } else if !self.folder.join(&self.name).exists() {
                return Ok(());
            }
            let bytes = self.read()?;
            if let Some((generation, entries)) = decode(&bytes) {
                (self.generation, self.entries) = (generation, entries);
                return Ok(());
            }
        }
        membership.registry().lock(PATIENCE).map_err(|_| io::ErrorKind::WouldBlock)?;
        let read = self.read_locked();
        membership.registry().unlock();
        read
    }

    /// Reads the file; a damaged one is empty.
    fn read_locked(&mut self) -> io::Result<()> {
        let bytes = self.read()?;
        (self.generation, self.entries) = decode(&bytes).unwrap_or((self.generation, Vec::new()));
        Ok(())
    }

    fn write_locked(&mut self) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1).max(1);
        let bytes = encode(self.generation, &self.entries);
        let file = self.open()?;
        file.write_all_at(&bytes, 0)?;
        file.set_len(bytes.len() as u64)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let file = self.open()?;
        // One byte more than may be shows that it is too long.
        let length = file.metadata()?.len().min((HEADER_BYTES + MAX_ENTRIES * ENTRY_BYTES + 1) as u64);
        let mut bytes = vec![0; length as usize];
        match file.read_exact_at(&mut bytes, 0) {
            // It was made shorter meanwhile.
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

fn broken(error: ShareError) -> DirectoryError {
    DirectoryError::Os(io::Error::other(error))
}

fn generation(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    let (magic, rest) = header.split_first_chunk::<8>()?;
    let generation = rest.first_chunk::<8>()?;
    (*magic == MAGIC).then(|| u64::from_le_bytes(*generation))
}

fn encode(generation: u64, entries: &[(u8, ServiceEntry)]) -> Vec<u8> {
    let mut body = Vec::with_capacity(entries.len() * ENTRY_BYTES);
    for (slot, entry) in entries {
        body.extend([*slot, u8::from(entry.local.is_some()), 0, 0, 0, 0, 0, 0]);
        body.extend(entry.service_id.0.to_le_bytes());
        body.extend(entry.mask.to_le_bytes());
        body.extend(entry.local.unwrap_or(Gid::ZERO).0);
    }
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend(generation.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    // Of the generation as well: an old header never fits a new body.
    bytes.extend((record::checksum(&body) ^ generation).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Generation and entries; nothing if the file is damaged or being written.
fn decode(bytes: &[u8]) -> Option<(u64, Vec<(u8, ServiceEntry)>)> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let generation = generation(header)?;
    let (_, rest) = header.split_first_chunk::<16>()?;
    let (count, sum) = rest.split_first_chunk::<8>()?;
    let sum = sum.first_chunk::<8>()?;
    let (chunks, odd) = body.as_chunks::<ENTRY_BYTES>();
    let sound = odd.is_empty()
        && chunks.len() <= MAX_ENTRIES
        && u64::from_le_bytes(*count) == chunks.len() as u64
        && u64::from_le_bytes(*sum) == record::checksum(body) ^ generation;
    sound.then(|| (generation, chunks.iter().filter_map(entry).collect()))
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Option<(u8, ServiceEntry)> {
    let (&[slot, has_local, ..], rest) = bytes.split_first_chunk::<8>()?;
    let (service_id, rest) = rest.split_first_chunk::<8>()?;
    let (mask, rest) = rest.split_first_chunk::<8>()?;
    let local = rest.first_chunk::<16>()?;
    let entry = ServiceEntry {
        service_id: ServiceId(u64::from_le_bytes(*service_id)),
        mask: u64::from_le_bytes(*mask),
        local: (has_local != 0).then_some(Gid(*local)),
    };
    Some((slot, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<(u8, ServiceEntry)> {
        (1..=5_u8)
            .map(|slot| {
                let service_id = ServiceId(u64::from(slot) << 16);
                let local = (slot % 2 == 0).then_some(Gid([slot; 16]));
                (slot, ServiceEntry { service_id, mask: !u64::from(slot), local })
            })
            .collect()
    }

    #[test]
    fn decoding_is_the_inverse_of_encoding() {
        for entries in [Vec::new(), entries()] {
            assert_eq!(decode(&encode(7, &entries)), Some((7, entries)));
        }
    }

    #[test]
    fn damage_and_half_a_change_are_noticed() {
        let bytes = encode(7, &entries());
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            assert_eq!(decode(&damaged), None, "byte {place}");
            assert_eq!(decode(&bytes[..place]), None, "cut at {place}");
        }
        // The header of one generation with the entries of the next.
        let next = encode(8, &entries()[1..]);
        let torn = [&bytes[..HEADER_BYTES], &next[HEADER_BYTES..]].concat();
        assert_eq!(decode(&torn), None);
    }
}
