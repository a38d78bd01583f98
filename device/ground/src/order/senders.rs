//! Who sends to a queue pair: each process of a replay notes its queue pairs in the folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::schedule::{Sender, Stream};
use crate::ordinal::Ordinal;
use crate::outside::files;

/// The extension of the files in which processes note their queue pairs.
const QUEUE_PAIRS: &str = "qps";
/// Bytes of such a file that are looked at.
const MAX_BYTES: u64 = 4 << 20;
/// Files that are looked at.
const MAX_FILES: usize = 4096;

/// The senders that are known.
pub(super) struct Senders {
    folder: PathBuf,
    known: HashMap<Stream, Option<Sender>>,
}

impl Senders {
    pub(super) fn new(folder: &Path) -> Senders {
        Senders { folder: folder.to_owned(), known: HashMap::new() }
    }

    /// Who sends to this queue pair; none if no process of the replay is known to.
    pub(super) fn of(&mut self, stream: Stream) -> Option<Sender> {
        if let Some(known) = self.known.get(&stream) {
            return *known;
        }
        let found = self.look(stream);
        // A sender notes its queue pair before it can send: one look is enough.
        self.known.insert(stream, found);
        found
    }

    fn look(&self, stream: Stream) -> Option<Sender> {
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
            // "17.qps", and "17-mlx5_1.qps" of another device.
            let stem = path.file_stem()?.to_str()?;
            let process = stem.split('-').next()?;
            let index = text_of(&self.folder.join(format!("{process}.is")))?.trim_end().parse().ok()?;
            let Ordinal(ordinal) = ordinal;
            return Some((index, ordinal));
        }
        None
    }
}

/// The text of a file that processes of this user have written.
pub(super) fn text_of(path: &Path) -> Option<String> {
    text_within(path, MAX_BYTES)
}

/// The same with at most so many bytes.
pub(super) fn text_within(path: &Path, most: u64) -> Option<String> {
    use std::io::Read as _;
    let file = files::open(path).ok().filter(|file| file.metadata().is_ok_and(|about| about.is_file()))?;
    let mut text = String::new();
    file.take(most.saturating_add(1)).read_to_string(&mut text).ok()?;
    (text.len() as u64 <= most).then_some(text)
}
