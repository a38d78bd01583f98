//! The threshold for reporting slow ways.

/// Number of requests or calls that go a slow way before it is reported.
pub(super) const MANY: u32 = 1000;
