//! One thing that can be explained.

use serde::Serialize;

/// What kind of name it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EntryKind {
    /// Of a work completion.
    Status,
    /// That a call returns or sets.
    Errno,
    /// From `ibv_get_async_event`.
    AsyncEvent,
    /// From `rdma_get_cm_event`.
    CmEvent,
    /// Of `pumice stat`.
    Counter,
    /// What `pumice check` finds.
    Check,
}

impl EntryKind {
    /// What C calls names of this kind begin with.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            EntryKind::Status => "IBV_WC_",
            EntryKind::AsyncEvent => "IBV_EVENT_",
            EntryKind::CmEvent => "RDMA_CM_EVENT_",
            EntryKind::Errno | EntryKind::Counter | EntryKind::Check => "",
        }
    }

    /// In front of a number.
    pub(super) const fn description(self) -> &'static str {
        match self {
            EntryKind::Status => "status of a work completion,",
            EntryKind::Errno => "errno of a call,",
            EntryKind::AsyncEvent => "asynchronous event of ibv_get_async_event,",
            EntryKind::CmEvent => "event of rdma_get_cm_event,",
            EntryKind::Counter => "counter of `pumice stat`",
            EntryKind::Check => "finding of `pumice check`",
        }
    }

    /// Above its causes, and above what to look at.
    pub(super) const fn headings(self) -> [&'static str; 2] {
        match self {
            EntryKind::Check => ["Why it matters on real hardware", "Remedy"],
            _ => ["Usual causes", "What to look at"],
        }
    }

    /// Above the list of all.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            EntryKind::Status => "Statuses of work completions (IBV_WC_*)",
            EntryKind::Errno => "Errnos of calls",
            EntryKind::AsyncEvent => "Asynchronous events (IBV_EVENT_*)",
            EntryKind::CmEvent => "Events of the connection manager (RDMA_CM_EVENT_*)",
            EntryKind::Counter => "Counters of `pumice stat`",
            EntryKind::Check => "Findings of `pumice check`",
        }
    }
}

/// A name and what there is to say about it. All texts are whole sentences.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// Without the prefix of its kind.
    #[serde(skip)]
    pub(super) name: &'static str,
    /// Its value; counters have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<i32>,
    /// What it means.
    pub(super) meaning: &'static str,
    /// What usually causes it, the most frequent first.
    pub(super) causes: &'static [&'static str],
    /// Where to look.
    pub(super) look_at: &'static [&'static str],
}

impl Entry {
    /// The name as C code has it.
    pub(super) fn full_name(&self, kind: EntryKind) -> String {
        format!("{}{}", kind.prefix(), self.name)
    }

    /// The first sentence of the meaning.
    pub(super) fn first_sentence(&self) -> &'static str {
        self.meaning.split_inclusive(". ").next().map_or(self.meaning, str::trim_end)
    }
}
