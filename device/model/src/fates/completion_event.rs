//! The identity of an event of a completion channel, and what happens to it.

/// The fate of an event of a completion channel: how long it is delayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompletionEventFate {
    /// Additional time before the event comes, in ns.
    pub delay_ns: u64,
    /// Number of further completions for which the event waits.
    pub more: u32,
    /// The longest time that the event waits for them, in ns.
    pub within_ns: u64,
}

/// The identity of an event of a completion channel in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CompletionEventKey {
    /// The ordinal of the completion queue in its process, from 0.
    pub cq: u32,
    /// The ordinal of the event among those of the completion queue, from 1.
    pub nth: u64,
}
