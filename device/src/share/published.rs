//! What the processes of this user have counted in this network namespace, in a file that the counters below
//! /sys/class/infiniband are read from (the preload `libpumice_sysfs.so` reads it).
//!
//! Each process index has a record. The owner of the index goes on counting from the numbers in it, so
//! that the sum over all records never goes down when a process exits or is killed. The owner brings its
//! record up to date before it sleeps, while it polls once in [`INTERVAL_NS`], and when it leaves: a copy of
//! a few numbers and no system call, but one that would be seen in the time of each short message (4 % of an
//! 8-byte WRITE, measured).

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_transport::host::Counter;
use pumice_transport::wire::ProcessIndex;

use super::folder;
use super::system::{File, SharedMemory};
use crate::counters::Counters;

/// Words of a record; the preload has the same number.
const RECORD_WORDS: usize = 64;
const PROCESSES: usize = 256;
/// Time between two copies by a process that polls.
const INTERVAL_NS: u64 = 1_000_000;
const _: () = assert!(Counter::COUNT <= RECORD_WORDS, "a record has room for every counter");

/// The name of the file beside the registry of a UDP port; for processes with several devices, of the device
/// with this address. Another list of counters has another file.
pub(super) fn file_name(port: u16, address: Option<IpAddr>) -> String {
    let all = format!("{}-counted{}", folder::file_name(port), Counter::COUNT);
    address.map_or_else(|| all.clone(), |address| format!("{all}-{address}"))
}

/// The record of this process.
#[derive(Debug)]
pub(super) struct Published {
    memory: SharedMemory,
    process: ProcessIndex,
    /// What was counted before this process had the process index.
    before: [u64; Counter::COUNT],
    device: Option<Arc<Counters>>,
    /// What had been counted of those that nothing happens without, when the record was brought up to date
    /// last.
    seen: AtomicU64,
    next_ns: u64,
}

impl Published {
    /// The record of a process in the file.
    ///
    /// # Errors
    /// What the system says: then nothing is published.
    pub(super) fn open(file: &File, process: ProcessIndex) -> io::Result<Published> {
        let memory = SharedMemory::map(file, PROCESSES * RECORD_WORDS)?;
        let mut published = Published {
            memory,
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
        Ok(published)
    }

    fn record(&self) -> &[AtomicU64] {
        let start = usize::from(self.process) * RECORD_WORDS;
        self.memory.words().get(start..start + Counter::COUNT).unwrap_or_default()
    }

    /// The counters that are published.
    pub(super) fn observe(&mut self, counters: &Arc<Counters>) {
        self.device = Some(Arc::clone(counters));
    }

    /// Brings the record up to date, if that was not done just now.
    #[inline]
    pub(super) fn publish_now_and_then(&mut self, now_ns: u64) {
        if now_ns >= self.next_ns {
            self.next_ns = now_ns.saturating_add(INTERVAL_NS);
            self.publish();
        }
    }

    /// Brings the record up to date, if anything was sent, received or waited for since the last time.
    pub(super) fn publish(&self) {
        let Some(device) = &self.device else { return };
        let [sent, received, waited] =
            [Counter::TxBatches, Counter::RxBatches, Counter::Timeout].map(|each| device.value(each));
        let seen = sent.wrapping_add(received).wrapping_add(waited);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
            let mut published = Published::open(&open(), ProcessIndex::new(7)).unwrap();
            published.observe(&counters);
            counters.add(Counter::TxBytes, 100);
            published.publish();
            assert_eq!(read(7, Counter::TxBytes), 100 * (round - 1), "nothing was sent yet");
            counters.add(Counter::TxBatches, 1);
            published.publish();
            assert_eq!(read(7, Counter::TxBytes), 100 * round);
            counters.add_under_lock(Counter::RxBadIcrc, 5);
            // A process that is killed leaves what it published last.
            if left { drop(published) } else { std::mem::forget(published) }
        }
        assert_eq!(read(7, Counter::RxBadIcrc), 10, "what the killed one had not published is lost");
        assert_eq!(read(8, Counter::TxBytes), 0);
        fs::remove_file(&path).unwrap();
    }
}
