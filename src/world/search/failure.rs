//! A failure that a search found.

use std::path::PathBuf;

use super::super::outcome::RunOutcome;

/// A failure: runs that ended alike.
#[derive(Debug)]
pub(super) struct Failure {
    /// How they ended.
    pub(super) end: String,
    /// Their seeds, in order.
    pub(super) seeds: Vec<u64>,
    pub(super) first: RunOutcome,
    /// Of so many runs that were to confirm it, it came again in so many.
    pub(super) confirmed: (u32, u32),
    /// The departures from the plain order that it needs, in words.
    pub(super) needs: Vec<String>,
    /// The recording of the reduced run.
    pub(super) recording: Option<PathBuf>,
}
