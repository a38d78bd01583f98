//! The progress of each process of a replay: words in a file that all of them read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::outside::files;

/// The name of the progress file.
pub const PROGRESS: &str = "progress";
/// Number of bytes for each process: how many of its points are done, and when the last one was.
const BYTES: usize = 16;
/// Number of reads until two are equal; a word that another process writes may be read half.
const READS: usize = 64;

/// The progress file.
pub(super) struct Progress {
    file: File,
    own: usize,
    processes: usize,
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(BYTES / 2).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
}

/// Returns the number of points that are done in all processes, from the bytes of the file.
pub fn points_done(bytes: &[u8]) -> u64 {
    words(bytes).skip(2).step_by(2).fold(0, u64::saturating_add)
}

/// The content of the progress file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ReplayProgress {
    /// True if nothing is held back any more in any process.
    pub(super) is_over: bool,
    /// Number of points done, by process.
    pub(super) done: Vec<u64>,
    /// The time at which the last point was done, in ns.
    pub(super) last_ns: u64,
}

impl Progress {
    /// Opens the file of a replay with this many processes, of which this is `own`.
    pub(super) fn open(folder: &Path, own: usize, processes: usize) -> io::Result<Progress> {
        let path = folder.join(PROGRESS);
        let file = files::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Progress { file, own, processes })
    }

    /// Records that this many points of this process are done, the last one now.
    pub(super) fn note(&self, done: u64, now_ns: u64) {
        let mut words = [0; BYTES];
        let (count, time) = words.split_at_mut(BYTES / 2);
        count.copy_from_slice(&done.to_le_bytes());
        time.copy_from_slice(&now_ns.to_le_bytes());
        // A failed write is ignored: other processes then wait in vain, for a named time.
        let _ = self.file.write_all_at(&words, (BYTES * (self.own + 1)) as u64);
    }

    /// Records that nothing is held back any more.
    pub(super) fn end(&self) {
        let _ = self.file.write_all_at(&1_u64.to_le_bytes(), 0);
    }

    pub(super) fn read(&self) -> ReplayProgress {
        let mut before = self.bytes();
        for _ in 0..READS {
            let now = self.bytes();
            if now == before {
                break;
            }
            before = now;
        }
        let mut words = words(&before);
        let mut latest = ReplayProgress { is_over: words.next() != Some(0), ..ReplayProgress::default() };
        words.next();
        while let (Some(done), Some(at_ns)) = (words.next(), words.next()) {
            latest.done.push(done);
            latest.last_ns = latest.last_ns.max(at_ns);
        }
        latest
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES * (self.processes + 1)];
        let mut read = 0;
        while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, read as u64) {
                // No process has written up to here yet.
                Ok(0) | Err(_) => break,
                Ok(count) => read += count,
            }
        }
        bytes
    }
}
