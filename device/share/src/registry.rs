//! The registry file: which process may change it, and what it says.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_transport::wire::ProcessIndex;

use super::folder::Folder;
use super::member_index::{BANKS, MemberIndex, NUMBERS_OF_BANK};
use super::members::Members;
use super::sockets::Sockets;
use super::system::{self, File};
use super::wait::Wait;
use super::{ShareError, folder, lock, process, record};

/// Where the locks of reserved process indices begin.
const RESERVATIONS: u32 = 512;
/// Where the locks of the members of other banks than the first begin, counted as the first one's are.
const OTHER_BANKS: u32 = 1024;
/// How long the lock is waited for before the processes that may have it are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How long a lock is waited for while no process that may have it is stopped: hundreds of processes that
/// begin at once on a machine with other work take it one after the other.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);
/// How much of the file is read at first: all of it while the first bank is enough.
const FIRST_READ_BYTES: usize = 16 << 10;
/// How often a file that is being written is read again.
const PEEKS: u32 = 3;

/// An open registry. Its locks go with the last descriptor of this open.
#[derive(Debug)]
pub(super) struct Registry {
    file: File,
    path: PathBuf,
    sockets: Sockets,
}

/// What the registry says, less the processes that are gone.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) members: Members,
    /// It has to be written again: a process is gone, or it was damaged.
    pub(super) changed: bool,
    /// Members that have an owner whom the registry does not know: it was damaged.
    pub(super) strangers: Vec<MemberIndex>,
}

impl Registry {
    /// Opens the registry of a UDP port of this network namespace.
    pub(super) fn open(in_folder: &Path, port: u16) -> Result<Registry, ShareError> {
        let name = folder::file_name(port);
        let folder = Folder::open(in_folder)?;
        let file = folder.file(&name)?;
        let path = in_folder.join(&name);
        Ok(Registry { file, path, sockets: Sockets::new(folder, name) })
    }

    /// Where the sockets of the process indices are.
    pub(super) fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The right to change the registry, or nothing if another process has it.
    pub(super) fn try_lock(&self) -> bool {
        lock::try_lock_byte(&self.file, lock::CHANGES).unwrap_or(false)
    }

    /// Waits for the right to change the registry.
    pub(super) fn lock(&self, patience: Duration) -> Result<(), ShareError> {
        let mut wait = Wait::new(patience);
        while !lock::try_lock_byte(&self.file, lock::CHANGES).map_err(self.failed("lock the registry"))? {
            if !wait.pause() {
                return Err(self.locked(wait.waited()));
            }
        }
        Ok(())
    }

    /// As [`lock`](Self::lock), for callers that cannot go on without the lock: they wait while the machine
    /// is busy, but not for a stopped process.
    pub(super) fn lock_patiently(&self) -> Result<(), ShareError> {
        let begun = system::now();
        loop {
            let refusal = match self.lock(LOOK_INTERVAL) {
                Err(refusal @ ShareError::Locked { .. }) => refusal,
                other => return other,
            };
            let waited = system::now().duration_since(begun);
            if matches!(refusal, ShareError::Locked { stopped: Some(_), .. }) || waited > BUSY_PATIENCE {
                return Err(self.locked(waited));
            }
        }
    }

    /// Why the lock was not to be had, as far as /proc tells.
    fn locked(&self, waited: Duration) -> ShareError {
        let own = system::process_id();
        let has_open = |pid: &u32| system::descriptors_of(*pid).iter().any(|(_, to)| *to == self.real_path());
        let others: Vec<u32> = system::processes_of(process::effective_uid())
            .into_iter()
            .filter(|pid| *pid != own && has_open(pid))
            .collect();
        let stopped = others.iter().copied().find(|pid| process::is_stopped(*pid));
        ShareError::Locked { registry: self.path.clone(), stopped, others: others.len(), waited }
    }

    /// The registry's path as /proc shows it.
    fn real_path(&self) -> PathBuf {
        system::real_path(&self.path)
    }

    /// Gives the right back.
    pub(super) fn unlock(&self) {
        // The kernel refuses this only for a descriptor that is none.
        let _ = lock::unlock_byte(&self.file, lock::CHANGES);
    }

    /// Takes a member index. False: it has an owner, or a process has reserved the process index.
    pub(super) fn claim(&self, member: MemberIndex) -> bool {
        let reserved = || {
            let byte = RESERVATIONS + u32::from(member.process());
            lock::is_byte_locked(&self.file, byte).unwrap_or(true)
        };
        if reserved() || !self.take(member) {
            return false;
        }
        // A process that reserved it meanwhile may not have seen that it is taken.
        let free = !reserved();
        if !free {
            self.release(member);
        }
        free
    }

    /// Takes a member index, reserved or not. False: it has an owner.
    pub(super) fn take(&self, member: MemberIndex) -> bool {
        lock::try_lock_byte(&self.file, lock_byte(member)).unwrap_or(false)
    }

    /// Keeps a process index from being claimed when its owner has gone.
    pub(super) fn reserve(&self, process: ProcessIndex) {
        // It fails only where the kernel has no such locks; then the file would not have been opened.
        let _ = lock::try_share_byte(&self.file, RESERVATIONS + u32::from(process));
    }

    /// Ends that.
    pub(super) fn end_reservation(&self, process: ProcessIndex) {
        let _ = lock::unlock_byte(&self.file, RESERVATIONS + u32::from(process));
    }

    /// Gives a member index back.
    pub(super) fn release(&self, member: MemberIndex) {
        let _ = lock::unlock_byte(&self.file, lock_byte(member));
    }

    /// Reads the registry, which is locked. A process without the lock of its member index has ended;
    /// its socket is removed. `own` are the caller's member indices, whose locks the caller does not see.
    pub(super) fn load(&self, own: &[MemberIndex]) -> Result<Loaded, ShareError> {
        let failed = || self.failed("read the registry");
        let mut live = living(&self.file).map_err(failed())?;
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
                // Which process index was given last is lost with the rest. Where to go on is any number but
                // always the same one.
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
        let strangers = MemberIndex::all().filter(|index| lives(*index) && !known.contains(index)).collect();
        Ok(Loaded { members, changed, strangers })
    }

    /// What the file says, read without the lock: the dead are in it. Nothing if it is damaged, or being
    /// written.
    pub(super) fn peek(&self) -> Option<Members> {
        (0..PEEKS).find_map(|_| record::decode(&self.read().ok()?))
    }

    /// The number of changes that the file says it has had, read without the lock and unchecked.
    pub(super) fn glance(&self) -> Option<u64> {
        let mut begin = [0; record::BEGIN_BYTES];
        self.file.read_exact_at(&mut begin, 0).ok()?;
        record::generation(&begin)
    }

    /// Whether another open file has the lock of a member.
    pub(super) fn is_taken(&self, member: MemberIndex) -> bool {
        // What cannot be asked is no proof of a death.
        lock::is_byte_locked(&self.file, lock_byte(member)).unwrap_or(true)
    }

    /// Writes the registry anew, as the next generation.
    pub(super) fn store(&self, members: &mut Members) -> Result<(), ShareError> {
        members.generation = members.generation.wrapping_add(1);
        let bytes = record::encode(members);
        let written = self.file.write_all_at(&bytes, 0).and_then(|()| self.file.set_len(bytes.len() as u64));
        written.map_err(self.failed("write the registry"))
    }

    /// All of the file, or as much as shows that it is too long.
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

    fn failed(&self, step: &'static str) -> impl Fn(io::Error) -> ShareError + use<> {
        let path = self.path.clone();
        move |source| ShareError::Os { step, path: Some(path.clone()), source }
    }
}

/// Where the lock of a member is.
fn lock_byte(member: MemberIndex) -> u32 {
    let number = u32::from(member.number());
    if member.bank() == 0 { number } else { OTHER_BANKS + number }
}

/// Whether another open file of a registry has the lock of each member, by number.
fn living(file: &File) -> io::Result<Vec<bool>> {
    let mut live = vec![false; BANKS * NUMBERS_OF_BANK];
    let (first, others) = live.split_at_mut(NUMBERS_OF_BANK);
    if let Some(first) = first.get_mut(usize::from(ProcessIndex::FIRST)..=usize::from(ProcessIndex::LAST)) {
        lock::locked_bytes(file, ProcessIndex::FIRST.into(), first)?;
    }
    lock::locked_bytes(file, OTHER_BANKS + NUMBERS_OF_BANK as u32, others)?;
    Ok(live)
}

/// Whether another open file of a registry has the lock of a member.
pub(super) fn is_member_alive(file: &File, member: MemberIndex) -> bool {
    lock::is_byte_locked(file, lock_byte(member)).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::super::members::Member;
    use super::*;

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

    /// The process that has the lock, but for this one: it sleeps until its standard input ends.
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
            Err(ShareError::Locked { stopped, others, .. }) => (stopped, others),
            other => panic!("{other:?}"),
        };
        // Until it has called exec it also has what this process has.
        while refusal() != (None, 1) {
            std::thread::yield_now();
        }
        // SAFETY: a signal to a child of this process that was not waited for.
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
        assert!(matches!(b.lock(Duration::ZERO), Err(ShareError::Locked { .. })));
        let mut loaded = a.load(&[]).unwrap();
        assert!(loaded.changed && loaded.strangers.is_empty());
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
            assert_eq!(rebuilt.strangers, [nth(7)]);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
