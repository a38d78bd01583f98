//! Records that wait for the thread that writes them: as values, so that the data path makes no bytes.

use pumice_traces::format::Record;

use super::ways::{Way, Ways};

/// Memory of what waits, at most; beyond that records are lost, and counted.
const WAITING_BYTES: usize = 16 << 20;
/// Records that have room from the beginning, and after a time in which many waited.
const USUAL_RECORDS: usize = 1 << 13;

/// A record that waits, and when it was made.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A record that borrows no text.
    Value(u64, Record<'static>),
    /// The number and the fields of another one.
    Emitted(u64, u8, Box<[u8]>),
}

impl Waiting {
    /// When it was made.
    pub(super) const fn at_ns(&self) -> u64 {
        match self {
            Waiting::Value(at_ns, _) | Waiting::Emitted(at_ns, ..) => *at_ns,
        }
    }
}

/// What waits, and what could not.
#[derive(Debug, Default)]
pub(super) struct Queued {
    pub(super) records: Vec<Waiting>,
    /// Bytes of fields that were emitted.
    emitted_bytes: usize,
    ways: Ways,
    /// As long as fewer records wait, there is room for one more, and nothing else is to be said.
    open: usize,
    /// The thread that writes waits for something to do.
    pub(super) is_idle: bool,
    /// The file has reached its limit.
    is_full: bool,
    /// Nothing can be written any more.
    has_failed: bool,
    /// Left out because of the limit.
    pub(super) omitted: u64,
    /// Lost because they came too fast, or could not be written.
    pub(super) lost: u64,
    /// Of these, those that no record has told of yet.
    untold: u64,
}

impl Queued {
    /// Whether one more record may wait; if not, it is counted.
    #[inline]
    fn has_room(&mut self, at_ns: u64) -> bool {
        self.records.len() < self.open || self.makes_room(at_ns)
    }

    #[cold]
    #[inline(never)]
    fn makes_room(&mut self, at_ns: u64) -> bool {
        self.open = 0;
        let bytes = self.records.len() * size_of::<Waiting>() + self.emitted_bytes;
        if self.has_failed || bytes >= WAITING_BYTES {
            self.lost += 1;
            self.untold += 1;
            return false;
        }
        if self.is_full {
            self.omitted += 1;
            return false;
        }
        if self.untold > 0 {
            let records = std::mem::take(&mut self.untold);
            self.records.push(Waiting::Value(at_ns, Record::Lost { records }));
        }
        self.open = WAITING_BYTES.saturating_sub(self.emitted_bytes).div_ceil(size_of::<Waiting>());
        true
    }

    /// What the thread knows of the file.
    pub(super) fn note_file(&mut self, is_full: bool, has_failed: bool) {
        self.is_full = is_full;
        self.has_failed |= has_failed;
        self.open = 0;
    }

    /// A record; if it is a packet, the way comes before it, if that is new.
    pub(super) fn put(&mut self, at_ns: u64, way: Option<Way>, record: Record<'static>) {
        if let Some(change) = way.and_then(|way| self.ways.note(way))
            && self.has_room(at_ns)
        {
            self.records.push(Waiting::Value(at_ns, change));
        }
        if self.has_room(at_ns) {
            self.records.push(Waiting::Value(at_ns, record));
        }
    }

    /// Whether a record may be put behind the others as it is, without more memory.
    #[inline(always)]
    pub(super) fn takes_at_once(&self, way: Option<&Way>) -> bool {
        let count = self.records.len();
        count < self.open && count < self.records.capacity() && way.is_none_or(|way| !self.ways.is_new(way))
    }

    /// The fields of a record.
    pub(super) fn put_emitted(&mut self, at_ns: u64, number: u8, fields: Vec<u8>) {
        if self.has_room(at_ns) {
            self.emitted_bytes += fields.len();
            self.open = 0;
            self.records.push(Waiting::Emitted(at_ns, number, fields.into_boxed_slice()));
        }
    }

    /// A queue pair was destroyed.
    pub(super) fn forget(&mut self, qp: u32) {
        self.ways.forget(qp);
    }

    /// Gives away what waits, for an empty list.
    pub(crate) fn swap(&mut self, other: &mut Vec<Waiting>) {
        std::mem::swap(&mut self.records, other);
        self.emitted_bytes = 0;
    }
}

/// A list with room for as many as usually wait.
pub(crate) fn usual_list() -> Vec<Waiting> {
    Vec::with_capacity(USUAL_RECORDS)
}

/// Empties a list, and gives memory back that was needed once.
pub(crate) fn reuse(list: &mut Vec<Waiting>) {
    list.clear();
    if list.capacity() > 8 * USUAL_RECORDS {
        *list = usual_list();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_lost_and_told_of_as_soon_as_there_is_room() {
        let mut queued = Queued::default();
        let room = WAITING_BYTES.div_ceil(size_of::<Waiting>());
        for at_ns in 0..room as u64 + 5 {
            queued.put(at_ns, None, Record::CnpSent { qp: 1 });
        }
        assert_eq!((queued.records.len(), queued.lost), (room, 5));
        let mut taken = Vec::new();
        queued.swap(&mut taken);
        queued.put(7, None, Record::CnpSent { qp: 2 });
        let [lost, next] = queued.records.as_slice() else { panic!("{:?}", queued.records) };
        assert!(matches!(lost, Waiting::Value(7, Record::Lost { records: 5 })), "{lost:?}");
        assert!(matches!(next, Waiting::Value(7, Record::CnpSent { qp: 2 })), "{next:?}");
        // Texts count, too.
        queued.swap(&mut Vec::new());
        let text = 1 << 12;
        let most = WAITING_BYTES.div_ceil(size_of::<Waiting>() + text);
        for _ in 0..most + 3 {
            queued.put_emitted(8, 33, vec![0; text]);
        }
        assert_eq!((queued.records.len(), queued.lost), (most, 8));
    }
}
