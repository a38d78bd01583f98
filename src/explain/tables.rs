//! The tables of all kinds.

use super::entry::{ExplainEntry, ExplainedKind};
use super::{async_event, check, cm_event, counter, errno, status};

/// Returns all entries, kind by kind.
pub(super) fn tables() -> [(ExplainedKind, &'static [ExplainEntry]); 6] {
    [
        (ExplainedKind::Status, status::STATUSES),
        (ExplainedKind::Errno, errno::ERRNOS),
        (ExplainedKind::AsyncEvent, async_event::ASYNC_EVENTS),
        (ExplainedKind::CmEvent, cm_event::CM_EVENTS),
        (ExplainedKind::Counter, counter::COUNTERS),
        (ExplainedKind::Check, check::checks()),
    ]
}
