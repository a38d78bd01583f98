//! The points that the running thread may pass without a stop.

/// The points that the running thread may pass without a stop, and the conditions under which they were
/// counted.
#[derive(Debug, Default)]
pub(crate) struct PointBudget {
    pub(crate) count: u32,
    /// At each of them, other threads could continue as well.
    pub(crate) has_choice: bool,
    /// At each of them, threads with idle polls are passed over.
    pub(crate) skips_idle_threads: bool,
}
