//! The senders to queue pairs: each process of a replay lists its queue pairs in the folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::schedule::{RequestReceiver, Sender};
use crate::ordinal::Ordinal;
use crate::outside::files;

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
