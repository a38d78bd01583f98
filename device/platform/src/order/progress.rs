//! The progress of each process of a replay, and the senders to queue pairs.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::schedule::{RequestReceiver, Sender};
use crate::ordinal::Ordinal;
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

/// The extension of the files in which processes list their queue pairs.
const QUEUE_PAIRS: &str = "qps";
/// Most bytes of such a file that are read.
const MAX_BYTES: u64 = 4 << 20;
/// Most files that are read.
const MAX_FILES: usize = 4096;

/// The senders that are known.
pub(super) struct Senders {
    folder: PathBuf,
    known: HashMap<RequestReceiver, Option<Sender>>,
}

impl Senders {
    pub(super) fn new(folder: &Path) -> Senders {
        Senders { folder: folder.to_owned(), known: HashMap::new() }
    }

    /// Returns the sender to this queue pair; `None` if no process of the replay is known to send to it.
    pub(super) fn of(&mut self, stream: RequestReceiver) -> Option<Sender> {
        if let Some(known) = self.known.get(&stream) {
            return *known;
        }
        let found = self.look(stream);
        // The result is cached, because a sender lists its queue pair before it can send: one search is
        // enough.
        self.known.insert(stream, found);
        found
    }

    fn look(&self, stream: RequestReceiver) -> Option<Sender> {
        let entries = files::list(&self.folder).ok()?;
        let wanted = format!(" {} {}", stream.address, stream.qpn);
        for path in entries.take(MAX_FILES).filter_map(|entry| Some(entry.ok()?.path())) {
            if path.extension().is_none_or(|extension| extension != QUEUE_PAIRS) {
                continue;
            }
            let Some(text) = text_of(&path) else { continue };
            let line =
                text.lines().rev().find(|line| line.starts_with("connected ") && line.ends_with(&wanted));
            let Some(ordinal) = line.and_then(|line| line.split(' ').nth(1)?.parse().ok()) else { continue };
            // File names are "17.qps", and "17-mlx5_1.qps" of another device.
            let stem = path.file_stem()?.to_str()?;
            let process = stem.split('-').next()?;
            let index = text_of(&self.folder.join(format!("{process}.is")))?.trim_end().parse().ok()?;
            let Ordinal(ordinal) = ordinal;
            return Some((index, ordinal));
        }
        None
    }
}

/// Returns the text of a file that processes of this user have written.
pub(super) fn text_of(path: &Path) -> Option<String> {
    text_within(path, MAX_BYTES)
}

/// Returns the text of a file with at most `most` bytes.
pub(super) fn text_within(path: &Path, most: u64) -> Option<String> {
    use std::io::Read as _;
    let file = files::open(path).ok().filter(|file| file.metadata().is_ok_and(|about| about.is_file()))?;
    let mut text = String::new();
    file.take(most.saturating_add(1)).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= most).then_some(text)
}
