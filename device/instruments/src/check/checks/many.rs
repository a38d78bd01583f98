//! How often a slow way is gone before it is told.

/// Requests or calls.
pub(super) const MANY: u32 = 1000;
