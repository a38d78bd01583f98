//! The registry file: its locks, and how it is read and written.

pub(crate) mod port_processes;
pub(crate) mod published;
pub(crate) mod published_partitions;
pub(crate) mod services;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_transport::wire::ProcessIndex;

use super::system::{self, File};
use crate::files::folder::Folder;
use crate::files::sockets::Sockets;
use crate::files::wait::RetryBackoff;
use crate::files::{folder, lock};
use crate::members::error::SharingError;
use crate::members::member::Members;
use crate::members::member_index::{BANKS, MemberIndex, NUMBERS_OF_BANK};
use crate::members::{process, record};

/// First lock byte of reserved process indices.
const RESERVATIONS: u32 = 512;
/// First lock byte of the members of other banks than the first, counted as the bytes of the first bank are.
const OTHER_BANKS: u32 = 1024;
/// Time that a process waits for the lock before it examines the processes that may hold it.
const HOLDER_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time that a process waits for the lock while no process that may hold it is stopped: hundreds of processes
/// that start at once on a busy machine take it one after the other.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of bytes that the first read of the file asks for: the whole file while the first bank is enough.
const FIRST_READ_BYTES: usize = 16 << 10;
/// Number of times that a file is read again while it is being written.
const PEEKS: u32 = 3;

/// An open registry. Its locks are released with the last descriptor of this open file.
#[derive(Debug)]
pub(crate) struct Registry {
    file: File,
    path: PathBuf,
    sockets: Sockets,
}

/// Contents of the registry without the processes that are gone.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) members: Members,
    /// The registry has to be written again: a process has ended, or the file was damaged.
    pub(crate) changed: bool,
    /// Members that have an owner whom the registry does not list because it was damaged.
    pub(crate) unlisted: Vec<MemberIndex>,
}

impl Registry {
    /// Opens the registry of a UDP port of this network namespace.
    pub(crate) fn open(in_folder: &Path, port: u16) -> Result<Registry, SharingError> {
        let name = folder::file_name(port);
        let folder = Folder::open(in_folder)?;
        let file = folder.file(&name)?;
        let path = in_folder.join(&name);
        Ok(Registry { file, path, sockets: Sockets::new(folder, name) })
    }

    /// Returns the location of the members' sockets.
    pub(crate) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Tries to take the lock that allows changes to the registry. Returns false if another process has it.
    pub(crate) fn try_lock(&self) -> bool {
        lock::try_lock_byte(&self.file, lock::CHANGES).unwrap_or(false)
    }

    /// Waits for the lock that allows changes to the registry.
    pub(crate) fn lock(&self, patience: Duration) -> Result<(), SharingError> {
        let mut wait = RetryBackoff::new(patience);
        while !lock::try_lock_byte(&self.file, lock::CHANGES).map_err(self.failed("lock the registry"))? {
            if !wait.pause() {
                return Err(self.locked(wait.waited()));
            }
        }
        Ok(())
    }

    /// Waits for the lock as [`lock`](Self::lock) does, for callers that cannot go on without it: waits while
    /// the machine is busy, but not for a stopped process.
    pub(crate) fn lock_patiently(&self) -> Result<(), SharingError> {
        let begun = system::now();
        loop {
            let refusal = match self.lock(HOLDER_CHECK_INTERVAL) {
                Err(refusal @ SharingError::Locked { .. }) => refusal,
                other => return other,
            };
            let waited = system::now().duration_since(begun);
            if matches!(refusal, SharingError::Locked { stopped: Some(_), .. }) || waited > BUSY_TIMEOUT {
                return Err(self.locked(waited));
            }
        }
    }

    /// Returns the error for a lock that could not be taken, with what /proc shows about its holders.
    fn locked(&self, waited: Duration) -> SharingError {
        let own = system::process_id();
        let has_open = |pid: &u32| system::descriptors_of(*pid).iter().any(|(_, to)| *to == self.real_path());
        let others: Vec<u32> = system::processes_of(process::effective_uid())
            .into_iter()
            .filter(|pid| *pid != own && has_open(pid))
            .collect();
        let stopped = others.iter().copied().find(|pid| process::is_stopped(*pid));
        SharingError::Locked { registry: self.path.clone(), stopped, others: others.len(), waited }
    }

    /// Returns the registry's path as /proc shows it.
    fn real_path(&self) -> PathBuf {
        system::real_path(&self.path)
    }

    /// Releases the lock.
    pub(crate) fn unlock(&self) {
        // The kernel refuses this only for an invalid descriptor.
        let _ = lock::unlock_byte(&self.file, lock::CHANGES);
    }

    /// Takes a member index. Returns false if it has an owner, or if a process has reserved the process
    /// index.
    pub(crate) fn claim(&self, member: MemberIndex) -> bool {
        let reserved = || {
            let byte = RESERVATIONS + u32::from(member.process());
            lock::is_byte_locked(&self.file, byte).unwrap_or(true)
        };
        if reserved() || !self.take(member) {
            return false;
        }
        // A process that reserved the index meanwhile may not have seen that it is taken.
        let free = !reserved();
        if !free {
            self.release(member);
        }
        free
    }

    /// Takes a member index, reserved or not. Returns false if it has an owner.
    pub(crate) fn take(&self, member: MemberIndex) -> bool {
        lock::try_lock_byte(&self.file, lock_byte(member)).unwrap_or(false)
    }

    /// Reserves a process index, so that it cannot be claimed when its owner has gone.
    pub(crate) fn reserve(&self, process: ProcessIndex) {
        // This fails only where the kernel has no such locks; then the file would not have been opened.
        let _ = lock::try_lock_byte_shared(&self.file, RESERVATIONS + u32::from(process));
    }

    /// Ends the reservation of a process index.
    pub(crate) fn end_reservation(&self, process: ProcessIndex) {
        let _ = lock::unlock_byte(&self.file, RESERVATIONS + u32::from(process));
    }

    /// Releases a member index.
    pub(crate) fn release(&self, member: MemberIndex) {
        let _ = lock::unlock_byte(&self.file, lock_byte(member));
    }

    /// Reads the registry, which is locked. A process that does not hold the lock of its member index has
    /// ended, and its socket is removed. `own` are the caller's member indices, whose locks the kernel does
    /// not report to the caller.
    pub(crate) fn load(&self, own: &[MemberIndex]) -> Result<Loaded, SharingError> {
        let failed = || self.failed("read the registry");
        let mut live = live_members(&self.file).map_err(failed())?;
        for &own in own {
            if let Some(live) = live.get_mut(usize::from(own)) {
                *live = true;
            }
        }
        let lives = |member: MemberIndex| live.get(usize::from(member)).is_some_and(|&live| live);
        let bytes = self.read().map_err(failed())?;
        let (mut members, mut changed) = match record::decode(&bytes) {
            Some(members) => (members, false),
            None => {
                // The index that was assigned last is lost with the rest. The search continues at any number,
                // which has to be the same each time.
                let nth = if bytes.is_empty() { 0 } else { system::process_id() as usize % 254 };
                let next_process = ProcessIndex::all().nth(nth);
                let next_process = next_process.unwrap_or(ProcessIndex::FIRST);
                (Members::new(0, next_process), true)
            }
        };
        let gone: Vec<MemberIndex> =
            members.iter().map(|member| member.index).filter(|&index| !lives(index)).collect();
        for index in gone {
            changed |= members.remove(index);
            self.sockets.remove(index);
        }
        for &(index, _) in members.adopted().iter().filter(|&&(index, _)| !lives(index)) {
            self.sockets.remove(index);
        }
        let gone_by: Vec<MemberIndex> =
            members.adopted().iter().map(|&(_, by)| by).filter(|&by| !members.contains(by)).collect();
        changed |= members.end_adoptions(|index, by| !lives(index) || gone_by.contains(&by));
        let adopted = members.adopted().iter().map(|&(adopted, _)| adopted);
        let own = own.iter().copied();
        let known: HashSet<MemberIndex> =
            members.iter().map(|member| member.index).chain(adopted).chain(own).collect();
        let unlisted = MemberIndex::all().filter(|index| lives(*index) && !known.contains(index)).collect();
        Ok(Loaded { members, changed, unlisted })
    }

    /// Reads the file without the lock; members that have died are included. Returns `None` if the file is
    /// damaged or being written.
    pub(crate) fn peek(&self) -> Option<Members> {
        (0..PEEKS).find_map(|_| record::decode(&self.read().ok()?))
    }

    /// Reads only the file's generation, the number of its changes, without the lock and unchecked.
    pub(crate) fn glance(&self) -> Option<u64> {
        let mut begin = [0; record::BEGIN_BYTES];
        self.file.read_exact_at(&mut begin, 0).ok()?;
        record::generation(&begin)
    }

    /// Reports whether another open file holds the lock of a member.
    pub(crate) fn is_taken(&self, member: MemberIndex) -> bool {
        // A failed query is no proof of a death.
        lock::is_byte_locked(&self.file, lock_byte(member)).unwrap_or(true)
    }

    /// Writes the whole registry as the next generation.
    pub(crate) fn store(&self, members: &mut Members) -> Result<(), SharingError> {
        members.generation = members.generation.wrapping_add(1);
        let bytes = record::encode(members);
        let written = self.file.write_all_at(&bytes, 0).and_then(|()| self.file.set_len(bytes.len() as u64));
        written.map_err(self.failed("write the registry"))
    }

    /// Reads the whole file, or as much as shows that it is too long.
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; FIRST_READ_BYTES];
        let mut length = 0;
        while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if length == bytes.len() {
                bytes.resize((length * 2).min(record::MAX_BYTES + 1), 0);
            }
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> SharingError + use<> {
        let path = self.path.clone();
        move |source| SharingError::Os { step, path: Some(path.clone()), source }
    }
}

/// Returns the byte whose lock a member holds.
fn lock_byte(member: MemberIndex) -> u32 {
    let number = u32::from(member.number());
    if member.bank() == 0 { number } else { OTHER_BANKS + number }
}

/// Returns, for each member by number, whether another open file of the registry holds its lock.
fn live_members(file: &File) -> io::Result<Vec<bool>> {
    let mut live = vec![false; BANKS * NUMBERS_OF_BANK];
    let (first, others) = live.split_at_mut(NUMBERS_OF_BANK);
    if let Some(first) = first.get_mut(usize::from(ProcessIndex::FIRST)..=usize::from(ProcessIndex::LAST)) {
        lock::locked_bytes(file, ProcessIndex::FIRST.into(), first)?;
    }
    lock::locked_bytes(file, OTHER_BANKS + NUMBERS_OF_BANK as u32, others)?;
    Ok(live)
}

/// Reports whether another open file of the registry holds the lock of a member.
pub(crate) fn is_member_alive(file: &File, member: MemberIndex) -> bool {
    lock::is_byte_locked(file, lock_byte(member)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::member::Member;

    fn nth(index: u8) -> MemberIndex {
        MemberIndex::new(0, ProcessIndex::new(index)).unwrap()
    }

    fn member(process: u8) -> Member {
        let address = [127, 0, 0, 1].into();
        Member { index: nth(process), pid: 1, pid_namespace: 1, start_ticks: 1, address, inode: 1 }
    }

    fn processes(loaded: &Loaded) -> Vec<u16> {
        loaded.members.iter().map(|member| member.index.number()).collect()
    }

    /// Runs as the process that has the lock, but for this one: it sleeps until its standard input ends.
    #[test]
    fn a_stopped_process_that_has_the_registry_open_is_named() {
        let folder = std::env::temp_dir().join(format!("pumice-registry-stopped-{}", std::process::id()));
        let (a, b) = (Registry::open(&folder, 4791).unwrap(), Registry::open(&folder, 4791).unwrap());
        assert!(a.try_lock());
        let open = || std::process::Stdio::from(std::fs::File::open(a.path()).unwrap());
        let mut other = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(open())
            .spawn()
            .unwrap();
        let pid = other.id();
        let refusal = || match b.lock(Duration::ZERO) {
            Err(SharingError::Locked { stopped, others, .. }) => (stopped, others),
            other => panic!("{other:?}"),
        };
        // Until the child has called exec it also has this process's descriptors.
        while refusal() != (None, 1) {
            std::thread::yield_now();
        }
        // SAFETY: this sends a signal to a child of this process that was not waited for.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, libc::SIGSTOP) }, 0);
        while refusal() != (Some(pid), 1) {
            std::thread::yield_now();
        }
        other.kill().unwrap();
        other.wait().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_dead_are_removed_and_damage_is_repaired() {
        let folder = std::env::temp_dir().join(format!("pumice-registry-test-{}", std::process::id()));
        let open = || Registry::open(&folder, 4791).unwrap();
        let (a, b, c) = (open(), open(), open());
        assert!(a.try_lock() && !b.try_lock());
        assert!(matches!(b.lock(Duration::ZERO), Err(SharingError::Locked { .. })));
        let mut loaded = a.load(&[]).unwrap();
        assert!(loaded.changed && loaded.unlisted.is_empty());
        for (registry, process) in [(&a, 3), (&b, 5), (&c, 7)] {
            assert!(registry.claim(nth(process)) && loaded.members.add(member(process)));
        }
        assert!(!c.claim(nth(3)), "it has an owner");
        a.store(&mut loaded.members).unwrap();
        a.unlock();
        b.lock(Duration::ZERO).unwrap();
        let same = b.load(&[nth(5)]).unwrap();
        assert!(!same.changed && same.members == loaded.members);

        drop(a);
        let reaped = b.load(&[nth(5)]).unwrap();
        assert!(reaped.changed);
        assert_eq!(processes(&reaped), [7, 5], "the last took the place of the first");

        for damage in [&b"pumice"[..], &[0; 20_000], &[]] {
            b.file.set_len(0).unwrap();
            b.file.write_all_at(damage, 0).unwrap();
            let rebuilt = b.load(&[nth(5)]).unwrap();
            assert!(rebuilt.changed && processes(&rebuilt).is_empty());
            assert_eq!(rebuilt.unlisted, [nth(7)]);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
