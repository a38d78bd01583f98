//! The file of a shared XRC domain: a head, a directory of targets, and a record for each in two copies.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pumice_model::port::group::SharedResources;
use pumice_platform::error::ResourceError;
use pumice_transport::wire::ProcessIndex;

use super::codec;
use super::record::TargetRecord;
use crate::files::wait::RetryBackoff;
use crate::files::{folder, lock};
use crate::members::process;
use crate::system::{self, File};

/// Number of targets of one domain.
const MAX_TARGETS: u32 = 4096;
/// Offset of the number that changes with the domain.
const CHANGE_AT: u64 = 0;
/// Offset of the number of entries of the directory that were ever used.
const USED_AT: u64 = 8;
const DIRECTORY_AT: u64 = 64;
const RECORDS_AT: u64 = 32_768;
/// Length up to which both copies of a record are side by side, to be read at once. A longer copy has only
/// its header there.
const SHORT_BYTES: usize = 1024;
/// Distance from one record to the next: two short copies, and two long ones.
const RECORD_BYTES: u64 = 2 * (SHORT_BYTES as u64 + codec::MAX_BYTES as u64);

/// First lock byte of records: 0 is the directory's, and those of processes follow.
const RECORD_LOCKS: u32 = 4096;
/// Number of attempts to lock a record, which is held for as long as a batch is executed.
const RECORD_TRIES: u32 = 400;
/// Time that opening and changing the directory waits.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of files of killed processes that are removed at a time.
const SWEPT_FILES: usize = 64;

/// Result of loading a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordCheck {
    /// The record is unchanged.
    Same,
    /// Another process changed the record, and it has been loaded.
    Changed,
    /// The record does not exist any more, or is damaged beyond repair.
    Removed,
}

/// An open domain of this process.
#[derive(Debug)]
pub struct DomainFile {
    file: File,
    path: PathBuf,
    /// Index of this process.
    process: ProcessIndex,
    /// Number that tells this open from all others that ever were.
    incarnation: u64,
    /// Process that opened the file.
    pid: u32,
    changes: AtomicU64,
    buffer: Mutex<Vec<u8>>,
}

/// The lock of a record.
#[derive(Debug)]
pub struct RecordLock<'a> {
    file: &'a File,
    byte: u32,
}

impl Drop for RecordLock<'_> {
    fn drop(&mut self) {
        // The kernel refuses this only for an invalid descriptor.
        let _ = lock::unlock_byte(self.file, self.byte);
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ResourceError {
    move |error| ResourceError::Os { what, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

impl DomainFile {
    /// Opens the file of the domain that the file `device`, `inode` names, and returns whether another
    /// process has it open.
    ///
    /// # Errors
    /// Fails if the folder or the file cannot be used, or if another process does not release the directory's
    /// lock.
    pub fn open(
        shared_resources: &SharedResources,
        device: u64,
        inode: u64,
    ) -> Result<(DomainFile, bool), ResourceError> {
        let opened = "open the XRC domain's shared file";
        let in_folder = shared_resources.folder.as_ref().map_err(|problem| ResourceError::busy(*problem))?;
        sweep_folder(shared_resources, in_folder);
        let name = format!("{}-xrcd-{device:x}-{inode:x}", shared_resources.name);
        let begun = system::now();
        loop {
            let file = folder::open(in_folder, &name)
                .map_err(|error| ResourceError::Os { what: opened, errno: error.errno() })?;
            let path = in_folder.join(&name);
            let domain = DomainFile {
                file,
                path,
                process: shared_resources.process,
                incarnation: incarnation(shared_resources.process),
                pid: system::process_id(),
                changes: AtomicU64::new(0),
                buffer: Mutex::new(Vec::new()),
            };
            let guard = domain.lock_directory()?;
            // The last process may have removed the file before this one had the lock.
            let still_there = domain.file.about().map_err(failed(opened))?.names > 0;
            if still_there {
                if !lock::try_lock(&domain.file, domain.process).map_err(failed(opened))? {
                    // Only a fork child of an earlier process with this index can hold the lock.
                    return Err(ResourceError::Os { what: opened, errno: libc::EBUSY });
                }
                let existed = domain.has_others();
                // What an earlier process with this index left belongs to no process.
                let mut live = domain.live();
                if let Some(own) = live.get_mut(usize::from(domain.process)) {
                    *own = false;
                }
                domain.sweep_records(&live);
                drop(guard);
                return Ok((domain, existed));
            }
            drop(guard);
            if system::now().duration_since(begun) > PATIENCE {
                return Err(ResourceError::Os { what: opened, errno: libc::ESTALE });
            }
        }
    }

    /// Returns the number that tells this process from all that have or had the domain.
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the index of this process.
    pub const fn process(&self) -> ProcessIndex {
        self.process
    }

    /// Reports whether another process has the domain open.
    pub fn has_others(&self) -> bool {
        lock::locked_processes(&self.file).is_ok_and(|live| live.contains(&true))
    }

    /// Reports whether a process has the domain open.
    pub fn is_open_in(&self, process: ProcessIndex) -> bool {
        let has_lock = || lock::is_byte_locked(&self.file, process.into()).unwrap_or(false);
        process == self.process || process.is_of_process() && has_lock()
    }

    /// Returns which processes have the domain open, by index.
    pub fn live(&self) -> [bool; 256] {
        // If the kernel does not answer, no process is declared dead.
        let mut live = lock::locked_processes(&self.file).unwrap_or([true; 256]);
        if let Some(own) = live.get_mut(usize::from(self.process)) {
            *own = true;
        }
        live
    }

    /// Returns the number that differs after each change of the domain that other processes should read.
    pub fn change(&self) -> u64 {
        self.read_u64(CHANGE_AT)
    }

    /// Changes that number, so that other processes read the domain again.
    pub fn note_change(&self) {
        let count = self.changes.fetch_add(1, Ordering::Relaxed);
        let number = self.incarnation.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // If the number cannot be written, the others find out by what is in the records.
        let _ = self.file.write_all_at(&number.to_le_bytes(), CHANGE_AT);
    }

    /// Returns the slot of a target.
    pub fn find(&self, qpn: u32) -> Option<u32> {
        let wanted = qpn.to_le_bytes();
        let directory = self.directory();
        let (entries, _) = directory.as_chunks::<4>();
        let slot = entries.iter().position(|entry| *entry == wanted).filter(|_| qpn != 0)?;
        u32::try_from(slot).ok()
    }

    /// Returns all targets, with their slots.
    pub fn targets(&self) -> Vec<(u32, u32)> {
        let directory = self.directory();
        let (entries, _) = directory.as_chunks::<4>();
        let numbers = entries.iter().map(|entry| u32::from_le_bytes(*entry));
        (0..).zip(numbers).filter(|&(_, qpn)| qpn != 0).collect()
    }

    /// Makes a target with this process registered, and returns its slot. `record` becomes that of the
    /// target.
    ///
    /// # Errors
    /// Fails if the domain is full, or if the file cannot be written.
    pub fn create(&self, record: &mut TargetRecord) -> Result<u32, ResourceError> {
        let writing = "write the XRC domain's shared file";
        let _guard = self.lock_directory()?;
        if self.find(record.qpn).is_some() || self.targets().len() >= MAX_TARGETS as usize {
            // Some records may belong to processes that are gone.
            self.sweep_records(&self.live());
        }
        if self.find(record.qpn).is_some() {
            return Err(ResourceError::busy("the number of the XRC target is one of another target"));
        }
        let directory = self.directory();
        let (entries, _) = directory.as_chunks::<4>();
        let free = entries.iter().position(|entry| *entry == [0; 4]);
        let slot = free.unwrap_or(entries.len()) as u32;
        if slot >= MAX_TARGETS {
            return Err(ResourceError::no_memory(format!(
                "an XRC domain of a file has {MAX_TARGETS} targets"
            )));
        }
        // The number begins anywhere, so that no process takes the record for an earlier one in this slot.
        self.note_change();
        record.sequence = self.change() >> 8;
        record.register(self.process, true);
        self.wipe(slot).map_err(failed(writing))?;
        self.store(slot, record).map_err(failed(writing))?;
        if free.is_none() {
            self.file.write_all_at(&(slot + 1).to_le_bytes(), USED_AT).map_err(failed(writing))?;
        }
        let at = DIRECTORY_AT + u64::from(slot) * 4;
        self.file.write_all_at(&record.qpn.to_le_bytes(), at).map_err(failed(writing))?;
        self.note_change();
        Ok(slot)
    }

    /// Removes a target whose lock the caller holds.
    pub fn remove(&self, slot: u32) {
        // The record first, which all processes read; a directory entry without a record is removed later.
        let _ = self.wipe(slot);
        let _ = self.file.write_all_at(&[0; 4], DIRECTORY_AT + u64::from(slot) * 4);
        self.note_change();
    }

    /// Locks a record. Returns `None` if another process does not release it.
    pub fn lock_record(&self, slot: u32) -> Option<RecordLock<'_>> {
        let at = RECORD_LOCKS + slot.min(MAX_TARGETS);
        for _ in 0..RECORD_TRIES {
            match lock::try_lock_byte(&self.file, at) {
                Ok(true) => return Some(RecordLock { file: &self.file, byte: at }),
                Ok(false) => system::idle(),
                Err(_) => return None,
            }
        }
        None
    }

    /// Loads a record unless `record` is the same already. The caller holds its lock.
    pub fn load(&self, slot: u32, record: &mut TargetRecord) -> RecordCheck {
        let qpn = record.qpn;
        let mut short = [0; 2 * SHORT_BYTES];
        self.read_into(record_at(slot), &mut short);
        let (first, second) = short.split_at(SHORT_BYTES);
        let sequence = |copy: &[u8]| codec::header(copy).map(|header| header.sequence);
        let newest = sequence(first).max(sequence(second));
        let Some(newest) = newest else { return RecordCheck::Removed };
        if newest == record.sequence {
            return RecordCheck::Same;
        }
        let mut order = [(0, first), (1, second)];
        if sequence(first) != Some(newest) {
            order.reverse();
        }
        // If the newest copy was not finished, the one before is whole.
        for (copy, bytes) in order {
            let Some(header) = codec::header(bytes) else { continue };
            let whole = if header.length_bytes <= SHORT_BYTES {
                codec::decode(bytes, record)
            } else {
                let mut long = bytes.get(..codec::HEADER_BYTES).unwrap_or_default().to_vec();
                long.extend(self.read(long_at(slot, copy), header.length_bytes - codec::HEADER_BYTES));
                codec::decode(&long, record)
            };
            if whole && record.qpn == qpn {
                return RecordCheck::Changed;
            }
        }
        record.qpn = qpn;
        RecordCheck::Removed
    }

    /// Stores a record over the older of its copies. The caller holds its lock.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn store(&self, slot: u32, record: &TargetRecord) -> io::Result<()> {
        let mut bytes = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        codec::encode(record, &mut bytes);
        let copy = record.sequence & 1;
        match bytes.split_at_checked(codec::HEADER_BYTES) {
            Some((header, body)) if bytes.len() > SHORT_BYTES => {
                self.file.write_all_at(body, long_at(slot, copy))?;
                self.file.write_all_at(header, short_at(slot, copy))
            }
            _ => self.file.write_all_at(&bytes, short_at(slot, copy)),
        }
    }

    /// Ends the registrations of processes that are gone, and removes targets without any. The caller holds
    /// the directory's lock, but none of a record.
    fn sweep_records(&self, live: &[bool; 256]) {
        for (slot, qpn) in self.targets() {
            let Some(_guard) = self.lock_record(slot) else { continue };
            let mut record = TargetRecord { qpn, ..TargetRecord::default() };
            if self.load(slot, &mut record) == RecordCheck::Removed {
                self.remove(slot);
            } else if record.forget_the_dead(live) {
                if record.is_unused() {
                    self.remove(slot);
                } else {
                    record.sequence += 1;
                    let _ = self.store(slot, &record);
                    self.note_change();
                }
            }
        }
    }

    /// Does what [`sweep_records`](Self::sweep_records) does, for processes that call it now and then. Does
    /// nothing if another process has the directory's lock.
    pub fn sweep(&self) {
        if lock::try_lock_byte(&self.file, lock::CHANGES).unwrap_or(false) {
            let _guard = RecordLock { file: &self.file, byte: 0 };
            self.sweep_records(&self.live());
        }
    }

    fn lock_directory(&self) -> Result<RecordLock<'_>, ResourceError> {
        let mut wait = RetryBackoff::new(PATIENCE);
        let what = "lock the XRC domain's shared file";
        while !lock::try_lock_byte(&self.file, lock::CHANGES).map_err(failed(what))? {
            if !wait.pause() {
                return Err(ResourceError::Os { what, errno: libc::EBUSY });
            }
        }
        Ok(RecordLock { file: &self.file, byte: 0 })
    }

    /// Removes the file if no other process has it open, and none works in its directory: the process exits
    /// without closing the domain. The file stays open for the rest of the exit.
    pub fn remove_if_last(&self) {
        if self.pid == system::process_id() && lock::try_lock_byte(&self.file, lock::CHANGES).unwrap_or(false)
        {
            let _guard = RecordLock { file: &self.file, byte: 0 };
            remove_unused(&self.file, &self.path);
        }
    }

    /// Returns the used part of the directory.
    fn directory(&self) -> Vec<u8> {
        let used = (self.read_u64(USED_AT) as u32).min(MAX_TARGETS);
        self.read(DIRECTORY_AT, used as usize * 4)
    }

    fn wipe(&self, slot: u32) -> io::Result<()> {
        let nothing = [0; codec::HEADER_BYTES];
        self.file.write_all_at(&nothing, short_at(slot, 0))?;
        self.file.write_all_at(&nothing, short_at(slot, 1))
    }

    /// Reads at most this many bytes: as many as there are.
    fn read(&self, at: u64, length_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; length_bytes];
        let filled = self.read_into(at, &mut bytes);
        bytes.truncate(filled);
        bytes
    }

    /// Reads as [`read`](Self::read) does, and returns how many bytes there were.
    fn read_into(&self, at: u64, bytes: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }

    fn read_u64(&self, at: u64) -> u64 {
        self.read(at, 8).first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl Drop for DomainFile {
    fn drop(&mut self) {
        // A fork child shares its parent's locks, so it would take itself for the last process.
        if self.pid != system::process_id() {
            return;
        }
        // The last process leaves nothing behind. A process that cannot take the lock leaves the removal to
        // the next.
        let Ok(_guard) = self.lock_directory() else { return };
        remove_unused(&self.file, &self.path);
    }
}

fn record_at(slot: u32) -> u64 {
    RECORDS_AT + u64::from(slot.min(MAX_TARGETS)) * RECORD_BYTES
}

fn short_at(slot: u32, copy: u64) -> u64 {
    record_at(slot) + (copy & 1) * SHORT_BYTES as u64
}

fn long_at(slot: u32, copy: u64) -> u64 {
    record_at(slot) + 2 * SHORT_BYTES as u64 + (copy & 1) * codec::MAX_BYTES as u64
}

/// Returns a number that no other open of a domain has: made of the process, its start, and a count.
fn incarnation(process: ProcessIndex) -> u64 {
    let pid = system::process_id();
    let parts = [
        u64::from(pid) << 8 | u64::from(process.value()),
        process::start_ticks(pid).unwrap_or(0),
        u64::from(process::pid_namespace()),
        system::next_number(),
    ];
    let mix = |sum: u64, part: u64| (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    parts.into_iter().fold(0x1234_5678_9abc_def1, mix) | 1
}

/// Removes a domain's file unless another process has it open. The caller holds the lock on its directory,
/// without which no process removes it: as long as it has a name, `path` is that. Afterwards the path may be
/// another file's.
fn remove_unused(file: &File, path: &Path) {
    let has_name = file.about().is_ok_and(|about| about.names > 0);
    if has_name && lock::locked_processes(file).is_ok_and(|live| !live.contains(&true)) {
        let _ = system::remove_file(path);
    }
}

/// Removes files of domains that no process has open, which killed processes left.
fn sweep_folder(shared_resources: &SharedResources, in_folder: &Path) {
    let Ok(names) = system::list_folder(in_folder) else { return };
    let stem = format!("{}-xrcd-", shared_resources.name);
    for name in names.into_iter().filter(|name| name.starts_with(&stem)).take(SWEPT_FILES) {
        let Ok(file) = folder::open(in_folder, &name) else { continue };
        if lock::try_lock_byte(&file, lock::CHANGES).unwrap_or(false) {
            remove_unused(&file, &in_folder.join(&name));
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
