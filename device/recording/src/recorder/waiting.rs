//! Records that wait for the thread that writes them, the addresses of their packets, and the file of a
//! trace.
//!
//! Records that wait for the thread that writes them: as values, so that the data path encodes no bytes.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::hash::BuildHasherDefault;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use fnv::FnvHasher;
use pumice_platform::outside;

use crate::format::Record;

/// Access rights: only the owner reads and writes the file, because a trace shows what a program does, and
/// when.
const PRIVATE: u32 = 0o600;

/// Opens a file for writing that only this user may read, and creates it if it does not exist. Existing
/// contents stay.
///
/// # Errors
/// Fails if it cannot be opened, or if it is a symbolic link, not a regular file, or another user's.
pub fn create_private(path: &Path) -> io::Result<File> {
    // Opening a pipe without a reader must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = outside::files::options();
    options.read(true).write(true).create(true).truncate(false).mode(PRIVATE).custom_flags(flags);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => refused("it is a symbolic link, which is not followed: name the file itself"),
        _ => error,
    })?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(refused("it is no regular file: name a file"));
    }
    if about.uid() != outside::process::effective_user() {
        return Err(refused("the file is another user's: remove it, or name another one"));
    }
    if about.mode() & 0o7777 != PRIVATE {
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
    }
    Ok(file)
}

fn refused(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}

/// The way of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketPath {
    /// Ordinal of the queue pair.
    pub(super) qp: u32,
    /// The queue pair sent the packet.
    pub(super) is_out: bool,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
}

/// The ways that packets went last.
#[derive(Debug, Default)]
pub(super) struct LastPaths {
    /// Cached ways of the last packets sent and received: most packets go the same way as the one before.
    last: [Option<PacketPath>; 2],
    known: HashMap<(u32, bool), PacketPath, BuildHasherDefault<FnvHasher>>,
}

impl LastPaths {
    /// Reports whether the last packet of this direction went another way. If it did, [`LastPaths::note`] has
    /// to be called.
    #[inline(always)]
    pub(super) fn is_new(&self, packet_path: &PacketPath) -> bool {
        let [arrives, leaves] = &self.last;
        (if packet_path.is_out { leaves } else { arrives }).as_ref() != Some(packet_path)
    }

    /// Returns the record for the way of a packet, if the last packet of its queue pair went another way.
    pub(super) fn note(&mut self, packet_path: PacketPath) -> Option<Record<'static>> {
        let last = self.last.get_mut(usize::from(packet_path.is_out))?;
        if *last == Some(packet_path) {
            return None;
        }
        *last = Some(packet_path);
        let PacketPath { qp, is_out, from, to } = packet_path;
        let is_new = self.known.insert((qp, is_out), packet_path) != Some(packet_path);
        let record =
            if is_out { Record::SendsTo { qp, from, to } } else { Record::ReceivesFrom { qp, from, to } };
        is_new.then_some(record)
    }

    /// Handles the destruction of a queue pair.
    pub(super) fn forget(&mut self, qp: u32) {
        self.last = [None; 2];
        for is_out in [false, true] {
            self.known.remove(&(qp, is_out));
        }
    }
}

/// Largest memory of waiting records, in bytes; further records are lost, and counted.
const WAITING_BYTES: usize = 16 << 20;
/// Number of records that have room from the beginning, and after a time in which many waited.
const USUAL_RECORDS: usize = 1 << 13;

/// A record that waits, and the time at which it was made.
#[derive(Debug)]
pub(super) enum WaitingRecord {
    /// A record that borrows no text.
    Value(u64, Record<'static>),
    /// The number and the encoded fields of a record with texts.
    Emitted(u64, u8, Box<[u8]>),
}

impl WaitingRecord {
    /// Returns the time at which the record was made.
    pub(super) const fn at_ns(&self) -> u64 {
        match self {
            WaitingRecord::Value(at_ns, _) | WaitingRecord::Emitted(at_ns, ..) => *at_ns,
        }
    }
}

/// Records that wait, and the numbers of those that could not.
#[derive(Debug, Default)]
pub(super) struct QueuedRecords {
    pub(super) records: Vec<WaitingRecord>,
    /// Length of the encoded fields, in bytes.
    emitted_bytes: usize,
    last_paths: LastPaths,
    /// Number of records below which there is room for one more, and nothing else has to be recorded.
    open: usize,
    /// The thread that writes waits for something to do.
    pub(super) is_idle: bool,
    /// The file has reached its limit.
    is_full: bool,
    /// Writing has failed for good.
    has_failed: bool,
    /// Number of records left out because of the limit.
    pub(super) omitted: u64,
    /// Number of records lost because they came too fast, or could not be written.
    pub(super) lost: u64,
    /// Number of lost records that no record has reported yet.
    unreported: u64,
}

impl QueuedRecords {
    /// Reports whether one more record may wait; if not, counts it.
    #[inline]
    fn has_room(&mut self, at_ns: u64) -> bool {
        self.records.len() < self.open || self.makes_room(at_ns)
    }

    #[cold]
    #[inline(never)]
    fn makes_room(&mut self, at_ns: u64) -> bool {
        self.open = 0;
        let bytes = self.records.len() * size_of::<WaitingRecord>() + self.emitted_bytes;
        if self.has_failed || bytes >= WAITING_BYTES {
            self.lost += 1;
            self.unreported += 1;
            return false;
        }
        if self.is_full {
            self.omitted += 1;
            return false;
        }
        if self.unreported > 0 {
            let records = std::mem::take(&mut self.unreported);
            self.records.push(WaitingRecord::Value(at_ns, Record::Lost { records }));
        }
        self.open = WAITING_BYTES.saturating_sub(self.emitted_bytes).div_ceil(size_of::<WaitingRecord>());
        true
    }

    /// Sets the state of the file, as the thread knows it.
    pub(super) fn note_file(&mut self, is_full: bool, has_failed: bool) {
        self.is_full = is_full;
        self.has_failed |= has_failed;
        self.open = 0;
    }

    /// Queues a record. If it is a packet, its way is queued before it, if that is new.
    pub(super) fn put(&mut self, at_ns: u64, packet_path: Option<PacketPath>, record: Record<'static>) {
        if let Some(change) = packet_path.and_then(|packet_path| self.last_paths.note(packet_path))
            && self.has_room(at_ns)
        {
            self.records.push(WaitingRecord::Value(at_ns, change));
        }
        if self.has_room(at_ns) {
            self.records.push(WaitingRecord::Value(at_ns, record));
        }
    }

    /// Reports whether a record may be put behind the others as it is, without more memory.
    #[inline(always)]
    pub(super) fn takes_at_once(&self, packet_path: Option<&PacketPath>) -> bool {
        let count = self.records.len();
        count < self.open
            && count < self.records.capacity()
            && packet_path.is_none_or(|packet_path| !self.last_paths.is_new(packet_path))
    }

    /// Queues the encoded fields of a record.
    pub(super) fn put_emitted(&mut self, at_ns: u64, number: u8, fields: Vec<u8>) {
        if self.has_room(at_ns) {
            self.emitted_bytes += fields.len();
            self.open = 0;
            self.records.push(WaitingRecord::Emitted(at_ns, number, fields.into_boxed_slice()));
        }
    }

    /// Handles the destruction of a queue pair.
    pub(super) fn forget(&mut self, qp: u32) {
        self.last_paths.forget(qp);
    }

    /// Exchanges the waiting records for an empty list.
    pub(crate) fn swap(&mut self, other: &mut Vec<WaitingRecord>) {
        std::mem::swap(&mut self.records, other);
        self.emitted_bytes = 0;
    }
}

/// Returns a list with room for as many records as usually wait.
pub(crate) fn usual_list() -> Vec<WaitingRecord> {
    Vec::with_capacity(USUAL_RECORDS)
}

/// Empties a list, and frees memory beyond the usual.
pub(crate) fn reuse(list: &mut Vec<WaitingRecord>) {
    list.clear();
    if list.capacity() > 8 * USUAL_RECORDS {
        *list = usual_list();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_recorded_when_it_is_new() {
        let mut last_paths = LastPaths::default();
        let packet_path = |qp, is_out, to: u8| {
            let [from, to] = [1, to].map(|last| IpAddr::from([10, 0, 0, last]));
            PacketPath { qp, is_out, from, to }
        };
        assert!(matches!(last_paths.note(packet_path(1, true, 2)), Some(Record::SendsTo { qp: 1, .. })));
        assert!(last_paths.note(packet_path(1, true, 2)).is_none());
        assert!(matches!(
            last_paths.note(packet_path(1, false, 2)),
            Some(Record::ReceivesFrom { qp: 1, .. })
        ));
        assert!(last_paths.note(packet_path(2, true, 2)).is_some());
        assert!(
            last_paths.note(packet_path(1, true, 2)).is_none(),
            "another queue pair's packet was between them"
        );
        assert!(last_paths.note(packet_path(1, true, 3)).is_some());
        last_paths.forget(1);
        assert!(last_paths.note(packet_path(1, true, 3)).is_some());
        assert!(last_paths.note(packet_path(2, true, 2)).is_none());
    }

    #[test]
    fn what_has_no_room_is_lost_and_told_of_as_soon_as_there_is_room() {
        let mut queued = QueuedRecords::default();
        let room = WAITING_BYTES.div_ceil(size_of::<WaitingRecord>());
        for at_ns in 0..room as u64 + 5 {
            queued.put(at_ns, None, Record::CnpSent { qp: 1 });
        }
        assert_eq!((queued.records.len(), queued.lost), (room, 5));
        let mut taken = Vec::new();
        queued.swap(&mut taken);
        queued.put(7, None, Record::CnpSent { qp: 2 });
        let [lost, next] = queued.records.as_slice() else { panic!("{:?}", queued.records) };
        assert!(matches!(lost, WaitingRecord::Value(7, Record::Lost { records: 5 })), "{lost:?}");
        assert!(matches!(next, WaitingRecord::Value(7, Record::CnpSent { qp: 2 })), "{next:?}");
        // Texts count, too.
        queued.swap(&mut Vec::new());
        let text = 1 << 12;
        let most = WAITING_BYTES.div_ceil(size_of::<WaitingRecord>() + text);
        for _ in 0..most + 3 {
            queued.put_emitted(8, 33, vec![0; text]);
        }
        assert_eq!((queued.records.len(), queued.lost), (most, 8));
    }
}
