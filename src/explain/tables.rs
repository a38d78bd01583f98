//! The tables of all kinds.

use super::entry::{Entry, Kind};
use super::{async_event, check, cm_event, counter, errno, status};

/// Everything that can be explained, kind by kind.
pub(super) fn tables() -> [(Kind, &'static [Entry]); 6] {
    [
        (Kind::Status, status::STATUSES),
        (Kind::Errno, errno::ERRNOS),
        (Kind::AsyncEvent, async_event::ASYNC_EVENTS),
        (Kind::CmEvent, cm_event::CM_EVENTS),
        (Kind::Counter, counter::COUNTERS),
        (Kind::Check, check::checks()),
    ]
}
