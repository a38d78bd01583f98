//! What the thread that runs was told of points.

/// What was said of the points of the thread that runs.
#[derive(Debug, Default)]
pub(crate) struct LentPoints {
    pub(crate) count: u32,
    /// At each of them, other threads could go on as well.
    pub(crate) has_choice: bool,
    /// At each of them, threads that look in vain are passed over.
    pub(crate) passes_over: bool,
}
