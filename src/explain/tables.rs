//! The tables of all kinds.

use super::entry::{Entry, EntryKind};
use super::{async_event, check, cm_event, counter, errno, status};

/// Everything that can be explained, kind by kind.
pub(super) fn tables() -> [(EntryKind, &'static [Entry]); 6] {
    [
        (EntryKind::Status, status::STATUSES),
        (EntryKind::Errno, errno::ERRNOS),
        (EntryKind::AsyncEvent, async_event::ASYNC_EVENTS),
        (EntryKind::CmEvent, cm_event::CM_EVENTS),
        (EntryKind::Counter, counter::COUNTERS),
        (EntryKind::Check, check::checks()),
    ]
}
