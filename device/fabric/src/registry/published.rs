//! The file of counters of this user's processes in this network namespace, which the counters below
//! /sys/class/infiniband are read from (the preload `libpumice_sysfs.so` reads it).
//!
//! Each process index has a record. The owner of the index goes on counting from the numbers in it, so that
//! the sum over all records never goes down when a process exits or is killed. The owner updates its record
//! before it sleeps, once in [`INTERVAL_NS`] while it polls, and when it leaves. An update copies a few
//! numbers without a system call, but would be visible in the time of each short message (4 % of an 8-byte
//! WRITE, measured).
//!
//! Behind the records of counters are those of conditions: the effect of a fault plan on the port of the
//! device in the process of that index. A condition counts while its process lives, which holds a lock on the
//! file for it. The last records say how many objects the process has ([`ObjectSummary`]), and count as long.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_model::counters::Counters;
use pumice_model::port::group::PortCondition;
use pumice_platform::limits::ObjectSummary;
use pumice_transport::host::Counter;
use pumice_transport::wire::ProcessIndex;

use crate::files::folder::{self, Folder};
use crate::files::lock;
use crate::members::error::SharingError;
use crate::members::process;
use crate::system;
use crate::system::{File, SharedMemory};

/// Number of words of a record; the preload has the same number.
const RECORD_WORDS: usize = 64;
const PROCESSES: usize = 256;
/// Index of the first word of the conditions. The preload has the same number.
const CONDITIONS: usize = PROCESSES * RECORD_WORDS;
/// Number of words of a condition: the bits of the port, when the device is back, the number of the process,
/// and a byte for each of the first indices of the GID table (`GidOrigins`).
const CONDITION_WORDS: usize = 4;
/// Index of the word that is 1 once the first condition was written.
const CONDITION_WRITTEN: usize = CONDITIONS + PROCESSES * CONDITION_WORDS;
/// Index of the first word of the numbers of objects. The preload has the same number.
const SUMMARIES: usize = CONDITION_WRITTEN + 1;
/// Number of words of a process's numbers of objects. The preload has the same number.
const SUMMARY_WORDS: usize = ObjectSummary::KINDS.len();
/// Bits of the first word of a condition: the port is down, its cable is out; then the lanes (8 bits) and the
/// rate of a lane (16 bits), 0 where they are those of the profile.
const DOWN: u64 = 1;
const CABLE_OUT: u64 = 2;
const NO_CARRIER: u64 = 4;
const LANES_SHIFT: u32 = 8;
const SPEED_SHIFT: u32 = 16;
/// Time between two updates by a process that polls, in nanoseconds.
const INTERVAL_NS: u64 = 1_000_000;
const _: () = assert!(Counter::COUNT <= RECORD_WORDS, "a record has room for every counter");

/// Part of the file name that comes before the number which tells a network namespace from an earlier one
/// with the same number.
const GENERATION: &str = "-generation";

/// Returns the name of the file beside the registry of a UDP port; for processes with several devices, of the
/// device with this address. Another list of counters has another file, and so has another network namespace,
/// though the kernel assigns the numbers of namespaces again.
pub(crate) fn file_name(port: u16, address: Option<IpAddr>) -> String {
    let generation =
        process::network_generation().map_or_else(String::new, |own| format!("{GENERATION}{own}"));
    let all = format!("{}-counted{}{generation}", folder::file_name(port), Counter::COUNT);
    address.map_or_else(|| all.clone(), |address| format!("{all}-{address}"))
}

/// Opens a file of this name, and removes those of earlier namespaces that had the number of this one.
///
/// # Errors
/// Fails as [`folder::open`] does.
pub(crate) fn open(folder: &Path, port: u16, address: Option<IpAddr>) -> Result<File, SharingError> {
    let name = file_name(port, address);
    if let Some(own) = process::network_generation().filter(|_| !system::exists(&folder.join(&name))) {
        let (folder, registry) = (Folder::open(folder)?, folder::file_name(port));
        let dead = folder.names().into_iter().filter(|name| is_of_another(name, &registry, &own));
        dead.for_each(|name| folder.remove(&name));
    }
    folder::open(folder, &name)
}

/// Reports whether a file belongs to a dead namespace that had the number of this one.
fn is_of_another(name: &str, registry: &str, own: &str) -> bool {
    let counted = name.strip_prefix(registry).and_then(|rest| rest.strip_prefix("-counted"));
    let generation = counted.and_then(|rest| rest.split_once(GENERATION)).map(|(_, generation)| generation);
    generation.is_some_and(|found| found.split('-').next() != Some(own))
}

/// The record of this process.
#[derive(Debug)]
pub(crate) struct Published {
    memory: SharedMemory,
    /// File that holds the lock on the condition, once one was written.
    file: Option<File>,
    has_condition: bool,
    is_device_removed: bool,
    process: ProcessIndex,
    /// Values that earlier owners of the process index had counted.
    before: [u64; Counter::COUNT],
    device: Option<Arc<Counters>>,
    /// Sum, at the last update, of the counters of packets sent, received and dropped, and of waits.
    seen: AtomicU64,
    next_ns: u64,
}

impl Published {
    /// Opens the record of a process in the file.
    ///
    /// # Errors
    /// Fails if the file cannot be extended or mapped; then nothing is published.
    pub(crate) fn open(file: File, process: ProcessIndex) -> io::Result<Published> {
        let memory = SharedMemory::map(&file, SUMMARIES + PROCESSES * SUMMARY_WORDS)?;
        let mut published = Published {
            memory,
            file: Some(file),
            has_condition: false,
            is_device_removed: false,
            process,
            before: [0; Counter::COUNT],
            device: None,
            seen: AtomicU64::new(0),
            next_ns: 0,
        };
        let found: Vec<u64> = published.record().iter().map(|word| word.load(Ordering::Relaxed)).collect();
        for (before, found) in published.before.iter_mut().zip(found) {
            *before = found;
        }
        published.set_condition([0, 0, u64::from(system::process_id()), 0]);
        published.set_summary(ObjectSummary::default());
        Ok(published)
    }

    /// Publishes the current number of objects of the process.
    pub(crate) fn count_objects(&mut self, summary: ObjectSummary) {
        self.hold_lock();
        self.set_summary(summary);
    }

    fn set_summary(&self, summary: ObjectSummary) {
        let start = SUMMARIES + usize::from(self.process) * SUMMARY_WORDS;
        let slots = self.memory.words().get(start..start + SUMMARY_WORDS).unwrap_or_default();
        for (slot, count) in slots.iter().zip(summary.0) {
            slot.store(count, Ordering::Relaxed);
        }
    }

    /// Takes the lock that marks this process's condition as valid. A condition without a lock belongs to a
    /// process that has gone.
    fn hold_lock(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| !self.has_condition) {
            self.has_condition = matches!(lock::try_lock(file, self.process), Ok(true));
        }
    }

    /// Publishes the current condition of the device's port.
    pub(crate) fn set_port_condition(&mut self, condition: &PortCondition, now_ns: u64) {
        self.hold_lock();
        let lanes = condition.width.map_or(0, |width| u64::from(width.lanes()));
        let speed = condition.speed.map_or(0, |speed| u64::from(speed as u32));
        let bits = if condition.is_down { DOWN } else { 0 }
            | if condition.is_cable_out { CABLE_OUT } else { 0 }
            | if condition.lacks_carrier { NO_CARRIER } else { 0 }
            | lanes << LANES_SHIFT
            | speed << SPEED_SHIFT;
        self.is_device_removed = condition.removed_for_ns.is_some();
        let back_ns = condition.removed_for_ns.map_or(0, |for_ns| now_ns.saturating_add(for_ns).max(1));
        let gids = u64::from_ne_bytes(condition.gid_origins);
        self.set_condition([bits, back_ns, u64::from(system::process_id()), gids]);
        if let Some(told) = self.memory.words().get(CONDITION_WRITTEN) {
            told.store(1, Ordering::Release);
        }
    }

    fn set_condition(&self, words: [u64; CONDITION_WORDS]) {
        let start = CONDITIONS + usize::from(self.process) * CONDITION_WORDS;
        let slots = self.memory.words().get(start..start + CONDITION_WORDS).unwrap_or_default();
        for (slot, word) in slots.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
    }

    fn record(&self) -> &[AtomicU64] {
        let start = usize::from(self.process) * RECORD_WORDS;
        self.memory.words().get(start..start + Counter::COUNT).unwrap_or_default()
    }

    /// Sets the counters that are published.
    pub(crate) fn observe(&mut self, counters: &Arc<Counters>) {
        self.device = Some(Arc::clone(counters));
    }

    /// Updates the record, if that was not done just now.
    #[inline]
    pub(crate) fn publish_at_intervals(&mut self, now_ns: u64) {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns.saturating_add(INTERVAL_NS);
            self.publish();
        }
    }

    /// Updates the record, if anything was sent, received or waited for since the last time.
    pub(crate) fn publish(&self) {
        let Some(device) = &self.device else { return };
        let [sent, received, waited, dropped] =
            [Counter::TxBatches, Counter::RxBatches, Counter::Timeout, Counter::LinkDropped]
                .map(|each| device.value(each));
        let seen = sent.wrapping_add(received).wrapping_add(waited).wrapping_add(dropped);
        if self.seen.swap(seen, Ordering::Relaxed) != seen {
            self.write();
        }
    }

    #[cold]
    fn write(&self) {
        let Some(device) = &self.device else { return };
        let values = device.snapshot().into_iter().map(|(_, value)| value);
        for ((word, before), value) in self.record().iter().zip(self.before).zip(values) {
            word.store(before.wrapping_add(value), Ordering::Relaxed);
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.write();
        self.set_summary(ObjectSummary::default());
        if self.is_device_removed {
            // The device stays away after the last context is closed: the process holds the lock from now on.
            std::mem::forget(self.file.take());
        } else {
            self.set_condition([0; CONDITION_WORDS]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use pumice_platform::link_settings::{Speed, Width};

    use super::*;

    #[test]
    fn the_counters_of_a_namespace_that_had_the_number_earlier_are_removed() {
        let path = std::env::temp_dir().join(format!("pumice-generations-{}", std::process::id()));
        let own = file_name(4791, None);
        let registry = folder::file_name(4791);
        let generation = process::network_generation();
        assert_eq!(own.contains(GENERATION), generation.is_some(), "{own}");
        let remaining = [
            registry.clone(),
            format!("{registry}1-counted9{GENERATION}b.1"),
            format!("{registry}-counted9"),
        ];
        let dead = [
            format!("{registry}-counted9{GENERATION}b.1"),
            format!("{registry}-counted9{GENERATION}b.1-::1"),
        ];
        for name in remaining.iter().chain(&dead) {
            folder::open(&path, name).unwrap();
        }
        open(&path, 4791, None).unwrap();
        open(&path, 4791, Some([127, 0, 0, 1].into())).unwrap();
        for name in remaining.iter().chain([&own]) {
            assert!(path.join(name).exists(), "{name}");
        }
        for name in &dead {
            assert_eq!(path.join(name).exists(), generation.is_none(), "{name}");
        }
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn an_index_goes_on_from_what_its_last_owner_had() {
        let path = std::env::temp_dir().join(format!("pumice-counted-{}", std::process::id()));
        let open = || {
            let mut options = fs::File::options();
            File::from(options.read(true).write(true).create(true).truncate(false).open(&path).unwrap())
        };
        let read = |process: usize, counter: Counter| {
            let bytes = fs::read(&path).unwrap();
            let at = 8 * (process * RECORD_WORDS + counter as usize);
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
        };
        for (round, left) in [(1, true), (2, false), (3, true)] {
            let counters = Arc::new(Counters::new());
            let mut published = Published::open(open(), ProcessIndex::new(7)).unwrap();
            published.observe(&counters);
            counters.add(Counter::TxBytes, 100);
            published.publish();
            assert_eq!(read(7, Counter::TxBytes), 100 * (round - 1), "nothing was sent yet");
            counters.add(Counter::TxBatches, 1);
            published.publish();
            assert_eq!(read(7, Counter::TxBytes), 100 * round);
            counters.add_under_lock(Counter::RxBadIcrc, 5);
            // A killed process leaves the values that it published last.
            if left { drop(published) } else { std::mem::forget(published) }
        }
        assert_eq!(read(7, Counter::RxBadIcrc), 10, "what the killed one had not published is lost");
        assert_eq!(read(8, Counter::TxBytes), 0);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_condition_is_told_while_its_process_lives() {
        let path = std::env::temp_dir().join(format!("pumice-condition-{}", std::process::id()));
        let open = || {
            let mut options = fs::File::options();
            File::from(options.read(true).write(true).create(true).truncate(false).open(&path).unwrap())
        };
        let words = |at: usize| {
            let bytes = fs::read(&path).unwrap();
            [0, 1, 2, 3].map(|word| u64::from_le_bytes(bytes[8 * (at + word)..][..8].try_into().unwrap()))
        };
        let (third, own) = (CONDITIONS + 3 * CONDITION_WORDS, u64::from(std::process::id()));
        let mut published = Published::open(open(), ProcessIndex::new(3)).unwrap();
        assert_eq!((words(third), words(CONDITION_WRITTEN - 3)[3]), ([0, 0, own, 0], 0));
        let slow = PortCondition { speed: Some(Speed::Edr), width: Width::new(2).ok(), ..Default::default() };
        published.set_port_condition(&PortCondition { is_down: true, ..slow }, 1_000);
        assert_eq!(words(third), [DOWN | 2 << 8 | 32 << 16, 0, own, 0]);
        assert_eq!(words(CONDITION_WRITTEN - 3)[3], 1);
        assert!(!lock::try_lock(&open(), ProcessIndex::new(3)).unwrap(), "its process lives");
        let gid_origins = [6, 0, 0, 0, 0, 1, 0, 0];
        published.set_port_condition(
            &PortCondition { is_cable_out: true, gid_origins, ..Default::default() },
            1_000,
        );
        assert_eq!(words(third), [CABLE_OUT, 0, own, u64::from_ne_bytes(gid_origins)]);
        published.set_port_condition(&PortCondition { lacks_carrier: true, ..Default::default() }, 1_000);
        assert_eq!(words(third), [NO_CARRIER, 0, own, 0]);
        let own_summary = SUMMARIES + 3 * SUMMARY_WORDS;
        published.count_objects(ObjectSummary([1, 2, 3, 4, 5]));
        assert_eq!(words(own_summary), [1, 2, 3, 4]);
        drop(published);
        assert_eq!((words(third), words(own_summary)), ([0; 4], [0; 4]));
        assert!(lock::try_lock(&open(), ProcessIndex::new(3)).unwrap());

        let mut published = Published::open(open(), ProcessIndex::new(4)).unwrap();
        published.set_port_condition(
            &PortCondition { removed_for_ns: Some(500), ..PortCondition::default() },
            1_000,
        );
        assert_eq!(words(third + CONDITION_WORDS), [0, 1_500, own, 0]);
        published.set_port_condition(
            &PortCondition { removed_for_ns: Some(u64::MAX), ..PortCondition::default() },
            1_000,
        );
        drop(published);
        assert_eq!(words(third + CONDITION_WORDS), [0, u64::MAX, own, 0], "it stays away");
        assert!(!lock::try_lock(&open(), ProcessIndex::new(4)).unwrap());
        fs::remove_file(&path).unwrap();
    }
}
