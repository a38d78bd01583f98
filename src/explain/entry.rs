//! A name that can be explained.

use serde::Serialize;

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExplainedKind {
    /// The status of a work completion.
    Status,
    /// An errno that a call returns or sets.
    Errno,
    /// An event of `ibv_get_async_event`.
    AsyncEvent,
    /// An event of `rdma_get_cm_event`.
    CmEvent,
    /// A counter of `pumice stat`.
    Counter,
    /// A kind of finding of `pumice check`.
    Check,
}

impl ExplainedKind {
    /// Returns the prefix that C gives names of this kind.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            ExplainedKind::Status => "IBV_WC_",
            ExplainedKind::AsyncEvent => "IBV_EVENT_",
            ExplainedKind::CmEvent => "RDMA_CM_EVENT_",
            ExplainedKind::Errno | ExplainedKind::Counter | ExplainedKind::Check => "",
        }
    }

    /// Returns the words in front of a number.
    pub(super) const fn description(self) -> &'static str {
        match self {
            ExplainedKind::Status => "status of a work completion,",
            ExplainedKind::Errno => "errno of a call,",
            ExplainedKind::AsyncEvent => "asynchronous event of ibv_get_async_event,",
            ExplainedKind::CmEvent => "event of rdma_get_cm_event,",
            ExplainedKind::Counter => "counter of `pumice stat`",
            ExplainedKind::Check => "finding of `pumice check`",
        }
    }

    /// Returns the headings of the causes and of what to look at.
    pub(super) const fn headings(self) -> [&'static str; 2] {
        match self {
            ExplainedKind::Check => ["Why it matters on real hardware", "Remedy"],
            _ => ["Usual causes", "What to look at"],
        }
    }

    /// Returns the heading of the list of all names.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            ExplainedKind::Status => "Statuses of work completions (IBV_WC_*)",
            ExplainedKind::Errno => "Errnos of calls",
            ExplainedKind::AsyncEvent => "Asynchronous events (IBV_EVENT_*)",
            ExplainedKind::CmEvent => "Events of the connection manager (RDMA_CM_EVENT_*)",
            ExplainedKind::Counter => "Counters of `pumice stat`",
            ExplainedKind::Check => "Findings of `pumice check`",
        }
    }
}

/// A name and its explanation. All texts are whole sentences.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct ExplainEntry {
    /// Name without the prefix of its kind.
    #[serde(skip)]
    pub(super) name: &'static str,
    /// Value of the name; counters have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<i32>,
    /// Meaning of the name.
    pub(super) meaning: &'static str,
    /// Usual causes, the most frequent first.
    pub(super) causes: &'static [&'static str],
    /// Places to look at.
    pub(super) look_at: &'static [&'static str],
}

impl ExplainEntry {
    /// Returns the name as C code has it.
    pub(super) fn full_name(&self, kind: ExplainedKind) -> String {
        format!("{}{}", kind.prefix(), self.name)
    }

    /// Returns the first sentence of the meaning.
    pub(super) fn first_sentence(&self) -> &'static str {
        self.meaning.split_inclusive(". ").next().map_or(self.meaning, str::trim_end)
    }
}
